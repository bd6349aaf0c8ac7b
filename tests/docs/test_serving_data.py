"""The load points under configs/validation/serving have the form that its README describes, and their counts add up.

usage: test_serving_data.py
"""

import csv
import pathlib
import re
import sys
import unittest

try:
    import yaml
except ImportError as error:
    print(f'skipped: {error} (this suite needs yaml)')
    sys.exit(77)

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / 'configs'
FOLDER = CONFIGS / 'validation' / 'serving'
FILE_KEYS = {'campaign', 'source', 'rows', 'point_count', 'left_out_count', 'about', 'readings', 'defaults', 'groups', 'left_out', 'pairs'}
GROUP_KEYS = {'name', 'file', 'left_out', 'note', 'chosen_knowing', 'config', 'set', 'measured', 'compare', 'points', 'others', 'stated',
              'spread', 'requests_per_client', 'skip_first_wave', 'skip_requests'}
MEASURED = {f'{time}_ms.{statistic}' for time in ('ttft', 'tpot', 'itl', 'e2e') for statistic in ('mean', 'p50', 'p90', 'p99')} | {
    'e2e_per_token_ms.mean', 'requests_per_s', 'input_tokens_per_s', 'output_tokens_per_s', 'total_tokens_per_s', 'duration_s'}
RUN_KEYS = {'policy', 'model', 'hardware', 'framework', 'deployment', 'traffic', 'scheduler'}


def laid_over(base, over):
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def config_of(document, group, point):
    config = laid_over(document.get('defaults', {}), group['config'])
    for key, value in zip(group.get('set', []), point[1:]):
        for part in reversed(key.split('.')):
            value = {part: value}
        config = laid_over(config, value)
    return config


class ServingData(unittest.TestCase):
    documents = {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob('*.yaml'))}

    def groups(self):
        for name, document in self.documents.items():
            for group in document['groups']:
                yield f"{name}: {group['name']}", document, group

    def test_counts_add_up_to_the_rows_of_each_campaign(self):
        stated = dict(re.findall(r'^\| (`[^`]*`|all) \|[^|]*\| (\d+ \| \d+ \| \d+) \|$', (FOLDER / 'README.md').read_text(), re.MULTILINE))
        sums = [0, 0, 0]
        for name, document in self.documents.items():
            compared = sum(len(g['points']) for g in document['groups'] if 'left_out' not in g)
            kept = sum(len(g['points']) for g in document['groups'] if 'left_out' in g)
            counts = [document['rows'], compared, kept + sum(len(item['ids']) for item in document.get('left_out', []))]
            with self.subTest(name):
                self.assertEqual(counts, [document['rows'], document['point_count'], document['left_out_count']])
                self.assertEqual(counts[0], counts[1] + counts[2])
                self.assertEqual(stated[f'`{name}`'], ' | '.join(map(str, counts)))
            sums = [a + b for a, b in zip(sums, counts)]
        self.assertEqual(stated['all'], ' | '.join(map(str, sums)))
        self.assertEqual(len(stated), len(self.documents) + 1)

    def test_no_row_appears_twice(self):
        ids = [point[0] for _, _, group in self.groups() for point in group['points']]
        ids += [row for document in self.documents.values() for item in document.get('left_out', []) for row in item['ids']]
        self.assertEqual(len(ids), len(set(ids)))

    def test_files_have_known_keys_and_readings(self):
        for name, document in self.documents.items():
            with self.subTest(name):
                self.assertLessEqual(set(document), FILE_KEYS)
                self.assertTrue(document['source'] and document['about'] and document['readings'])
                self.assertTrue(all(item['reason'] for item in document.get('left_out', [])))

    def test_groups_have_known_keys_and_whole_points(self):
        for name, _, group in self.groups():
            with self.subTest(name):
                self.assertLessEqual(set(group), GROUP_KEYS)
                self.assertIsInstance(group['chosen_knowing'], bool)
                self.assertLessEqual(set(group['measured']), MEASURED)
                self.assertEqual('compare' in group, 'left_out' not in group)
                self.assertLessEqual(set(group.get('compare', [])), set(group['measured']))
                self.assertTrue(group['points'] and group.get('compare', ['one']))
                given = len(group.get('set', []))
                for point in group['points']:
                    self.assertEqual(len(point), 1 + given + len(group['measured']), point)
                    numbers = [v for v in point[1 + given:] if v is not None]
                    self.assertTrue(numbers and all(isinstance(v, (int, float)) and v > 0 for v in numbers), point)

    def test_compared_numbers_were_published_for_some_point(self):
        for name, _, group in self.groups():
            for number in group.get('compare', []):
                column = 1 + len(group.get('set', [])) + group['measured'].index(number)
                with self.subTest(f'{name}: {number}'):
                    self.assertTrue(any(point[column] is not None for point in group['points']))

    def test_points_are_runs_of_known_models_and_machines(self):
        for name, document, group in self.groups():
            for point in group['points']:
                config = config_of(document, group, point)
                with self.subTest(f'{name}: {point[0]}'):
                    self.assertLessEqual(set(config), RUN_KEYS)
                    traffic = config['traffic']
                    self.assertEqual(sum(key in traffic for key in ('rate', 'concurrency', 'file')), 1)
                    self.assertTrue('requests_per_client' in group or 'requests' in traffic)
                    if 'spread' in group or 'skip_first_wave' in group:
                        self.assertIn('concurrency', traffic)
                    if 'left_out' not in group:
                        self.assertTrue((CONFIGS / 'models' / f"{config['model']}.yaml").exists())
                        hardware = config['hardware']
                        name = hardware['like'] if isinstance(hardware, dict) else hardware
                        self.assertTrue((CONFIGS / 'hardware' / f'{name}.yaml').exists())

    def test_pairs_are_of_points_that_have_the_number(self):
        for name, document in self.documents.items():
            points = {point[0]: dict(zip(g['measured'], point[1 + len(g.get('set', [])):])) for g in document['groups'] for point in g['points']}
            for pair in document.get('pairs', []):
                with self.subTest(name):
                    self.assertLessEqual(set(pair), {'kind', 'number', 'note', 'ids'})
                    self.assertEqual(len(pair['ids']), len(set(map(tuple, pair['ids']))))
                    for without, other in pair['ids']:
                        self.assertNotEqual(without, other)
                        self.assertTrue(points[without][pair['number']] and points[other][pair['number']], (without, other))

    def test_percentiles_ascend(self):
        for name, _, group in self.groups():
            for point in group['points']:
                values = dict(zip(group['measured'], point[1 + len(group.get('set', [])):]))
                for time in ('ttft_ms', 'tpot_ms', 'itl_ms', 'e2e_ms'):
                    ordered = [values.get(f'{time}.{q}') for q in ('p50', 'p90', 'p99')]
                    ordered = [v for v in ordered if v is not None]
                    with self.subTest(f'{name}: {point[0]} {time}'):
                        self.assertEqual(ordered, sorted(ordered))

    def test_requests_are_in_the_order_of_their_times(self):
        paths = sorted(FOLDER.glob('requests-*.csv'))
        used = {config_of(document, group, group['points'][0])['traffic'].get('file') for _, document, group in self.groups()}
        self.assertEqual({f'configs/validation/serving/{path.name}' for path in paths}, used - {None})
        for path in paths:
            with self.subTest(path.name), path.open(newline='') as text:
                rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(text)]
                self.assertEqual(len(rows), 300)
                arrivals = [row['arrival_s'] for row in rows]
                self.assertEqual(arrivals, sorted(arrivals))
                self.assertEqual(arrivals[0], 0)
                for row in rows:
                    times = [row[key] for key in ('arrival_s', 'scheduled_s', 'first_token_s', 'last_token_s')]
                    self.assertEqual(times, sorted(times))

    def test_summaries_of_requests_agree_with_their_files(self):
        for name, document, group in self.groups():
            for point in group['points']:
                file = config_of(document, group, point)['traffic'].get('file')
                if file is None:
                    continue
                values = dict(zip(group['measured'], point[1:]))
                with self.subTest(name), (CONFIGS.parent / file).open(newline='') as text:
                    rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(text)]
                    ttft = [1e3 * (r['first_token_s'] - r['arrival_s']) for r in rows]
                    tpot = [1e3 * (r['last_token_s'] - r['first_token_s']) / (r['output_tokens'] - 1) for r in rows]
                    self.assertAlmostEqual(sum(ttft) / len(ttft), values['ttft_ms.mean'], delta=0.1)
                    self.assertAlmostEqual(sum(tpot) / len(tpot), values['tpot_ms.mean'], delta=0.06)
                    self.assertAlmostEqual(max(r['last_token_s'] for r in rows), values['duration_s'], delta=0.01)


if __name__ == '__main__':
    unittest.main()
