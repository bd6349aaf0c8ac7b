"""The planner's board, its controls and its comparisons, as a reader sees them at several widths.

usage: test_planner_board.py KVCAST [unittest arguments]
Exits with 77, which ctest reports as skipped, if Chromium is missing.
"""

import chromium
import seen
from planner_page import QUICK, PlannerPage

WIDTHS = {1440: 900, 1024: 800, 768: 1024, 420: 900}
ROW = "document.querySelectorAll('#board tbody tr')"


class BoardCase(PlannerPage):
    def board(self, page):
        """The cells of the board as shown, a list for each policy."""
        return page.evaluate("[...document.querySelectorAll('#board tbody tr')].map((r) => [...r.cells].filter((c) => c.checkVisibility()).map((c) => c.innerText.trim()))")

    def heads(self, page):
        return page.evaluate("[...document.querySelectorAll('#board thead th')].filter((c) => c.checkVisibility()).map((c) => c.innerText.trim())")

    def test_results_stay_in_view_while_controls_are_moved(self):
        for width, height in WIDTHS.items():
            with self.subTest(width):
                page = self.open(width, height)
                for control in ('#prompt-slider', '#batch-slider', '#tpot-slider', '#budget-2-slider', '#machine-host > summary'):
                    page.evaluate(f"document.querySelector('{control}').scrollIntoView({{block: 'center'}})")
                    rows = page.evaluate(f"[...{ROW}].map((r) => {{ const b = r.getBoundingClientRect(); const top = document.elementFromPoint(b.left + b.width / 2, b.top + b.height / 2); return [b.top, b.bottom, Boolean(top && top.closest('#board'))]; }})")
                    self.assertEqual(len(rows), 3)
                    for top, bottom, uncovered in rows:
                        self.assertTrue(0 <= top and bottom <= height and uncovered, (control, rows))
                    board, slider = (page.evaluate(f"(() => {{ const b = document.querySelector('{s}').getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; }})()") for s in ('#board', control))
                    self.assertTrue(slider[2] >= board[3] or slider[1] <= board[0], (control, board, slider))

    def test_a_narrow_slider_moves_results_that_are_in_view(self):
        page = self.open(420, 900)
        before = self.board(page)[0][1]
        page.evaluate("(() => { const n = document.getElementById('batch-slider'); n.scrollIntoView({block: 'center'}); n.focus({preventScroll: true}); })()")
        self.press(page, 'ArrowRight')
        self.settle(page, "rows[0].result.config.workload.batch === 5")
        self.assertNotEqual(self.board(page)[0][1], before)
        self.assertEqual(page.evaluate('document.documentElement.scrollWidth'), 420)

    def test_the_machine_is_named_and_changed_at_the_top(self):
        page = self.open()
        self.assertLess(page.evaluate("document.getElementById('hardware').getBoundingClientRect().bottom"), 120)
        self.assertIn('H100 SXM', self.text(page, '#setting'))
        before = self.board(page)
        page.evaluate("(() => { const n = document.getElementById('hardware'); n.value = 'l40s'; n.dispatchEvent(new Event('change')); })()")
        self.settle(page, "rows.every((row) => row.result && row.result.config.hardware.includes('l40s') || row.result.config.hardware.name === 'l40s')")
        self.assertIn('L40S', self.text(page, '#setting'))
        self.assertIn('4K in · 64 out', self.text(page, '#setting'))
        self.assertNotEqual(self.board(page), before)

    def test_deployment_price_and_prefill_are_those_of_the_command(self):
        page = self.open(gpus='2', framework='vllm', weights='fp8', kv='fp8', price='3.5', prefill='whole')
        run = self.printed(page, 'runYaml()', 'run', '--json')
        held = page.evaluate('JSON.parse(JSON.stringify(rows[state.focus].result))')
        for part in ('decode', 'prefill', 'memory', 'request', 'config'):
            self.assertEqual(held[part], run[part])
        shown = dict(zip(self.heads(page), self.board(page)[2]))
        for head, value in (('whole request', run['request']['latency_s']), ('cost, 1K requests', 1e3 * run['request']['cost'])):
            self.assertAlmostEqual(float(shown[head].split(' ')[0]), value, delta=0.006 * value)
        self.assertTrue(self.text(page, '#setting').startswith('2 × '))
        self.assertIn('vllm · weights fp8 · cache fp8', self.text(page, '#setting'))

    def test_a_wrong_price_is_marked_in_its_field(self):
        page = self.open(price='-1')
        self.settle(page, "!document.getElementById('refused').hidden")
        self.assertEqual(page.evaluate("document.querySelector('[aria-invalid=true]').id"), 'price')

    def test_targets_are_kept_or_missed_by_the_numbers(self):
        page = self.open(ttft='10', tpot='50')
        numbers = page.evaluate('rows.map(({ result }) => [result.request.ttft_s, 1e3 * result.decode.tpot_s.mean])')
        between = sum(sorted(tpot for _, tpot in numbers)[:2]) / 2
        self.write(page, '#tpot', f'{between:.4g}')
        self.settle(page)
        shown = [row[-1] for row in self.board(page)]
        self.assertEqual(shown, ['✓ met' if tpot <= between else '✗ TPOT' for _, tpot in numbers])
        self.assertEqual({'✓ met', '✗ TPOT'}, set(shown))
        self.write(page, '#ttft', f'{min(ttft for ttft, _ in numbers) / 2:.4g}')
        self.settle(page)
        self.assertTrue(all('TTFT' in row[-1] for row in self.board(page)))
        for field in ('#ttft', '#tpot'):
            self.write(page, field, '')
        self.settle(page)
        self.assertEqual({row[-1] for row in self.board(page)}, {'none'})

    def test_bars_of_the_board_have_the_lengths_of_their_numbers(self):
        page = self.open()
        rates = page.evaluate('rows.map(({ result }) => result.decode.tokens_per_s)')
        widths = page.evaluate("[...document.querySelectorAll('.board-track > span')].map((n) => n.getBoundingClientRect().width)")
        for rate, width in zip(rates, widths):
            self.assertAlmostEqual(width / max(widths), rate / max(rates), delta=0.02)

    def test_a_files_settings_are_a_policy_like_others(self):
        page = self.open(policies=[QUICK['policies'][0], {'name': 'quest-freekv', 'set': {}}], focus=1)
        page.wait("rows.length === 2 && rows[1].result")
        self.assertEqual(page.evaluate("rows[1].result.config.policy.name"), 'quest')
        self.assertEqual(page.evaluate("document.getElementById('budget-1').value"), '2048')
        self.assertIn('policy: quest-freekv', page.evaluate('runYaml()'))
        self.assertEqual(page.evaluate("rows[1].color"), page.evaluate("page.palette.policies.quest.color"))

    def compared(self, page):
        return page.evaluate("Object.fromEntries([...document.querySelectorAll('#compared-table tbody tr')].map((r) => [r.cells[0].textContent, [...r.cells].slice(1).map((c) => c.textContent)]))")

    def test_a_pinned_scenario_is_compared_with_the_present_one(self):
        page = self.open()
        then = page.evaluate('rows[state.focus].result.decode.tokens_per_s')
        self.click(page, '#pin')
        page.wait("document.querySelector('#compared-table')")
        self.assertEqual(self.text(page, '#compared-settings'), 'Same settings.')
        self.assertTrue(all(cells[2] == 'same' for cells in self.compared(page).values()))
        self.write(page, '#batch', '16')
        self.settle(page, 'rows[0].result.config.workload.batch === 16')
        self.assertEqual(self.text(page, '#compared-settings'), 'batch 4 → 16.')
        now = page.evaluate('rows[state.focus].result.decode.tokens_per_s')
        cells = self.compared(page)['decode, tokens/s']
        self.assertEqual(cells[:2], [page.evaluate(f"formatNumber({value!r}, ',.3~r')") for value in (then, now)])
        ratio = now / then
        told = float(cells[2].rstrip('×').rstrip(' %').replace('+', '').replace('−', '-'))
        self.assertAlmostEqual(told if cells[2].endswith('×') else 1 + told / 100, ratio, delta=0.006 * ratio)
        self.assertIn('full: decode, tokens/s', self.compared(page))
        # A link contains the pins; their numbers are those of before.
        again = self.browser.open(page.evaluate('location.href'))
        self.addCleanup(again.close)
        again.wait("document.querySelectorAll('#compared-table tbody tr').length > 3")
        self.assertEqual(self.compared(again), self.compared(page))
        self.click(again, '[aria-label="Return to A"]')
        self.settle(again, "rows[0].result.config.workload.batch === 4")
        self.assertEqual(self.text(again, '#compared-settings'), 'Same settings.')
        self.click(again, '[aria-label="Remove A"]')
        self.assertTrue(again.evaluate("document.getElementById('compared').hidden && state.pins.length === 0"))

    def test_wrong_pins_in_a_link_are_left_out_or_explained(self):
        page = self.open(pins=[7, None, {'batch': 'many'}])
        page.wait("document.getElementById('compared').textContent.includes('expected an integer')")
        self.assertEqual(page.evaluate('state.pins.length'), 1)
        self.assertTrue(page.evaluate("rows.every(({ result }) => result.status === 'ok')"))

    def test_memory_has_one_order_and_colours_of_its_own(self):
        page = self.open()
        groups = page.evaluate('page.palette.memory')
        order = [group['color'] for group in groups]
        fills = page.evaluate("(() => { const by = {}; for (const b of document.querySelectorAll('#plot-memory g.bars > path')) { const r = b.getBoundingClientRect(); (by[Math.round(r.top)] ||= []).push([r.left, b.getAttribute('fill')]); } return Object.values(by).map((list) => list.sort((a, b) => a[0] - b[0]).map((one) => one[1])); })()")
        self.assertEqual(len(fills), 3)
        for one in fills:
            ranks = [order.index(fill) for fill in one]
            self.assertEqual(ranks, sorted(ranks))
            self.assertEqual(one[0], order[0])  # weights
        policies = page.evaluate('Object.values(page.palette.policies).map(({ color }) => color)')
        self.assertFalse(set(order) & set(policies))

    def test_replays_show_their_progress_beside_the_last_results(self):
        page = self.open()
        # Every call is recorded as it is made: quick replays and their results can come between two frames.
        page.evaluate("void (() => { window.told = []; const shown = showWorking; showWorking = (...said) => { shown(...said); const box = document.getElementById('working'); if (!box.hidden) told.push([box.textContent, document.querySelectorAll('#board tbody tr').length, document.getElementById('board-rows').classList.contains('is-working')]); }; })()")
        self.write(page, '#decode', '96')
        self.settle(page, "rows[0].result.config.workload.decode_tokens === 96")
        told = page.evaluate('told')
        counted = [text for text, _, _ in told if text.startswith('Replays: ')]
        self.assertTrue(any('3 of 3' in text for text in counted) and any('Shown: the last settings' in text for text in counted), told)
        self.assertTrue(all(lines == 3 and marked for _, lines, marked in told), told)
        self.assertTrue(page.evaluate("document.getElementById('working').hidden"))
        self.assertFalse(page.evaluate("document.querySelector('.is-working')"))

    def test_nothing_is_cut_faint_or_on_top_of_another_text(self):
        pins = [{'batch': '1'}, {'hardware': 'l40s', 'gpus': '2', 'framework': 'vllm'}]
        for width, height in WIDTHS.items():
            for dark in (False, True) if width in (1440, 420) else (False,):
                with self.subTest(width=width, dark=dark):
                    page = self.open(width, height, dark, price='2.5', pins=pins, ttft='0.01')
                    page.wait("document.querySelector('#compared-table')")
                    self.settle(page)
                    self.assertEqual(page.evaluate('document.documentElement.scrollWidth'), width)
                    self.assertLessEqual(page.evaluate("(() => { const b = document.querySelector('.board'); return b.scrollWidth - b.clientWidth; })()"), 1)  # no column is beyond its edge
                    self.assertEqual(page.evaluate(seen.CUT), [])
                    self.assertEqual(seen.overlapping(page), [])
                    self.assertEqual(seen.outside(page), [])
                    self.assertEqual(page.evaluate(seen.FAINT), [])

    def test_traffic_fits_at_every_width(self):
        for width, height in WIDTHS.items():
            with self.subTest(width):
                page = self.open(width, height, traffic=True, rate='4', requests='100', ttft='1', tpot='30', price='2')
                self.settle(page, 'rows.length && rows.every((row) => row.result)')
                self.assertEqual(page.evaluate(seen.CUT), [])
                self.assertEqual(seen.overlapping(page), [])
                self.assertEqual(seen.outside(page), [])
                shown = self.board(page)
                for order in range(3):
                    self.assertIn(page.evaluate(f'rateText(capacityOf(state.policies[{order}]).most)'), shown[order][1])

    def test_the_cache_in_use_is_drawn_over_the_rate(self):
        page = self.open(traffic=True, rate='4', requests='100', ttft='1', tpot='30')
        self.settle(page, 'rows.length && rows.every((row) => row.result)')
        points = page.evaluate("figures.get('cache').view.data('points').map(({ used_max }) => used_max)")
        dots = self.pixels(page, 'cache', 'dots')
        self.assertEqual(len(dots), len(points))
        self.assertTrue(all(0 < share <= 1 for share in points))
        for (_, _, top, bottom), share in zip(dots, points):  # the axis has 220 pixels from 0 to 1
            self.assertAlmostEqual((top + bottom) / 2 - (dots[0][2] + dots[0][3]) / 2, 220 * (points[0] - share), delta=1)

    def test_the_verdict_answers_on_the_first_screen(self):
        for width, height in ((1440, 900), (768, 1024), (420, 860)):
            page = self.open(width, height)
            self.settle(page)
            # A policy without a known score is not recommended, and the verdict says so. The page asks for no scores: those of
            # one policy are taken away, in case that the program has all of them at hand.
            page.evaluate("(() => { const known = rows.find((r) => r.name !== 'full' && shareOfScore(r.result) !== undefined); if (known) { delete known.result.score; drawBoard(); } })()")
            shown = page.evaluate("rows.map((r) => [r.label, r.result.decode.tokens_per_s, r.name === 'full' ? 1 : (r.result.score || {}).share_of_full])")
            self.assertIn(None, [kept for _, _, kept in shown])
            keeping = [row for row in shown if row[2] is not None and row[2] >= 0.95]
            best = max(keeping, key=lambda row: row[1])[0]
            verdict = self.text(page, '#verdict')
            self.assertTrue(verdict.startswith(best + ' is the best choice: '), verdict)
            lacking = verdict.partition('. ')[2]
            for label, _, kept in shown:
                self.assertEqual(kept is None or kept < 0.95, label in lacking, verdict)
            self.assertRegex(verdict, r' ha(s|ve) no known score \(the box at the policies predicts it\)')
            # The verdict, and rates, scores and memory of all policies, are seen without scrolling.
            self.assertLess(page.evaluate("document.getElementById('board').getBoundingClientRect().bottom"), height)
            heads = page.evaluate("[...document.querySelectorAll('#board-rows th[scope=col]')].filter((h) => h.checkVisibility()).map((h) => h.textContent)")
            for head in ('decode, tokens/s', 'whole request', 'score', 'HBM', 'targets'):
                self.assertIn(head, heads)
            self.assertEqual(page.evaluate(seen.CUT), [])

    def test_the_verdict_says_what_does_not_fit(self):
        # 256 prompts of 4096 tokens take 256 × 4160 × 128 KiB = 140 GB in full KV; the machine has 84.
        page = self.open(batch='256')
        self.settle(page)
        verdict = self.text(page, '#verdict')
        unfit = page.evaluate("rows.filter((r) => r.result.oom).map((r) => r.label)")
        self.assertIn('full', unfit)
        self.assertRegex(verdict, r'full\b.* not fit in memory')
        for label in unfit:
            self.assertIn(label, verdict)

    def test_the_verdict_says_which_targets_are_missed(self):
        page = self.open(tpot='0.001')
        self.settle(page)
        self.assertIn('No policy can be recommended here: ', self.text(page, '#verdict'))
        self.assertIn(' do not meet the targets (first token 10 s and each token 0.001 ms)', self.text(page, '#verdict'))


if __name__ == '__main__':
    chromium.run_tests(PlannerPage, 'tool')
