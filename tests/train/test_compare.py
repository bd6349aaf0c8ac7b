"""Coefficients and errors derived by hand, on a small table and small proxies. Needs only the standard library."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

import support
from kvcast_train import compare, proxies

EXAMPLE = Path(__file__).parent / 'example'


class Statistics(unittest.TestCase):
    def test_ranks_share_ties(self):
        self.assertEqual(compare.ranks([3, 1, 3, 2]), [3.5, 1, 3.5, 2])

    def test_spearman_is_computed_by_ranks(self):
        # d = 0, 1, 1, 0: 1 − 6·2 / (4·15)
        self.assertAlmostEqual(compare.spearman([1, 2, 3, 4], [1, 3, 2, 4]), 0.8)
        self.assertIsNone(compare.spearman([1, 1], [1, 2]))
        self.assertIsNone(compare.spearman([1], [1]))

    def test_kendall_counts_pairs_and_ties(self):
        # 5 pairs agree, 1 does not; with a tie in x, 5 of 6 pairs count there: 5 / √(5·6)
        self.assertAlmostEqual(compare.kendall([1, 2, 3, 4], [1, 3, 2, 4]), 4 / 6)
        self.assertAlmostEqual(compare.kendall([1, 1, 3, 4], [1, 2, 3, 4]), 5 / 30 ** 0.5)

    def test_isotonic_pools_adjacent_violators(self):
        # The middle two violate the order and become one block of 25 at 2.5.
        curve = compare.isotonic([1, 2, 3, 4], [10, 30, 20, 40])
        self.assertEqual([curve(x) for x in (0, 1, 1.75, 2.5, 4, 9)], [10, 10, 17.5, 25, 40, 40])
        self.assertEqual(compare.isotonic([1, 1], [10, 20])(1), 15)

    def test_link_error_reads_scores_off_the_curve_of_other_policies(self):
        # a's rows are read off b's curve and the other way round. From b (0, 0), (1, 100): a's 0.5 reads 50 for 60, its 1 reads 100.
        # From a (0.5, 60), (1, 100): b's 0 reads 60 for 0, its 1 reads 100.
        cells = [('a', 0.5, 60), ('a', 1.0, 100), ('b', 0.0, 0), ('b', 1.0, 100)]
        self.assertAlmostEqual(compare.link_error(cells), (10 + 0 + 60 + 0) / 4)


class Example(unittest.TestCase):
    def found(self, *options):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(compare.main([str(EXAMPLE / 'table.csv'), str(EXAMPLE / 'proxies.csv'), *options]), 0)
        return json.loads(out.getvalue())

    def test_the_mass_ranks_this_table_correctly(self):
        found = self.found()
        self.assertEqual((found['rows'], found['refused']), (10, 1))
        mass = found['proxies']['recall_mass_mean']
        self.assertEqual(mass['cells'], 10)
        # Means over tasks: full 95, quest 60 and 80, snapkv 10 and 35; mass 1, 0.75 (two traces: 0.75), 0.9, 0.6, 0.75.
        # Ranks of accuracy 5, 3, 4, 1, 2; of mass 5, 2.5, 4, 1, 2.5.
        # Deviations from 3: x 2, −.5, 1, −2, −.5; y 2, 0, 1, −2, −1: Σxy = 9.5, Σxx = 9.5, Σyy = 10.
        self.assertAlmostEqual(mass['spearman'], 9.5 / (9.5 * 10) ** 0.5)
        # Single: accuracy 100, 80, 90, 20, 60 against 1, 0.75, 0.9, 0.6, 0.85: ranks 5, 3, 4, 1, 2 and 5, 2, 4, 1, 3: 1 − 6·2/120.
        # Tracking: 90, 40, 70, 0, 10 against 1, .75, .9, .6, .65: 1. The median of two is their mean.
        self.assertAlmostEqual(mass['by_task'], (0.9 + 1.0) / 2)
        # Errors fall as accuracy rises.
        self.assertLess(found['proxies']['output_error_mean']['spearman'], 0)
        self.assertNotIn('topk_overlap_mean', found['proxies'])

    def test_a_predicted_score_has_its_own_error(self):
        predicted = self.found('--proxy', 'recall_mass_mean', '--score', 'predicted')['proxies']['predicted']
        # 0, 10, 5, 10, 0 and 0, 10, 0, 0, 10 points.
        self.assertAlmostEqual(predicted['mean_error'], 45 / 10)


class Proxies(unittest.TestCase):
    def test_numbers_are_read_from_nested_json(self):
        answer = {'a': 1, 'bytes': {'hbm': {'read': 2.5}}, 'name': 'x', 'list': [1], 'flag': True}
        self.assertEqual(dict(proxies.numbers(answer)), {'a': 1.0, 'bytes.hbm.read': 2.5})

    def test_rows_come_from_kvcast_and_are_not_computed_twice(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / 'traces').mkdir()
            tiny = Path(__file__).parents[2] / 'traces' / 'tiny' / 'gqa2_d8_f32.safetensors'
            (folder / 'traces' / 'single-128-0.safetensors').write_bytes(tiny.read_bytes())
            out = folder / 'proxies.csv'
            # The table's rows for this task give full and two of quest; the trace has only the last 16 prompt queries, and kvcast
            # reports that snapkv's window of 32 needs more.
            complaint = io.StringIO()
            with contextlib.redirect_stderr(complaint):
                self.assertEqual(proxies.run(EXAMPLE / 'table.csv', folder / 'traces', out, support.KVCAST, None), 3)
                self.assertIn('the last 16', complaint.getvalue())
                self.assertEqual(proxies.run(EXAMPLE / 'table.csv', folder / 'traces', out, support.KVCAST, None), 0)
            rows = out.read_text().splitlines()
            self.assertEqual(len(rows), 4)
            self.assertIn('recall_mass_mean', rows[0])
            full = dict(zip(rows[0].split(','), rows[1].split(',')))
            self.assertAlmostEqual(float(full['recall_mass_mean']), 1.0)


if __name__ == '__main__':
    support.main()
