"""The planner's page as its user meets it: clicks, drags and keys in a browser, and the numbers next to the command's.

usage: test_planner.py KVCAST [unittest arguments]
Exits with 77, which ctest takes as skipped, where there is no Chromium.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

import chromium
from server import Server

TOOL = None
# Short prompts on one small trace, so that the first results come at once.
QUICK = {'prompt': '4096', 'decode': '64', 'traces': 'needle', 'policies': [
    {'name': 'full', 'set': {}}, {'name': 'quest', 'set': {'budget': '512'}}, {'name': 'freekv', 'set': {'budget': '1024', 'sink': '64', 'recent': '64'}}], 'focus': 2}


def address(server, **state):
    return server.url + '#' + urllib.parse.quote(json.dumps(QUICK | state))


class PlannerCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TOOL)
        cls.browser = chromium.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.server.__exit__()

    def open(self, width=1400, height=1000, dark=False, **state):
        page = self.browser.open(address(self.server, **state), width, height, dark)
        self.addCleanup(page.close)
        return page

    def box(self, page, selector):
        return page.evaluate(f'(() => {{ const n = document.querySelector({json.dumps(selector)}); n.scrollIntoView({{block: "center"}}); const r = n.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; }})()')

    def mouse(self, page, kind, x, y, **more):
        page.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left' if kind != 'mouseMoved' or more.get('buttons') else 'none', clickCount=1, **more)

    def click(self, page, selector):
        left, top, width, height = self.box(page, selector)
        for kind in ('mousePressed', 'mouseReleased'):
            self.mouse(page, kind, left + width / 2, top + height / 2)

    def drag(self, page, selector, start, end):
        """From one share of the width to another, half-way down."""
        left, top, width, height = self.box(page, selector)
        y = top + height / 2
        self.mouse(page, 'mouseMoved', left + start * width, y)
        self.mouse(page, 'mousePressed', left + start * width, y)
        for i in range(1, 6):
            self.mouse(page, 'mouseMoved', left + (start + (end - start) * i / 5) * width, y, buttons=1)
        self.mouse(page, 'mouseReleased', left + end * width, y)

    def press(self, page, key):
        code = {'ArrowRight': 39, 'ArrowLeft': 37, 'Enter': 13}[key]
        for kind in ('keyDown', 'keyUp'):
            text = {'text': '\r'} if key == 'Enter' and kind == 'keyDown' else {}
            page.call('Input.dispatchKeyEvent', type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def write(self, page, selector, text):
        """Replaces what a field holds, as a user does."""
        page.evaluate(f'(() => {{ const n = document.querySelector({json.dumps(selector)}); n.scrollIntoView({{block: "center"}}); n.focus(); n.select(); }})()')
        page.call('Input.insertText', text=text)
        self.press(page, 'Enter')

    def settle(self, page, condition='true'):
        """Waits until nothing is being simulated any more and the condition holds."""
        page.wait(f'!simulation.running && !comparison.running && ({condition})')

    def cell(self, page, row, path):
        """The first line of a table's cell, as it is shown."""
        return page.evaluate(f'document.querySelectorAll("#results tbody tr")[{row}].querySelector("[data-path=\'{path}\']").firstChild.textContent')

    def texts(self, page, figure, mark):
        return page.evaluate(f"[...document.querySelectorAll('#plot-{figure} g.{mark} text')].map((t) => t.textContent)")

    def pixels(self, page, figure, mark, shape='path'):
        """Boxes of marks relative to their plot: [left, right, top, bottom]."""
        return page.evaluate(f"((plot) => {{ const p = plot.getBoundingClientRect(); return [...plot.querySelectorAll('g.{mark} > {shape}')].map((m) => {{ const r = m.getBoundingClientRect(); return [r.left - p.left, r.right - p.left, r.top - p.top, r.bottom - p.top]; }}); }})(document.getElementById('plot-{figure}'))")

    def printed(self, page, yaml, *words):
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            file.write(page.evaluate(yaml))
            file.flush()
            done = subprocess.run([TOOL, words[0], file.name, *words[1:]], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

    def test_bars_have_the_colours_that_a_report_gives_the_policies(self):
        page = self.open(policies=QUICK['policies'] + [{'name': 'quest', 'set': {'budget': '1024'}}])
        self.settle(page)
        palette = json.loads((pathlib.Path(__file__).parents[2] / 'reports' / 'palette.json').read_text())['policies']
        fills = page.evaluate("[...document.querySelectorAll('#plot-throughput g.bars > path')].map((b) => b.getAttribute('fill'))")
        self.assertEqual(fills[:3], [palette[name]['color'] for name in ('full', 'quest', 'freekv')])
        # Quest stands there again, in a shade of its own: 0x36, 0x6b and 0xc4, each by 0.3 of the way to 255.
        self.assertEqual(fills[3], '#7297d6')

    def test_first_sight(self):
        page = self.open()
        self.assertEqual([c for c in page.complaints() if not c.startswith('asks for ' + self.server.url)], [])
        self.assertIn('freekv, budget 1024: ', page.evaluate("document.getElementById('summary').textContent"))
        for figure in ('throughput', 'score', 'memory'):
            self.assertEqual(self.texts(page, figure, 'row_labels'), ['full', 'quest, budget 512', 'freekv, budget 1024'])
        bars = self.pixels(page, 'throughput', 'bars')
        shown = [float(self.cell(page, i, 'decode.tokens_per_s').replace(',', '')) for i in range(3)]
        widths = [right - left for left, right, _, _ in bars]
        for width, value in zip(widths, shown):  # bars from zero on one scale
            self.assertAlmostEqual(width / widths[0], value / shown[0], delta=0.02)
        self.assertIn('Why does freekv', page.evaluate("document.querySelector('#figure-why h2').textContent"))
        self.assertTrue(self.pixels(page, 'break_even', 'dots'))

    def test_the_page_and_the_command_give_the_same_numbers(self):
        page = self.open(changes={'gpu.hbm_bandwidth': '3 TB/s', 'link.h2d_bandwidth': 'x0.5'})
        run = self.printed(page, 'runYaml()', 'run', '--json')
        held = page.evaluate('JSON.parse(JSON.stringify(rows[state.focus].result))')
        for part in ('decode', 'prefill', 'memory', 'intervals', 'score', 'config'):
            self.assertEqual(held[part], run[part])
        self.assertEqual(self.cell(page, 2, 'decode.tokens_per_s'), page.evaluate(f"formatNumber({run['decode']['tokens_per_s']!r}, ',.4~r')"))
        answers = self.printed(page, 'planYaml()', 'plan', '--json')['answers']
        self.assertIn(answers[0]['text'], page.evaluate("document.querySelector('#figure-why .note').textContent"))
        self.assertIn(answers[1]['text'], page.evaluate("document.querySelector('#figure-break_even .note').textContent"))

    def test_a_slider_of_the_machine_is_dragged(self):
        page = self.open()
        before = self.cell(page, 0, 'decode.tokens_per_s')
        self.click(page, '#machine-gpu > summary')
        slider = '#machine-gpu-hbm_bandwidth-slider'
        self.drag(page, slider, 0.5, 0.67)  # the middle is a factor of 1, the end 8
        self.settle(page, f"document.querySelectorAll('#results tbody tr')[0].querySelector('[data-path]').firstChild.textContent !== {json.dumps(before)}")
        factor = float(page.evaluate("state.changes['gpu.hbm_bandwidth']").removeprefix('x'))
        self.assertTrue(1.5 < factor < 3, factor)
        self.assertEqual(page.evaluate("document.getElementById('machine-gpu-hbm_bandwidth').value"), f'x{factor:g}')
        result = self.printed(page, 'runYaml()', 'run', '--json')
        self.assertEqual(next(n['value'] for n in result['rests_on'] if n['what'].endswith('gpu.hbm_bandwidth')), 3.35e12 * factor)
        self.assertIn('in the profile 3.35 TB/s', page.evaluate("document.querySelector('[data-key=\"gpu.hbm_bandwidth\"] .setting-note').textContent"))
        self.click(page, '[data-key="gpu.hbm_bandwidth"] button')
        self.settle(page, f"document.querySelectorAll('#results tbody tr')[0].querySelector('[data-path]').firstChild.textContent === {json.dumps(before)}")

    def test_keys_move_a_slider_and_fields_take_values(self):
        page = self.open()
        page.evaluate("document.getElementById('batch-slider').focus()")
        self.press(page, 'ArrowRight')
        self.settle(page, "state.batch === '5'")
        self.assertEqual(page.evaluate("document.getElementById('batch').value"), '5')
        self.write(page, '#batch', '16')
        self.settle(page, "rows[0].result.config.workload.batch === 16")
        self.write(page, '#batch', 'many')
        self.settle(page, "!document.getElementById('refused').hidden")
        self.assertIn('batch', page.evaluate("document.getElementById('refused').textContent"))
        self.write(page, '#batch', '4')
        self.settle(page, "document.getElementById('refused').hidden")

    def test_policies_are_added_chosen_and_removed(self):
        page = self.open()
        self.click(page, '#add-policy')
        self.settle(page, 'rows.length === 4 && rows[3].result')
        self.assertEqual(page.evaluate("document.querySelectorAll('#results tbody tr')[3].querySelector('th').textContent"), 'snapkv, budget 2048')
        self.click(page, '#focus-1')
        self.settle(page)
        self.assertIn('quest, budget 512', page.evaluate("document.querySelector('#figure-timeline h2').textContent"))
        self.assertIn('Why does quest', page.evaluate("document.querySelector('#figure-why h2').textContent"))
        self.click(page, '[aria-label="Remove snapkv"]')
        self.settle(page, 'rows.length === 3')

    def test_the_timeline_shows_every_lane_and_zooms_where_it_is_dragged(self):
        page = self.open()
        lanes = page.evaluate('[...new Set(rows[state.focus].result.timeline.map((s) => s.lane))]')
        self.assertGreater(len(lanes), 3)
        self.assertEqual(self.texts(page, 'timeline', 'lane_labels'), lanes)
        plot = page.evaluate("(() => { const r = document.getElementById('plot-timeline').getBoundingClientRect(); return [r.width, r.height]; })()")
        bars = self.pixels(page, 'timeline', 'bars')
        self.assertTrue(all(0 <= left and right <= plot[0] + 1 and 0 <= top and bottom <= plot[1] for left, right, top, bottom in bars))
        self.assertEqual(len({round(top) for _, _, top, _ in bars}), len(lanes))
        view = "figures.get('timeline').view"
        whole = page.evaluate(view + ".scale('x').domain()")
        surface = '#plot-timeline g.surface path'
        self.drag(page, surface, 0.5, 0.75)
        zoomed = page.evaluate(view + ".scale('x').domain()")
        for at, share in zip(zoomed, (0.5, 0.75)):
            self.assertAlmostEqual(at / whole[1], share, delta=0.01)
        left, top, width, height = self.box(page, surface)
        for count in (1, 2):
            for kind in ('mousePressed', 'mouseReleased'):
                page.call('Input.dispatchMouseEvent', type=kind, x=left + 0.3 * width, y=top + 5, button='left', clickCount=count)
        self.assertEqual(page.evaluate(view + ".scale('x').domain()"), whole)

    def test_the_url_holds_the_state(self):
        page = self.open()
        self.write(page, '#budget-1', '768')
        self.settle(page, "rows[1].label === 'quest, budget 768' && rows[1].result")
        again = self.browser.open(page.evaluate('location.href'))
        self.addCleanup(again.close)
        self.assertEqual(again.evaluate('JSON.stringify(state)'), page.evaluate('JSON.stringify(state)'))
        self.assertEqual(again.evaluate("document.getElementById('budget-1').value"), '768')
        self.assertEqual(self.cell(again, 1, 'decode.tokens_per_s'), self.cell(page, 1, 'decode.tokens_per_s'))
        broken = self.browser.open(self.server.url + '#{"model": "nonsense", "policies": [1]')
        self.addCleanup(broken.close)
        self.assertEqual(broken.evaluate('state.model'), 'llama-3.1-8b')

    def test_what_does_not_fit_says_so(self):
        page = self.open(hardware='rtx-3090', prompt='32768', batch='64', traces='needle', policies=[QUICK['policies'][0]], focus=0)
        self.assertIn('does not fit', page.evaluate("document.getElementById('summary').textContent"))
        self.assertIn('does not fit', page.evaluate("document.querySelector('#results .why').textContent"))

    def test_narrow_screens_dark_colours_and_names_for_screen_readers(self):
        for width in (1440, 768, 420):
            for dark in (False, True):
                page = self.open(width, 900, dark)
                self.assertEqual(page.evaluate('document.documentElement.scrollWidth'), width)
                self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), 'rgb(17, 19, 23)' if dark else 'rgb(246, 247, 249)')
        unnamed = page.evaluate("[...document.querySelectorAll('input, select, button')].filter((n) => !n.labels?.length && !n.getAttribute('aria-label') && !n.textContent.trim()).map((n) => n.id)")
        self.assertEqual(unnamed, [])
        self.assertTrue(page.evaluate("[...document.querySelectorAll('#figures svg')].every((s) => s.getAttribute('aria-label') || s.querySelector('[aria-label]'))"))

    def test_yaml_can_be_copied_by_hand(self):
        page = self.open()
        self.click(page, '#copy-run')
        page.wait("document.getElementById('yaml-dialog').open || document.getElementById('copied').textContent")
        if page.evaluate("document.getElementById('yaml-dialog').open"):
            self.assertEqual(page.evaluate("document.getElementById('yaml').textContent"), page.evaluate('runYaml()'))


if __name__ == '__main__':
    if not chromium.find():
        print('skipped: Chromium is not installed')
        sys.exit(77)
    TOOL = sys.argv.pop(1)
    unittest.main()
