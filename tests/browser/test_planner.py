"""The planner's page as its user sees it: clicks, drags and keys in a browser, and numbers compared with those of the command.

usage: test_planner.py KVCAST [unittest arguments]
Exits with 77, which ctest reports as skipped, if Chromium is missing.
"""

import json
import pathlib
import re
import subprocess
import tempfile

import chromium
from planner_page import QUICK, PlannerPage


class PlannerCase(PlannerPage):
    def test_bars_have_the_colours_that_a_report_gives_the_policies(self):
        page = self.open(policies=QUICK['policies'] + [{'name': 'quest', 'set': {'budget': '1024'}}])
        self.settle(page)
        palette = json.loads((pathlib.Path(__file__).parents[2] / 'reports' / 'palette.json').read_text())['policies']
        fills = page.evaluate("[...document.querySelectorAll('#plot-throughput g.bars > path')].map((b) => b.getAttribute('fill'))")
        self.assertEqual(fills[:3], [palette[name]['color'] for name in ('full', 'quest', 'freekv')])
        # The second quest has its own shade: 0x36, 0x6b and 0xc4, each moved by 0.3 of the way to 255.
        self.assertEqual(fills[3], '#7297d6')

    def test_the_page_opens_with_results(self):
        page = self.open()
        self.assertEqual([c for c in page.complaints() if not c.startswith('asks for ' + self.server.url)], [])
        self.assertIn('freekv, budget 1024: ', page.evaluate("document.getElementById('summary').textContent"))
        for figure in ('throughput', 'score', 'memory'):
            self.assertEqual(self.texts(page, figure, 'row_labels'), ['full', 'quest, budget 512', 'freekv, budget 1024'])
        bars = self.pixels(page, 'throughput', 'bars')
        shown = [float(self.cell(page, i, 'decode.tokens_per_s').replace(',', '')) for i in range(3)]
        widths = [right - left for left, right, _, _ in bars]
        for width, value in zip(widths, shown):  # bars start at zero and share a scale
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

    def test_dragging_a_machine_slider_changes_the_results(self):
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
        self.assertEqual(next(n['value'] for n in result['origins'] if n['what'].endswith('gpu.hbm_bandwidth')), 3.35e12 * factor)
        self.assertIn('in the profile 3.35 TB/s', page.evaluate("document.querySelector('[data-key=\"gpu.hbm_bandwidth\"] .setting-note').textContent"))
        self.click(page, '[data-key="gpu.hbm_bandwidth"] button')
        self.settle(page, f"document.querySelectorAll('#results tbody tr')[0].querySelector('[data-path]').firstChild.textContent === {json.dumps(before)}")

    def test_keys_move_a_slider_and_fields_accept_values(self):
        page = self.open()
        page.evaluate("document.getElementById('batch-slider').focus()")
        self.press(page, 'ArrowRight')
        self.settle(page, "state.batch === '5'")
        self.assertEqual(page.evaluate("document.getElementById('batch').value"), '5')
        self.write(page, '#batch', '16')
        self.settle(page, "rows[0].result.config.workload.batch === 16")
        page.evaluate("document.getElementById('batch-slider').focus()")
        self.press(page, 'ArrowRight')  # from the value that was typed
        self.settle(page, "rows[0].result.config.workload.batch === 20")

    def test_a_refused_value_dims_the_results_of_the_one_before(self):
        page = self.open()
        captions = "['why', 'break_even'].map((name) => document.querySelector('#figure-' + name + ' .note').checkVisibility())"
        dimmed = "['board-rows', 'summary', 'figures', 'table-section'].map((id) => Number(getComputedStyle(document.getElementById(id)).opacity) < 1)"
        self.assertEqual((page.evaluate(captions), page.evaluate(dimmed)), ([True] * 2, [False] * 4))
        for typed, reason in (('many', 'batch: expected an integer, found "many"'), ('-3', 'batch: -3 is out of range, must be between 1 and 65536'), ('', 'batch: expected an integer, found ""')):
            self.write(page, '#batch', typed)
            self.settle(page, f"document.getElementById('refused').textContent.startsWith({json.dumps(reason)})")
            self.assertEqual(self.text(page, '#refused'), reason + '. The results below are those of the last settings that were simulated.')
            self.assertEqual(page.evaluate(dimmed), [True] * 4)
            self.assertEqual(page.evaluate(captions), [False] * 2)
            self.assertEqual(self.text(page, '#figure-why h2'), 'Difference in time')
            self.assertEqual(self.text(page, '#plot-why'), reason)
        self.write(page, '#batch', '4')
        self.settle(page, "document.getElementById('refused').hidden")
        self.assertEqual((page.evaluate(captions), page.evaluate(dimmed)), ([True] * 2, [False] * 4))

    def test_a_refused_value_is_marked_in_its_field(self):
        page = self.open(changes={'gpu.hbm_bandwidth': '1'})
        self.settle(page)
        marked = "[...document.querySelectorAll('[aria-invalid=true]')].map((n) => [n.id, document.getElementById(n.getAttribute('aria-describedby')).textContent, n.checkVisibility()])"
        fields = (('machine-gpu-hbm_bandwidth', '1', '3 TB/s', 'hardware.gpu.hbm_bandwidth: expected bytes/s'), ('prompt', '0', '4096', 'prompt_tokens: 0 is out of range'),
                  ('decode', 'few', '64', 'decode_tokens: expected an integer, found "few"'), ('budget-2', '-1', '1024', 'budget: -1 is out of range'),
                  ('parameter-1-page', '0', '16', 'page: 0 is out of range'))
        for field, wrong, right, reason in fields:
            with self.subTest(field):
                page.evaluate(f"(() => {{ const fold = document.getElementById('{field}').closest('details'); if (fold) fold.open = true; }})()")
                self.write(page, '#' + field, wrong)
                self.settle(page, marked + '.length === 1')
                self.assertEqual([(name, seen) for name, _, seen in page.evaluate(marked)], [(field, True)])
                self.assertTrue(page.evaluate(marked)[0][1].startswith(reason), page.evaluate(marked))
                self.write(page, '#' + field, right)
                self.settle(page, "document.getElementById('refused').hidden")
                self.assertEqual(page.evaluate(marked), [])
                self.assertEqual(page.evaluate("document.querySelectorAll('.setting-refused').length"), 0)

    def test_figures_are_available_as_numbers_too(self):
        page = self.open()
        self.settle(page)
        table = lambda name: page.evaluate(f"[...document.querySelectorAll('#figure-{name} details tr')].map((r) => [...r.cells].map((c) => c.textContent))")
        memory = table('memory')
        self.assertEqual(memory[0], ['GB of HBM', 'full', 'quest, budget 512', 'freekv, budget 1024'])
        for order in range(3):
            peak = page.evaluate(f'rows[{order}].result.memory.hbm_peak_bytes') / 1e9
            self.assertAlmostEqual(sum(float(line[order + 1]) for line in memory[1:]), peak, delta=0.01 * peak)
        lanes = table('timeline')
        self.assertEqual(lanes[0][1:], self.texts(page, 'timeline', 'lane_labels'))
        for kind, *times in lanes[1:]:
            expected = page.evaluate(f"rows[2].result.timeline.filter((s) => s.kind === {json.dumps(kind)}).reduce((sum, s) => sum + 1e3 * s.dur_s, 0)")
            self.assertAlmostEqual(sum(map(float, times)), expected, delta=0.01 * expected)
        for name in ('why', 'break_even'):
            self.assertIn('full', self.text(page, f'#figure-{name} details'))

    def test_questions_are_sentences(self):
        page = self.open()
        self.settle(page)
        self.assertEqual(self.text(page, '#figure-why h2'), 'Why does freekv, budget 1024, sink 64, recent 64 differ from full in time per output token?')
        self.assertTrue(self.text(page, '#figure-break_even h2').endswith(' beat full in decode throughput?'))
        shown = page.evaluate('document.body.innerText')
        self.assertIn('HBM bandwidth', shown)
        self.assertNotIn('hbm bandwidth', shown)
        self.assertNotRegex(shown, r'\d us\b')

    def test_a_single_policy_is_copied_as_a_run(self):
        page = self.open(policies=QUICK['policies'][:1], focus=0)
        self.settle(page)
        self.click(page, '#copy-plan')
        page.wait("document.getElementById('yaml-dialog').open || document.getElementById('copied').textContent")
        self.assertIn('kvcast run run.yaml', self.text(page, '#copied') + self.text(page, '#yaml-hint'))

    def test_sliders_follow_suffixes_and_units(self):
        page = self.open(prompt='4K')
        page.evaluate("document.getElementById('prompt-slider').focus()")
        self.press(page, 'ArrowRight')
        self.settle(page, "rows[0].result.config.workload.prompt_tokens === 5120")
        self.click(page, '#machine-gpu > summary')
        self.write(page, '#machine-gpu-hbm_bandwidth', '6.7 TB/s')
        self.settle(page)
        self.assertEqual(page.evaluate("document.getElementById('machine-gpu-hbm_bandwidth-slider').value"), '8')  # eight steps are a factor of 2

    def test_the_break_even_over_the_prompt_reads_suffixes(self):
        page = self.open(prompt='10K', key='workload.prompt_tokens')
        self.assertIn('from: 4096, to: 10240', page.evaluate('planYaml()'))
        self.assertTrue(self.pixels(page, 'break_even', 'dots'))

    def test_policies_that_differ_in_a_parameter_have_different_labels(self):
        sets = [{'budget': '512'}, {'budget': '512', 'page': '32'}, {'budget': '512', 'sink': '16'}, {'budget': '1024', 'page': '32'}]
        page = self.open(policies=[{'name': 'quest', 'set': one} for one in sets], focus=1)
        self.assertEqual(self.texts(page, 'throughput', 'row_labels'), ['quest, budget 512', 'quest, budget 512, page 32', 'quest, budget 512, sink 16', 'quest, budget 1024'])

    def test_arrow_keys_step_through_policies_and_models(self):
        page = self.open()
        self.click(page, '.policy-row:nth-child(2) details > summary')
        page.evaluate("document.getElementById('policy-1').focus()")
        names = page.evaluate('catalogue.policies.map(({ name }) => name)')
        for step in (1, 2):
            self.press(page, 'ArrowDown')
            self.settle(page, f"state.policies[1].name === {json.dumps(names[names.index('quest') + step])}")
            self.assertEqual(page.evaluate('document.activeElement.id'), 'policy-1')
            self.assertEqual(page.evaluate("[...document.querySelectorAll('.policy-row details')].map((fold) => fold.open)"), [False, True, False])
        page.evaluate("document.getElementById('model').focus()")
        self.press(page, 'ArrowDown')
        self.settle(page, "state.model !== 'llama-3.1-8b'")
        self.assertEqual(page.evaluate('document.activeElement.id'), 'model')
        self.assertEqual(page.evaluate("Number(document.getElementById('prompt-slider').max)"), page.evaluate('Math.ceil(4 * Math.log2(catalogue.models.find(({ name }) => name === state.model).max_context - 1024))'))

    def test_policies_can_be_added_chosen_and_removed(self):
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

    def test_the_timeline_shows_every_lane_and_zooms_to_the_dragged_range(self):
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
        # The grey area of the drag is gone once it has zoomed.
        self.assertEqual(page.evaluate("getComputedStyle(document.querySelector('#plot-timeline g.brush > path')).opacity"), '0')
        left, top, width, height = self.box(page, surface)
        for count in (1, 2):
            for kind in ('mousePressed', 'mouseReleased'):
                page.call('Input.dispatchMouseEvent', type=kind, x=left + 0.3 * width, y=top + 5, button='left', clickCount=count)
        self.assertEqual(page.evaluate(view + ".scale('x').domain()"), whole)
        # A step of another length is shown whole, not where the last one was enlarged.
        self.drag(page, surface, 0.5, 0.75)
        self.click(page, '#focus-0')
        self.settle(page, "document.querySelector('#figure-timeline h2').textContent.endsWith('of full')")
        self.assertEqual(page.evaluate(view + ".scale('x').domain()"), [0, page.evaluate('Math.max(...rows[0].result.timeline.map((s) => s.start_s + s.dur_s))')])

    def test_lines_of_charts_do_not_cross_the_names_of_their_rows(self):
        # The line of the capacity has a gap at each name that is above a bar. The weights need far more memory than there
        # is, so that the line is as far left as the names reach.
        page = self.open(width=400, changes={'gpu.hbm_capacity': '4 GB'}, policies=QUICK['policies'][:2], focus=0)
        rules, names = self.pixels(page, 'memory', 'capacity_rule', 'line'), self.pixels(page, 'memory', 'row_labels', 'text')
        self.assertEqual((len(rules), len(names)), (2, 2))
        self.assertLess(rules[1][0], names[1][1])
        for _, _, line_top, line_bottom in rules:
            for _, _, top, bottom in names:
                self.assertTrue(line_bottom <= top + 2 or line_top >= bottom - 2, (rules, names))
        capacity = page.evaluate('rows[0].result.memory.hbm_capacity_bytes') / 1e9
        self.assertEqual(self.text(page, '#figure-memory .note'), f'HBM at its peak of each GPU, by use; the line is the capacity, {capacity:.3g} GB.')

    def test_the_note_of_the_table_is_visible_without_scrolling(self):
        page = self.open(width=400)
        left, _, width, _ = self.box(page, '#results-note')
        self.assertTrue(0 <= left and left + width <= 400, (left, width))
        self.assertIn('80 % intervals', self.text(page, '#results-note'))

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

    def test_wrong_values_in_the_url_do_not_stop_the_page(self):
        page = self.open(changes=None)
        self.assertEqual(page.evaluate('state.changes'), {})
        self.assertIn('freekv, budget 1024: ', self.text(page, '#summary'))
        page = self.open(changes={'gpu.hbm_bandwidth': 2, 'gpu.nonsense': 'x2', '__proto__.shown': 'x2'}, policies=[{'name': 'quest', 'set': {'budget': 512, 'page': None}}])
        self.assertEqual(page.evaluate('state.changes'), {'gpu.hbm_bandwidth': '2'})
        self.assertEqual(page.evaluate('state.policies[0].set'), {'budget': '512'})
        self.assertRegex(self.text(page, '#refused'), '^hardware.gpu.hbm_bandwidth: expected ')
        self.assertEqual(self.text(page, '#summary'), 'There are no results yet.')
        self.click(page, '[data-key="gpu.hbm_bandwidth"] button')
        self.settle(page, "document.getElementById('refused').hidden && rows.length")

    def test_failures_in_promises_are_reported(self):
        page = self.open()
        page.evaluate("void Promise.reject(new Error('the probe'))")
        page.wait("!document.getElementById('failure').hidden")
        self.assertEqual(self.text(page, '#failure'), 'This page failed: the probe.')

    def memory_chart(self, page):
        """Checks that the bars are inside the plot; returns its legend and the position of the capacity line in GB, by the longest bar."""
        height = page.evaluate("document.getElementById('plot-memory').getBoundingClientRect().height")
        bars = self.pixels(page, 'memory', 'bars')
        self.assertGreater(height, 100)  # rows, axis and legend
        self.assertTrue(all(0 <= top and bottom <= height and bottom - top > 10 for _, _, top, bottom in bars), bars)
        rules = self.pixels(page, 'memory', 'capacity_rule', 'line')  # one piece for each bar
        line = rules[0][0]
        self.assertTrue(all(left == line and bottom - top > 20 for left, _, top, bottom in rules), rules)
        self.assertEqual(page.evaluate("getComputedStyle(document.querySelector('#plot-memory g.capacity_rule > line')).opacity"), '1')
        left, right = min(bar[0] for bar in bars), max(bar[1] for bar in bars)
        longest = max(float(text.split(' ')[0].replace(',', '')) for text in self.texts(page, 'memory', 'values'))
        return self.texts(page, 'memory', 'role-legend-label'), (line - left) / (right - left) * longest

    def test_a_policy_that_does_not_fit_is_labelled(self):
        page = self.open(hardware='rtx-3090', prompt='32768', batch='64', traces='needle', policies=[QUICK['policies'][0]], focus=0)
        oom = page.evaluate('rows[0].result.oom')
        gb = lambda size: f'{size / 1e9:.3g} GB'
        note = (r'does not fit in HBM: [\d.]+ [MG]B requested for KV cache at prefill, layer \d+; '
                rf"[\d.]+ [MG]B of {re.escape(gb(oom['capacity_bytes']))} are free; the nearest setting that fits has workload\.batch 1 \(")
        page.wait("rows[0].note.includes('nearest')")
        self.assertRegex(self.text(page, '#summary'), '^full: ' + note)
        self.assertRegex(self.text(page, '#results .why'), '^' + note)
        self.assertEqual(self.texts(page, 'memory', 'values'), [gb(oom['in_use_bytes'] + oom['requested_bytes']) + ' needed'])
        legend, capacity = self.memory_chart(page)
        self.assertEqual(legend[0], 'weights')
        self.assertEqual(legend[-1], 'does not fit')
        self.assertAlmostEqual(capacity, oom['capacity_bytes'] / 1e9, delta=1)

    def test_a_policy_that_exceeds_host_memory_is_not_drawn_as_hbm(self):
        page = self.open(changes={'host.dram_capacity': '2 GB'})
        self.assertRegex(self.text(page, '#summary'), r'^freekv, budget 1024: does not fit in host DRAM: [\d.]+ MB requested for KV cache in host memory at prefill, layer \d+; [\d.]+ MB of 1.8 GB are free')
        hbm = page.evaluate('rows.map((row) => row.result.memory.hbm_owners.reduce((sum, owner) => sum + owner.bytes, 0) / 1e9)')
        self.assertEqual(self.texts(page, 'memory', 'values'), [f'{hbm[0]:.3g} GB', f'{hbm[1]:.3g} GB', f'{hbm[2]:.3g} GB at failure'])
        legend, capacity = self.memory_chart(page)
        self.assertIn('weights', legend)
        self.assertFalse({'does not fit', 'KV cache in host memory'} & set(legend), legend)
        self.assertAlmostEqual(capacity, page.evaluate('rows[0].result.memory.hbm_capacity_bytes') / 1e9, delta=1)

    def test_narrow_screens_dark_colours_and_screen_readers_are_supported(self):
        for width in (1440, 768, 420):
            for dark in (False, True):
                page = self.open(width, 900, dark)
                self.assertEqual(page.evaluate('document.documentElement.scrollWidth'), width)
                self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), 'rgb(17, 19, 23)' if dark else 'rgb(246, 247, 249)')
        unnamed = page.evaluate("[...document.querySelectorAll('input, select, button')].filter((n) => !n.labels?.length && !n.getAttribute('aria-label') && !n.textContent.trim()).map((n) => n.id)")
        self.assertEqual(unnamed, [])
        self.assertTrue(page.evaluate("[...document.querySelectorAll('#figures svg')].every((s) => s.getAttribute('aria-label') || s.querySelector('[aria-label]'))"))

    def test_traffic_shows_capacities_and_times_over_the_rate(self):
        page = self.open(traffic=True, rate='4', requests='100', ttft='1', tpot='30')
        self.settle(page, 'rows.length && rows.every((row) => row.result)')
        self.assertEqual(page.complaints(), [c for c in page.complaints() if c.startswith('asks for ' + self.server.url)])
        self.assertTrue(page.evaluate("document.getElementById('figure-load').checkVisibility()"))
        self.assertIsNone(page.evaluate("document.getElementById('batch')"))
        self.assertEqual(self.text(page, '#figure-throughput h2'), 'Capacity within the SLO')
        for order, policy in enumerate(QUICK['policies']):
            with self.subTest(policy['name']):
                capacity = page.evaluate(f'capacityOf(state.policies[{order}])')
                self.assertLessEqual(capacity['fails'], 1.1001 * capacity['most'])
                page.evaluate(f'void (state.focus = {order})')
                for end, within in (('most', True), ('fails', False)):
                    with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
                        file.write(page.evaluate('runYaml()'))
                        file.flush()
                        printed = subprocess.run([self.tool, 'run', file.name, '--set', f'traffic.rate={capacity[end]}', '--json'], capture_output=True, text=True, check=True)
                    serving = json.loads(printed.stdout)['serving']
                    load = page.evaluate(f"loadsOf(state.policies[{order}]).find(({{ rate }}) => rate === {capacity[end]})")
                    self.assertEqual((load['share'], load['p99'], load['state']), (serving['slo_share'], serving['ttft_s']['p99'], serving['state']))
                    self.assertEqual(load['share'] >= 0.99 and load['state'] != 'saturated', within)
        shown = self.texts(page, 'throughput', 'values')
        self.assertEqual(len(shown), 3)
        self.assertTrue(all(' to ' in text for text in shown), shown)
        marks = page.evaluate("figures.get('load').view.data('shown').map(({ state, rate }) => [state, rate])")
        self.assertEqual(len(self.pixels(page, 'load', 'dots')), len(marks))
        self.assertIn('saturated', {state for state, _ in marks})
        self.assertIn('SLO 1 s', self.texts(page, 'load', 'slo_label'))

    def test_a_rate_slider_keeps_what_was_simulated(self):
        page = self.open(traffic=True, rate='2', requests='100', policies=QUICK['policies'][:1], focus=0)
        self.settle(page, 'rows.length && rows[0].result')
        before = page.evaluate('loadsOf(state.policies[0])')
        page.evaluate("document.getElementById('rate-slider').focus()")
        self.press(page, 'ArrowRight')
        self.settle(page, "state.rate === '2.4' && rows[0].result.config.traffic.rate === 2.4")
        self.assertEqual(page.evaluate("document.getElementById('rate').value"), '2.4')
        after = page.evaluate('loadsOf(state.policies[0])')
        self.assertTrue(all(load in after for load in before))
        self.assertIn('at 2.4 requests/s', self.text(page, '#summary'))
        self.write(page, '#ttft', '0.001')
        self.settle(page, "capacityOf(state.policies[0]).most === undefined")
        self.assertIn('less than', self.texts(page, 'throughput', 'row_notes')[0])
        self.write(page, '#rate', 'many')
        self.settle(page, "!document.getElementById('refused').hidden")
        self.assertEqual(page.evaluate("document.querySelector('[aria-invalid=true]').id"), 'rate')
        self.click(page, '#traffic')
        self.settle(page, "document.getElementById('refused').hidden")
        self.assertFalse(page.evaluate("document.getElementById('figure-load').checkVisibility()"))
        self.assertEqual(self.text(page, '#figure-throughput h2'), 'Decode throughput')

    def test_yaml_can_be_copied_by_hand(self):
        page = self.open()
        self.click(page, '#copy-run')
        page.wait("document.getElementById('yaml-dialog').open || document.getElementById('copied').textContent")
        if page.evaluate("document.getElementById('yaml-dialog').open"):
            self.assertEqual(page.evaluate("document.getElementById('yaml').textContent"), page.evaluate('runYaml()'))


if __name__ == '__main__':
    chromium.run_tests(PlannerPage, 'tool')
