"""Attention outputs of policies that do more than leave tokens out: replace them by means, quantise, sample or merge. Also checks
that random choices have the frequencies stated by their methods."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import KVCAST, main, need

need('numpy')

import numpy as np

import splits
import traces
from drop import d2o
from parts import best, softmax

FOLDER = tempfile.TemporaryDirectory()


def run(policy: str, path: Path, **settings) -> tuple:
    """Returns (answer, (layer, step, head) -> attended tokens of decode steps)."""
    out = Path(FOLDER.name) / 's.jsonl'
    sets = [part for key, value in settings.items() for part in ('--set', f'{key}={str(value).lower() if isinstance(value, bool) else value}')]
    done = subprocess.run([KVCAST, 'replay', '--trace', path, '--policy', policy, *sets, '--selections', out, '--json'], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return json.loads(done.stdout), {(x['layer'], x['step'], x.get('kv_head', x.get('q_head'))): x['attended'] for x in lines if x['step'] >= 0}


class View:
    """Keys, values and queries of query head g at a step."""

    def __init__(self, t: traces.Trace, layer: int, g: int, step: int):
        self.length, self.kv_head = t.prompt + step + 1, g // t.group
        self.keys, self.values = t.keys[layer][self.kv_head][:self.length], t.values[layer][self.kv_head][:self.length]
        self.group = t.q(layer, self.kv_head, self.length - 1)
        self.q = self.group[g % t.group]
        self.logits = self.keys @ self.q / np.sqrt(t.d)


def mean_error(t: traces.Trace, output) -> float:
    """Returns the mean relative error. output(view, layer, step, g) returns the policy's attention output."""
    errors = []
    for layer in sorted(t.keys):
        for step in range(t.steps):
            for g in range(t.n_q):
                view = View(t, layer, g, step)
                whole = softmax(view.logits) @ view.values
                errors.append(np.linalg.norm(output(view, layer, step, g) - whole) / np.linalg.norm(whole))
    return float(np.mean(errors))


def packed(x: np.ndarray, bits: int) -> np.ndarray:
    scale = (x.max() - x.min()) / (2 ** bits - 1)
    return np.round((x - x.min()) / scale) * scale + x.min() if scale else x


class Outputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.both = []
        for seed, group in ((1, 1), (2, 4)):
            t = traces.draw(np.random.default_rng(seed), n_kv=2, group=group, d=32, prompt=100 + 13 * seed, steps=9, layers=[0, 1], n_layers=2,
                            fine=True)
            path = Path(FOLDER.name) / f'{seed}.safetensors'
            traces.write(path, t, 'F32')
            cls.both.append((t, path))

    def same(self, have: dict, want: float) -> None:
        self.assertAlmostEqual(have['output_error_mean'], want, delta=2e-6 + 1e-5 * want)

    def test_sparq_gives_the_mean_value_the_remaining_weight(self):
        for t, path in self.both:
            have, attended = run('sparq', path, budget=20, dims=8)

            def output(view, layer, step, g):
                chosen, read = attended[layer, step, view.kv_head], best(np.abs(view.group).sum(axis=0), 8)
                share = np.abs(view.q[read]).sum() / np.abs(view.q).sum()
                estimate = softmax(view.keys[:, read] @ view.q[read] / np.sqrt(t.d * share))
                mass = estimate[chosen].sum()
                return mass * (softmax(view.logits[chosen]) @ view.values[chosen]) + (1 - mass) * view.values.mean(axis=0)
            self.same(have, mean_error(t, output))

    def test_kivi_packs_keys_by_channel_and_values_by_token(self):
        for t, path in self.both:
            for key_bits, value_bits, group, residual in ((2, 2, 32, 32), (4, 2, 32, 64), (2, 4, 16, 32)):
                have, _ = run('kivi', path, key_bits=key_bits, value_bits=value_bits, quant_group=group, residual=residual)

                def output(view, layer, step, g):
                    keys, values, n = view.keys.copy(), view.values.copy(), view.length
                    for first in range(0, n - ((n - 1) % residual + 1), group):
                        for j in range(t.d):
                            keys[first:first + group, j] = packed(keys[first:first + group, j], key_bits)
                    for i in range(n - min(n, residual + 1)):
                        for j in range(0, t.d, group):
                            values[i, j:j + group] = packed(values[i, j:j + group], value_bits)
                    return softmax(keys @ view.q / np.sqrt(t.d)) @ values
                self.same(have, mean_error(t, output))

    def test_razor_replaces_all_dropped_tokens_by_one_pair(self):
        for t, path in self.both:
            rng, profile = np.random.default_rng(5), Path(FOLDER.name) / 'profile.yaml'
            scores = {kind: np.round(rng.random((t.n_layers, t.n_q)), 4) for kind in ('semantic', 'retrieval', 'echo', 'induction')}
            splits.write_profile(profile, t, scores, rng.random(t.n_layers))
            have, attended = run('razor_attention', path, profile=profile, least_buffer=10, induction_share=0.3)

            def output(view, layer, step, g):
                chosen = np.array(attended[layer, step, view.kv_head])
                logits, values = view.logits[chosen], view.values[chosen]
                dropped = np.setdiff1d(np.arange(view.length), chosen)
                if len(dropped):
                    mean = view.keys[dropped].mean(axis=0) @ view.q / np.sqrt(t.d)
                    logits = np.append(logits, mean + np.log(len(dropped)))
                    values = np.vstack([values, view.values[dropped].mean(axis=0)])
                return softmax(logits) @ values
            self.same(have, mean_error(t, output))

    def test_d2o_merges_what_it_evicts(self):
        settings = {'budget': 30, 'sink': 4, 'recent_share': 0.5, 'alpha': 0.5, 'beta': 0.5, 'merge': True, 'layers': 'uniform'}
        for t, path in self.both:
            have, _ = run('d2o', path, **settings)
            outputs = d2o(t, settings).outputs
            self.same(have, mean_error(t, lambda view, layer, step, g: outputs[layer, step, g]))

    def test_magicpig_divides_by_the_sampling_probability(self):
        bits, tables, sink, recent = 4, 12, 4, 8
        for t, path in self.both:
            for estimator in (True, False):
                have, attended = run('magicpig', path, hash_bits=bits, hash_tables=tables, recent=recent, estimator=estimator)
                away = np.arange(sink, t.prompt - recent)

                def output(view, layer, step, g):
                    chosen = np.array(attended[layer, step, g])
                    sampled = np.isin(chosen, away)
                    keys = view.keys - view.keys[away].mean(axis=0)
                    logits = (keys @ view.q / np.sqrt(t.d))[chosen]
                    if estimator:
                        logits[sampled] -= np.log(self.chance(keys[chosen[sampled]], view.q, bits, tables) + 1e-4)
                    return softmax(logits) @ view.values[chosen]
                self.same(have, mean_error(t, output))

    def test_magicpig_samples_at_its_stated_frequency(self):
        bits, tables, sink, recent = 3, 6, 4, 8
        t, path = self.both[1]
        away, found, chances = np.arange(sink, t.prompt - recent), [], []
        for seed in range(1, 31):
            _, attended = run('magicpig', path, hash_bits=bits, hash_tables=tables, recent=recent, seed=seed)
            for (layer, step, g), chosen in attended.items():
                self.assertTrue(set(range(sink)) | set(range(t.prompt - recent, t.prompt + step + 1)) <= set(chosen))
                if seed == 1:
                    view = View(t, layer, g, step)
                    keys = view.keys - view.keys[away].mean(axis=0)
                    chances.append(self.chance(keys[away], view.q, bits, tables))
            found.append([np.isin(away, chosen) for chosen in attended.values()])
        shares, chances = np.mean(found, axis=0), np.array(chances)
        # All queries share the tables, so only the means per seed are independent; the tolerance is five standard errors of these.
        each = np.mean(found, axis=(1, 2))
        self.assertLess(abs(each.mean() - chances.mean()), 5 * each.std() / np.sqrt(len(each)) + 1e-3)
        self.assertGreater(np.corrcoef(shares.ravel(), chances.ravel())[0, 1], 0.8)

    @staticmethod
    def chance(keys: np.ndarray, q: np.ndarray, bits: int, tables: int) -> np.ndarray:
        """Returns the probability of sharing at least two buckets."""
        cosine = keys @ q / (np.linalg.norm(keys, axis=1) * np.linalg.norm(q))
        one = (1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi) ** bits
        return 1 - (1 - one) ** tables - tables * one * (1 - one) ** (tables - 1)

    def test_retrieval_attention_misses_at_its_stated_frequency(self):
        t, path = self.both[0]
        hits = total = 0
        for seed in range(1, 11):
            _, attended = run('retrieval_attention', path, budget=20, sink=4, recent=9, recall=0.7, seed=seed)
            for (layer, step, g), chosen in attended.items():
                view = View(t, layer, g, step)
                away = np.arange(4, view.length - 9)
                exact = away[best(view.logits[away], 20)]
                self.assertEqual(len(chosen), 20 + 4 + 9)
                hits, total = hits + np.isin(exact, chosen).sum(), total + len(exact)
        # A later rank replaces each missed one, so that the share found is that of the draws: 0.7.
        self.assertAlmostEqual(hits / total, 0.7, delta=5 * np.sqrt(0.21 / total))


if __name__ == '__main__':
    main()
