"""The planner's page with a server of its own: what a user does on it, and what is drawn."""

import json
import subprocess
import tempfile
import unittest
import urllib.parse

import chromium
from server import Server

# Short prompts on one small trace, so that the first results come at once.
QUICK = {'prompt': '4096', 'decode': '64', 'traces': 'needle', 'policies': [
    {'name': 'full', 'set': {}}, {'name': 'quest', 'set': {'budget': '512'}}, {'name': 'freekv', 'set': {'budget': '1024', 'sink': '64', 'recent': '64'}}], 'focus': 2}


def address(server, **state):
    return server.url + '#' + urllib.parse.quote(json.dumps(QUICK | state))


class PlannerPage(unittest.TestCase):
    tool = None  # path of kvcast

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.tool)
        cls.browser = chromium.Browser()
        cls.tabs = []  # that no test uses

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.server.__exit__()

    def open(self, width=1400, height=1000, dark=False, **state):
        if self.tabs:
            page = self.tabs.pop()
            page.load(address(self.server, **state), width, height, dark)
        else:
            page = self.browser.open(address(self.server, **state), width, height, dark)
        self.addCleanup(self.tabs.append, page)
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
        """Drags from one share of the width to another, at half the height."""
        left, top, width, height = self.box(page, selector)
        y = top + height / 2
        self.mouse(page, 'mouseMoved', left + start * width, y)
        self.mouse(page, 'mousePressed', left + start * width, y)
        for i in range(1, 6):
            self.mouse(page, 'mouseMoved', left + (start + (end - start) * i / 5) * width, y, buttons=1)
        self.mouse(page, 'mouseReleased', left + end * width, y)

    def press(self, page, key):
        code = {'ArrowRight': 39, 'ArrowLeft': 37, 'ArrowDown': 40, 'Enter': 13}[key]
        for kind in ('keyDown', 'keyUp'):
            text = {'text': '\r'} if key == 'Enter' and kind == 'keyDown' else {}
            page.call('Input.dispatchKeyEvent', type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def write(self, page, selector, text):
        """Replaces the content of a field, as a user does."""
        page.evaluate(f'(() => {{ const n = document.querySelector({json.dumps(selector)}); n.scrollIntoView({{block: "center"}}); n.focus(); n.select(); }})()')
        page.call('Input.insertText', text=text)
        self.press(page, 'Enter')

    def settle(self, page, condition='true'):
        """Waits until no simulation is running and the condition is true."""
        page.wait(f'!simulation.running && !comparison.running && !loading.running && ({condition})')

    def cell(self, page, row, path):
        """Returns the first line of a table cell, as shown."""
        return page.evaluate(f'document.querySelectorAll("#results tbody tr")[{row}].querySelector("[data-path=\'{path}\']").firstChild.textContent')

    def texts(self, page, figure, mark):
        return page.evaluate(f"[...document.querySelectorAll('#plot-{figure} g.{mark} text')].map((t) => t.textContent)")

    def pixels(self, page, figure, mark, shape='path'):
        """Returns the boxes of marks relative to their plot: [left, right, top, bottom]."""
        return page.evaluate(f"((plot) => {{ const p = plot.getBoundingClientRect(); return [...plot.querySelectorAll('g.{mark} > {shape}')].map((m) => {{ const r = m.getBoundingClientRect(); return [r.left - p.left, r.right - p.left, r.top - p.top, r.bottom - p.top]; }}); }})(document.getElementById('plot-{figure}'))")

    def text(self, page, selector):
        return page.evaluate(f'document.querySelector({json.dumps(selector)}).textContent')

    def printed(self, page, yaml, *words):
        with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
            file.write(page.evaluate(yaml))
            file.flush()
            done = subprocess.run([self.tool, words[0], file.name, *words[1:]], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)
