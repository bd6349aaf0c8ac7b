"""The report as a reader sees it. Expected counts follow from the rules of fixture.cpp and are derived next to them.

usage: test_report.py FIXTURE WRITER [unittest arguments]
Exits with 77, which ctest reports as skipped, if Chromium is missing.
"""

import base64
import json
import math
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import chromium
import seen

FIGURES = ('throughput_budget', 'accuracy_throughput', 'step_breakdown', 'memory_owners', 'split_factor', 'step_timeline', 'context')
HEIGHTS = {1440: 900, 768: 1024, 420: 900}  # of windows by their width
LEGEND = "[...document.querySelectorAll('#plot-%s .role-legend-label text')].map((t) => t.textContent)"


def marks(figure, name, shape='path'):
    """Returns a JavaScript expression for the number of marks of that name in the figure."""
    return f"document.querySelectorAll('#plot-{figure} g.{name} > {shape}').length"


def choose(identifier, label):
    """Returns an expression that picks an option of a select by its label, as a reader does."""
    return (f"(() => {{ const s = document.getElementById('{identifier}');"
            f" s.selectedIndex = [...s.options].findIndex((o) => o.label === {json.dumps(label)});"
            " s.dispatchEvent(new Event('change')); })()")


def click(selector, text):
    return f"[...document.querySelectorAll('{selector}')].find((e) => e.textContent === {json.dumps(text)}).click()"


def color(text):
    """Returns red, green and blue of "#rrggbb" or "rgb(r, g, b)"."""
    return [int(text[i:i + 2], 16) for i in (1, 3, 5)] if text.startswith('#') else [int(part) for part in re.findall(r'\d+', text)]


def mixed(from_color, to_color, share):
    return [a + (b - a) * share for a, b in zip(from_color, to_color)]


def contrast(a, b):
    """Returns the contrast ratio of WCAG 2.1."""
    light = lambda c: c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
    low, high = sorted(sum(weight * light(c / 255) for weight, c in zip((0.2126, 0.7152, 0.0722), one)) for one in (a, b))
    return (high + 0.05) / (low + 0.05)


class ReportCase(unittest.TestCase):
    fixture = writer = folder = None
    shared = {}  # pages of the sweep that tests have in common, by width and darkness
    tabs = []  # tabs that no test uses

    @classmethod
    def setUpClass(cls):
        if ReportCase.folder is not None:
            return
        ReportCase.folder = pathlib.Path(tempfile.mkdtemp(prefix='kvcast-report-'))
        unittest.addModuleCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for kind in ('sweep', 'large', 'seeds', 'match', 'maps', 'bare', 'empty'):
            subprocess.run([cls.fixture, cls.folder / kind, kind], check=True)
            subprocess.run([cls.writer, cls.folder / kind, cls.folder / kind / 'out'], check=True, stdout=subprocess.DEVNULL)
        ReportCase.browser = chromium.Browser()
        unittest.addModuleCleanup(cls.browser.__exit__)

    def open(self, kind, fragment=None, **options):
        """Loads a page for this test alone."""
        # The context is 32K by default, because the fixture has its timelines there.
        fragment = fragment if fragment is not None else '#context=32768' if kind == 'sweep' else ''
        return self.load((self.folder / kind / 'out' / 'index.html').as_uri() + fragment, **options)

    def load(self, url, **options):
        if self.tabs:
            page = self.tabs.pop()
            page.load(url, **options)
        else:
            page = self.browser.open(url, **options)
        self.addCleanup(lambda: (self.tabs.append(page), self.assertEqual(page.complaints(), [])))
        return page

    def sweep(self, fragment='#context=32768', width=1400, dark=False):
        """Returns the sweep's page as that address shows it, loaded once for each window. A test may change only what the
        address holds: filters, and controls of figures."""
        if (width, dark) not in self.shared:
            url = (self.folder / 'sweep' / 'out' / 'index.html').as_uri()
            self.shared[width, dark] = self.browser.open(url + fragment, width, HEIGHTS.get(width, 1000), dark)
        page = self.shared[width, dark]
        page.show()
        page.evaluate(f"new Promise((done) => {{ const wanted = new URL('{fragment}', location).hash; if (location.hash === wanted) return done();"
                      " addEventListener('hashchange', () => done(), { once: true }); location.hash = wanted; })")
        self.addCleanup(lambda: self.assertEqual(page.complaints(), []))
        return page

    def counted(self, page):
        return page.evaluate("document.getElementById('table-count').textContent.split(':')[0]")


class Figures(ReportCase):
    def test_every_figure_draws_the_results_of_the_store(self):
        page = self.sweep()
        # The figure shows 32K, both devices, the fastest batch and one variant of each of the 10 policies, of which 9 have
        # 3 budgets: 2 * 9 * 3 points and 2 lines for full.
        self.assertEqual(page.evaluate(marks('throughput_budget', 'dots')), 54)
        self.assertEqual(page.evaluate(marks('throughput_budget', 'flat_dots', 'line')), 2)
        self.assertEqual(page.evaluate(marks('accuracy_throughput', 'dots')), 56)
        # Each device has 10 policies with gemm, attention, small and launch exposed and launch hidden; 9 with score and topk;
        # exposed copies for arkvale, hidden ones for freekv: 50 + 18 + 1 + 1.
        self.assertEqual(page.evaluate(marks('step_breakdown', 'bars')), 2 * 70)
        # Each device has weights, KV cache and activations of 10 policies, and an index for the 5 that do not keep all tokens.
        self.assertEqual(page.evaluate(marks('memory_owners', 'bars')), 2 * 35)
        # 5 fixed split factors, 3 budgets, 2 devices, twice: throughput and accuracy. Adaptive: a dashed line instead of 5 points.
        self.assertEqual(page.evaluate(marks('split_factor', 'split_dots')), 60)
        self.assertEqual(page.evaluate(marks('split_factor', 'adaptive_rules', 'line')), 12)
        # ArkVale has the most lanes. Each of 8 layers has a launch, five kinds of kernel, the wait for a copy, and a hidden copy.
        self.assertEqual(page.evaluate(marks('step_timeline', 'bars')), 64)

    def test_maps_show_needles_by_depth_and_what_heads_keep(self):
        page = self.open('maps', '#context=32768')
        # 2 policies, 2 contexts, 3 depths, whatever the context chosen; numbers are read from the cells.
        self.assertEqual(page.evaluate(marks('needle_map', 'map_cells')), 12)
        texts = "[...document.querySelectorAll('#plot-%s g.map_numbers text')].map((e) => e.textContent)"
        self.assertEqual(sorted(page.evaluate(texts % 'needle_map')), ['100'] * 8 + ['25'] * 4)
        # One setting of each policy: 4 layers of 2 heads.
        self.assertEqual(page.evaluate(marks('head_map', 'map_cells')), 16)
        self.assertEqual(sorted(page.evaluate(texts % 'head_map')), sorted(2 * [str(100 * layer + 10 * head) for layer in range(1, 5) for head in range(2)]))
        page.evaluate("figures.find((f) => f.name === 'head_map').view.signal('shows', 'recall').run(); 0")
        self.assertEqual(sorted(page.evaluate(texts % 'head_map')), ['50'] * 8 + ['75'] * 8)
        for name in ('needle_map', 'head_map'):
            self.assertGreater(len(page.evaluate(f"document.querySelector('#figure-{name} figcaption p').textContent")), 80)
        self.assertFalse(self.sweep().evaluate("Boolean(document.querySelector('#figure-needle_map, #figure-head_map'))"))

    def test_every_figure_has_a_title_a_caption_and_the_origins_of_its_numbers(self):
        page = self.sweep()
        for name in FIGURES:
            with self.subTest(name):
                self.assertGreater(len(page.evaluate(f"document.querySelector('#figure-{name} h2').textContent")), 20)
                self.assertGreater(len(page.evaluate(f"document.querySelector('#figure-{name} figcaption p').textContent")), 80)
        note = page.evaluate("document.querySelector('#figure-throughput_budget .note').textContent")
        self.assertIn('Decode throughput (56 values), by origin: 56 assumed; all with an uncertainty interval.', note)
        self.assertIn('Decode step time by origin of its costs: 75\u00a0% literature and 25\u00a0% assumed.', note)
        self.assertIn('20 exact', page.evaluate("document.querySelector('#figure-memory_owners .note').textContent"))

    def test_intervals_are_drawn_to_scale(self):
        page = self.sweep('#context=32768&throughput_budget.axis=linear')
        # All points have intervals from 0.85 to 1.2 of their value; a rule of that length is what is left of it on the axis.
        lengths = page.evaluate("[...document.querySelectorAll('#plot-throughput_budget g.intervals > line')].map((l) => Math.abs(l.getAttribute('y2')))")
        expected = page.evaluate("figures[0].view.data('drawn').filter((r) => r.budget).map((r) => 0.35 * r.tps)"
                                 ".map((d) => figures[0].view.scale('y')(0) - figures[0].view.scale('y')(d))")
        self.assertEqual(len(lengths), 54)
        for a, b in zip(sorted(lengths), sorted(expected)):
            self.assertAlmostEqual(a, b, delta=0.02)

    def test_a_step_that_dwarfs_the_others_is_cut_and_marked(self):
        page = self.sweep()
        cut = "[...document.querySelectorAll('#plot-step_breakdown text')].filter((t) => t.textContent.startsWith('»')).map((t) => t.textContent)"
        self.assertEqual(page.evaluate(cut), [])
        page.evaluate(choose('filter-budget', '4,096 tokens'))
        self.assertEqual(len(page.evaluate(cut)), 2)  # arkvale's half a second on each device
        page.evaluate(choose('control-step_breakdown-unit', 'share of the step'))
        self.assertEqual(page.evaluate(cut), [])
        ends = page.evaluate("figures[2].view.data('parts').filter((p) => p.side === 'exposed_s').reduce((m, p) => ({...m, [p.id]: Math.max(m[p.id] || 0, p.to)}), {})")
        self.assertEqual(len(ends), 20)
        for end in ends.values():
            self.assertAlmostEqual(end, 1, places=6)

    def test_points_that_do_not_fit_are_marked(self):
        # 128K with batch 8 needs 137 GB of KV: full, exact_topk, quest, hsa and rocketkv_mt keep it all and fit nowhere; 4 of
        # them have 3 budgets, full has none: 13 crosses per device.
        page = self.sweep('#context=131072&batch=8')
        self.assertEqual(page.evaluate(marks('throughput_budget', 'misfit_dots')), 26)
        # An experiment that does not fit has no time and no part in the origins of times.
        self.assertIn('Decode step time by origin of its costs: 75\u00a0% literature and 25\u00a0% assumed.', page.evaluate("document.querySelector('#figure-throughput_budget .note').textContent"))
        # There would be 35 parts per device if all fitted; instead of its KV cache each of the 5 shows the failed allocation.
        self.assertEqual(page.evaluate(marks('memory_owners', 'bars')), 70)
        self.assertEqual(page.evaluate("figures[3].view.data('parts').filter((p) => p.misfit).length"), 10)

    def test_no_point_beats_the_pareto_front(self):
        page = self.sweep()
        points = page.evaluate("figures[1].view.data('drawn').map(({ panel, tps, accuracy, front }) => ({ panel, tps, accuracy, front }))")
        for p in points:
            beaten = any(q['panel'] == p['panel'] and q['tps'] >= p['tps'] and q['accuracy'] >= p['accuracy'] and
                         (q['tps'], q['accuracy']) != (p['tps'], p['accuracy']) for q in points)
            twin = any(q is not p and (q['panel'], q['tps'], q['accuracy']) == (p['panel'], p['tps'], p['accuracy']) for q in points)
            if not twin:
                self.assertEqual(bool(p['front']), not beaten, p)

    def test_figures_can_be_saved_as_svg(self):
        page = self.sweep(dark=True)
        for index, name in enumerate(FIGURES):
            with self.subTest(name):
                svg = page.evaluate(f'figureSvg(figures[{index}])')
                root = xml.etree.ElementTree.fromstring(svg)
                self.assertEqual(root.tag, '{http://www.w3.org/2000/svg}svg')
                self.assertGreater(len(root.findall('.//{http://www.w3.org/2000/svg}path')), 20)
                self.assertIn('#ffffff', svg)  # light, though the page is dark
        page.evaluate("window.saved = []; HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); }")
        page.evaluate("document.querySelector('#figure-split_factor .figure-head > button').click()")
        page.wait('saved.length === 1')
        self.assertEqual(page.evaluate('saved[0][0]'), 'split_factor.svg')
        self.assertTrue(page.evaluate('saved[0][1]').startswith('blob:'))
        page.evaluate('delete HTMLAnchorElement.prototype.click')

    def test_the_chart_specifications_next_to_the_page_draw_the_same(self):
        page = self.sweep('')
        for index, name in enumerate(FIGURES):
            with self.subTest(name):
                spec = (self.folder / 'sweep' / 'out' / 'figures' / f'{name}.json').read_text()
                drawn = json.loads(spec)['usermeta']['drawn']
                ids = f"((view) => view.data('{drawn}').map((row) => row.id).sort((a, b) => a - b))"
                alone = page.evaluate(f'{ids}(new vega.View(vega.parse({spec}), {{renderer: "none"}}).run())')
                self.assertEqual(alone, page.evaluate(f'{ids}(figures[{index}].view)'))
                self.assertGreater(len(alone), 0)

    def test_pointing_at_a_mark_shows_its_numbers(self):
        page = self.sweep()
        page.evaluate("document.querySelector('#plot-throughput_budget').scrollIntoView({block: 'center'})")
        x, y = page.evaluate("(() => { const r = document.querySelector('#plot-throughput_budget g.dots > path').getBoundingClientRect();"
                             " return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        page.call('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)
        page.wait("!document.getElementById('tooltip').hidden")
        text = page.evaluate("document.getElementById('tooltip').textContent")
        for part in ('tokens/s', 'HBM peak', 'budget', 'assumed'):
            self.assertIn(part, text)
        page.call('Input.dispatchMouseEvent', type='mouseMoved', x=1, y=1)
        page.wait("document.getElementById('tooltip').hidden")

    def test_tooltips_show_the_chosen_measure_with_its_interval(self):
        page = self.sweep()
        tips = lambda figure, mark: page.evaluate(f"[...document.querySelectorAll('#plot-{figure} g.{mark} > path')].map((e) => e.__data__.tooltip)")
        percent = r'\d+\.\d %'
        for figure, mark in (('accuracy_throughput', 'dots'), ('split_factor', 'split_dots')):
            for tip in tips(figure, mark):
                self.assertRegex(tip['accuracy measure'], rf'^{percent}  \({percent} to 100.0 %\), (predicted )?task score')
                self.assertRegex(tip['tokens/s'], r'^[\d.,]+  \([\d.,]+ to [\d.,]+\)$')
            page.evaluate(choose(f'control-{figure}-accuracy_measure', 'Relative error of the attention output'))
            for tip in tips(figure, mark):
                self.assertRegex(tip['accuracy measure'], rf'^{percent}, (relative error|output error)')
        # In this store the attention mass kept is 1 minus the error. A tooltip shows it only once if it is also the selected measure.
        [error] = page.evaluate("figures[1].view.data('drawn').slice(0, 1).map((r) => r.measured_tip)")
        self.assertAlmostEqual(float(error['attention mass kept'].split('%')[0]) + float(error['accuracy measure'].split('%')[0]), 100, delta=0.11)
        page.evaluate(choose('control-accuracy_throughput-accuracy_measure', 'Attention mass kept, mean'))
        self.assertEqual({tip['attention mass kept'] for tip in tips('accuracy_throughput', 'dots')}, {None})

    def test_a_batch_that_changes_with_the_split_factor_is_named(self):
        page = self.open('sweep')
        shown = "[...document.querySelectorAll('#plot-split_factor g.batch_marks > text')].map((t) => t.textContent).filter(Boolean).sort()"
        self.assertEqual(page.evaluate(shown), [])
        # r = 0.3 fits only at batch 1: that point is labelled and, for each of 3 budgets and 2 machines, the largest r and the
        # adaptive choice.
        page.evaluate("((t) => { t.numbers.split_value.forEach((r, i) => { if (r === 0.3 && t.numbers.batch[i] > 1) t.texts.status.at[i] = t.texts.status.of.indexOf('oom'); });"
                      " drawFigures('light'); })(page.tables.experiments)")
        self.assertEqual(page.evaluate(shown), 6 * ['b1'] + 12 * ['b8'])
        page.evaluate(choose('filter-batch', '1'))
        self.assertEqual(page.evaluate(shown), [])

    def test_a_step_that_does_not_fit_is_labelled(self):
        page = self.sweep('#context=all&batch=8')
        labels = "[...document.querySelectorAll('#plot-step_breakdown g.misfit_labels > text')].map((t) => t.textContent)"
        # The five policies that keep all tokens: at 128K on both machines, at 32K on the smaller one (50 of 40 GB).
        self.assertEqual(page.evaluate(labels), 15 * ['✕ does not fit'])
        empty = page.evaluate("((v) => { const told = new Set([...v.data('parts'), ...v.data('misfits')].map((r) => r.panel + r.name)), panels = new Set(v.data('parts').map((r) => r.panel));"
                              " return [...panels].flatMap((p) => v.data('row_names').filter((r) => !told.has(p + r.name))).length; })(figures[2].view)")
        self.assertEqual(empty, 0)
        page.evaluate(choose('filter-batch', '1'))
        self.assertEqual(page.evaluate(labels), [])

    def test_dragging_over_the_timeline_zooms_in(self):
        page = self.open('sweep')
        page.evaluate("document.querySelector('#plot-step_timeline').scrollIntoView({block: 'center'})")
        box = page.evaluate("(() => { const r = document.querySelector('#plot-step_timeline g.bars').getBoundingClientRect();"
                            " return [r.x, r.y, r.width, r.height]; })()")
        y = box[1] + box[3] * 0.75
        for kind, share in (('mousePressed', 0.25), ('mouseMoved', 0.4), ('mouseMoved', 0.5), ('mouseReleased', 0.5)):
            page.call('Input.dispatchMouseEvent', type=kind, x=box[0] + box[2] * share, y=y, button='left', buttons=1, clickCount=1)
        page.wait("figures[5].view.signal('zoomed') !== null")
        low, high = page.evaluate("figures[5].view.signal('zoomed')")
        whole = page.evaluate("figures[5].view.signal('whole')[1]")
        self.assertAlmostEqual(low / whole, 0.25, delta=0.02)
        self.assertAlmostEqual(high / whole, 0.5, delta=0.02)
        # The reader sees an axis that begins and ends where the drag did, with fewer operations in between.
        self.assertEqual(page.evaluate("figures[5].view.scale('x').domain()"), [low, high])
        self.assertLess(page.evaluate(marks('step_timeline', 'bars')), 64)

    def test_keys_zoom_and_move_the_timeline(self):
        page = self.open('sweep')
        domain = "(({ meta, view, plot }) => { plot.focus(); return view.scale('x').domain(); })(figures.find(({ name }) => name === 'step_timeline'))"
        low, high = page.evaluate(domain)
        self.assertEqual(page.evaluate('document.activeElement.id'), 'plot-step_timeline')
        for key, expected in (('+', (0.25, 0.75)), ('ArrowRight', (0.375, 0.875)), ('ArrowRight', (0.5, 1)), ('ArrowRight', (0.5, 1)), ('ArrowLeft', (0.375, 0.875)),
                              ('-', (0.125, 1)), ('+', (0.125 + 0.875 / 4, 1 - 0.875 / 4)), ('Escape', (0, 1))):
            for kind in ('keyDown', 'keyUp'):
                page.call('Input.dispatchKeyEvent', type=kind, key=key)
            for found, share in zip(page.evaluate(domain), expected):
                self.assertAlmostEqual(found, low + share * (high - low), delta=1e-6 * high, msg=key)

    def test_percent_signs_follow_a_space(self):
        page = self.sweep()
        page.evaluate(choose('control-step_breakdown-unit', 'share of the step'))
        for name in ('accuracy_throughput', 'step_breakdown', 'split_factor'):
            labels = [text for text in page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-axis-label text')].map((t) => t.textContent)") if '%' in text]
            self.assertTrue(labels, name)
            for text in labels:
                self.assertRegex(text, r'^\d+ %$')

    def test_labels_of_the_split_factor_do_not_touch_on_a_narrow_screen(self):
        page = self.open('sweep', width=400)
        ends = page.evaluate("[...document.querySelectorAll('#plot-split_factor .role-axis-label text')].filter((t) => /^0\\.\\d\\d?$/.test(t.textContent)).map((t) => { const r = t.getBoundingClientRect(); return [r.top, r.left, r.right]; })")
        self.assertGreater(len(ends), 3)
        for (top, _, right), (below, left, _) in zip(ends, ends[1:]):
            if top == below:
                self.assertGreater(left - right, 8)

    def test_the_timeline_shows_layers_waits_and_bytes(self):
        page = self.sweep()
        texts = lambda name: page.evaluate(f"[...document.querySelectorAll('#plot-step_timeline g.{name} > text')].map((t) => t.textContent).filter(Boolean)")
        self.assertRegex(texts('step_label')[0], r'^decode step, [\d.,]+ ms$')
        self.assertEqual(texts('layer_labels'), [f'layer {layer}' for layer in range(8)])
        # Bands follow each other, each from its first kernel to its last.
        bands = page.evaluate("figures[5].view.data('layers').map(({ left, right }) => [left, right])")
        self.assertEqual(bands, sorted(bands))
        # In ArkVale a copy waits for a kernel in each of 8 layers, and the kernel after it waits for the copy in 7. An arrow joins
        # both lanes at the moment when the one ends and the other starts.
        arrows = page.evaluate("((v) => v.data('waits').map((w) => { const cause = v.data('ops').find((o) => o.place === w.waited_for);"
                               " return [w.lane, cause.lane, Math.abs(w.start_s - cause.end_s)]; }))(figures[5].view)")
        self.assertEqual(sorted((a, b) for a, b, _ in arrows), 7 * [('compute stream', 'copy stream A')] + 8 * [('copy stream A', 'compute stream')])
        self.assertLess(max(gap for _, _, gap in arrows), 1e-6)  # the page rounds to five digits
        seen = "[...document.querySelectorAll('#plot-step_timeline g.%s > %s')].filter((e) => Number(e.getAttribute('opacity')) > 0).length"
        self.assertEqual((page.evaluate(seen % ('wait_rules', 'line')), page.evaluate(seen % ('wait_heads', 'path'))), (15, 15))
        tips = page.evaluate("[...document.querySelectorAll('#plot-step_timeline g.bars > path')].map((e) => e.__data__.tooltip)"
                             ".filter((t) => t.bytes).map((t) => [t.bytes, t['waited for'] || ''])")
        self.assertEqual(len(tips), 16)  # an exposed and a hidden copy for each layer
        self.assertEqual({size for size, _ in tips}, {'2.5 MB'})
        self.assertIn('topk of layer 3 on compute stream', {cause for _, cause in tips})

    def test_the_timeline_of_another_policy_shows_all_of_its_lanes(self):
        page = self.sweep()
        options = page.evaluate("[...document.getElementById('control-step_timeline-asked_id').options].map((o) => o.label)")
        for policy, lanes in (('full', {'host thread', 'compute stream'}), ('freekv', {'host thread', 'compute stream', 'copy stream B'}),
                              ('arkvale', {'host thread', 'compute stream', 'copy stream A', 'copy stream B'})):
            page.evaluate(choose('control-step_timeline-asked_id', next(o for o in options if o.startswith(policy + ','))))
            # Labels of the lanes and the title of the axis under them are within the figure.
            inside = ("((plot) => { const p = plot.querySelector('svg').getBoundingClientRect(); return [...plot.querySelectorAll('.role-axis-label text, .role-axis-title text')]"
                      ".filter((t) => t.textContent).map((t) => [t.textContent, t.getBoundingClientRect()])"
                      ".map(([text, r]) => [text, r.left >= p.left - 1 && r.right <= p.right + 1 && r.top >= p.top - 1 && r.bottom <= p.bottom + 1]); })"
                      "(document.getElementById('plot-step_timeline'))")
            found = dict(page.evaluate(inside))
            self.assertLessEqual(lanes | {'milliseconds from the start of the step'}, set(found), policy)
            self.assertTrue(all(found.values()), (policy, found))


    def test_costs_over_the_context_end_where_memory_ends(self):
        # At batch 8 the policies that keep all tokens fit at 16K on both machines (33.5 GB with the weights), at 32K only on the
        # larger one, and at 128K on none: 5 crosses per machine in each of 4 panels.
        page = self.sweep('#batch=8')
        ends = page.evaluate("figures[6].view.data('points').filter((r) => r.ends).map((r) => [r.hardware, r.policy, r.context, r.end, r.shows.field])")
        self.assertEqual(len(ends), 2 * 5 * 4)
        for machine, policy, context, end, _ in ends:
            self.assertEqual((context, end), (16384, 32768) if machine.startswith('a100') else (32768, 131072))
            self.assertIn(policy, ('full', 'exact_topk', 'quest', 'hsa', 'rocketkv_mt'))
        self.assertEqual(page.evaluate(marks('context', 'misfit_dots')), len(ends))
        # Every mark lies inside the plot of its panel, and the legend names every policy.
        outside = page.evaluate("(() => { const v = figures[6].view, w = v.signal('plot_width'), h = v.signal('plot_height');"
                                " return [...document.querySelectorAll('#plot-context g.dots > path, #plot-context g.misfit_dots > path')].map((e) => e.getAttribute('transform').match(/[\\d.-]+/g).map(Number))"
                                ".filter(([x, y]) => x < 0 || x > w || y < 0 || y > h).length; })()")
        self.assertEqual(outside, 0)
        self.assertEqual(len(set(page.evaluate(LEGEND % 'context'))), 10)

    def test_points_over_the_context_are_hollow_where_the_batch_shrinks(self):
        # Each at its fastest batch that fits: 8, but for policies that keep all tokens beyond 16K on the smaller machine and 32K on the larger.
        page = self.sweep()
        dots = page.evaluate("[...document.querySelectorAll('#plot-context g.dots > path')].map((p) => { const d = p.__data__.datum; return [d.hardware, d.policy, d.context, d.batch, p.getAttribute('fill') === figures[6].view.signal('paper')]; })")
        for machine, policy, context, batch, hollow in dots:
            self.assertEqual(hollow, batch < 8, (machine, policy, context, batch))
        self.assertEqual({(machine.split('-')[0], policy, context) for machine, policy, context, _, hollow in dots if hollow},
                         {(machine, policy, context) for policy in ('full', 'exact_topk', 'quest', 'hsa', 'rocketkv_mt')
                          for machine, context in (('a100', 32768), ('a100', 131072), ('h100', 131072))})
        self.assertEqual(set(page.evaluate("[...document.querySelectorAll('#plot-context g.batch_note > text')].map((t) => t.textContent)")), {'○ hollow: at a smaller batch'})
        self.assertEqual(set(self.sweep('#batch=1').evaluate("[...document.querySelectorAll('#plot-context g.batch_note > text')].map((t) => t.textContent)")), {''})

    def test_the_filter_of_the_context_leaves_the_costs_over_contexts(self):
        page = self.sweep()
        # 10 policies at 3 contexts on 2 machines, in 4 panels each: every policy fits at batch 1.
        self.assertEqual(page.evaluate(marks('context', 'dots')), 240)
        page.evaluate(choose('filter-hardware', 'h100-sxm'))
        self.assertEqual(page.evaluate(marks('context', 'dots')), 120)
        self.assertEqual(len(set(page.evaluate(LEGEND % 'accuracy_throughput'))), 10)


class Front(ReportCase):
    """Effects of the controls of the first two figures on the drawn data."""

    def labels(self, page, figure):
        return page.evaluate(f"((plot) => {{ const p = plot.querySelector('svg').getBoundingClientRect(); return [...plot.querySelectorAll('g.series_labels > text')].filter((t) => t.textContent)"
                             f".map((t) => [t.textContent, t.getBoundingClientRect().right <= p.right + 1]); }})(document.getElementById('plot-{figure}'))")

    def test_variants_have_labels_that_differ_and_are_not_cut(self):
        for width in (1440, 768):
            page = self.sweep(width=width)
            page.evaluate(click('.shortcuts button', 'all variants'))
            page.evaluate(choose('filter-hardware', 'h100-sxm'))
            labels = self.labels(page, 'throughput_budget')
            texts = [text for text, _ in labels]
            self.assertEqual(len(set(texts)), 16)  # 8 policies without variants, 6 split factors, FreeKV with and without speculation
            self.assertEqual([text for text, inside in labels if not inside or '…' in text], [], width)
            # rocketkv is as fast with each split factor, and labels distinguish them.
            self.assertTrue({'rocketkv, adaptive', 'rocketkv, 0.3', 'freekv, no speculation'} <= {text.rsplit(', b', 1)[0] for text in texts}, texts)

    def test_a_curve_names_the_batch_where_it_changes(self):
        page = self.open('seeds', '#hardware=a100-40gb-pcie4')
        # Five policies do not keep all tokens. With 16.1 GB of weights, 2.4 GB of activations and an index of 4 % of 8 * 17.2 GB,
        # a cache of 1024 tokens fits eight times (1.1 GB) in 40 GB, one of 16384 (17.2 GB) only four times.
        shown = "[...document.querySelectorAll('#plot-%s g.batch_marks > text')].map((t) => t.textContent).filter(Boolean)"
        for figure in ('throughput_budget', 'accuracy_throughput'):
            self.assertEqual(page.evaluate(shown % figure), 5 * ['b8'])
        ends = [text for text, _ in self.labels(page, 'throughput_budget')]
        self.assertTrue({'arkvale, b4', 'freekv, b4', 'snapkv, b4'} <= set(ends), ends)
        page.evaluate(choose('filter-batch', '4'))
        self.assertEqual(page.evaluate(shown % 'throughput_budget'), [])

    def test_seeds_are_one_series_with_their_mean_and_a_wider_interval(self):
        page = self.open('seeds', '#hardware=h100-sxm&batch=4')
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.chip')].map((c) => c.textContent)").count('snapkv'), 1)
        rows = page.evaluate("figures[0].view.data('drawn').filter((r) => r.series === 'snapkv').map(({ budget, tps, tps_low, tps_high }) => [budget, tps, tps_low, tps_high])")
        self.assertEqual([row[0] for row in rows], [1024, 16384])
        for _, tps, low, high in rows:
            # The middle seed's throughput is the mean of 0.9, 1 and 1.1; the interval of one spans 0.85 to 1.2 of its own.
            self.assertAlmostEqual(low / tps, 0.85 * 0.9, places=3)
            self.assertAlmostEqual(high / tps, 1.2 * 1.1, places=3)
        # A reader sees one line, one symbol for each budget, and a bar as long as the wide interval.
        seen = page.evaluate("((v) => { const rows = v.data('drawn').filter((r) => r.series === 'snapkv'); const y = v.scale('y');"
                             " const bars = [...document.querySelectorAll('#plot-throughput_budget g.intervals > line')].filter((l) => l.getAttribute('stroke') === rows[0].label_color);"
                             " const dots = [...document.querySelectorAll('#plot-throughput_budget g.dots > path')].filter((l) => l.getAttribute('fill') === rows[0].color);"
                             " return [dots.length, bars.map((l) => Math.abs(l.getAttribute('y2'))), rows.map((r) => y(r.tps_low) - y(r.tps_high))]; })(figures[0].view)")
        self.assertEqual(seen[0], 2)
        for drawn, expected in zip(sorted(seen[1]), sorted(seen[2]), strict=True):
            self.assertAlmostEqual(drawn, expected, delta=0.02)
        self.assertIn('mean of 3 seeds', page.evaluate("figures[0].view.data('drawn').find((r) => r.series === 'snapkv').tip.where"))

    def test_the_front_stays_in_order_after_any_change_of_the_measure(self):
        page = self.sweep()
        page.evaluate(click('.shortcuts button', 'all variants'))
        for measure in ('Attention mass kept, mean', 'Predicted task score, share of full KV'):
            page.evaluate(choose('control-accuracy_throughput-accuracy_measure', measure))
            paths = page.evaluate("[...document.querySelectorAll('#plot-accuracy_throughput g.front_line > path')].map((p) => p.getAttribute('d'))")
            self.assertEqual(len(paths), 2)
            for path in paths:
                points = [tuple(map(float, step.split(','))) for step in path[1:].split('L')]
                self.assertEqual(points, sorted(points), measure)  # they run to the right and down, never back
            filled = page.evaluate("[...document.querySelectorAll('#plot-accuracy_throughput g.front_line > path')].map((p) => getComputedStyle(p).fill)")
            self.assertTrue(set(filled) <= {'none', 'rgba(0, 0, 0, 0)'}, filled)

    def heights(self, page):
        """Returns the heights of quest's points on the H100 above the lower end of the axis, by budget, and the plot's height."""
        return page.evaluate("(() => { const v = figures[0].view; return v.data('drawn').filter((r) => r.series === 'quest' && r.hardware === 'h100-sxm')"
                             ".map((r) => [r.tps, v.signal('floor_y') - v.scale('y')(r.shown)]); })()")

    def test_a_logarithmic_axis_spaces_equal_factors_equally(self):
        page = self.sweep()
        page.evaluate(choose('control-throughput_budget-axis', 'logarithmic'))
        (a, ya), (b, yb), (c, yc) = sorted(self.heights(page))
        self.assertAlmostEqual((yb - ya) / math.log(b / a), (yc - yb) / math.log(c / b), places=3)
        self.assertGreater(ya, 0)
        ticks = page.evaluate("[...document.querySelectorAll('#plot-throughput_budget .role-axis')[0].querySelectorAll('.role-axis-label text')].map((t) => t.textContent).filter(Boolean)")
        self.assertIn('100', ticks)
        page.evaluate(choose('control-throughput_budget-axis', 'linear'))
        (a, ya), (b, yb), _ = sorted(self.heights(page))
        self.assertAlmostEqual(ya / a, yb / b, places=6)

    def test_an_automatic_axis_is_logarithmic_where_values_span_more_than_a_decade(self):
        # ArkVale's host loop makes a step of 4,096 tokens half a second long: more than ten times any other.
        page = self.sweep()
        scales = lambda: page.evaluate("[figures[0].view.scale('y').type, figures[1].view.scale('x').type]")
        self.assertEqual(scales(), ['log', 'log'])
        page.evaluate(click('.chip', 'arkvale'))
        self.assertEqual(scales(), ['linear', 'linear'])
        page.evaluate(click('.chip', 'arkvale'))
        self.assertEqual(scales(), ['log', 'log'])
        least, most = page.evaluate("((v) => [Math.min(...v), Math.max(...v)])(figures[0].view.data('drawn').filter((r) => r.fits).map((r) => r.shown))")
        self.assertGreater(most / least, 10)
        # The ticks of both are 1, 2 and 5 times powers of ten, and do not touch.
        for figure in ('throughput_budget', 'accuracy_throughput'):
            self.assertEqual(page.evaluate(f"document.getElementById('control-{figure}-axis').selectedOptions[0].label"), 'automatic')
        ticks = page.evaluate("[...document.querySelectorAll('#plot-accuracy_throughput .role-axis-label')].map((a) => [...a.querySelectorAll('text')].filter((t) => Number(t.getAttribute('opacity') ?? 1) > 0 && /^[\\d,.]+$/.test(t.textContent))"
                              ".map((t) => { const r = t.getBoundingClientRect(); return [t.textContent.replace(',', ''), r.left, r.right]; })).filter((a) => a.length > 1)")
        self.assertEqual(len(ticks), 2)
        for axis in ticks:
            self.assertTrue(all(re.fullmatch('[125]0*', text) for text, _, _ in axis), axis)
            self.assertTrue(all(right < left for (_, _, right), (_, left, _) in zip(axis, axis[1:])), axis)

    def test_machines_are_not_joined_by_lines(self):
        page = self.sweep()
        seen = "[...document.querySelectorAll('#plot-throughput_budget g.mark-line > path')].filter((e) => Number(e.getAttribute('opacity') ?? 1) > 0).length"
        self.assertEqual(page.evaluate(seen), 18)
        page.evaluate(choose('control-throughput_budget-x_axis', 'machine'))
        self.assertEqual(page.evaluate(seen), 0)

    def test_ratios_are_relative_to_full_kv_on_the_same_machine(self):
        page = self.sweep('#context=32768&batch=4')
        page.evaluate(choose('control-throughput_budget-relative', 'ratio to full KV'))
        rows = page.evaluate("figures[0].view.data('drawn').map(({ hardware, policy, tps, shown }) => ({ hardware, policy, tps, shown }))")
        full = {row['hardware']: row['tps'] for row in rows if row['policy'] == 'full'}
        self.assertEqual(len(full), 2)
        for row in rows:
            self.assertAlmostEqual(row['shown'], row['tps'] / full[row['hardware']])
        self.assertIn('times full KV', page.evaluate("document.querySelector('#plot-throughput_budget').textContent"))
        # The others are compared with full KV even if it is hidden.
        page.evaluate(click('.chip', 'full'))
        self.assertEqual(page.evaluate("figures[0].view.data('drawn').find((r) => r.policy === 'quest').shown"), next(r['shown'] for r in rows if r['policy'] == 'quest'))
        page.evaluate(choose('control-accuracy_throughput-relative', 'ratio to full KV'))
        self.assertIn('decode throughput, times full KV', page.evaluate("document.querySelector('#plot-accuracy_throughput').textContent"))

    def test_a_figure_without_ratios_states_that_full_kv_does_not_fit(self):
        # Full KV takes 16 GB of weights and 4.3 GB for each sequence of 32K: at batch 8 more than 40 GB, but less than 80 GB.
        for fragment, expected in (('context=32768', 'No ratio on a100-40gb-pcie4 at 32K tokens: full KV does not fit at batch 8.'),
                                   ('context=131072', 'No ratio: full KV does not fit at batch 8.')):
            page = self.sweep(f'#{fragment}&batch=8&throughput_budget.relative=ratio&accuracy_throughput.relative=ratio')
            self.assertIn(expected, page.evaluate("document.querySelector('#figure-throughput_budget .note').textContent"))
            self.assertIn(expected, page.evaluate("document.querySelector('#figure-accuracy_throughput').textContent"))
        self.assertIn('divided by those of full KV', page.evaluate("document.querySelector('#figure-throughput_budget figcaption').textContent"))

    def test_budgets_solved_for_a_cost_are_listed_by_the_cost(self):
        page = self.open('match')
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.chip')].map((e) => e.textContent)"), ['full', 'snapkv', 'quest'])
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#filter-budget option')].map((o) => o.label)"),
                         ['256 tokens', '1,024 tokens', '9,000 tokens'])
        self.assertIn('Tokens attended', page.evaluate("document.getElementById('filters').textContent"))
        self.assertEqual(page.evaluate(marks('throughput_budget', 'dots')), 4)  # two policies at two costs
        self.assertEqual(page.evaluate(marks('throughput_budget', 'flat_dots', 'line')), 1)
        self.assertEqual(page.evaluate("new Set(figures[2].view.data('drawn').map((row) => row.policy)).size"), 3)
        text = page.evaluate("document.getElementById('figure-throughput_budget').textContent")
        for part in ('against tokens attended', 'tokens attended'):
            self.assertIn(part, text)
        self.assertNotIn('KV budget, tokens', text)
        self.assertIn('Solved budget', page.evaluate("document.querySelector('#table thead').textContent"))

    def test_the_axis_can_list_machines(self):
        page = self.sweep('#context=32768&hardware=h100-sxm&budget=1024')
        page.evaluate(choose('control-throughput_budget-x_axis', 'machine'))
        # Both machines are drawn although a filter names one: ten policies twice, with full KV as a point.
        self.assertEqual(page.evaluate(marks('throughput_budget', 'dots')), 20)
        self.assertEqual(page.evaluate(marks('throughput_budget', 'flat_dots', 'line')), 0)
        names = page.evaluate("[...document.querySelectorAll('#plot-throughput_budget .role-axis-label text')].map((t) => t.textContent).filter((t) => /-/.test(t))")
        self.assertEqual(names, ['a100-40gb-pcie4', 'h100-sxm'])
        self.assertEqual(page.evaluate(marks('accuracy_throughput', 'dots')), 28)  # the other figures keep the filter

    def test_bands_can_replace_bars(self):
        page = self.sweep()
        seen = "[...document.querySelectorAll('#plot-throughput_budget g.%s > %s')].filter((e) => Number(e.getAttribute('opacity')) > 0).length"
        self.assertEqual((page.evaluate(seen % ('bands', 'path')), page.evaluate(seen % ('intervals', 'line'))), (0, 54))
        page.evaluate(choose('control-throughput_budget-intervals', 'bands'))
        self.assertEqual((page.evaluate(seen % ('bands', 'path')), page.evaluate(seen % ('intervals', 'line'))), (18, 0))

    def test_full_kv_has_an_interval_too(self):
        page = self.sweep()
        seen = "[...document.querySelectorAll('#plot-throughput_budget g.%s > %s')].filter((e) => Number(e.getAttribute('opacity')) > 0).length"
        marks_of_full = lambda: (page.evaluate(seen % ('flat_intervals', 'line')), page.evaluate(seen % ('flat_bands', 'path')))
        self.assertEqual(marks_of_full(), (2, 0))  # one on each machine
        # Each is from the lower to the upper end of full KV's interval.
        ends = page.evaluate("((v) => v.data('drawn').filter((r) => r.policy === 'full').map((r) => [r.shown_low, r.shown_high].map((y) => v.scale('y')(y))).flat())(figures[0].view)")
        drawn = page.evaluate("((plots) => plots.map((line) => Number(line.getAttribute('y2') ?? 0)))([...document.querySelectorAll('#plot-throughput_budget g.flat_intervals > line')])")
        self.assertEqual(sorted(round(abs(y)) for y in drawn), sorted(round(ends[i] - ends[i + 1]) for i in (0, 2)))
        page.evaluate(choose('control-throughput_budget-intervals', 'bands'))
        self.assertEqual(marks_of_full(), (0, 2))

    def test_the_note_of_a_single_value_uses_the_singular(self):
        page = self.sweep()
        self.assertIn('(1 value), by origin: 1 assumed; with an uncertainty interval.', page.evaluate("document.querySelector('#figure-step_timeline .note').textContent"))
        self.assertIn('The steps are the Pareto front', page.evaluate("document.querySelector('#figure-accuracy_throughput figcaption').textContent"))  # light in dark mode

    def test_title_and_caption_follow_the_controls(self):
        page = self.sweep()
        texts = lambda: page.evaluate("[...document.querySelectorAll('#figure-throughput_budget h2, #figure-throughput_budget figcaption p')].slice(0, 2).map((e) => e.textContent)")
        before = texts()
        self.assertIn('against the KV budget', before[0])
        self.assertIn('Thin vertical bars are', before[1])
        page.evaluate(choose('control-throughput_budget-x_axis', 'machine'))
        page.evaluate(choose('control-throughput_budget-intervals', 'bands'))
        title, caption = texts()
        self.assertIn('on each machine', title)
        for part in ('Bands are 80 %', 'A policy with a budget has the one chosen.', 'on the last machine'):
            self.assertIn(part, caption)
        for part in ('horizontal lines', 'bars', 'largest budget', 'curve'):
            self.assertNotIn(part, caption)
        self.assertTrue(page.evaluate("document.getElementById('plot-throughput_budget').getAttribute('aria-label')").startswith('Decode throughput on each machine'))
        page.evaluate(choose('control-throughput_budget-x_axis', 'KV budget'))
        page.evaluate(choose('control-throughput_budget-intervals', 'bars'))
        self.assertEqual(texts(), before)

    def test_an_address_keeps_the_controls_of_figures(self):
        page = self.sweep()
        for control, choice in (('throughput_budget-axis', 'logarithmic'), ('throughput_budget-relative', 'ratio to full KV'),
                                ('accuracy_throughput-accuracy_measure', 'Attention mass kept, mean'), ('memory_owners-pool', 'host DRAM')):
            page.evaluate(choose('control-' + control, choice))
        again = self.open('sweep', page.evaluate('location.hash'))
        chosen = "[...document.querySelectorAll('.control select')].map((s) => [s.id, s.selectedOptions[0].label])"
        self.assertEqual(again.evaluate(chosen), page.evaluate(chosen))
        self.assertEqual(dict(again.evaluate(chosen))['control-accuracy_throughput-accuracy_measure'], 'Attention mass kept, mean')
        self.assertEqual(self.heights(again), self.heights(page))
        self.assertEqual(again.evaluate("figures[1].view.signal('accuracy_measure')"), 'recall')
        nonsense = self.open('sweep', '#throughput_budget.axis=spiral&accuracy_throughput.accuracy_measure=luck')
        self.assertEqual(nonsense.evaluate("figures[1].view.signal('accuracy_measure')"), 'predicted')


class Filters(ReportCase):
    def test_filters_act_on_figures_and_table(self):
        page = self.sweep()
        # The table has all batches: 10 policies, 3 batches, 2 devices at 32K and budget 1024.
        self.assertEqual(self.counted(page), '60 of 828 experiments')
        page.evaluate(choose('filter-hardware', 'h100-sxm'))
        self.assertEqual(page.evaluate(marks('throughput_budget', 'dots')), 27)
        self.assertEqual(page.evaluate(marks('step_breakdown', 'bars')), 70)
        self.assertEqual(self.counted(page), '30 of 828 experiments')
        page.evaluate(click('.chip', 'quest'))
        self.assertEqual(page.evaluate(marks('throughput_budget', 'dots')), 24)
        self.assertEqual(page.evaluate(marks('accuracy_throughput', 'dots')), 25)
        self.assertEqual(self.counted(page), '27 of 828 experiments')
        page.evaluate(choose('filter-batch', '4'))
        self.assertEqual(self.counted(page), '9 of 828 experiments')
        page.evaluate(choose('filter-context', 'all'))
        self.assertEqual(self.counted(page), '27 of 828 experiments')
        # 3 contexts; at 128K and batch 4 the policies that keep all do not fit: exact_topk, hsa and rocketkv_mt, 3 budgets each.
        self.assertEqual(page.evaluate(marks('throughput_budget', 'dots')), 3 * 24 - 9)
        page.evaluate(choose('filter-budget', '256 tokens'))
        self.assertEqual(page.evaluate("figures[2].view.data('drawn').every((row) => row.budget === 256 || row.budget === undefined)"), True)

    def test_an_address_restores_the_view(self):
        page = self.sweep()
        page.evaluate(choose('filter-hardware', 'h100-sxm'))
        page.evaluate(click('.chip', 'quest'))
        again = self.open('sweep', page.evaluate('location.hash'))
        self.assertEqual(again.evaluate(marks('throughput_budget', 'dots')), 24)
        nonsense = self.open('sweep', '#hardware=abacus&context=1&hidden=nobody')
        self.assertEqual(self.counted(nonsense), '96 of 828 experiments')  # all 16 variants, 3 batches, 2 devices

    def test_panels_keep_their_order_after_any_change_of_filters(self):
        panels = ("JSON.stringify(figures.slice(0, 5).map((f) => f.view.scenegraph().root.items[0].items.find((m) => m.name === 'panel').items"
                  ".map(({ x, y, datum }) => ({ x, y, name: datum.panel || datum.split_panel })).sort((a, b) => a.y - b.y || a.x - b.x).map(({ name }) => name)))")
        page = self.open('sweep', '#context=131072')
        expected = self.open('sweep', '#context=all').evaluate(panels)
        for identifier, labels in (('filter-context', ('32K tokens', 'all')), ('filter-hardware', ('h100-sxm', 'all'))):
            for label in labels:
                page.evaluate(choose(identifier, label))
            self.assertEqual(page.evaluate(panels), expected)
        self.assertEqual(json.loads(page.evaluate(panels))[0], [f'{machine}, {context} tokens' for machine in ('a100-40gb-pcie4', 'h100-sxm')
                                                                for context in ('16K', '32K', '128K')])

    def test_keys_missing_from_an_address_have_their_defaults(self):
        page = self.sweep('#context=all&batch=4&hidden=quest&throughput_budget.axis=log')
        chosen = "JSON.stringify([selection, figures[0].view.signal('batch'), figures[0].own, document.getElementById('table-count').textContent])"
        for fragment in ('#batch=1', '#'):
            page.evaluate(f"location.hash = '{fragment}'")
            fresh = self.open('sweep', fragment).evaluate(chosen)
            page.wait(f'{chosen} === {json.dumps(fresh)}', timeout=20)

    def test_deselecting_all_shows_notices_without_errors(self):
        page = self.sweep()
        page.evaluate(click('.shortcuts button', 'none'))
        self.assertEqual(page.evaluate("[...document.querySelectorAll('figure .empty')].filter((e) => !e.hidden).length"), len(FIGURES))
        self.assertEqual(self.counted(page), '0 of 828 experiments')
        page.evaluate(click('.shortcuts button', 'all variants'))
        self.assertEqual(page.evaluate("[...document.querySelectorAll('figure .empty')].filter((e) => !e.hidden).length"), 0)

    def test_a_selection_without_timelines_shows_another_with_a_note(self):
        page = self.sweep('#context=16384')
        self.assertEqual(page.evaluate(marks('step_timeline', 'bars')), 64)
        note = "document.querySelector('#figure-step_timeline .note').textContent"
        self.assertIn('No experiment of this selection carries a timeline', page.evaluate(note))
        page.evaluate(choose('filter-context', '32K tokens'))
        self.assertNotIn('No experiment of this selection', page.evaluate(note))
        page.evaluate(choose('filter-hardware', 'h100-sxm'))
        self.assertIn('h100-sxm', page.evaluate("figures[5].view.data('shown')[0].hardware"))

    def test_a_narrow_screen_scrolls_in_only_one_direction(self):
        wide = 'document.documentElement.scrollWidth'
        for kind in ('seeds', 'bare'):
            self.assertLessEqual(self.open(kind, width=420).evaluate(wide), 420, kind)
        self.assertLessEqual(self.sweep('#hidden=&context=all', width=420).evaluate(wide), 420)
        page = self.sweep(width=420)
        # The longest of controls names a policy, a model, a device and all settings.
        self.assertGreater(page.evaluate("Math.max(...[...document.getElementById('control-step_timeline-asked_id').options].map((o) => o.label.length))"), 60)
        self.assertLessEqual(page.evaluate('document.documentElement.scrollWidth'), 420)
        # No axis label overlaps the next one on its line; only drawn labels count.
        clashes = ("[...document.querySelectorAll('.plot .role-axis-label')].reduce((found, axis) => {"
                   " const boxes = [...axis.querySelectorAll('text')].filter((t) => t.textContent && getComputedStyle(t).opacity > 0)"
                   "  .map((t) => t.getBoundingClientRect());"
                   " return found + boxes.filter((b, i) => i > 0 && Math.abs(b.y - boxes[i - 1].y) < 2 && b.left < boxes[i - 1].right).length; }, 0)")
        self.assertEqual(page.evaluate(clashes), 0)

    def test_a_resized_window_redraws_the_figures_without_an_error(self):
        page = self.open('sweep')
        for width in (1000, 420, 1400):
            page.call('Emulation.setDeviceMetricsOverride', width=width, height=1000, deviceScaleFactor=1, mobile=False)
            page.wait(f"innerWidth === {width} && figures.every((f) => f.width === f.plot.clientWidth)")
            page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')
            self.assertTrue(page.evaluate("document.getElementById('failure').hidden"), width)

    def test_figures_have_descriptions_for_screen_readers(self):
        page = self.sweep()
        labels = page.evaluate("[...document.querySelectorAll('.plot')].map((p) => p.getAttribute('aria-label'))")
        self.assertEqual(len(set(labels)), len(FIGURES))
        self.assertEqual(labels[1], 'Accuracy against throughput; its numbers are in table 1')
        saves = page.evaluate("[...document.querySelectorAll('.figure-head > button')].map((b) => b.getAttribute('aria-label'))")
        self.assertEqual(saves[1], 'Download figure 2 as SVG')

    def test_controls_change_their_figure(self):
        page = self.sweep()
        page.evaluate(choose('control-memory_owners-pool', 'host DRAM'))
        # Only arkvale and freekv use this pool: one owner on each of two devices.
        self.assertEqual(page.evaluate(marks('memory_owners', 'bars')), 4)
        # A predicted score comes first; in this store the other measures are derived from the attention mass.
        self.assertEqual(page.evaluate("document.getElementById('control-accuracy_throughput-accuracy_measure').value"), 'Predicted task score, share of full KV')
        page.evaluate(choose('control-accuracy_throughput-accuracy_measure', 'Attention mass kept, mean'))
        before = page.evaluate("figures[1].view.data('drawn')[5].accuracy")
        page.evaluate(choose('control-accuracy_throughput-accuracy_measure', 'Relative error of the attention output'))
        self.assertAlmostEqual(page.evaluate("figures[1].view.data('drawn')[5].accuracy"), 1 - before, places=5)
        page.evaluate(choose('control-accuracy_throughput-accuracy_measure', 'Predicted task score, share of full KV'))
        self.assertAlmostEqual(page.evaluate("figures[1].view.data('drawn')[5].accuracy"), 0.5 + before / 2, places=5)
        self.assertAlmostEqual(page.evaluate("figures[1].view.data('drawn')[5].accuracy_low"), before / 2, places=5)
        # The axis reaches as far as the intervals: half of the least recall, to all of the score.
        least = page.evaluate("Math.min(...figures[1].view.data('drawn').map((d) => d.accuracy_low))")
        low, high = page.evaluate("figures[1].view.scale('y').domain()")
        self.assertLessEqual(low, least)
        self.assertGreaterEqual(high, 1)


class Table(ReportCase):
    def test_the_table_can_be_searched_sorted_and_expanded(self):
        page = self.open('sweep')
        page.evaluate("document.getElementById('table-selected').click()")
        self.assertEqual(self.counted(page), '828 of 828 experiments')
        self.assertEqual(page.evaluate("document.querySelectorAll('#table tbody tr').length"), 100)
        page.evaluate("document.getElementById('table-all').click()")
        self.assertEqual(page.evaluate("document.querySelectorAll('#table tbody tr').length"), 828)
        page.evaluate("(() => { const s = document.getElementById('table-search'); s.value = 'OOM full h100'; s.dispatchEvent(new Event('input')); })()")
        # Full KV needs 131072 * 131072 bytes = 17.2 GB per sequence at 128K, so batches 4 (68.7 GB and 16 GB of weights) and 8 exceed
        # 80 GB.
        self.assertEqual(self.counted(page), '2 of 828 experiments')
        row = page.evaluate("document.querySelector('#table tbody').textContent")
        for part in ('out of memory in HBM at prefill, layer 17', 'in use: weights 16.1 GB'):
            self.assertIn(part, row)
        page.evaluate("(() => { const s = document.getElementById('table-search'); s.value = 'quest'; s.dispatchEvent(new Event('input')); })()")
        page.evaluate(click('#table th button', 'tokens/s'))
        place = page.evaluate("[...document.querySelectorAll('#table th')].findIndex((h) => h.textContent.startsWith('tokens/s'))")
        column = (f"[...document.querySelectorAll('#table tbody tr')].map((r) => r.querySelector('.why') ? null"
                  f" : parseFloat(r.cells[{place}].textContent.replace(',', '')))")
        values = page.evaluate(column)
        numbers = [v for v in values if v is not None]
        self.assertGreater(len(numbers), 10)
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        self.assertEqual(values[:len(numbers)], numbers)  # rows without a number come last
        page.evaluate(click('#table th button', 'tokens/s ↓'))
        self.assertEqual([v for v in page.evaluate(column) if v is not None], sorted(numbers))
        page.evaluate("document.querySelector('#table tbody tr').click()")
        details = page.evaluate("document.querySelector('#table .details').textContent")
        wider = "[...document.querySelectorAll('.detail-columns > div')].filter((e) => e.scrollWidth > e.clientWidth).length"
        self.assertEqual(page.evaluate(wider), 0)  # no number overlaps its neighbour
        for part in ('Time per output token, 99th percentile', 'HBM: weights', 'exposed'):
            self.assertIn(part, details)
        self.assertEqual(page.evaluate("[',.4r', '.1%'].map((format) => formatMetric({ format }, 0))"), ['0', '0.0%'])


    def found(self, page, text):
        page.evaluate(f"(() => {{ const s = document.getElementById('table-search'); s.value = {json.dumps(text)}; s.dispatchEvent(new Event('input')); }})()")
        return int(self.counted(page).split(' ')[0])

    def test_a_search_matches_whole_numbers_and_beginnings_of_words(self):
        page = self.open('sweep')
        page.evaluate("document.getElementById('table-selected').click()")
        rows = page.evaluate("sharedRows('experiments').map(({ batch, budget, policy, variant, context, key, hardware }) => ({ batch, budget, policy, variant, context, key, hardware }))")
        count = lambda test: sum(map(test, rows))
        self.assertEqual(self.found(page, 'batch 1'), count(lambda r: r['batch'] == 1))
        self.assertEqual(self.found(page, 'batch 1 batch 4'), 0)
        self.assertEqual(self.found(page, 'budget 25'), 0)
        self.assertEqual(self.found(page, 'quest Budget 1,024'), count(lambda r: r['policy'] == 'quest' and r['budget'] == 1024))
        self.assertEqual(self.found(page, 'context 32k topk'), count(lambda r: r['context'] == 32768 and r['policy'] == 'exact_topk'))
        self.assertEqual(self.found(page, '32K tokens'), count(lambda r: r['context'] == 32768))
        self.assertEqual(self.found(page, 'a10'), count(lambda r: r['hardware'].startswith('a100')))
        self.assertEqual(self.found(page, 'otkv'), 0)
        self.assertEqual(self.found(page, rows[0]['key'][:12]), 0)
        # "0.3" is rocketkv's split factor or a number of a column, not the end of 20.3 or the beginning of 0.35.
        self.found(page, 'rocketkv 0.3')
        page.evaluate("tableState.limit = Infinity; drawTable()")
        cells = page.evaluate("[...document.querySelectorAll('#table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))")
        self.assertGreaterEqual(len(cells), count(lambda r: r.get('variant', '').endswith('0.3')))
        for row in cells:
            self.assertTrue(any(re.search(r'(?<![\d.])0\.3(?![\d.])', cell) for cell in row), row)
        self.assertIn('batch 1', page.evaluate("document.getElementById('table-search').placeholder"))

    def test_the_keyboard_focus_keeps_its_position(self):
        page = self.open('sweep')
        page.evaluate("document.getElementById('table-selected').click()")

        def enter(selector):
            page.evaluate(f"document.querySelector('{selector}').focus()")
            page.call('Input.dispatchKeyEvent', type='keyDown', key='Enter', code='Enter', windowsVirtualKeyCode=13, text='\r')
            page.call('Input.dispatchKeyEvent', type='keyUp', key='Enter', code='Enter', windowsVirtualKeyCode=13)
            return page.evaluate("((e) => [e.tagName, e.textContent, e.getAttribute('aria-expanded'), e.id])(document.activeElement)")

        self.assertEqual(enter('#table th:nth-child(2) button')[:2], ['BUTTON', page.evaluate("tableColumns[1].name + ' ↑'")])
        row = page.evaluate("document.querySelectorAll('#table .row-button')[3].id")
        # Its name identifies the experiment: the machine alone would not.
        self.assertEqual(page.evaluate(f"document.getElementById('{row}').getAttribute('aria-label')"),
                         page.evaluate(f"[...document.getElementById('{row}').closest('tr').cells].slice(0, firstResult).map((c) => c.textContent).filter(Boolean).join(', ')"))
        for expanded in ('true', 'false'):
            self.assertEqual(enter('#' + row)[2:], [expanded, row])
        # The button that shows all rows disappears; the first of the new ones follows it.
        self.assertEqual(enter('#table-all')[3], page.evaluate("document.querySelectorAll('#table .row-button')[100].id"))


class Page(ReportCase):
    def test_the_table_is_not_cut_on_a_wide_screen(self):
        page = self.sweep(width=1440)
        frame, table, status = page.evaluate("['.table-frame', '#table', '#table .row:first-child td:last-child'].map((s) => document.querySelector(s).getBoundingClientRect().right)")
        self.assertLessEqual(table, frame + 1)
        self.assertLessEqual(status, frame + 1)
        whys = page.evaluate("[...document.querySelectorAll('#table .why')].map((cell) => cell.getBoundingClientRect().right)")
        self.assertGreater(len(whys), 0)
        self.assertLessEqual(max(whys), frame + 1)
        self.assertFalse(page.evaluate('document.documentElement.scrollWidth > innerWidth'))

    def test_bars_of_shares_fill_their_track_as_they_say(self):
        page = self.open('sweep')
        filled = page.evaluate("((box) => { document.getElementById('lead').replaceChildren(box); return [...box.querySelectorAll('.bar')].map((b) => b.getBoundingClientRect().width / b.parentElement.getBoundingClientRect().width); })"
                               "(drawBars([{ label: 'HBM', text: '79 % of a step', from: 0, to: 0.79 }, { label: 'link', text: '21 % of a step', from: 0, to: 0.21 }], 'h100-sxm'))")
        for share, expected in zip(filled, (0.79, 0.21), strict=True):
            self.assertAlmostEqual(share, expected, delta=0.01)

    def test_contexts_have_one_format_and_their_exact_number_at_hand(self):
        page = self.sweep()
        self.assertEqual(page.evaluate('[512, 1024, 32000, 130560, 131072, 1048576].map(formatTokens)'), ['512', '1K', '31.25K', '127.5K', '128K', '1,024K'])
        self.assertEqual(page.evaluate("withSeparators('budget 1024 on at 16K, 130560 tokens')"), 'budget 1,024 on at 16K, 127.5K tokens')
        at = page.evaluate("tableColumns.findIndex(({ name }) => name === 'Context')")
        cell = page.evaluate(f"(() => {{ const c = document.querySelector('#table tbody tr').cells[{at}]; return [c.textContent, c.title]; }})()")
        self.assertEqual(cell, ['32K', '32,768 tokens'])
        # Panels of charts use the same format.
        self.assertTrue(all(' 32K tokens' in title for title in page.evaluate("figures[0].view.data('panels').map(({ panel }) => panel)")))

    def test_the_head_states_machines_models_and_workload(self):
        page = self.sweep()
        self.assertEqual(page.evaluate("document.getElementById('setting').textContent"),
                         'llama-3.1-8b · on a100-40gb-pcie4 and h100-sxm · contexts of 16K to 128K tokens · batch 1 to 8 · 10 policies')

    def test_findings_and_foundations_are_shown(self):
        page = self.sweep()
        self.assertEqual(page.evaluate("document.querySelectorAll('.finding').length"), 3)
        text = page.evaluate("document.getElementById('foundations').textContent")
        for part in ('HBM bandwidth', 'NVIDIA data sheet', '±10 %', 'copy issue cost', 'FreeKV, section 4', '414'):
            self.assertIn(part, text)

    def test_a_card_has_one_number_one_sentence_and_one_picture(self):
        page = self.sweep()
        text = lambda name: page.evaluate(f"[...document.querySelectorAll('.finding')].map((f) => f.querySelectorAll('{name}').length > 1 ? 'several' : (f.querySelector('{name}') || {{}}).textContent || '')")
        self.assertEqual(text('.finding-number'), ['4 × full KV', '-10 % to +30 %', 'HBM bandwidth'])
        # The text describes the machine with the fastest recommendation; a click shows the other one.
        self.assertEqual(text('.finding-text')[:2], ['On h100-sxm, 128K tokens: rocketkv, budget 1,024.', 'On h100-sxm: the link may move a step.'])
        self.assertEqual(text('summary'), ['Details for both', '', 'Details'])
        self.assertIn('In 71\u00a0% of', text('.finding-detail')[2])  # no line starts with a percent sign
        self.assertFalse(page.evaluate("[...document.querySelectorAll('.finding details')].some((d) => d.open)"))
        self.assertLess(page.evaluate("Math.max(...[...document.querySelectorAll('.finding:not(.decision)')].map((f) => f.getBoundingClientRect().height))"), 260)
        box = page.evaluate("[...document.querySelectorAll('.finding .bar')].map((b) => { const r = b.getBoundingClientRect(); const t = b.parentElement.getBoundingClientRect();"
                            " return [(r.left - t.left) / t.width, r.width / t.width]; })")
        # -10 to +30 % covers the whole track.
        for (left, width), expected in zip(box, [(0, 1)], strict=True):
            self.assertAlmostEqual(left, expected[0], places=2)
            self.assertAlmostEqual(width, expected[1], places=2)

    def test_the_first_screen_is_the_decision(self):
        for width, height in HEIGHTS.items():
            page = self.sweep(width=width)
            # The verdict, its costs and its certainty are seen without scrolling, on a desk with the whole chart.
            ends = page.evaluate("['.decision .finding-number', '.decision dl', '.best-lines'].map((s) => document.querySelector(s).getBoundingClientRect().bottom)")
            self.assertLess(ends[2 if width == 1440 else 1], height)
            shown = page.evaluate("[...document.querySelector('.best-lines').querySelectorAll('.best:not(.best-head)')].map((line) => { const t = line.querySelector('.best-track').getBoundingClientRect(), b = line.querySelector('.best-bar').getBoundingClientRect(), r = line.querySelector('.best-range'), w = r && r.getBoundingClientRect();"
                                  " return { name: line.querySelector('.best-name').innerText, bar: b.width / t.width, range: w && [(w.left - t.left) / t.width, (w.right - t.left) / t.width], color: getComputedStyle(line.querySelector('.best-bar')).backgroundColor, chosen: line.matches('.chosen') }; })")
            # The store gives each policy's fastest experiment at 128K on the machine of the verdict, of rocketkv at its budget.
            rows = page.evaluate("sharedRows('experiments').filter((r) => r.hardware === 'h100-sxm' && r.context === 131072 && r.status === 'ok' && !(r.policy === 'rocketkv' && r.budget !== 1024))")
            best = {}
            for row in rows:
                if row['tps'] > best.get(row['policy'], {'tps': 0})['tps']:
                    best[row['policy']] = row
            reach = max(row.get('tps_high', row['tps']) for row in best.values())
            self.assertEqual(len(shown), 8)
            self.assertIn('full', [line['name'].split(',')[0] for line in shown])
            self.assertEqual([line['name'].split(',')[0] for line in shown if line['chosen']], ['rocketkv'])
            for line in shown:
                row = best[line['name'].split(',')[0]]
                self.assertAlmostEqual(line['bar'], row['tps'] / reach, delta=0.01)
                if line['range']:
                    for end, side in zip(line['range'], ('tps_low', 'tps_high')):
                        self.assertAlmostEqual(end, row[side] / reach, delta=0.01)
            colors = page.evaluate("Object.fromEntries(sharedRows('series').map((s) => [s.policy, s.color]))")
            for line in shown:
                color = colors[line['name'].split(',')[0]]
                if line['name'].startswith(('rocketkv', 'full')):
                    self.assertEqual(line['color'], 'rgb({}, {}, {})'.format(*(int(color[i:i + 2], 16) for i in (1, 3, 5))))
            told = page.evaluate("[...document.querySelectorAll('.decision dd')].map((d) => d.textContent)")
            own = best['rocketkv']
            self.assertIn(f"{own['hbm'] / 1e9:.3g} GB of HBM", told[0])
            self.assertIn('80\u00a0% interval ', told[1])
            self.assertEqual(page.evaluate("document.querySelector('.finding-choice').textContent"), 'rocketkv')
            # The largest batch at which each policy fits, where some batch of some policy does not.
            swept = page.evaluate("sharedRows('experiments').filter((r) => r.hardware === 'h100-sxm' && r.context === 131072 && !r.oracle && (r.status === 'ok' || r.status === 'oom')).map((r) => [r.policy, r.batch, r.status])")
            largest = {}
            for policy, batch, status in swept:
                largest[policy] = max(largest.get(policy, 0), batch if status == 'ok' else 0)
            self.assertTrue(any(status == 'oom' for _, _, status in swept))
            for policy, batch in largest.items():
                self.assertRegex(told[2], rf"{f'batch {batch}' if batch else 'no batch'}: [^;]*\b{policy}\b")
            self.assertEqual(page.evaluate(seen.CUT), [])

    def test_the_first_screen_compares_machines(self):
        page = self.sweep()
        place = lambda name, batch, rate: {'place': name, 'number': '', 'text': f'rocketkv, budget 1024 at 128K tokens, batch {batch}: {rate} requests/s',
                                           'bars': [{'label': 'rocketkv', 'text': f'{rate} requests/s', 'from': 0, 'to': rate}]}
        places = json.dumps([place('a100-40gb-pcie4', 8, 0.5), place('h100-sxm', 16, 2)])
        lines = page.evaluate(f"[...drawPlaces({places}, 'h100-sxm').querySelectorAll('.best:not(.best-head)')].map((line) => [line.querySelector('.best-name').textContent, line.querySelector('.best-bar').style.width, line.querySelector('.best-value').textContent, line.matches('.chosen')])")
        self.assertEqual(lines, [['h100-sxm: rocketkv, batch 16', '100%', '2', True], ['a100-40gb-pcie4: rocketkv, batch 8', '25%', '0.5', False]])
        # Nothing is compared on one machine.
        self.assertEqual(page.evaluate(f"drawPlaces({places}.slice(1), 'h100-sxm')"), '')

    def test_the_price_of_requests_is_compared_with_full_kv(self):
        page = self.open('sweep')
        # Full KV at 2 and rocketkv at 1.5 for a request: a thousand cost 2,000 and 1,500, a quarter less.
        told = page.evaluate("(() => { page.metrics.push({ field: 'request_cost', label: '', unit: '', format: ',.3r' });"
                             " const rows = sharedRows('experiments').filter((r) => r.hardware === 'h100-sxm' && r.context === 131072 && r.status === 'ok'); rows.forEach((r) => { r.request_cost = r.policy === 'full' ? 2 : 1.5; });"
                             " const shown = { place: 'h100-sxm', bars: [], text: '' }; return costsOf(bestByPolicy(shown, 'rocketkv'), shown, 'rocketkv')[0][1]; })()")
        self.assertIn('1K requests cost 1,500, with full KV 2,000 (25 % less)', told)

    def test_the_costs_are_those_of_the_batch_that_the_finding_names(self):
        page = self.open('sweep')
        # Batches that a search found are not among the rows that were swept.
        told = page.evaluate("(() => { const shown = { place: 'h100-sxm', text: '', best: { batch: 256, rps: 1.81, rps_low: 1.52, rps_high: 2.14, hbm: 35.5e9 }, full: { batch: 30, rps: 1.66, hbm: 62e9 },"
                             " bars: [{ label: 'rocketkv', text: '1.81 requests/s', to: 1.81 }, { label: 'quest', text: '1.74 requests/s', to: 1.74 }, { label: 'full KV', text: '1.66 requests/s', to: 1.66 }] };"
                             " if (!page.metrics.some(({ field }) => field === 'rps')) page.metrics.push({ field: 'rps', label: '', unit: 'requests/s', format: ',.3r' });"
                             " sharedRows('experiments').forEach((r) => { r.rps = r.rps || 1; });"
                             " return costsOf(bestByPolicy(shown, 'rocketkv'), shown, 'rocketkv').map(([, text]) => text); })()")
        self.assertIn('35.5 GB of HBM, full KV 62 GB at batch 30', told[0])
        self.assertIn('80 % interval 1.52 to 2.14 requests/s; quest at its best batch (1.74) is within it', told[1])

    def test_headings_of_the_table_explain_themselves_in_words(self):
        titles = self.open('sweep').evaluate("[...document.querySelectorAll('#table th[title]')].map((head) => head.title)")
        self.assertTrue(titles)
        self.assertEqual([title for title in titles if '=>' in title], [])

    def test_a_score_below_the_floor_makes_a_bar_faint(self):
        page = self.open('sweep')
        lines = page.evaluate("(() => { const rows = sharedRows('experiments').filter((r) => r.hardware === 'h100-sxm' && r.context === 131072 && r.status === 'ok'); rows.forEach((r) => { r.score = r.policy === 'snapkv' ? 0.8 : 0.97; });"
                              " return bestByPolicy({ place: 'h100-sxm', bars: [], text: '' }, '').lines.map(({ row, keeps }) => [row.policy, keeps]); })()")
        self.assertEqual(lines[-1], ['snapkv', False])
        self.assertTrue(all(keeps for policy, keeps in lines if policy != 'snapkv'))
        node = "drawBest(bestByPolicy({ place: 'h100-sxm', bars: [], text: '' }, ''), 'rocketkv')"
        self.assertEqual(page.evaluate(node + ".querySelectorAll('.below').length"), 0 if len(lines) > 8 else 1)
        self.assertIn('97\u00a0%', page.evaluate(node + '.textContent'))

    def test_an_origin_links_to_its_sources(self):
        page = self.open('sweep', '#hardware=h100-sxm')
        self.assertFalse(page.evaluate("document.querySelector('#foundations details').open"))
        page.evaluate(click('#figure-throughput_budget .note a', 'assumed'))
        marked = "[...document.querySelectorAll('#origins .marked')].map((r) => r.cells[0].textContent)"
        self.assertEqual(page.evaluate(marked), ['h100-sxm: kernel latency floor'])
        page.wait("((r) => r.top >= 0 && r.bottom <= innerHeight)(document.querySelector('#origins .marked').getBoundingClientRect())")
        page.evaluate(choose('filter-hardware', 'all'))
        page.evaluate(click('#figure-throughput_budget .note a', 'assumed'))
        self.assertEqual(len(page.evaluate(marked)), 2)  # one on each machine
        page.evaluate("document.querySelector('#table tbody tr').click()")
        page.evaluate(click('#table .details a', 'assumed'))
        self.assertEqual(page.evaluate(marked), [page.evaluate("sharedRows('experiments').find((r) => isSelected(r)).hardware") + ': kernel latency floor'])

    def test_numbers_of_one_source_are_marked_together(self):
        page = self.open('sweep')
        # Two of the three numbers of a machine come from one source, which numbers of the other machine share.
        page.evaluate("for (const machine of ['h100-sxm', 'a100-40gb-pcie4']) page.origins.filter(({ what }) => what.startsWith(machine))"
                      ".forEach((row, i) => Object.assign(row, { what: machine + ': gpu.number_' + i, source: i < 2 ? 'one paper' : 'another' }))")
        marked = "[...document.querySelectorAll('#origins tr')].map((line, i) => line.classList.contains('marked') ? page.origins[i - 1].what : '').filter(Boolean).sort()"
        for label, expected in (('gpu.number_0 and 1 of the same source', [0, 1]), ('gpu.number_0', [0]), ('gpu.number_2', [2])):
            page.evaluate(f"document.getElementById('lead').replaceChildren(drawBars([{{ label: '{label}', text: '', from: 0, to: 1 }}], 'h100-sxm'))")
            page.evaluate("document.querySelector('#lead a').click()")
            self.assertEqual(page.evaluate(marked), [f'h100-sxm: gpu.number_{i}' for i in expected])

    def test_labels_and_intervals_stand_out_from_the_background(self):
        definition = json.loads((pathlib.Path(__file__).parents[2] / 'reports' / 'palette.json').read_text())
        palette = {}  # by policy and shade, as Palette::variant_color mixes them
        for policy, look in definition['policies'].items():
            for shade in definition['shades']:
                tone = mixed(color(look['color']), [255 if shade > 0 else 0] * 3, abs(shade))
                palette[f'{policy} {shade}'] = '#' + ''.join(f'{round(part):02x}' for part in tone)
        for dark in (False, True):
            page = self.open('sweep', dark=dark)
            paper = color(page.evaluate("getComputedStyle(document.querySelector('figure')).backgroundColor"))
            # WCAG 1.4.3 requires a contrast of 4.5 for text.
            drawn = page.evaluate("[...document.querySelectorAll('.plot g.series_labels > text, .plot g.batch_marks > text')].map((t) => t.getAttribute('fill'))")
            self.assertGreater(len(drawn), 30)
            self.assertGreaterEqual(min(contrast(color(fill), paper) for fill in drawn), 4.5)
            lines = page.evaluate("[...document.querySelectorAll('#plot-throughput_budget g.intervals > line')].map((l) => [l.getAttribute('stroke'), Number(l.getAttribute('opacity'))])")
            self.assertGreater(min(contrast(mixed(paper, color(stroke), opacity), paper) for stroke, opacity in lines), 2)
            # The same for every policy and shade of the palette, drawn or not.
            labels = page.evaluate(f"(() => {{ const palette = {json.dumps(palette)}, names = Object.keys(palette), at = names.map((_, i) => i);"
                                   " page.tables.series = { rows: names.length, numbers: {}, texts: { series: { of: names, at }, policy: { of: names, at }, label: { of: names, at }, color: { of: Object.values(palette), at } } };"
                                   " const view = newView(figures[0], currentTheme(), { renderer: 'none' }).run();"
                                   " return Object.fromEntries(view.data('label_colors').map((row) => [row.series, row.label_color])); })()")
            self.assertEqual(set(labels), set(palette))
            for name, label in labels.items():
                self.assertGreaterEqual(contrast(color(label), paper), 4.5, (name, dark))
            first = [label for name, label in labels.items() if name.endswith(' 0')]
            self.assertEqual(len(set(first)), len(definition['policies']))  # as different as the policies

    def test_nothing_is_cut_faint_or_on_top_of_another_text(self):
        for kind in ('sweep', 'seeds', 'match'):
            for width, dark in ((1440, False), (1024, True), (768, False), (420, True)):
                with self.subTest(kind=kind, width=width):
                    page = self.sweep(width=width, dark=dark) if kind == 'sweep' and not dark else self.open(kind, width=width, dark=dark)
                    self.assertEqual(page.evaluate('document.documentElement.scrollWidth'), width)
                    self.assertEqual(page.evaluate(seen.CUT), [])
                    self.assertEqual(seen.overlapping(page), [])
                    self.assertEqual(seen.outside(page), [])
                    self.assertEqual(page.evaluate(seen.FAINT), [])

    def test_colours_follow_light_and_dark(self):
        background = 'getComputedStyle(document.body).backgroundColor'
        label = "document.querySelector('#plot-throughput_budget .role-axis-label text').getAttribute('fill')"
        light, dark = self.sweep(), self.open('sweep', dark=True)
        self.assertEqual(light.evaluate(background), 'rgb(246, 247, 249)')
        self.assertEqual(dark.evaluate(background), 'rgb(17, 19, 23)')
        self.assertNotEqual(light.evaluate(label), dark.evaluate(label))
        expected = light.evaluate(label)
        dark.evaluate("document.getElementById('theme').click()")
        self.assertEqual(dark.evaluate(background), 'rgb(246, 247, 249)')
        self.assertEqual(dark.evaluate(label), expected)
        self.assertEqual(dark.evaluate(marks('throughput_budget', 'dots')), 54)

    def test_no_printed_page_has_only_a_few_lines(self):
        if not shutil.which('pdftotext'):
            self.skipTest('pdftotext (apt-get install poppler-utils) is missing')
        page = self.open('sweep')
        pdf = self.folder / 'page.pdf'
        pdf.write_bytes(base64.b64decode(page.call('Page.printToPDF', printBackground=True)['data']))
        sheets = subprocess.run(['pdftotext', '-layout', pdf, '-'], check=True, capture_output=True, text=True).stdout.split('\f')[:-1]
        self.assertGreater(len(sheets), 3)
        lines = [len([line for line in sheet.splitlines() if line.strip()]) for sheet in sheets]
        self.assertGreater(min(lines), 5, lines)
        # A figure and its caption are on the same sheet.
        for name in FIGURES:
            title, caption = page.evaluate(f"[document.querySelector('#figure-{name} h2').lastChild.textContent, document.querySelector('#figure-{name} figcaption p').textContent.split(' ').slice(0, 4).join(' ')]")
            self.assertTrue(any(title in sheet and caption in ' '.join(sheet.split()) for sheet in sheets), name)

    def test_print_has_no_controls_and_states_the_selection(self):
        page = self.open('sweep')
        page.evaluate(choose('filter-batch', '1'))
        page.evaluate(click('.chip', 'quest'))
        page.prefer('light', media='print')
        seen = page.evaluate("[...document.querySelectorAll('button, select, input, summary')].filter((n) => n.checkVisibility() && !n.closest('#table') && !n.closest('details[open]')).map((n) => n.outerHTML)")
        self.assertEqual(seen, [])
        text = page.evaluate("document.getElementById('filters').innerText")
        for part in ('Context 32K tokens', 'Batch 1', 'Budget 1,024 tokens', 'Not shown: '):
            self.assertIn(part, text)
        self.assertIn('quest', text.split('Not shown: ')[1].rstrip('.').split('; '))
        self.assertNotIn('Click a heading', page.evaluate("document.getElementById('table-section').innerText"))

    def test_bars_and_their_intervals_are_printed_without_backgrounds(self):
        page = self.sweep()
        for name in ('.best-bar', '.best-range'):
            self.assertEqual(page.evaluate(f"getComputedStyle(document.querySelector('{name}')).printColorAdjust"), 'exact', name)

    def test_dark_charts_turn_light_for_print(self):
        page = self.sweep(dark=True)
        label = "document.querySelector('#plot-throughput_budget .role-axis-label text').getAttribute('fill')"
        dark = page.evaluate(label)
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.assertNotEqual(page.evaluate(label), dark)
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(page.evaluate(label), dark)

    def test_results_that_lack_nearly_everything_are_shown(self):
        page = self.open('bare')
        name = '</title><script>alert(2)</script>{{data}}'
        self.assertEqual(page.evaluate("document.getElementById('title').textContent"), name)
        self.assertEqual(page.evaluate('document.title'), name)
        self.assertEqual(page.evaluate('document.scripts.length'), 4)  # the page's own: nothing of the data became a script
        self.assertEqual(self.counted(page), '5 of 5 experiments')
        self.assertEqual(page.evaluate("document.querySelectorAll('#figure-split_factor').length"), 0)  # no row has a split factor
        self.assertIn('window 64 is longer than the prompt', page.evaluate("document.getElementById('table').textContent"))

    def test_a_part_of_a_sweep_says_what_it_leaves_out(self):
        out = self.folder / 'sweep' / 'part'
        subprocess.run([self.writer, self.folder / 'sweep', out, 'hardware=h100-sxm', 'workload.prompt_tokens=32768'], check=True,
                       stdout=subprocess.DEVNULL)
        page = self.load((out / 'index.html').as_uri())
        shown = int(page.evaluate("document.getElementById('table-count').textContent.split(' of ')[1].split(' ')[0]"))
        self.assertLess(shown, 414)  # those of the machine, at all contexts
        self.assertIn(f'This page shows {shown} of 828 experiments, those with hardware = h100-sxm and workload.prompt_tokens = 32768: ',
                      page.evaluate("document.getElementById('lead').innerText"))
        page.evaluate("document.querySelector('#other-parts summary').click()")
        others = page.evaluate("document.getElementById('other-parts').innerText")
        self.assertIn("--where hardware='a100-40gb-pcie4'", others)
        self.assertIn('hardware: a100-40gb-pcie4, h100-sxm', others)

    def test_a_store_without_rows_is_shown(self):
        page = self.open('empty')
        self.assertIn('holds no experiments yet', page.evaluate("document.getElementById('lead').textContent"))
        self.assertEqual(page.evaluate("[...document.querySelectorAll('figure .empty')].filter((e) => !e.hidden).length"), 5)

    def test_thousands_of_experiments_can_be_shown(self):
        self.assertLess((self.folder / 'large' / 'out' / 'index.html').stat().st_size, 6e6)
        page = self.open('large')
        self.assertEqual(page.evaluate("document.getElementById('table-count').textContent.split(' of ')[1].split(' ')[0]"), '3,040')
        self.assertGreater(page.evaluate(marks('throughput_budget', 'dots')), 80)


if __name__ == '__main__':
    chromium.run_tests(ReportCase, 'fixture', 'writer')
