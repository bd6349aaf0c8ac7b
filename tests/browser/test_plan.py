"""The answers of a plan as a reader sees them. Expected positions follow from the answers below.

usage: test_plan.py FIXTURE WRITER [unittest arguments]
Exits with 77, which ctest reports as skipped, if Chromium is missing.
"""

import json
import math
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import chromium

QUEST, FULL = 'quest, budget 2048', 'full'


def side(value, resource='hbm bandwidth'):
    return {'fits': True, 'value': value, 'binding_resource': resource}


MISFIT = {'fits': False, 'binding_resource': 'hbm capacity'}

# Throughput of both variants, 60 to 2000 tokens/s, so that the metric's axis is logarithmic too.
BREAK_EVEN = {'metric': 'decode.tokens_per_s', 
    'key': 'workload.batch', 'of': QUEST, 'against': FULL, 'always': None,
    'crossings': [{'value': 4, 'interval': [2, 8], 'open': [False, False], 'below': {'better': FULL}, 'above': {'better': QUEST}}],
    'samples': [{'x': 1, 'of': side(60), 'against': side(80)}, {'x': 4, 'of': side(250), 'against': side(250)},
                {'x': 16, 'of': side(900), 'against': side(600)}, {'x': 64, 'of': side(2000), 'against': MISFIT}]}
TARGETS = {
    'key': 'workload.prompt_tokens', 'of': 'the run', 'against': None, 'always': None,
    'crossings': [{'value': 32768, 'interval': [16384, 65536], 'open': [False, True], 'below': {'better': 'met'}, 'above': {'better': 'missed'}}],
    'samples': [{'x': x, 'of': {'fits': True}, 'against': None} for x in (4096, 32768, 65536)]}
# From 20 ms by -12, +3 and, in two small parts, +0.02 to 11.02 ms.
WHY = {
    'of': QUEST, 'against': FULL, 'seconds': {'of': 0.01102, 'against': 0.02}, 'difference': -0.00898,
    'binding_resource': {'of': 'kernel latency', 'against': 'hbm bandwidth'},
    'parts': [{'kind': 'attention', 'resource': 'hbm bandwidth', 'seconds': -0.012, 'of': 0.002, 'against': 0.014},
              {'kind': 'score', 'resource': 'kernel latency', 'seconds': 0.003, 'of': 0.003, 'against': 0},
              {'kind': 'small', 'resource': 'kernel latency', 'seconds': 0.00001, 'of': 0.001, 'against': 0.00099},
              {'kind': 'launch', 'resource': 'host thread', 'seconds': 0.00001, 'of': 0.001, 'against': 0.00099}]}
SENSITIVITIES = {
    'metric': 'decode.tokens_per_s', 'value': 500, 'binding_resource': 'hbm bandwidth',
    'sensitivities': [{'key': 'workload.batch', 'elasticity': 0.8, 'value': 4, 'grows': []},
                      {'key': 'hardware.gpu.floor_attention_with_a_long_name', 'elasticity': -0.4, 'value': 1e-6, 'grows': []},
                      {'key': 'hardware.gpu.hbm_bandwidth', 'elasticity': 0.2, 'value': 3e12, 'grows': []}]}


def setting(policy, batch, tps, gigabytes, score=None):
    metrics = {'request.output_tokens_per_s': tps, 'request.ttft_s': 2, 'request.latency_s': 7.5, 'decode.tpot_s.mean': 0.01,
               'memory.hbm_peak_bytes': gigabytes * 1e9}
    if score is not None:
        metrics |= {'score': score}
    if policy == 'quest':  # the others have no price, so that the axis stays memory
        metrics |= {'cost_per_million_tokens': 0.5}
    return {'config': {'policy.name': policy, 'workload.batch': str(batch)}, 'metrics': metrics, 'binding_resource': 'hbm bandwidth',
            'intervals': {'request.output_tokens_per_s': [0.9 * tps, 1.1 * tps]}}


CHOOSE = {'grid': 12, 'objective': 'fastest', 'best': [setting('quest', 16, 900, 60, 0.97), setting('snapkv', 16, 880, 50, 0.91)],
          'front': [setting('quest', 16, 900, 60, 0.97), setting('snapkv', 16, 880, 50, 0.91), setting('snapkv', 1, 90, 20, 0.9),
                    setting('full', 4, 300, 45, 1)]}
CHOOSE_ALONE = {'grid': 6, 'objective': 'fastest', 'best': [setting('full', 4, 429, 25.6, 1)], 'front': [setting('full', 4, 429, 25.6, 1)]}


def served(policy, rate, low, high, cost):
    return {'config': {'policy.name': policy}, 'metrics': {'serving.ttft_s.p99': 0.25}, 'capacity_per_s': rate, 'interval': [low, high],
            'cost_per_million_output_tokens': cost, 'binding_resource': None}


CHOOSE_SERVICE = {'grid': 4, 'objective': 'cheapest', 'settings': [served('quest', 8, 5, 10, 0.5), served('snapkv', 7.5, 5, 9, 0.52), served('full', 4, 4, 4, 1)],
                  'best': [served('quest', 8, 5, 10, 0.5), served('snapkv', 7.5, 5, 9, 0.52)],
                  'out_of_reach': [{'config': {'policy.name': 'tova'}, 'capacity_below_per_s': 5, 'least_cost_per_million_output_tokens': 0.8}]}


def cell(x, y, best, told_apart=True):
    return {'x': x, 'y': y, 'best': best, 'simulated': True, 'told_apart': told_apart, 'times': 1.2, 'binding_resource': 'hbm bandwidth'}


# The best policy is full at batch 1 and quest elsewhere; nothing fits at the upper right.
MAP = {'x': 'workload.batch', 'y': 'workload.prompt_tokens', 'metric': 'decode.tokens_per_s',
       'cells': [cell(1, 4096, FULL, False), cell(8, 4096, QUEST), cell(1, 8192, FULL), cell(8, 8192, QUEST),
                 cell(1, 16384, FULL), cell(8, 16384, 'none')],
       'borders': [{'x': [1, 8], 'y': [4096, 4096], 'between': [FULL, QUEST]}, {'x': [1, 8], 'y': [8192, 8192], 'between': [FULL, QUEST]},
                   {'x': [1, 8], 'y': [16384, 16384], 'between': [FULL, 'none']}, {'x': [8, 8], 'y': [8192, 16384], 'between': [QUEST, 'none']}]}
LARGEST = {'key': 'workload.batch', 'value': 16, 'interval': [8, 32], 'limited_by': 'hbm', 'range': [1, 256]}
ANSWERS = [('break_even', BREAK_EVEN, 'At which workload.batch from 1 to 64 does quest, budget 2048 beat full in Decode throughput?'),
           ('break_even', TARGETS, 'At which workload.prompt_tokens from 4096 to 65536 does the run meet its targets?'),
           ('why', WHY, 'Why does quest, budget 2048 differ from full in Time per output token, mean?'),
           ('sensitivities', SENSITIVITIES, 'What does Decode throughput depend on?'),
           ('choose', CHOOSE, 'Which of 12 settings is the fastest?'),
           ('map', MAP, 'Which policy is best in Decode throughput over workload.batch and workload.prompt_tokens?'),
           ('largest', LARGEST, 'What is the largest workload.batch that fits?'),
           ('choose', CHOOSE_ALONE, 'Which of 6 settings is the fastest?'),
           ('choose', CHOOSE_SERVICE, 'Which of 4 settings costs least per output token?'),
           ('largest', {'key': 'workload.batch', 'value': None, 'limited_by': 'hbm'}, 'What is the largest batch of nothing?')]
NAMES = [f'plan_{i + 1}_{kind}' for i, (kind, _, _) in enumerate(ANSWERS)]
DRAWN = NAMES[:9]


def boxes(name, mark, shape='path'):
    """Returns an expression for the boxes [left, top, right, bottom] of the marks of that name, relative to the plot's corner."""
    return (f"((plot) => [...plot.querySelectorAll('g.{mark} > {shape}')].map((m) => {{ const r = m.getBoundingClientRect(), p = plot.getBoundingClientRect();"
            f" return [r.left - p.left, r.top - p.top, r.right - p.left, r.bottom - p.top]; }}))(document.getElementById('plot-{name}'))")


def texts(name, mark):
    return f"[...document.querySelectorAll('#plot-{name} g.{mark} text')].map((t) => t.textContent)"


def scale(name, which, value):
    return f"plans.find((p) => p.name === '{name}').view.scale('{which}')({value})"


class PlanCase(unittest.TestCase):
    fixture = writer = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='kvcast-plan-'))
        answers = cls.folder / 'answers.json'
        answers.write_text(json.dumps([
            {'kind': kind, 'question': question, 'text': f'Conclusion {i}.', 'details': [f'Ground {i}.', '  row'], 'data': data, 'runs': 3 + i}
            for i, (kind, data, question) in enumerate(ANSWERS)]))
        for kind, store in (('plan', 'plan'), ('both', 'sweep')):
            subprocess.run([cls.fixture, cls.folder / kind, store, answers], check=True)
            subprocess.run([cls.writer, cls.folder / kind, cls.folder / kind / 'out'], check=True, stdout=subprocess.DEVNULL)
        cls.browser = chromium.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def open(self, kind='plan', **options):
        page = self.browser.open((self.folder / kind / 'out' / 'index.html').as_uri(), **options)
        self.addCleanup(lambda: (self.assertEqual(page.complaints(), []), page.close()))
        return page


class Answers(PlanCase):
    def test_each_answer_shows_question_conclusion_details_and_experiments(self):
        page = self.open()
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#plan .answer h2')].map((h) => h.textContent)"), [q for _, _, q in ANSWERS])
        for i, name in enumerate(NAMES):
            with self.subTest(name):
                block = f"document.getElementById('{name}')"
                self.assertEqual(page.evaluate(f"{block}.querySelector('.answer-text').textContent"), f'Conclusion {i}.')
                self.assertEqual(page.evaluate(f"{block}.querySelector('.note').textContent"), f'{3 + i} experiments')
                row = f"{block}.querySelector('.answer-row').getBoundingClientRect().height"
                self.assertFalse(page.evaluate(f"{block}.querySelector('details').open"))
                page.evaluate(f"{block}.querySelector('summary').click()")
                self.assertGreater(page.evaluate(row), 5)
                self.assertEqual(page.evaluate(f"[...{block}.querySelectorAll('details p')].map((p) => p.textContent)"), [f'Ground {i}.', '  row'])

    def test_the_plan_section_comes_first_and_the_navigation_links_to_it(self):
        page = self.open()
        tops = page.evaluate("['plan', 'table-section', 'foundations'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
        self.assertEqual(tops, sorted(tops))
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#sections a')].map((a) => a.textContent)"), ['Plan', 'All experiments', 'Origins'])
        page.evaluate("[...document.querySelectorAll('#sections a')].find((a) => a.textContent === 'Origins').click()")
        page.wait("document.getElementById('foundations').getBoundingClientRect().top < innerHeight")

    def test_a_plan_alone_has_no_figures_of_a_sweep(self):
        page = self.open()
        for part in ('filters', 'figures', 'findings'):
            self.assertEqual(page.evaluate(f"document.getElementById('{part}').getBoundingClientRect().height"), 0, part)
        self.assertEqual(page.evaluate("document.querySelectorAll('.empty').length"), 0)
        # All three experiments are listed: there are no filters that could leave one out.
        self.assertEqual(page.evaluate("document.querySelectorAll('#table tbody tr').length"), 3)
        self.assertEqual(sorted(p.stem for p in (self.folder / 'plan' / 'out' / 'figures').iterdir()), sorted(DRAWN))

    def test_answers_next_to_a_sweep_leave_its_figures_as_they_are(self):
        page = self.open('both')
        self.assertEqual(page.evaluate("document.querySelectorAll('#plan .answer').length"), len(ANSWERS))
        self.assertEqual(page.evaluate("document.querySelectorAll('#figures figure').length"), 7)
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#sections a')].map((a) => a.textContent)"), ['Plan', 'Figures', 'All experiments', 'Origins'])
        tops = page.evaluate("['plan', 'filters', 'figures'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
        self.assertEqual(tops, sorted(tops))
        # A policy has one colour on the whole page.
        self.assertEqual(page.evaluate("plans[0].view.data('series').find((s) => s.series.startsWith('quest')).color"),
                         page.evaluate("sharedRows('series').find((s) => s.policy === 'quest').color"))

    def test_a_long_name_leaves_the_numbers_in_view(self):
        page = self.open()
        # The name is as long as that of a machine with ten changed numbers.
        page.evaluate("sharedRows('experiments').forEach((row) => { row.policy = 'h100-sxm (' + 'gpu.floor_gemm 0 s, '.repeat(10) + ')'; }), drawTable()")
        self.assertGreater(page.evaluate("document.querySelector('#table td').textContent.length"), 200)
        frame = page.evaluate("((f) => [f.scrollWidth, f.clientWidth])(document.querySelector('.table-frame'))")
        self.assertLessEqual(frame[0], frame[1])

    def test_every_chart_stays_within_its_plot(self):
        for width in (1400, 420):
            page = self.open(width=width)
            self.assertLessEqual(page.evaluate('document.documentElement.scrollWidth'), width)
            for name in DRAWN:
                with self.subTest(f'{name} at {width}'):
                    left, right, drawn = page.evaluate(
                        f"((plot) => {{ const p = plot.getBoundingClientRect(), all = [...plot.querySelectorAll('svg path, svg line, svg text')]"
                        ".filter((m) => m.getAttribute('fill') !== 'transparent' && !m.classList.contains('background')).map((m) => m.getBoundingClientRect()).filter((r) => r.width + r.height > 0);"
                        " return [Math.min(...all.map((r) => r.left)) - p.left, p.right - Math.max(...all.map((r) => r.right)), all.length]; })"
                        f"(document.getElementById('plot-{name}'))")
                    self.assertGreater(drawn, 10)
                    self.assertGreaterEqual(left, -0.5)
                    self.assertGreaterEqual(right, -0.5)

    def test_dark_charts_turn_light_for_print(self):
        page = self.open(dark=True)
        label = f"document.querySelector('#plot-{NAMES[0]} .role-axis-label text').getAttribute('fill')"
        dark = page.evaluate(label)
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.assertNotEqual(page.evaluate(label), dark)
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(page.evaluate(label), dark)
        self.assertIn('#ffffff', page.evaluate('figureSvg(plans[0])'))

    def test_the_chart_specifications_next_to_the_page_are_self_contained(self):
        page = self.open()
        for name in DRAWN:
            with self.subTest(name):
                spec = (self.folder / 'plan' / 'out' / 'figures' / f'{name}.json').read_text()
                count = page.evaluate(f'(async () => (await new vega.View(vega.parse({spec}), {{renderer: "none"}}).toSVG()).split("<path").length)()')
                self.assertGreater(count, 5)


class Charts(PlanCase):
    def test_the_crossing_is_drawn_at_its_position_on_the_axis(self):
        page, name = self.open(), NAMES[0]
        # On a logarithmic axis from 1 to 64, 4 is at a third of the way, and the interval from 2 to 8 extends from a sixth to a half.
        left, right = page.evaluate(scale(name, 'x', 1)), page.evaluate(scale(name, 'x', 64))
        share = lambda x: left + (right - left) * math.log(x) / math.log(64)
        [rule] = page.evaluate(boxes(name, 'crossing_rules', 'line'))
        [shade] = page.evaluate(boxes(name, 'crossing_intervals'))
        origin = page.evaluate(boxes(name, 'dots'))[0]  # quest at 1
        zero = (origin[0] + origin[2]) / 2 - left
        self.assertAlmostEqual((rule[0] + rule[2]) / 2 - zero, share(4), delta=1)
        self.assertAlmostEqual(shade[0] - zero, share(2), delta=1)
        self.assertAlmostEqual(shade[2] - zero, share(8), delta=1)
        self.assertEqual(page.evaluate(f"[...document.querySelectorAll('#plot-{name} g.crossing_labels tspan')].map((t) => t.textContent)"), ['4', '80 %: 2 to 8'])
        self.assertEqual(len(page.evaluate(boxes(name, 'dots'))), 7)  # 4 of quest, 3 of full
        self.assertEqual(len(page.evaluate(boxes(name, 'misfit_dots'))), 1)
        legend = page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-legend-label text')].map((t) => t.textContent)")
        self.assertEqual(legend, [QUEST, FULL])
        titles = page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-axis-title text')].map((t) => t.textContent)")
        self.assertEqual(titles, ['decode throughput, tokens/s', 'batch, sequences'])

    def test_targets_are_met_up_to_the_crossing(self):
        page, name = self.open(), NAMES[1]
        met, missed = page.evaluate(boxes(name, 'segments'))
        # 4K to 64K are four doublings, of which the first three are met.
        self.assertAlmostEqual(met[2] - met[0], 3 * (missed[2] - missed[0]), delta=1)
        self.assertAlmostEqual(met[2], missed[0], delta=1)
        self.assertEqual(page.evaluate(texts(name, 'segment_labels')), ['met', 'missed'])
        ticks = page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-axis-label text')].map((t) => t.textContent)")
        self.assertEqual(ticks, ['4K', '8K', '16K', '32K', '64K'])

    def test_the_waterfall_connects_both_totals(self):
        page, name = self.open(), NAMES[2]
        bars = page.evaluate(boxes(name, 'bars'))
        self.assertEqual(page.evaluate(texts(name, 'row_labels')), [FULL, 'attention', 'score', 'all others', 'quest'])
        self.assertEqual(page.evaluate(texts(name, 'values')), ['20 ms', '−12 ms', '+3 ms', '+0.02 ms', '11 ms'])
        zero, unit = bars[0][0], (bars[0][2] - bars[0][0]) / 20
        ends = [((b[0] - zero) / unit, (b[2] - zero) / unit) for b in bars]
        for (low, high), expected in zip(ends, [(0, 20), (8, 20), (8, 11), (11, 11.02), (0, 11.02)]):
            self.assertAlmostEqual(low, expected[0], delta=0.05)
            self.assertAlmostEqual(high, expected[1], delta=0.05)
        self.assertEqual(len({b[1] for b in bars}), 5)  # they are below one another

    def test_sensitivities_extend_both_ways_with_the_largest_on_top(self):
        page, name = self.open(), NAMES[3]
        bars = page.evaluate(boxes(name, 'bars'))
        zero = bars[0][0]
        self.assertAlmostEqual(bars[1][2], zero, delta=1)
        lengths = [b[2] - b[0] for b in bars]
        self.assertAlmostEqual(lengths[1] / lengths[0], 0.5, delta=0.01)
        self.assertAlmostEqual(lengths[2] / lengths[0], 0.25, delta=0.01)
        self.assertEqual(page.evaluate(texts(name, 'values')), ['+0.8', '−0.4', '+0.2'])
        self.assertEqual([b[1] for b in bars], sorted(b[1] for b in bars))

    def test_the_choice_marks_the_best_and_draws_the_front(self):
        page, name = self.open(), NAMES[4]
        self.assertEqual(len(page.evaluate(boxes(name, 'dots'))), 4)
        best, near = page.evaluate(boxes(name, 'best_rings'))
        self.assertGreater(best[2] - best[0], near[2] - near[0])
        self.assertGreater(best[0], near[0])  # 60 GB, and 50 GB
        self.assertEqual(page.evaluate(f"plans.find((p) => p.name === '{name}').view.data('edge').map((e) => e.tps)"), [90, 300, 880, 900])
        self.assertEqual(len(page.evaluate(boxes(name, 'front'))), 1)
        fills = page.evaluate(f"[...document.querySelectorAll('#plot-{name} g.dots > path')].map((p) => p.getAttribute('fill'))")
        self.assertEqual(len(set(fills)), 4)  # four scores
        page.evaluate(f"document.getElementById('plot-{name}').scrollIntoView({{block: 'center'}})")
        x, y = page.evaluate(f"(() => {{ const r = document.querySelector('#plot-{name} g.dots > path').getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
        page.call('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)
        page.wait("!document.getElementById('tooltip').hidden")
        for part in ('quest, batch 16', 'cost per million output tokens', '0.5', '97.0 %'):
            self.assertIn(part, page.evaluate("document.getElementById('tooltip').textContent"))

        # The colours are those of the predicted benchmark score; a task score is another number.
        self.assertIn('predicted score97.0 % of full KV', page.evaluate("document.getElementById('tooltip').textContent"))
        self.assertIn('predicted score, % of full KV', page.evaluate(texts(name, 'role-legend-title')))

    def test_a_single_choice_is_at_its_memory(self):
        page, name = self.open(), NAMES[7]
        dot, = page.evaluate(boxes(name, 'dots'))
        ticks = page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-axis')].map((axis) => [...axis.querySelectorAll('.role-axis-label text')].map((t) => {{ const r = t.getBoundingClientRect(), p = document.getElementById('plot-{name}').getBoundingClientRect(); return [Number(t.textContent), (r.left + r.right) / 2 - p.left]; }})).at(-1)")
        (low, left), (high, right) = ticks[0], ticks[-1]
        self.assertLess(low, 25.6)
        self.assertGreater(high, 25.6)
        self.assertAlmostEqual(low + ((dot[0] + dot[2]) / 2 - left) / (right - left) * (high - low), 25.6, delta=0.1)

    def test_services_stand_at_their_costs_beside_full_kv(self):
        page, name = self.open(), NAMES[8]
        dots, bars, rings, rules = (page.evaluate(boxes(name, *mark)) for mark in (('dots',), ('intervals',), ('best_rings',), ('full_kv_rule', 'line')))
        self.assertEqual([len(marks) for marks in (dots, bars, rings, rules)], [4, 3, 2, 4])
        middle = lambda box: (box[0] + box[2]) / 2
        # quest at 0.5 and full KV at 1 give the axis: its interval is from 8 / 10 to 8 / 5 of its cost.
        at = lambda cost: middle(dots[0]) + (cost - 0.5) / 0.5 * (middle(dots[2]) - middle(dots[0]))
        self.assertAlmostEqual(bars[0][0], at(0.4), delta=1)
        self.assertAlmostEqual(bars[0][2], at(0.8), delta=1)
        self.assertAlmostEqual(middle(dots[3]), at(0.8), delta=2)  # out of reach
        for rule in rules:
            self.assertAlmostEqual(middle(rule), at(1), delta=1)
        self.assertGreater(rings[0][2] - rings[0][0], rings[1][2] - rings[1][0])
        self.assertEqual(page.evaluate(texts(name, 'values')), ['0.5 (0.4 to 0.8), 0.50 times full KV', '0.52 (0.433 to 0.78), ties with the best, 0.52 times full KV', '1', 'more than 0.8'])
        self.assertEqual(page.evaluate(texts(name, 'full_kv_label')), ['full KV'])

    def test_the_line_at_zero_does_not_cross_the_names_on_narrow_screens(self):
        page, name = self.open(width=400), NAMES[3]
        rules, names = page.evaluate(boxes(name, 'zero', 'line')), page.evaluate(boxes(name, 'row_labels', 'text'))
        self.assertEqual((len(rules), len(names)), (3, 3))
        self.assertLess(rules[1][0], names[1][2])  # the long name reaches beyond zero
        for _, line_top, _, line_bottom in rules:
            for _, top, _, bottom in names:
                self.assertTrue(line_bottom <= top + 2 or line_top >= bottom - 2, (rules, names))
        self.assertEqual(page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-axis-title tspan')].map((t) => t.textContent)"),
                         ['elasticity of decode throughput,', '% per %'])

    def test_captions_do_not_describe_lines_that_are_absent(self):
        page = self.open()
        for name, words in ((NAMES[0], 'A vertical line is a crossing'), (NAMES[1], 'A vertical line is where that changes')):
            self.assertIn(words, page.evaluate(f"document.querySelector('#{name} figcaption').textContent"))

    def test_a_map_colours_its_cells_and_draws_borders_between_them(self):
        page, name = self.open(), NAMES[5]
        cells = page.evaluate(boxes(name, 'cells'))
        # 2 columns and 3 rows have one size; the rows rise with the prompt.
        self.assertEqual(len({round(c[2] - c[0]) for c in cells} | {0}), 2)
        self.assertGreater(cells[0][1], cells[2][1])
        self.assertGreater(cells[2][1], cells[4][1])
        borders = page.evaluate(boxes(name, 'borders', 'line'))
        middle, level = cells[0][2], cells[5][3]
        for b in borders[:3]:
            self.assertAlmostEqual((b[0] + b[2]) / 2, middle, delta=1)
        self.assertAlmostEqual((borders[3][1] + borders[3][3]) / 2, level, delta=1)
        self.assertAlmostEqual(borders[3][2] - borders[3][0], cells[5][2] - cells[5][0], delta=3)
        opacity = page.evaluate(f"[...document.querySelectorAll('#plot-{name} g.cells > path')].map((p) => p.getAttribute('opacity'))")
        self.assertEqual(opacity, ['0.45'] + ['0.92'] * 5)
        legend = page.evaluate(f"[...document.querySelectorAll('#plot-{name} .role-legend-label text')].map((t) => t.textContent)")
        self.assertEqual(legend, [FULL, QUEST, 'none'])

    def test_the_largest_value_is_drawn_on_its_range(self):
        page, name = self.open(), NAMES[6]
        [line], [interval], [dot] = (page.evaluate(boxes(name, *mark)) for mark in (('range', 'line'), ('intervals',), ('dots',)))
        # The axis has eight doublings from 1 to 256: 16 is at half of the way, 8 and 32 at three and five eighths.
        share = lambda x: (x - line[0]) / (line[2] - line[0])
        self.assertAlmostEqual(share((dot[0] + dot[2]) / 2), 4 / 8, delta=0.01)
        self.assertAlmostEqual(share(interval[0]), 3 / 8, delta=0.01)
        self.assertAlmostEqual(share(interval[2]), 5 / 8, delta=0.01)
        words = page.evaluate(f"[...document.querySelectorAll('#plot-{name} g.labels tspan')].map((t) => t.textContent)")
        self.assertEqual(words, ['16 (8 to 32)', 'limited by GPU memory'])


if __name__ == '__main__':
    chromium.run_tests(PlanCase, 'fixture', 'writer')
