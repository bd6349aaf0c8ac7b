"""The figures of services as a reader sees them. Expected values follow from the rule of service_fixture.cpp.

usage: test_services.py FIXTURE WRITER [unittest arguments]
Exits with 77, which ctest reports as skipped, if Chromium is missing.
"""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import chromium
import seen

FIGURES = ('latency_load', 'capacity', 'service_time', 'latency_cdf', 'ttft_parts')
# Full KV serves 1.6 requests/s and snapkv 5; rates are 0.5, 1, 2, 4 and 8.
SATURATED = {('full', 2), ('full', 4), ('full', 8), ('snapkv', 8)}


def texts(figure, name):
    """Returns an expression for the texts of these marks, from top to bottom."""
    return (f"[...document.querySelectorAll('#plot-{figure} g.{name} > text')].map((t) => [t.getBoundingClientRect().top, t.textContent])"
            ".sort((a, b) => a[0] - b[0]).map(([top, text]) => text)")


class Services(unittest.TestCase):
    fixture = writer = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='kvcast-services-'))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        subprocess.run([cls.fixture, cls.folder], check=True)
        subprocess.run([cls.writer, cls.folder, cls.folder / 'out'], check=True, stdout=subprocess.DEVNULL)
        cls.browser = chromium.Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def open(self, fragment='', **options):
        page = self.browser.open((self.folder / 'out' / 'index.html').as_uri() + fragment, **options)
        self.addCleanup(lambda: (self.assertEqual(page.complaints(), []), page.close()))
        return page

    def test_the_figures_of_services_come_first(self):
        page = self.open()
        names = page.evaluate("[...document.querySelectorAll('figure')].map((f) => f.id.replace('figure-', ''))")
        self.assertEqual(tuple(names[:5]), FIGURES)
        for name in FIGURES:
            with self.subTest(name):
                self.assertGreater(len(page.evaluate(f"document.querySelector('#figure-{name} figcaption p').textContent")), 80)
                self.assertTrue(page.evaluate(f"document.querySelector('#figure-{name} .empty').hidden"))

    def test_the_first_screen_is_the_policy_that_serves_the_largest_load(self):
        for width, height in ((1440, 900), (768, 1024), (420, 900)):
            page = self.open(width=width, height=height)
            # Within the SLO full KV serves 1 of the rates, not 2, and snapkv 2, not 4.
            words = page.evaluate("['.finding-choice', '.finding-number', '.finding-text'].map((s) => document.querySelector('.decision ' + s).textContent)")
            self.assertEqual(words[:2], ['snapkv', '2 requests/s, 2 × full KV'])
            self.assertIn('serves 2 requests/s within the SLO (first token 2 s), but not 4', words[2])
            # Its tail at 2 of 5 requests/s is 4 x 0.1 / (1 - 2 / 5) s, from 0.9 to 1.2 times that.
            self.assertIn('first token comes after 0.667 s', words[2])
            told = page.evaluate("document.querySelector('.decision dl').innerText")
            self.assertIn('0.6 s to 0.8 s; the SLO of 2 s lies outside it', told)
            lines = page.evaluate("[...document.querySelectorAll('.best:not(.best-head)')].map((line) => { const t = line.querySelector('.best-track').getBoundingClientRect(), b = line.querySelector('.best-bar').getBoundingClientRect(), r = line.querySelector('.best-range').getBoundingClientRect();"
                                  " return [line.querySelector('.best-name').innerText, b.width / t.width, (r.right - t.left) / t.width, line.querySelector('.best-value').innerText]; })")
            self.assertEqual([line[3] for line in lines], ['2 to 4', '1 to 2'])
            self.assertEqual([line[0] for line in lines], ['snapkv, 2,048 tokens', 'full'])
            for (_, bar, end, _), (most, fails) in zip(lines, ((2, 4), (1, 2)), strict=True):
                self.assertAlmostEqual(bar, most / 4, delta=0.01)
                self.assertAlmostEqual(end, fails / 4, delta=0.01)
            self.assertLess(page.evaluate("document.querySelector('.best-lines').getBoundingClientRect().bottom"), height)
            self.assertEqual(page.evaluate(seen.CUT), [])

    def test_of_policies_that_serve_the_same_load_full_kv_is_named(self):
        page = self.open()
        served = page.evaluate("(() => { page.tables.capacities.numbers.most = [2, 2]; page.tables.capacities.numbers.fails = [4, 4]; unpacked.clear(); const panel = drawServiceDecision();"
                               " return ['.finding-choice', '.finding-text'].map((s) => panel.querySelector(s).textContent); })()")
        self.assertEqual(served[0], 'full KV')
        self.assertIn('snapkv serves the same swept load; loads between 2 and 4 would separate them.', served[1])

    def test_of_machines_that_serve_the_same_load_the_cheaper_is_named(self):
        page = self.open()
        told = page.evaluate("(() => { const one = servedLines().find(({ row }) => row.policy === 'snapkv'), on = (hardware, served_cost) => ({ ...one, row: { ...one.row, hardware, served_cost } });"
                             " window.servedLines = () => [on('dear', 3), on('cheap', 2)]; return drawServiceDecision().querySelector('.finding-text').textContent; })()")
        self.assertTrue(told.startswith('On cheap'), told)
        self.assertTrue(told.endswith('So does dear (50\u00a0% more a token).') or told.endswith('So does dear (50 % more a token).'), told)  # 3 / 2

    def test_without_an_slo_a_load_is_served_if_the_queue_does_not_grow(self):
        page = self.open()
        served = page.evaluate("(() => { delete page.tables.capacities; return servedLines().map(({ row, most, fails }) => [row.policy, most, fails]); })()")
        self.assertEqual(served, [['full', 1, 2], ['snapkv', 4, 8]])

    def test_latency_has_a_label_for_each_policy_the_slo_and_hollow_points_where_it_is_saturated(self):
        page = self.open()
        self.assertEqual(sorted(page.evaluate(texts('latency_load', 'series_labels'))), ['full (saturated)', 'snapkv (saturated)'])
        self.assertEqual(page.evaluate(texts('latency_load', 'slo_labels')), ['SLO 2 s'])
        self.assertEqual(page.evaluate("document.querySelectorAll('#plot-latency_load g.slo_rules > line').length"), 1)
        self.assertIn('saturated', page.evaluate(texts('latency_load', 'open_note'))[0])
        dots = page.evaluate("[...document.querySelectorAll('#plot-latency_load g.dots > path')].map((p) => { const d = p.__data__.datum;"
                             " return [d.policy, d.load, p.getAttribute('fill') === figures[0].view.signal('paper')]; })")
        self.assertEqual(len(dots), 10)
        self.assertEqual({(policy, load) for policy, load, hollow in dots if hollow}, SATURATED)
        # A line that leads to a saturated point is dashed, and has no interval.
        dashes = page.evaluate("[...document.querySelectorAll('#plot-latency_load g.tails > line')].map((l) => { const d = l.__data__.datum;"
                               " return [d.policy, d.load, l.getAttribute('stroke-dasharray')]; })")
        self.assertEqual({(policy, load) for policy, load, dash in dashes if dash == '3,4'}, SATURATED)
        shown = page.evaluate("[...document.querySelectorAll('#plot-latency_load g.intervals > line')].filter((l) => l.getAttribute('opacity') !== '0').length")
        self.assertEqual(shown, 6)

    def test_a_saturated_tail_is_never_a_plain_number(self):
        page = self.open()
        tips = page.evaluate("figures[0].view.data('drawn').map((d) => [d.policy, d.load, d.tip['99th percentile']])")
        for policy, load, tail in tips:
            with self.subTest(policy=policy, load=load):
                self.assertEqual(tail.startswith('more than '), (policy, load) in SATURATED)
        heads = page.evaluate("[...document.querySelectorAll('#table th')].map((h) => h.firstChild.textContent)")
        self.assertIn('State', heads)
        tail, state = heads.index('TTFT p99'), heads.index('State')
        rows = page.evaluate("[...document.querySelectorAll('#table tbody tr')].map((r) => [...r.children].map((c) => c.textContent))")
        self.assertEqual(len(rows), 10)
        self.assertEqual(sum(row[state] == 'saturated' for row in rows), 4)
        for row in rows:
            self.assertEqual(row[tail].startswith('> '), row[state] == 'saturated')

    def test_latency_of_other_measures(self):
        page = self.open('#latency_load.latency=tpot')
        self.assertIn('Time per output token', page.evaluate("document.querySelector('#figure-latency_load h2').textContent"))
        self.assertEqual(page.evaluate(texts('latency_load', 'slo_labels')), [])  # the SLO bounds the first token alone

    def test_capacity_is_a_range_between_rates(self):
        page = self.open()
        # Tails at 1 and 2 requests/s: full 1.07 s and saturated; snapkv 0.67 s at 2 and exactly 2 s, too much, at 4.
        self.assertEqual(page.evaluate(texts('capacity', 'capacity_labels')), ['2 to 4', '1 to 2'])
        self.assertEqual(page.evaluate(texts('capacity', 'series_labels')), ['snapkv', 'full'])
        self.assertEqual(page.evaluate("document.querySelectorAll('#plot-capacity g.dots > path').length"), 4)

    def test_a_run_over_time_is_chosen_in_the_list(self):
        page = self.open()
        # The largest load that is stable.
        self.assertIn('snapkv, 4 requests/s, stable', page.evaluate(texts('service_time', 'run_label'))[0])
        page.evaluate("(() => { const s = document.getElementById('control-service_time-asked_id');"
                      " s.selectedIndex = [...s.options].findIndex((o) => o.label.startsWith('full, 2 requests/s'));"
                      " s.dispatchEvent(new Event('change')); })()")
        self.assertIn('full, 2 requests/s, saturated', page.evaluate(texts('service_time', 'run_label'))[0])
        for name in ('running', 'waiting'):
            self.assertEqual(page.evaluate(texts('service_time', name + '_label')), [name])

    def test_distributions_have_a_curve_a_policy_and_a_load_that_can_be_chosen(self):
        page = self.open()
        # At 1 request/s both are stable.
        self.assertEqual(page.evaluate(texts('latency_cdf', 'plot_titles')), ['time to first token at 1 requests/s', 'time per output token at 1 requests/s'])
        self.assertEqual(page.evaluate("document.querySelectorAll('#plot-latency_cdf g.curves > path').length"), 4)
        self.assertEqual(page.evaluate(texts('latency_cdf', 'slo_labels')), ['SLO 2 s'])
        page = self.open('#latency_cdf.asked_load=8')
        dashes = page.evaluate("[...document.querySelectorAll('#plot-latency_cdf g.curves > path')].map((p) => p.getAttribute('stroke-dasharray'))")
        self.assertEqual(dashes, ['3,4'] * 4)

    def test_parts_of_the_first_token_add_up_to_it(self):
        page = self.open()
        self.assertEqual(page.evaluate("figures[4].view.signal('shown_load')"), 1)  # both are stable
        bars = page.evaluate("figures[4].view.data('parts').map((d) => [d.policy, d.part, d.from, d.to])")
        # Medians 0.1 / (1 - 1 / 1.6) and 0.1 / (1 - 1 / 5), means 1.2 times as long.
        for policy, mean in (('full', 0.32), ('snapkv', 0.15)):
            ends = [(part, start, end) for p, part, start, end in bars if p == policy]
            self.assertEqual([part for part, _, _ in ends], ['queue', 'own prefill', 'others in its passes', 'passes of others'])
            self.assertAlmostEqual(ends[0][2], mean - 0.1)
            for (_, start, end), length in zip(ends[1:], (0.06, 0.03, 0.01)):
                self.assertAlmostEqual(end - start, length)
            self.assertAlmostEqual(ends[-1][2], mean)
        self.assertEqual(sorted(page.evaluate(texts('ttft_parts', 'total_labels'))), ['150 ms', '320 ms'])
        self.assertEqual(page.evaluate("document.querySelectorAll('#plot-ttft_parts g.bars > path').length"), 8)
        page = self.open('#ttft_parts.asked_load=8&ttft_parts.tail=_p99')
        self.assertIn('99th percentile', page.evaluate("document.querySelector('#figure-ttft_parts figcaption p').textContent"))
        for label in page.evaluate(texts('ttft_parts', 'total_labels')):
            self.assertTrue(label.endswith(', saturated'), label)

    def test_the_page_is_legible_on_narrow_and_dark_screens(self):
        for options in ({'width': 500}, {'dark': True}):
            with self.subTest(options):
                page = self.open(**options)
                self.assertLessEqual(page.evaluate('document.documentElement.scrollWidth'), options.get('width', 1400))


if __name__ == '__main__':
    chromium.run_tests(Services, 'fixture', 'writer')
