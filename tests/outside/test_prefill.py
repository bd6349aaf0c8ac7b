"""The share of a prompt's attention that XAttention and MInference compute, pair by pair."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import KVCAST, main, need

need('numpy')

import numpy as np

import traces
from newer import tiles_taken
from parts import best, causal_weights, softmax


def xattention(q: np.ndarray, keys: np.ndarray, stride: int, tile: int, threshold: float) -> np.ndarray:
    """Returns the pairs that a query head computes, as a mask [tokens, tokens]."""
    tokens, d = q.shape
    pieces, blocks, each = -(-tokens // stride), -(-tokens // tile), tile // stride
    fill = np.zeros((pieces * stride - tokens, d))
    ahead = np.vstack([keys, fill]).reshape(pieces, stride * d)
    back = np.vstack([q, fill]).reshape(pieces, stride, d)[:, ::-1].reshape(pieces, stride * d)
    causal = np.tril(np.ones((pieces, pieces), bool))
    weights = softmax(np.where(causal, back @ ahead.T / (np.sqrt(d) * stride), -np.inf))
    at = np.arange(pieces) // each
    mass = np.zeros((blocks, blocks))
    np.add.at(mass, (at[:, None], at[None, :]), weights)
    kept = np.zeros((blocks, blocks), bool)
    for row in range(blocks):
        kept[row, [0, row]] = True
        for other in sorted(range(1, row), key=lambda b: (-mass[row, b], b)):
            if mass[row, kept[row]].sum() >= threshold * mass[row].sum():
                break
            kept[row, other] = True
    block = np.arange(tokens) // tile
    return kept[block[:, None], block[None, :]]


def minference(q: np.ndarray, keys: np.ndarray, vertical: int, slash: int) -> np.ndarray:
    tokens, last = len(q), len(q) - 64
    weights = causal_weights(q[None, last:], last, keys, np.arange(tokens))[0]
    columns, distances = weights.sum(axis=0), np.zeros(tokens)
    for row, of in enumerate(weights):
        distances[:last + row + 1] += of[:last + row + 1][::-1]
    columns[:30], distances[:100] = np.inf, np.inf
    pairs = np.zeros((tokens, tokens), bool)
    pairs[:, best(columns, max(vertical, 30))] = True
    for first in range(0, tokens, 64):
        start, end = None, 0
        for distance in sorted(best(distances, max(slash, 50)), reverse=True):
            if distance >= first + 64:
                continue
            reach = max(first + 64 - distance, 64)
            if start is None or reach > end + 64:
                start, end = reach - 64, reach
            elif reach > end:
                end += 64
            pairs[first:first + 64, start:end] = True
    return pairs


def blasst(q: np.ndarray, keys: np.ndarray, scale: float, tile: int) -> np.ndarray:
    tokens = len(q)
    logits = np.where(np.tril(np.ones((tokens, tokens), bool)), q @ keys.T / np.sqrt(q.shape[1]), -np.inf)
    pairs = np.zeros((tokens, tokens), bool)
    for first in range(0, tokens, tile):
        for taken in tiles_taken(logits[first:first + tile, :first + tile], tile, scale / tokens):
            pairs[first:first + tile, taken * tile:(taken + 1) * tile] = True
    return pairs


class Prefill(unittest.TestCase):
    def test_densities_agree(self):
        for seed, prompt in ((1, 400), (2, 411), (3, 256)):
            t = traces.draw(np.random.default_rng(seed), n_kv=2, group=2, d=16, prompt=prompt, steps=2, layers=[0, 1], n_layers=2, fine=True)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / 't.safetensors'
                traces.write(path, t, 'F32')
                for stride, tile, threshold in ((8, 32, 0.9), (16, 64, 0.8), (4, 128, 0.5)):
                    self.check(t, path, 'xattention', {'stride': stride, 'tile': tile, 'threshold': threshold},
                               lambda q, keys: xattention(q, keys, stride, tile, threshold))
                for scale, tile in ((0.3, 32), (0.05, 64), (0.6, 128)):
                    self.check(t, path, 'blasst', {'scale_prefill': scale * prompt, 'scale_decode': 0.001, 'tile': tile},
                               lambda q, keys: blasst(q, keys, scale * prompt, tile))
                for vertical, slash in ((30, 64), (100, 200), (60, 110)):
                    self.check(t, path, 'minference', {'vertical': vertical, 'slash': slash},
                               lambda q, keys: minference(q, keys, vertical, slash))

    def check(self, t, path, policy, settings, pairs):
        with self.subTest(policy=policy, prompt=t.prompt, **settings):
            sets = [part for key, value in settings.items() for part in ('--set', f'{key}={value}')]
            done = subprocess.run([KVCAST, 'replay', '--trace', path, '--policy', policy, *sets, '--json'], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            have, causal = json.loads(done.stdout), np.tril(np.ones((t.prompt, t.prompt), bool))
            shares = [(pairs(t.queries[layer][g][:t.prompt], t.keys[layer][g // t.group][:t.prompt]) & causal).sum() / causal.sum()
                      for layer in t.keys for g in range(t.n_q)]
            self.assertAlmostEqual(have['prompt']['density'], np.mean(shares), places=9)
            self.assertEqual(have['attended_mean'], t.prompt + (t.steps + 1) / 2)  # decoding is dense


if __name__ == '__main__':
    main()
