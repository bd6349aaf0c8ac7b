"""The share of a prompt's attention that policies with sparse attention over it compute, pair by pair."""

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


def flexprefill(q: np.ndarray, keys: np.ndarray, tile: int, gamma: float, tau: float, least: int) -> np.ndarray:
    tokens, d = q.shape
    blocks, last = -(-tokens // tile), tokens - tile
    if tokens <= max(2 * tile, -(-least // tile) * tile):
        return np.ones((tokens, tokens), bool)
    weights = causal_weights(q[None, last:], last, keys, np.arange(tokens))[0] / tile
    columns, diagonals = weights.sum(axis=0), np.zeros(tokens)
    for row, of in enumerate(weights):
        diagonals[tile - 1 - row:] += of[:last + row + 1]
    pooled = lambda x: np.array([x[i:i + tile].mean(axis=0) for i in range(0, tokens, tile)])
    summed = lambda x: np.array([x[i:i + tile].sum() for i in range(0, tokens, tile)])
    fewest = min(-(-least // tile), blocks)
    counts = [min(max(((np.cumsum(np.sort(x)[::-1]) <= gamma).sum() + 1) // 128 + 1, fewest), blocks) for x in (columns, diagonals)]
    guess, truth = softmax(pooled(keys) @ q[last:].mean(axis=0) / np.sqrt(d)), summed(columns)
    middle = (guess + truth) / 2
    aware = np.sqrt((guess * np.log(guess / middle) + truth * np.log(truth / middle)).sum() / 2) < tau
    if aware:
        counts = [fewest, fewest]
    vertical, slash = truth.copy(), summed(diagonals)
    vertical[0], slash[-1] = np.inf, np.inf
    kept = np.zeros((blocks, blocks), bool)
    kept[:, best(vertical, counts[0])] = True
    for at in best(slash, counts[1]):
        kept |= np.eye(blocks, k=-(blocks - 1 - at), dtype=bool)
    if aware:
        causal = np.tril(np.ones((blocks, blocks), bool))
        scores = softmax(np.where(causal, pooled(q) @ pooled(keys).T / np.sqrt(d), -np.inf)).reshape(-1)
        order = np.argsort(-scores, kind='stable')
        kept.reshape(-1)[order[np.cumsum(scores[order]) <= gamma * blocks]] = True
    block = np.arange(tokens) // tile
    FLEX[aware] += 1
    return kept[block[:, None], block[None, :]]


FLEX = {True: 0, False: 0}  # heads that were query-aware, and others


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
                for tile, gamma, tau, least in ((32, 0.9, 0.1, 64), (16, 0.5, 0.4, 16), (64, 0.97, 0, 512), (16, 0.8, 0.25, 1)):
                    self.check(t, path, 'flexprefill', {'tile': tile, 'gamma': gamma, 'tau': tau, 'min_budget': least},
                               lambda q, keys: flexprefill(q, keys, tile, gamma, tau, least))
                for vertical, slash in ((30, 64), (100, 200), (60, 110)):
                    self.check(t, path, 'minference', {'vertical': vertical, 'slash': slash},
                               lambda q, keys: minference(q, keys, vertical, slash))

        self.assertGreater(min(FLEX.values()), 0)

    def check(self, t, path, policy, settings, pairs):
        with self.subTest(policy=policy, prompt=t.prompt, **settings):
            sets = [part for key, value in settings.items() for part in ('--set', f'{key}={value}')]
            done = subprocess.run([KVCAST, 'replay', '--trace', path, '--policy', policy, *sets, '--json'], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            have, causal = json.loads(done.stdout), np.tril(np.ones((t.prompt, t.prompt), bool))
            density = have.get('prompt', {'density': 1})['density']  # of a prompt that is too short to be sparse
            shares = [(pairs(t.queries[layer][g][:t.prompt], t.keys[layer][g // t.group][:t.prompt]) & causal).sum() / causal.sum()
                      for layer in t.keys for g in range(t.n_q)]
            self.assertAlmostEqual(density, np.mean(shares), places=9)
            self.assertEqual(have['attended_mean'], t.prompt + (t.steps + 1) / 2)  # decoding is dense


if __name__ == '__main__':
    main()
