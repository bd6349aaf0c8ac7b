"""Measures how long the planner's page takes to draw itself again after a number of the machine has changed, in headless Chromium.

usage: redraw_page.py KVCAST [CHANGES]
Four policies at 32K tokens. Prints the median and the 90th percentile of the page's own marks, from the change to the
pictures of bars, of bars with intervals, and of the comparison (waterfall and break-even).
"""

import pathlib
import statistics
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent.parent
for module in ('browser', 'serve', 'support'):
    sys.path.insert(0, str(FOLDER / module))
from planner_page import PlannerPage  # noqa: E402

POLICIES = [{'name': 'full', 'set': {}}, {'name': 'quest', 'set': {'budget': '1024'}}, {'name': 'rocketkv', 'set': {'budget': '1024'}},
            {'name': 'freekv', 'set': {'budget': '1024', 'sink': '64', 'recent': '64'}}]


class Redraw(PlannerPage):
    changes = 15

    def test_redraw(self):
        page = self.open(prompt='32768', decode='512', policies=POLICIES, focus=1)
        self.settle(page, 'rows.length > 0')
        page.evaluate('performance.clearMeasures()')
        for i in range(self.changes):
            page.evaluate(f"(() => {{ state.changes = {{'gpu.hbm_bandwidth': 'x{1.01 + 0.01 * i:.2f}'}}; changed(); }})()")
            self.settle(page)
        marks = page.evaluate("performance.getEntriesByType('measure').map((m) => [m.name, m.duration])")
        for name in sorted({name for name, _ in marks}):
            times = sorted(time for of, time in marks if of == name)
            print(f'{name:<24} n {len(times):3} median {statistics.median(times):6.0f} ms   p90 {times[int(0.9 * (len(times) - 1))]:6.0f} ms')


if __name__ == '__main__':
    Redraw.tool = sys.argv[1]
    Redraw.changes = int(sys.argv[2]) if len(sys.argv) > 2 else Redraw.changes
    unittest.main(argv=sys.argv[:1])
