"""Figures for print: SVG and PDF of the figures of a sweep and of a plan.

usage: test_figures.py FIXTURE KVCAST [unittest arguments]
Exits with 77, which ctest reports as skipped, if a program that draws or inspects figures is missing.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

NEEDED = ('node', 'rsvg-convert', 'hb-shape', 'hb-subset', 'fc-match', 'pdfinfo', 'pdffonts', 'pdftotext', 'pdftoppm')
FONT = 'DejaVu Serif'
SVG = '{http://www.w3.org/2000/svg}'
PT_PER_MM = 72 / 25.4


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def length(text):
    return float(text.removesuffix('mm'))


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='kvcast-figures-'))
        cls.store = cls.folder / 'store'
        answers = cls.folder / 'answers.json'
        # Two variants with 60 to 900 tokens/s over three batches give six points.
        side = lambda value: {'fits': True, 'value': value, 'binding_resource': 'hbm bandwidth'}
        answers.write_text(json.dumps([{'kind': 'break_even', 'question': 'Q', 'text': 'T', 'details': [], 'runs': 6, 'data': {
            'metric': 'decode.tokens_per_s', 'key': 'workload.batch', 'of': 'quest', 'against': 'full', 'always': None,
            'crossings': [{'value': 4, 'interval': [2, 8], 'open': [False, False], 'below': {'better': 'full'}, 'above': {'better': 'quest'}}],
            'samples': [{'x': x, 'of': side(of), 'against': side(against)} for x, of, against in ((1, 60, 80), (4, 250, 250), (16, 900, 600))]}}]))
        subprocess.run([FIXTURE, cls.store, 'sweep', answers], check=True)
        cls.out = {}
        for name in ('single', 'double'):
            cls.out[name] = cls.folder / name
            subprocess.run([KVCAST, 'report', cls.store, '--figures', cls.out[name], '--width', name, '--font', FONT], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def each(self):
        for width, folder in (('single', self.out['single']), ('double', self.out['double'])):
            for path in sorted(folder.glob('*.svg')):
                yield {'single': 85, 'double': 178}[width], path, ET.parse(path).getroot()

    def test_every_figure_and_every_panel_exists_as_svg_and_pdf(self):
        # The fixture has two machines, thus two panels per figure; a timeline and a break-even have one.
        faceted = ('throughput_budget', 'accuracy_throughput', 'step_breakdown', 'memory_owners', 'split_factor')
        names = {n + end for n in faceted for end in ('', '_panel_1', '_panel_2')} | {'context'} | {f'context_panel_{i}' for i in range(1, 9)} | {'step_timeline', 'plan_1_break_even'}
        for folder in self.out.values():
            self.assertEqual({p.name for p in folder.iterdir()}, {n + end for n in names for end in ('.svg', '.pdf')})

    def test_the_view_option_accepts_the_page_s_address(self):
        folder = self.folder / 'view'
        view = '#throughput_budget.axis=log&throughput_budget.relative=ratio&throughput_budget.intervals=bands&hardware=h100-sxm'
        subprocess.run([KVCAST, 'report', self.store, '--figures', folder, '--font', FONT, '--view', view], check=True, capture_output=True)
        root = ET.parse(folder / 'throughput_budget.svg').getroot()
        texts = [''.join(t.itertext()) for t in root.iter(SVG + 'text')]
        self.assertIn('times full KV', ' '.join(texts))
        self.assertTrue(any(t.startswith('h100-sxm') for t in texts), texts)
        # One machine gives one panel; ticks of a logarithmic axis have unequal steps.
        self.assertFalse((folder / 'throughput_budget_panel_2.svg').exists())
        steps = lambda values: {round(b - a, 6) for a, b in zip(values, values[1:])}
        def ticks(path):
            found = [''.join(t.itertext()) for t in ET.parse(path).getroot().iter(SVG + 'text') if t.get('text-anchor') == 'end']
            return sorted(float(t.replace(',', '')) for t in found if re.fullmatch(r'[\d,.]+', t))
        linear = self.folder / 'linear'
        subprocess.run([KVCAST, 'report', self.store, '--figures', linear, '--font', FONT, '--view', '#throughput_budget.axis=linear&hardware=h100-sxm'], check=True, capture_output=True)
        self.assertEqual(len(steps(ticks(linear / 'throughput_budget.svg'))), 1)
        self.assertGreater(len(steps(ticks(folder / 'throughput_budget.svg'))), 1)

    def test_a_view_with_unknown_keys_or_values_is_refused(self):
        for view, words in (('hardware=v100', 'known: all, a100-40gb-pcie4, h100-sxm'), ('throughput_budget.axis=cubic', 'known: auto, linear, log'), ('nothing.axis=log', 'no such figure'),
                            ('throughput_budget.colour=red', 'no such control'), ('context', 'expected key=value'), ('colour=red', 'unknown key')):
            done = subprocess.run([KVCAST, 'report', self.store, '--figures', self.folder / 'none', '--view', view], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, view)
            self.assertIn(words, done.stderr)
            self.assertFalse((self.folder / 'none').exists())

    def test_widths_are_as_requested(self):
        for mm, path, root in self.each():
            self.assertAlmostEqual(length(root.get('width')), mm, delta=0.01)
            wide, high = map(float, re.search(r'Page size: +([\d.]+) x ([\d.]+) pts', output('pdfinfo', path.with_suffix('.pdf'))).groups())
            self.assertAlmostEqual(wide, mm * PT_PER_MM, delta=0.1)
            self.assertAlmostEqual(high, length(root.get('height')) * PT_PER_MM, delta=0.1)

    def test_texts_are_selectable_and_have_seven_to_nine_points_in_the_font(self):
        for mm, path, root in self.each():
            points = mm * PT_PER_MM / float(root.get('viewBox').split()[2])  # per unit of the drawing
            texts = [t for t in root.iter(SVG + 'text') if ''.join(t.itertext()).strip()]
            self.assertTrue(texts)
            for text in texts:
                self.assertEqual(text.get('font-family'), FONT, path)
                size = float(text.get('font-size').removesuffix('px')) * points
                self.assertTrue(6.99 < size < 9.01, (''.join(text.itertext()), size))
                self.assertNotIn('…', ''.join(text.itertext()), 'cut')
            self.assertIn('@font-face', root.find(SVG + 'style').text)
            fonts = output('pdffonts', path.with_suffix('.pdf')).splitlines()[2:]
            self.assertTrue(fonts)
            self.assertTrue(any('DejaVuSerif' in f for f in fonts))
            for font in fonts:
                self.assertEqual(font.split()[-5], 'yes', 'embedded: ' + font)
            # Selectable: the longest word of the drawing is found in the document's text.
            longest = max((w for t in texts if not t.get('transform', '').count('rotate') for w in ' '.join(t.itertext()).split()), key=len)
            self.assertIn(longest, output('pdftotext', path.with_suffix('.pdf'), '-'), path)

    def test_nothing_is_drawn_outside_the_border(self):
        # If the drawing is enlarged by 20 units on every side, the border stays white.
        extra = 20
        for _, path, root in self.each():
            _, _, wide, high = map(float, root.get('viewBox').split())
            wider = re.sub(r'width="[\d.]+mm" height="[\d.]+mm" viewBox="[^"]*"',
                           f'width="{wide + 2 * extra}" height="{high + 2 * extra}" viewBox="{-extra} {-extra} {wide + 2 * extra} {high + 2 * extra}"', path.read_text(), count=1)
            drawing, page, image = (self.folder / ('wider' + end) for end in ('.svg', '.pdf', ''))
            drawing.write_text(wider)
            output('rsvg-convert', '--format=pdf', '--background-color=white', f'--output={page}', drawing)
            output('pdftoppm', '-r', '96', '-gray', '-singlefile', page, image)
            data = pathlib.Path(str(image) + '.pgm').read_bytes()
            magic, size, _, pixels = data.split(b'\n', 3)
            columns, rows = map(int, size.split())
            edge = extra - 1
            lines = [pixels[y * columns:(y + 1) * columns] for y in range(rows)]
            border = b''.join([*lines[:edge], *lines[-edge:], *(line[:edge] + line[-edge:] for line in lines)])
            self.assertGreaterEqual(min(border), 250, path)
            self.assertTrue(min(pixels) < 200, 'the drawing is not empty')

    def test_labels_of_the_front_leave_the_axis_free(self):
        for folder in self.out.values():
            root = ET.parse(folder / 'accuracy_throughput.svg').getroot()
            shown = [t for g in root.iter(SVG + 'g') if 'series_labels' in g.get('class', '').split() for t in g.iter(SVG + 'text') if t.text and t.get('opacity') != '0']
            self.assertTrue(shown)
            for text in shown:
                x = float(re.match(r'translate\(([-\d.]+)', text.get('transform'))[1])
                # A label that ends at its point has room for its letters, of at least 6 units, right of the axis.
                self.assertGreaterEqual(x, 6 * len(text.text) if text.get('text-anchor') == 'end' else 0, text.text)

    def marks(self, figure, name):
        root = ET.parse(self.out['single'] / (figure + '.svg')).getroot()
        return sum(len(group.findall(SVG + 'path')) for group in root.iter(SVG + 'g') if name in group.get('class', '').split())

    def test_every_policy_is_named_in_one_column(self):
        names = ('full', 'exact_topk', 'streaming_llm', 'snapkv', 'quest', 'hsa', 'rocketkv', 'rocketkv_mt', 'arkvale', 'freekv')
        for figure in ('throughput_budget', 'accuracy_throughput', 'context', 'memory_owners', 'step_breakdown'):
            texts = {(node.text or '').split(',')[0].strip() for node in ET.parse(self.out['single'] / (figure + '.svg')).getroot().iter(SVG + 'text')}
            missing = {name for name in names if name not in texts and not any(text.startswith(name + ' ') for text in texts)}
            self.assertEqual(missing, set(), figure)

    def test_each_result_has_one_mark(self):
        # The break-even has both sides at three batches.
        self.assertEqual(self.marks('plan_1_break_even', 'dots'), 6)
        # The panels together draw the same as the figure; each of nine policies with a budget has at most three budgets.
        whole = self.marks('throughput_budget', 'dots')
        self.assertEqual(self.marks('throughput_budget_panel_1', 'dots') + self.marks('throughput_budget_panel_2', 'dots'), whole)
        self.assertEqual(whole + self.marks('throughput_budget', 'misfit_dots') - self.flat_misfits(), 2 * 9 * 3)

    def flat_misfits(self):
        """Returns the number of machines on which full KV does not fit, and which thus have a cross instead of its line."""
        root = ET.parse(self.out['single'] / 'throughput_budget.svg').getroot()
        lines = sum(len(g.findall(SVG + 'line')) for g in root.iter(SVG + 'g') if 'flat_dots' in g.get('class', '').split())
        return 2 - lines

    def test_wrong_input_is_named(self):
        def refused(*words):
            done = subprocess.run([KVCAST, 'report', self.store, '--figures', self.folder / 'none', *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertFalse((self.folder / 'none').exists() and any((self.folder / 'none').iterdir()))
            return done.stderr
        self.assertIn('known: single (85mm), double (178mm)', refused('--width', '85'))
        self.assertIn('60 to 500 mm', refused('--width', '2mm'))
        self.assertIn('"No Such Font" is not installed', refused('--font', 'No Such Font'))

    def test_a_figure_that_cannot_be_written_is_named(self):
        for end in ('.svg', '.pdf'):
            with self.subTest(end), tempfile.TemporaryDirectory() as folder:
                figure = pathlib.Path(folder) / ('throughput_budget' + end)
                figure.symlink_to('/dev/full')
                done = subprocess.run([KVCAST, 'report', self.store, '--figures', folder, '--font', FONT], capture_output=True, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f'kvcast: {figure} cannot be written: ', done.stderr)

    def test_a_missing_program_is_named_with_its_package(self):
        done = subprocess.run([KVCAST, 'report', self.store, '--figures', self.folder / 'none'], capture_output=True, text=True, env={'PATH': '/nowhere'})
        self.assertEqual(done.returncode, 2)
        self.assertIn('package nodejs', done.stderr)


if __name__ == '__main__':
    FIXTURE, KVCAST = sys.argv[1:3]
    missing = [name for name in NEEDED if not shutil.which(name)]
    if not missing and FONT not in output('fc-list', ':', 'family'):
        missing = ['the font ' + FONT]
    if missing:
        print('skipped: missing programs: ' + ', '.join(missing))
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
