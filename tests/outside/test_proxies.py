"""`replay --json` in numpy: shares of attention, output error, overlap, attended tokens and copied bytes."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import KVCAST, main, need

need('numpy')

import numpy as np

import traces
from parts import best, softmax

POLICIES = {
    'quest': {'budget': 32, 'page': 8, 'first_dense_layers': 1}, 'snapkv': {'budget': 40, 'window': 8}, 'h2o': {'budget': 20}, 'exact_topk': {'budget': 11},
    'freekv': {'budget': 32, 'page': 8, 'sink': 4, 'recent': 8}, 'arkvale': {'budget': 64, 'page': 8, 'topk': 5},
    'shadowkv': {'budget': 16, 'outliers': 2, 'recent': 8}, 'ctkvr': {'budget': 10, 'sink': 2, 'recent': 8},
    'retrieval_attention': {'budget': 9, 'sink': 2, 'recent': 9}, 'infinigen': {}, 'sparq': {'budget': 16, 'dims': 4, 'mean_value': 'false'},
}
PAIR_PARTS = {'freekv': 2, 'arkvale': 2, 'infinigen': 2, 'shadowkv': 1}  # 2: keys and values are fetched, 1: only values


def expected(t: traces.Trace, lines: list) -> dict:
    mass, errors, overlap, attended, fetched = [], [], [], [], 0
    for line in lines:
        if line['step'] < 0:
            continue
        length, chosen = t.prompt + line['step'] + 1, np.array(line['attended'])
        one = 'q_head' in line
        head = line['q_head'] // t.group if one else line['kv_head']
        keys, values = t.keys[line['layer']][head][:length], t.values[line['layer']][head][:length]
        rows = t.q(line['layer'], head, length - 1)
        attended += [len(chosen)] * (1 if one else t.group)
        fetched += len(line['fetched'])
        for q in rows[line['q_head'] % t.group:][:1] if one else rows:
            weights = softmax(keys @ q / np.sqrt(t.d))
            share = weights[chosen].sum()
            whole, part = weights @ values, weights[chosen] @ values[chosen] / share
            mass.append(share)
            errors.append(np.linalg.norm(part - whole) / np.linalg.norm(whole))
            overlap.append(len(set(best(keys @ q, len(chosen))) & set(line['attended'])) / len(chosen))
    return {'recall_mass_mean': np.mean(mass), 'recall_mass_p10': np.quantile(mass, 0.1), 'output_error_mean': np.mean(errors),
            'topk_overlap_mean': np.mean(overlap), 'attended_mean': np.mean(attended), 'fetched': fetched / t.steps}


class Proxies(unittest.TestCase):
    def test_every_proxy_agrees(self):
        for seed, group in ((1, 1), (2, 4), (3, 2)):
            t = traces.draw(np.random.default_rng(seed), n_kv=2, group=group, d=16, prompt=80 + 17 * seed, steps=9, layers=[0, 2, 3], n_layers=4,
                            fine=True)
            with tempfile.TemporaryDirectory() as folder:
                path, out = Path(folder) / 't.safetensors', Path(folder) / 's.jsonl'
                traces.write(path, t, 'F32', 'I64')
                for policy, settings in POLICIES.items():
                    with self.subTest(policy=policy, seed=seed):
                        self.check(t, path, out, policy, settings)

    def check(self, t, path, out, policy, settings):
        sets = [part for key, value in settings.items() for part in ('--set', f'{key}={value}')]
        done = subprocess.run([KVCAST, 'replay', '--trace', path, '--policy', policy, *sets, '--selections', out, '--json'],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        have = json.loads(done.stdout)
        want = expected(t, [json.loads(line) for line in out.read_text().splitlines()])
        self.assertEqual(have['policy'], policy)
        for key in ('recall_mass_mean', 'recall_mass_p10', 'output_error_mean', 'topk_overlap_mean', 'attended_mean'):
            self.assertAlmostEqual(have[key], want[key], delta=1e-4 * max(1, want[key]), msg=key)
        if policy in PAIR_PARTS:  # bytes per step over the trace's layers, with 16-bit numbers
            self.assertAlmostEqual(have['bytes']['link']['h2d'], want['fetched'] * PAIR_PARTS[policy] * t.d * 2, places=3)


if __name__ == '__main__':
    main()
