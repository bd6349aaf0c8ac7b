"""`kvcast simulate` compared with exact arithmetic on random graphs, and the inputs that it must refuse."""

import copy
import json
import os
import random
import subprocess
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path

from program import KVCAST, main, seed_of_day

from engine import Run

GRAPHS = int(os.environ.get('OUTSIDE_CASES', 12)) * 12
SEED = int(os.environ.get('OUTSIDE_SEED', 1))
DAY = seed_of_day()


TICK = 2.0 ** -20  # seconds; sums of ticks are exact, so that coincident events coincide in every arithmetic


def draw(r: random.Random) -> dict:
    resources = [{'name': f'r{i}', 'rate': r.choice([1e9, 2e9, 3e10, 7e11]), 'sharing': r.choice(['fair', 'fair', 'fifo'])}
                 for i in range(r.randint(1, 5))]
    lanes = [f'lane {i}' for i in range(r.randint(1, 5))]
    ids = list(range(r.randint(1, 40)))
    if r.random() < 0.3:
        r.shuffle(ids)  # dependencies follow the order of the list, not the ids
    ops = []
    for at, name in enumerate(ids):
        demand = {x['name']: r.choice([0, 1, 1, 2, 3, 5]) * x['rate'] * TICK * r.choice([1, 10, 24])
                  for x in r.sample(resources, r.randint(0, min(3, len(resources))))}
        ops.append({'id': name, 'lane': r.choice(lanes), 'latency_s': TICK * r.choice([0, 0, 1, 2, 10]), 'demand': demand,
                    'after': r.sample(ids[:at], min(at, r.choice([0, 0, 1, 2])))})
    return {'resources': resources, 'lanes': lanes, 'ops': ops}


SMALL = {'resources': [{'name': 'hbm', 'rate': 1e9, 'sharing': 'fair'}, {'name': 'off', 'rate': 0, 'sharing': 'fifo'}], 'lanes': ['a', 'b'],
         'ops': [{'id': 0, 'lane': 'a', 'latency_s': 1e-6, 'demand': {'hbm': 1e3}, 'after': []},
                 {'id': 1, 'lane': 'b', 'latency_s': 0, 'demand': {}, 'after': [0]}, {'id': 2, 'lane': 'a', 'latency_s': 0, 'demand': {}, 'after': []}]}


def changed(*steps) -> dict:
    """Returns SMALL with the entry at the path `steps[:-1]` replaced by the last of `steps`."""
    graph = copy.deepcopy(SMALL)
    at = graph
    for step in steps[:-2]:
        at = at[step]
    at[steps[-2]] = steps[-1]
    return graph


REFUSED = {
    'unknown key': changed('more', 1), 'unknown key of a resource': changed('resources', 0, 'more', 1),
    'unknown key of an op': changed('ops', 0, 'more', 1), 'unknown lane': changed('ops', 0, 'lane', 'c'),
    'unknown resource': changed('ops', 0, 'demand', {'dram': 1}), 'unknown sharing': changed('resources', 0, 'sharing', 'first'),
    'unknown op': changed('ops', 0, 'after', [9]), 'itself': changed('ops', 0, 'after', [0]), 'cycle': changed('ops', 0, 'after', [1]),
    'cycle through a lane': changed('ops', 0, 'after', [2]), 'negative latency': changed('ops', 0, 'latency_s', -1e-9),
    'negative demand': changed('ops', 0, 'demand', {'hbm': -1}), 'negative rate': changed('resources', 0, 'rate', -1),
    'resource of rate 0': changed('ops', 0, 'demand', {'off': 1}), 'text for a number': changed('ops', 0, 'latency_s', '1'),
    'two ops of one id': changed('ops', 1, 'id', 0), 'two resources of one name': changed('resources', 1, 'name', 'hbm'),
    'two lanes of one name': changed('lanes', ['a', 'b', 'a']), 'no lanes': {k: v for k, v in SMALL.items() if k != 'lanes'},
    'no id': changed('ops', 0, {k: v for k, v in SMALL['ops'][0].items() if k != 'id'}), 'a list': [SMALL],
    'broken id': changed('ops', 0, 'id', 0.5), 'negative id': changed('ops', 0, 'id', -1), 'true for a number': changed('resources', 0, 'rate', True),
}
RAW = {'infinite rate': ('1000000000.0', '1e999'), 'NaN': ('1e-06', 'NaN'), 'Infinity': ('1e-06', 'Infinity'), 'half a file': ('"lanes"', '')}


class Engine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / 'graph.json'

    def tearDown(self):
        self.folder.cleanup()

    def simulate(self, text: str):
        self.path.write_text(text)
        return subprocess.run([KVCAST, 'simulate', self.path], capture_output=True, text=True)

    def test_random_graphs_agree_with_exact_arithmetic(self):
        compared = 0
        for seed in [*range(SEED * 10000, SEED * 10000 + GRAPHS), *range(DAY * 10000, DAY * 10000 + GRAPHS // 2)]:
            graph = draw(random.Random(seed))
            run = Run(graph)
            instants = run.all()
            if any(0 < b - a < Fraction(2, 10**12) for a, b in zip(instants, instants[1:])):
                continue  # two instants are too close to determine an order
            end = max(op.finish for op in run.ops)
            done = self.simulate(json.dumps(graph))
            with self.subTest(seed=seed):
                self.assertEqual(done.returncode, 0, done.stderr)
                have = json.loads(done.stdout)
                self.assertEqual([op['id'] for op in have['ops']], sorted(op.id for op in run.ops))
                allowed = 1e-6 * max(float(end), 1e-4)
                self.assertAlmostEqual(have['makespan_s'], float(end), delta=allowed)
                for op in have['ops']:
                    self.assertAlmostEqual(op['start_s'], float(run.by_id[op['id']].start), delta=allowed)
                    self.assertAlmostEqual(op['finish_s'], float(run.by_id[op['id']].finish), delta=allowed)
                compared += 1
        self.assertGreater(compared, GRAPHS * 0.8)

    def test_valid_graphs_are_accepted(self):
        for text in (json.dumps(SMALL), json.dumps(changed('ops', [])), json.dumps(changed('ops', 0, 'demand', {'off': 0, 'hbm': 1}))):
            self.assertEqual(self.simulate(text).returncode, 0, text)

    def test_invalid_graphs_are_refused(self):
        texts = {name: json.dumps(graph) for name, graph in REFUSED.items()}
        texts |= {name: json.dumps(SMALL).replace(*pair) for name, pair in RAW.items()}
        texts['a key twice'] = json.dumps(SMALL).replace('"lanes"', '"lanes": ["a", "b"], "lanes"')
        for name, text in texts.items():
            with self.subTest(name):
                done = self.simulate(text)
                self.assertEqual(done.returncode, 2, f'{done.stdout} {done.stderr}')
                self.assertRegex(done.stderr, r'graph\.json:\d+:\d+: ')
                self.assertEqual(done.stdout, '')


if __name__ == '__main__':
    main()
