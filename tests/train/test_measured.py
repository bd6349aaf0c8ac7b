"""The stored measured table: it agrees with its README, and kvcast's proxies of its traces equal the stored ones. Needs only the
standard library."""

import contextlib
import csv
import io
import json
import tempfile
import unittest
from pathlib import Path

import support
from kvcast_train import compare, proxies

MEASURED = Path(__file__).parents[2] / 'traces' / 'train' / 'measured' / 'tiny'
CHECKED = ('full', 'exact_topk', 'streaming_llm', 'h2o', 'keydiff', 'snapkv', 'quest', 'freekv')


class Measured(unittest.TestCase):
    def test_the_comparison_follows_from_the_tables(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            compare.main([str(MEASURED / 'table.csv'), str(MEASURED / 'proxies.csv')])
        found, kept = json.loads(out.getvalue()), json.loads((MEASURED / 'comparison.json').read_text())
        self.assertEqual(found['rows'], kept['rows'])
        for name, numbers in kept['proxies'].items():
            for key, value in numbers.items():
                self.assertAlmostEqual(found['proxies'][name][key], value, places=6, msg=f'{name} {key}')

    def test_the_traces_are_valid_and_give_the_proxies(self):
        traces = sorted((MEASURED / 'traces').glob('*.safetensors'))
        self.assertEqual(len(traces), 8)
        for trace in traces:
            self.assertTrue(json.loads(support.kvcast('trace', 'check', trace, '--json'))['ok'])
        kept = {proxies_key(row): row for row in proxies.read_rows(MEASURED / 'proxies.csv')}
        rows = [row for row in proxies.read_rows(MEASURED / 'table.csv') if row['policy'] in CHECKED and row['budget'] in ('', '16')]
        self.assertEqual(len(rows), len(CHECKED))
        with tempfile.TemporaryDirectory() as folder:
            table, out = Path(folder) / 'table.csv', Path(folder) / 'proxies.csv'
            with open(table, 'w', newline='', encoding='utf-8') as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
            self.assertEqual(proxies.run(table, MEASURED / 'traces', out, support.KVCAST, None), 8 * len(rows))
            for column in ('recall_mass_mean', 'output_error_mean', 'attended_mean'):
                for key, value in compare.means(proxies.read_rows(out), proxies.KEY, column).items():
                    self.assertAlmostEqual(value, float(kept[key][column]), delta=2e-4, msg=f'{key} {column}')


def proxies_key(row):
    return tuple(row[key] for key in proxies.KEY)


if __name__ == '__main__':
    support.main()
