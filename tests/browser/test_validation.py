"""The validation page as a reader sees it. Expected counts follow from document() and are derived next to them.

usage: test_validation.py WRITER [unittest arguments]
Exits with 77, which ctest reports as skipped, if Chromium is missing.
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import chromium
import seen


def case(number, verdict, expected, predicted, size=None, **more):
    error = None if not expected or predicted is None else predicted / expected - 1
    return {'id': f'EX-{number:03d}', 'group': f'paper {number % 2}', 'quantity': f'quantity </script>{number}', 'unit': 'x',
            'published': expected, 'predicted': predicted, 'low': predicted, 'high': None if predicted is None else predicted * 1.2,
            'error': error, 'tolerance': 0.15, 'size': size, 'origin': None if predicted is None else 'literature',
            'verdict': verdict, 'depends_on': 'a profile', 'note': 'why ' + str(number), 'source': 'table 1', 'held_out': verdict != 'fitted', **more}


def summary(group, n, times=None):
    times = n if times is None else times
    intervals = {'costs': {'n': times, 'covered': 1, 'median_width': 1.5}, 'bounds': {'n': n, 'covered': n, 'median_width': 2}, 'exact': 0, 'equal': 0}
    return {'group': group, 'n': n, 'median': 0.08, 'p90': 0.5, 'max': 0.9, 'bias': -0.02, 'verdicts': {},
            'times': {'n': times, 'median': 0.14, 'p90': 0.6, 'bias': 0}, 'intervals': intervals}


def document():
    # Three suites: papers has 3 cases with both numbers, 2 of them with a size, and 2 unanswered ones; one suite was not run; one
    # has 300 points.
    papers = [case(1, 'agrees', 10, 11, 4096), case(2, 'fitted', 3, 3.1, 131072), case(3, 'off', 5, 1), case(4, 'unanswered', 7, None),
              case(5, 'unanswered', None, None)]
    points = [case(i, 'agrees' if i % 3 else 'off', 10 * i, 10.5 * i, 1000 * i) for i in range(1, 301)]
    common = {'status': '', 'passed': True, 'expected_is': 'published', 'size_unit': 'tokens', 'detail': None}
    budgets = [{'name': 'median error', 'unit': '%', 'limit': 15, 'value': 8, 'at_least': False, 'passed': True},
               {'name': 'pairs in order', 'unit': '%', 'limit': 95, 'value': 90, 'at_least': True, 'passed': False},
               {'name': 'without a case', 'unit': '%', 'limit': 5, 'value': None, 'at_least': False, 'passed': True}]
    return {'passed': False, 'suites': [
        {**common, 'name': 'papers', 'question': 'Do claims come out?', 'cases': papers, 'budgets': budgets, 'summary': [summary('', 2, 1), summary('paper 0', 0), summary('paper 1', 2, 0)]},
        {**common, 'name': 'gpu_pipeline', 'question': 'And on a GPU?', 'status': 'unmeasured: needs a GPU', 'cases': [], 'budgets': [], 'summary': [summary('', 0)]},
        {**common, 'name': 'kernels', 'question': 'And kernels?', 'cases': points, 'budgets': [], 'summary': [summary('', 300)]}]}


def marks(suite, chart, name='dots', shape='path'):
    return f"document.querySelectorAll('#plot-{suite}-validation_{chart} g.{name} > {shape}').length"


class Validation(unittest.TestCase):
    writer = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='kvcast-validation-'))
        (cls.folder / 'validation.json').write_text(json.dumps(document()))
        subprocess.run([cls.writer, cls.folder, cls.folder / 'out'], check=True, stdout=subprocess.DEVNULL)
        cls.browser = chromium.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def open(self, name='index.html', **options):
        page = self.browser.open((self.folder / 'out' / name).as_uri(), **options)
        self.addCleanup(lambda: (self.assertEqual(page.complaints(), []), page.close()))
        return page

    def test_without_a_store_the_page_is_the_index(self):
        self.assertEqual((self.folder / 'out' / 'index.html').read_bytes(), (self.folder / 'out' / 'validation.html').read_bytes())
        # 5 + 300 cases and a header.
        self.assertEqual(len((self.folder / 'out' / 'tables' / 'validation.csv').read_text().splitlines()), 306)

    def test_axes_carry_units(self):
        page = self.open()
        titles = lambda suite, chart: page.evaluate(f"[...document.querySelectorAll('#plot-{suite}-validation_{chart} .role-axis-title text')].map((t) => t.textContent)")
        self.assertEqual(titles('kernels', 'scatter'), ['predicted, x', 'published, x'])
        self.assertEqual(titles('kernels', 'residuals'), ['predicted over expected, a ratio', 'size, tokens'])

    def test_figures_draw_the_cases_that_have_both_numbers(self):
        page = self.open()
        self.assertEqual(page.evaluate(marks('papers', 'scatter')), 3)
        self.assertEqual(page.evaluate(marks('papers', 'scatter', 'identity', 'line')), 1)
        self.assertEqual(page.evaluate(marks('papers', 'residuals')), 2)
        self.assertEqual(page.evaluate(marks('kernels', 'scatter')), 300)
        self.assertEqual(page.evaluate("document.querySelectorAll('#suite-gpu_pipeline figure').length"), 0)

    def test_the_lead_counts_verdicts_and_missed_budgets(self):
        lead = self.open().evaluate("document.getElementById('lead').textContent")
        # Every third of 300 points is off.
        self.assertIn('305 cases in 3 suites: 201 within tolerance, 1 fitted to the value, 101 outside tolerance, 2 without a model.', lead)
        self.assertIn('1 budget missed', lead)

    def test_budgets_show_the_limit_and_the_value(self):
        rows = self.open().evaluate("[...document.querySelectorAll('#suite-papers .budgets tbody tr')].map((r) => r.textContent)")
        self.assertEqual(rows, ['median error8 %at most 15 %met', 'pairs in order90 %at least 95 %missed', 'without a casenoneat most 5 %no data'])

    def test_long_tables_are_folded_unless_a_budget_is_missed(self):
        page = self.open()
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#suite-papers .folded')].map((d) => d.open)"), [True, True])
        self.assertEqual(page.evaluate("document.querySelector('#suite-papers .budgets').closest('details').querySelector('summary').textContent"), '3 budgets: 1 missed')

    def test_errors_of_times_have_their_own_columns_if_there_are_counts_as_well(self):
        cells = "[...document.querySelectorAll('#suite-papers .summary tbody tr')].map((r) => [...r.cells].slice(6).map((c) => c.textContent).join('|'))"
        self.assertEqual(self.open().evaluate(cells), ['1|14.0 %|1 of 1|1.50', '|||'])

    def test_cases_are_ordered_as_listed_or_worst_first(self):
        page = self.open()
        ids = "[...document.querySelectorAll('#cases-papers .case td:first-child')].map((cell) => cell.firstChild.textContent)"
        self.assertEqual(page.evaluate(ids), ['EX-001', 'EX-002', 'EX-003'])
        page.evaluate("document.querySelector('#cases-papers .order').click()")
        # The error of 5 predicted as 1 is larger than that of 10 predicted as 11, and that is larger than that of 3 predicted as 3.1.
        self.assertEqual(page.evaluate(ids), ['EX-003', 'EX-001', 'EX-002'])
        self.assertEqual(page.evaluate("document.querySelector('#cases-kernels .order').textContent"), 'as listed')  # a long table starts with the worst first

    def test_colours_and_symbols_show_verdicts(self):
        page = self.open()
        fills = page.evaluate("(() => { const rows = figures[0].view.data('drawn'); return [...document.querySelectorAll('#plot-papers-validation_scatter g.dots > path')].map((p, i) => [rows[i].verdict, p.getAttribute('fill')]); })()")
        self.assertEqual(fills, [['agrees', '#1f8a70'], ['fitted', '#6872b9'], ['off', '#c8372d']])
        legend = page.evaluate("[...document.querySelectorAll('#plot-papers-validation_scatter .role-legend-label text')].map((t) => t.textContent)")
        self.assertEqual(legend, ['within tolerance', 'between readings', 'fitted', 'outside tolerance'])

    def test_an_overview_draws_the_errors_of_every_suite_on_one_scale(self):
        for width in (1440, 420):
            page = self.open(width=width)
            rows = page.evaluate("[...document.querySelectorAll('#overview .error-row:not(.error-head)')].map((r) => { const t = r.querySelector('.error-track').getBoundingClientRect(), d = r.querySelector('.error-dot').getBoundingClientRect(), s = r.querySelector('.error-span').getBoundingClientRect();"
                                 " return [r.querySelector('a').textContent, (d.left + d.width / 2 - t.left) / t.width, (s.right - t.left) / t.width, r.querySelector('.error-value').innerText.replace(/\\s+/g, ' ')]; })")
            # The suite that was not run has no line. The longest 90th percentile, 50 %, ends the scale, of which a median of 8 % is 0.16.
            self.assertEqual([name for name, *_ in rows], ['papers', 'kernels'])
            for _, dot, end, text in rows:
                self.assertAlmostEqual(dot, 0.16, delta=0.02)
                self.assertAlmostEqual(end, 1, delta=0.02)
                self.assertEqual(text, '8.0 % p90 50.0 %')
            self.assertEqual(page.evaluate(seen.CUT), [])
            self.assertEqual((seen.overlapping(page), seen.outside(page)), ([], []))

    def test_chips_filter_the_cases_by_verdict(self):
        page = self.open()
        shown = "document.querySelectorAll('#cases-papers .case').length"
        self.assertEqual(page.evaluate(shown), 3)  # unanswered cases are hidden at first
        page.evaluate("document.querySelector('#cases-papers .verdict-chip.unanswered').click()")
        self.assertEqual(page.evaluate(shown), 5)
        page.evaluate("document.querySelector('#cases-papers .verdict-chip.off').click()")
        self.assertEqual(page.evaluate(shown), 4)
        # The table shows the worst of the 300 points at first, then 200 more, then all.
        for count in 25, 225, 300:
            self.assertEqual(page.evaluate("document.querySelectorAll('#cases-kernels .case').length"), count)
            page.evaluate("(document.querySelector('#cases-kernels .note button') || document.body).click()")

    def test_each_card_links_to_its_suite(self):
        page = self.open()
        leads = "[...document.querySelectorAll('.finding h2 a')].map((a) => document.querySelector(a.getAttribute('href')).className)"
        self.assertEqual(page.evaluate(leads), ['suite'] * 3)

    def test_texts_are_never_run_as_scripts(self):
        page = self.open()
        self.assertIn('</script>', page.evaluate("document.querySelector('#cases-papers .quantity').textContent"))
        self.assertEqual(page.evaluate('document.scripts.length'), 4)

    def test_colours_follow_light_dark_and_print(self):
        background = 'getComputedStyle(document.body).backgroundColor'
        label = "document.querySelector('#plot-papers-validation_scatter .role-axis-label text').getAttribute('fill')"
        light, dark = self.open(), self.open(dark=True)
        self.assertEqual(dark.evaluate(background), 'rgb(17, 19, 23)')
        in_light, in_dark = light.evaluate(label), dark.evaluate(label)
        self.assertNotEqual(in_light, in_dark)
        dark.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(dark.evaluate(label), in_light)
        dark.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(dark.evaluate(label), in_dark)

    def test_a_narrow_page_does_not_scroll_sideways(self):
        page = self.open(width=420)
        self.assertLessEqual(page.evaluate('document.documentElement.scrollWidth'), 420)

    def test_methods_state_the_numbers_of_their_sources(self):
        root = pathlib.Path(__file__).parents[2]
        bases = {part['source']: part['basis'] for section in json.loads((root / 'reports' / 'methods.json').read_text()) for part in section['assumptions']}
        widths = re.findall(r'^(\w+): {value: [\d.]+, origin: (\w+).*?residuals of (\d+) numbers', (root / 'configs/validation/intervals.yaml').read_text(), re.M)
        kernels, others = (sum(int(count) for name, _, count in widths if ('kernels' in name) == chosen) for chosen in (True, False))
        self.assertEqual((len(widths), sum(origin == 'assumed' for _, origin, _ in widths)), (8, 1))
        self.assertEqual(bases['configs/validation/intervals.yaml; docs/validation.md'],
                         f'fitted to residuals of {kernels:,} times of kernels and {others} of steps and prompts; one of the eight half-widths is assumed')
        errors = dict(re.findall(r'^\| a (\w+), RULER \| [\d,]+ \| ([\d.]+)', (root / 'configs/accuracy/README.md').read_text(), re.M))
        self.assertEqual(bases['configs/accuracy/README.md, Evidence; configs/accuracy/evidence.csv'],
                         'fitted; error on RULER {table} points for tables left out, {model} for models, {method} for methods'.format(**errors))

    def test_damaged_documents_are_refused_by_name(self):
        damaged = self.folder / 'damaged'
        damaged.mkdir()
        for text in ('', '[]', '{"suites": [{}]}', json.dumps(document()).replace('"quantity"', '"quality"', 1)):
            (damaged / 'validation.json').write_text(text)
            outcome = subprocess.run([self.writer, damaged, damaged / 'out'], capture_output=True, text=True)
            self.assertEqual(outcome.returncode, 2)
            self.assertIn('validation.json', outcome.stderr)


if __name__ == '__main__':
    chromium.run_tests(Validation, 'writer')
