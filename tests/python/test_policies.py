"""Traces from arrays, and policies in Python next to those in C++.

usage: test_policies.py KVCAST
"""

import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import unittest

from program import KVCAST, main, need, seed_of_day

need('numpy', 'pandas')

import numpy as np  # noqa: E402  pylint: disable=wrong-import-position

import kvcast  # noqa: E402  pylint: disable=wrong-import-position

RUN = {'model': 'llama-3.1-8b', 'hardware': 'h100-sxm', 'workload': {'prompt_tokens': 1024, 'decode_tokens': 8},
       'trace': {'recipe': 'needle', 'layers': 2, 'steps': 4}, 'score': 'none'}


def arrays(dtype='f2', heads=2, group=2, positions=100, queries=20, dim=32):
    rng = np.random.default_rng(3)
    return [rng.standard_normal((2, count, length, dim)).astype(dtype)
            for count, length in ((heads, positions), (heads, positions), (heads * group, queries))]


class Ends(kvcast.Policy):
    """streaming_llm."""

    def __init__(self, sink, recent):
        self.sink, self.recent = sink, recent

    def prefill(self, keys, values, queries):
        n = keys.shape[1]
        return [[*range(self.sink), *range(n - self.recent, n)]] * len(keys)

    def step(self, t, keys, values, queries):
        n = keys.shape[1]
        kept = [*range(self.sink), *range(n - self.recent, n)]
        return {'attended': [kept] * len(keys), 'evicted': [[n - self.recent]] * len(keys)}


class TopKeys(kvcast.Policy):
    """exact_topk of each query head."""

    def __init__(self, budget):
        self.budget = budget

    def step(self, t, keys, values, queries):
        group = len(queries) // len(keys)
        scores = [keys[h // group] @ query for h, query in enumerate(queries)]
        return [np.argsort(-one, kind='stable')[:self.budget] for one in scores]


class Arrays(unittest.TestCase):
    def test_a_written_trace_is_read_back_and_accepted_by_the_command(self):
        for dtype in ('f2', 'f4', 'f8'):
            keys, values, queries = arrays(dtype)
            trace = kvcast.Trace(keys, values, queries, decode_steps=4, model='mine', layers=[3, 7], provenance='a test')
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, 'trace.safetensors')
                trace.save(path)
                told = json.loads(subprocess.run([KVCAST, 'trace', 'info', path, '--json'], capture_output=True, text=True, check=True).stdout)
                back = kvcast.Trace.open(path)
                self.assertEqual(back.layers, [3, 7])
                self.assertEqual((back.prompt_tokens, back.decode_steps), (96, 4))
                for i, layer in enumerate(back.layers):
                    np.testing.assert_array_equal(back.keys(layer), keys[i].astype('f4'))
                    np.testing.assert_array_equal(back.values(layer), values[i].astype('f4'))
                    np.testing.assert_array_equal(back.queries(layer), queries[i].astype('f4'))
                self.assertEqual(list(back.query_positions), list(range(80, 100)))
                self.assertEqual(told['prompt_tokens'], 96)

    def test_a_replay_of_arrays_has_the_numbers_of_the_command(self):
        trace = kvcast.Trace(*arrays(), decode_steps=4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'trace.safetensors')
            trace.save(path)
            for policy in ('quest', 'exact_topk', 'streaming_llm'):
                told = subprocess.run([KVCAST, 'replay', '--trace', path, '--policy', policy, '--set', 'budget=48', '--json'],
                                      capture_output=True, text=True, check=True).stdout
                self.assertEqual(kvcast.replay(trace, policy, budget=48), json.loads(told))
                self.assertEqual(kvcast.replay(path, policy, budget=48), json.loads(told))
                self.assertEqual(kvcast.replay(path, {'name': policy, 'budget': 48}), json.loads(told))

    def test_tensors_of_torch_are_written_as_they_are(self):
        try:
            import torch
        except ImportError:
            self.skipTest('torch is not installed')
        tensors = [torch.from_numpy(array).to(torch.bfloat16) for array in arrays('f4')]
        trace = kvcast.Trace(*tensors, decode_steps=4)
        np.testing.assert_array_equal(trace.keys(0), tensors[0][0].float().numpy())

    def test_arrays_that_are_no_attention_are_refused(self):
        keys, values, queries = arrays()
        with self.assertRaisesRegex(kvcast.Error, 'shape'):
            kvcast.Trace(keys[0, 0], values, queries, decode_steps=4)
        with self.assertRaises(kvcast.Error):
            kvcast.replay(kvcast.Trace(keys, values[:, :, :50], queries, decode_steps=4), 'quest')
        with self.assertRaises(kvcast.Error):
            kvcast.replay(kvcast.Trace(keys, values, queries, decode_steps=21), 'quest')
        for layers, text in (([3], r'layers: \[3\] for arrays of 2'), ([3, 3], 'different ids')):
            with self.assertRaisesRegex(kvcast.Error, text):
                kvcast.Trace(keys, values, queries, decode_steps=4, layers=layers)
        for wrong, text in (((dict(enumerate(keys)), values, {0: queries[0]}), r'queries are of the layers \[0\]'),
                            (({}, {}, {}), 'there is no layer'), ((keys, values[:, :1], queries), 'values of layer 0 have the shape'),
                            ((keys, values, queries[:, :3]), '3 query heads are no multiple')):
            with self.assertRaisesRegex(kvcast.Error, text):
                kvcast.Trace(*wrong, decode_steps=4)
        with self.assertRaisesRegex(kvcast.Error, 'decode_steps: expected an integer, found 4.0'):
            kvcast.Trace(keys, values, queries, decode_steps=4.0)
        of_numpy = kvcast.Trace(keys, values, queries, decode_steps=np.int64(4), rope_theta=np.float32(5e5))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'trace.safetensors')
            of_numpy.save(path)
            self.assertEqual(kvcast.Trace.open(path).metadata['rope_theta'], 5e5)
        broken = keys.copy()
        broken[0, 0, 0, 0] = np.nan
        with self.assertRaisesRegex(kvcast.Error, 'layers.0.keys'):
            kvcast.replay(kvcast.Trace(broken, values, queries, decode_steps=4), 'quest')

    def test_damaged_files_are_refused_or_read(self):
        draw = random.Random(seed_of_day())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'trace.safetensors')
            kvcast.Trace(*arrays(positions=30, queries=8), decode_steps=2).save(path)
            good = path.read_bytes()
            size = 8 + int.from_bytes(good[:8], 'little')
            refused = 0
            for _ in range(300):
                bad = bytearray(good)
                for _ in range(draw.randint(1, 3)):
                    bad[draw.randrange(size)] = draw.randrange(256)
                path.write_bytes(bad[:draw.choice([len(bad), len(bad), draw.randrange(len(bad))])])
                try:
                    trace = kvcast.Trace.open(path)
                    for layer in trace.layers:
                        trace.keys(layer), trace.values(layer), trace.queries(layer)
                except kvcast.Error:
                    refused += 1
        self.assertGreater(refused, 100)


class Policies(unittest.TestCase):
    def test_policies_in_python_select_and_cost_as_those_in_c(self):
        # The trace of the run as a file, of which both read the same numbers.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'trace.safetensors')
            subprocess.run([KVCAST, 'trace', 'synth', 'needle', '-o', path, '--set=prompt_tokens=1024', '--set=decode_steps=4',
                            '--set=layers=2'], check=True, capture_output=True)
            config = {**RUN, 'trace': {'file': path}}
            there = kvcast.run(config, policy={'name': 'streaming_llm', 'sink': 4, 'recent': 252, 'budget': 256})
            mine = kvcast.run(config, policy=Ends(4, 252))
            for path_of in ('accuracy.recall_mass_mean', 'accuracy.output_error_mean', 'accuracy.attended_mean'):
                self.assertEqual(mine[path_of], there[path_of])
            self.assertEqual(kvcast.replay(path, Ends(4, 252))['recall_mass_mean'],
                             kvcast.replay(path, 'streaming_llm', sink=4, recent=252, budget=256)['recall_mass_mean'])
            top = kvcast.replay(path, TopKeys(64))
            self.assertEqual(top['policy'], 'TopKeys')
            self.assertAlmostEqual(top['recall_mass_mean'],
                                   kvcast.replay(path, 'exact_topk', budget=64, group='per_head')['recall_mass_mean'], 6)

    def test_declared_costs_are_counted(self):
        free = kvcast.run(RUN, policy=TopKeys(64))
        costly = TopKeys(64)
        costly.index_bytes, costly.kernels, costly.kernel_bytes = 32, 3, 10
        result = kvcast.run(RUN, policy=costly)
        self.assertEqual(result['accuracy.recall_mass_mean'], free['accuracy.recall_mass_mean'])
        self.assertGreater(result['decode.tpot_s.mean'], free['decode.tpot_s.mean'])
        # 42 bytes of each of 1024 + (1 .. 8) tokens, in 8 KV heads and 32 layers.
        tokens = 1024 + 4.5
        added = result['traffic.hbm_read_bytes'] - free['traffic.hbm_read_bytes']
        self.assertGreaterEqual(added, 42 * (1024 + 1) * 8 * 32)
        self.assertLess(added, 1.5 * 42 * tokens * 8 * 32)  # and scores, which the top-k reads

    def test_each_layer_has_a_copy_of_the_policy(self):
        seen = []

        class Counts(kvcast.Policy):
            prefills = 0

            def prefill(self, keys, values, queries):
                self.prefills += 1
                seen.append((keys.shape, queries.shape))

            def step(self, t, keys, values, queries):
                assert self.prefills == 1 and queries.shape == (4, 32)
                seen.append(t)
                return [np.arange(keys.shape[1])] * 2

        policy = Counts()
        policy.window = 5
        full = kvcast.replay(kvcast.Trace(*arrays(), decode_steps=2), policy)
        self.assertEqual(seen, [((2, 98, 32), (4, 5, 32)), 0, 1] * 2)
        self.assertEqual(policy.prefills, 0)
        self.assertEqual(full['recall_mass_mean'], 1)

    def test_wrong_selections_are_refused(self):
        trace = kvcast.Trace(*arrays(), decode_steps=2)

        class Wrong(kvcast.Policy):
            answer = None

            def step(self, t, keys, values, queries):
                return self.answer

        for answer, text in (([[0]], '1 lists'), ([[0], [99]], 'position 99, of 0 to 98'), ([[-1], [0]], 'position -1'),
                             ({'attended': [[0], [0]], 'held': [[0], [0]]}, 'held'), ({'fetched': [[0], [0]]}, 'known: attended'),
                             (None, 'is None, expected a list'), ([[0.5], [0]], 'type float64, expected positions'),
                             ([np.ones(99, dtype=bool)] * 2, 'type bool, expected positions; np.flatnonzero')):
            policy = Wrong()
            policy.answer = answer
            with self.assertRaisesRegex(kvcast.Error, text):
                kvcast.replay(trace, policy)
        with self.assertRaisesRegex(kvcast.Error, 'a window of 40'):
            policy = Wrong()
            policy.window = 40
            kvcast.replay(trace, policy)
        with self.assertRaisesRegex(NotImplementedError, 'Policy has no step'):
            kvcast.replay(trace, kvcast.Policy())

        class Drops(kvcast.Policy):
            later, fetched, heads = 7, None, 2

            def prefill(self, keys, values, queries):
                return [[0, 1, 7]] * len(keys)

            def step(self, t, keys, values, queries):
                chosen = {'attended': [[0, self.later if t else 7]] * self.heads, 'evicted': [[1]] * self.heads}
                return {**chosen, 'fetched': [self.fetched] * self.heads} if self.fetched else chosen

        kvcast.replay(trace, Drops())
        for later in (1, 2):  # evicted by step 0, and never kept
            policy = Drops()
            policy.later = later
            with self.assertRaisesRegex(kvcast.Error, f'step 1 attends to position {later} in head 0'):
                kvcast.replay(trace, policy)
            policy.fetched = [later]
            kvcast.replay(trace, policy)
        policy.heads = 4
        with self.assertRaisesRegex(kvcast.Error, r'selects for 4 heads, prefill\(\) for 2'):
            kvcast.replay(trace, policy)
        several = {key: value for key, value in RUN.items() if key != 'trace'}
        with self.assertRaisesRegex(kvcast.Error, 'add `trace:`'):
            kvcast.run(several, policy=TopKeys(64))


class Pages(unittest.TestCase):
    def test_the_examples_of_the_page_run(self):
        page = pathlib.Path(__file__).parents[2].joinpath('docs/python.md').read_text(encoding='utf-8')
        blocks = dict(re.findall(r'<!-- (\w+) -->\n```python\n(.*?)```', page, re.DOTALL))
        self.assertEqual(list(blocks), ['runs', 'sweeps', 'arrays', 'policy'])
        names = {}
        for block in blocks.values():
            exec(compile(block, 'docs/python.md', 'exec'), names)  # pylint: disable=exec-used
        self.assertLess(len(blocks['policy'].splitlines()), 35)
        own, quest = names['own'], names['quest']
        self.assertGreater(own['accuracy.attended_mean'], 1000)
        self.assertGreater(own['accuracy.recall_mass_mean'], quest['accuracy.recall_mass_mean'] - 0.02)
        self.assertLess(own['traffic.hbm_read_bytes'], quest['traffic.hbm_read_bytes'], 'its index is half as large')
        self.assertGreater(names['faster']['decode.tokens_per_s'], names['result']['decode.tokens_per_s'])


if __name__ == '__main__':
    main()
