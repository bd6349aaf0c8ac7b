"""Every policy's selections, compared position by position with a second implementation that is based on the methods, not the code."""

import json
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import KVCAST, main, need, seed_of_day

need('numpy')

import numpy as np

import prompt
import traces
from parts import Closeness
from settings import NEEDS_PROFILE, NO_COINCIDENCES, Offline, all_settings, oracles
from splits import write_profile

FOLDER = tempfile.TemporaryDirectory()
CASES = int(os.environ.get('OUTSIDE_CASES', 14))
SEED = int(os.environ.get('OUTSIDE_SEED', 6))
DAY, DAYS_CASES = seed_of_day(), 4


def kvcast(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([KVCAST, *map(str, arguments)], capture_output=True, text=True)


def replay(trace: Path, policy: str, settings: dict) -> tuple:
    """Returns (answer, lines), or (None, the reason of a refusal)."""
    out = Path(FOLDER.name) / 'selections.jsonl'
    text = lambda value: json.dumps(value) if isinstance(value, (bool, dict)) else value
    sets = [part for key, value in settings.items() for part in ('--set', f'{key}={text(value)}')]
    done = kvcast('replay', '--trace', trace, '--policy', policy, *sets, '--selections', out, '--json')
    if done.returncode:
        return None, f'exit {done.returncode}: {done.stderr}'
    return json.loads(done.stdout), [json.loads(line) for line in out.read_text().splitlines()]


def defaults(policy: str) -> dict:
    known = json.loads(kvcast('policies', policy, '--json').stdout)['parameters']
    return {parameter['key']: parameter['default'] for parameter in known}


def key(line: dict) -> tuple:
    return line['layer'], line['step'], line.get('kv_head', -1), line.get('q_head', -1)


def for_kv_heads(lines: list, group: int) -> list:
    """Returns the lines of a policy that attends to everything, and so does not select per query head, as lines per KV head."""
    out = []
    for line in lines:
        heads = [line['q_head']] if 'q_head' in line else range(line['kv_head'] * group, (line['kv_head'] + 1) * group)
        out += [{**{k: v for k, v in line.items() if k != 'kv_head'}, 'q_head': head} for head in heads]
    return out


def difference(want: list, have: list, group: int) -> str:
    if {'q_head' in line for line in want} != {'q_head' in line for line in have}:
        want, have = for_kv_heads(want, group), for_kv_heads(have, group)
    if [key(line) for line in have] != sorted(map(key, have)):
        return 'not in order of layer, step and head'
    have = {key(line): line for line in have}
    if sorted(map(key, want)) != sorted(have):
        return f'{len(want)} lists expected, {len(have)} found'
    for line in want:
        for what in ('attended', 'fetched', 'evicted'):
            if line[what] is not None and line[what] != have[key(line)][what]:
                a, b = set(line[what]), set(have[key(line)][what])
                return f'{what} at {key(line)}: {sorted(a - b)[:9]} missing, {sorted(b - a)[:9]} too many'
    return ''


class Case:
    """A trace, settings for every policy and the contents of a head profile."""

    def __init__(self, seed: int):
        r, rng = random.Random(seed), np.random.default_rng(seed)
        layers, self.fine = r.choice([1, 2, 3]), r.random() < 0.7
        prompt_tokens = r.choice([r.randint(3, 12), r.randint(13, 60), r.randint(60, 130)])
        drawn = traces.draw(rng, n_kv=r.choice([1, 2, 3]), group=r.choice([1, 2, 4]), d=r.choice([4, 8, 16]), prompt=prompt_tokens,
                            steps=r.randint(1, 20), layers=list(range(layers)), n_layers=layers, ties=r.random() < 0.4, fine=self.fine)
        self.path = Path(FOLDER.name) / f'{seed}.safetensors'
        traces.write(self.path, drawn, 'F32' if self.fine else r.choice(['F16', 'BF16', 'F32']), r.choice(['I32', 'I64']))
        self.trace = traces.read(self.path)
        self.offline = Offline(self.trace, rng)
        self.profile = Path(FOLDER.name) / f'{seed}.yaml'
        write_profile(self.profile, self.trace, self.offline.scores, self.offline.errors)
        self.settings = all_settings(r, self.trace)
        self.seed = seed


class Selections(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cases = [Case(SEED * 1000 + i) for i in range(CASES)] + [Case(DAY * 1000 + i) for i in range(DAYS_CASES)]

    def compare(self, policy: str) -> None:
        compared, fallback = 0, defaults(policy)
        for case in self.cases:
            if policy in NO_COINCIDENCES and not case.fine:
                continue
            if policy == 'loki' and case.trace.prompt <= case.trace.d:
                continue  # fewer keys than dimensions: the remaining components are arbitrary
            settings = case.settings[policy]
            if policy in NEEDS_PROFILE:
                settings = {**settings, 'profile': case.profile}
            answer, lines = replay(case.path, policy, settings)
            with self.subTest(seed=case.seed, **settings):
                if answer is None:
                    self.assertIn('exit 2', lines)  # refused with a reason; the check below requires enough accepted cases
                    continue
                Closeness.reset(ties_hold=not case.fine)
                log = oracles(case.offline)[policy](case.trace, {**fallback, **settings})
                found = difference(log.lines, lines, case.trace.group)
                if not found or Closeness.sure():
                    self.assertEqual(found, '')
                    compared += 1
        self.assertGreater(compared, CASES // 3)

    def test_cake_shares_by_preference(self):
        for case in self.cases:
            settings = {**case.settings['cake'], 'layers': 'preference', 'block': 'prompt'}
            t, p = case.trace, {**defaults('cake'), **settings}
            scored = t.prompt - p['window']
            if p['budget'] >= t.prompt or scored < 1:
                continue
            _, lines = replay(case.path, 'cake', settings)
            counts = {line['layer']: len(line['attended']) - p['window'] for line in lines if line['step'] == -1}
            shares = prompt.cake_counts(t, p)
            with self.subTest(seed=case.seed, **settings):
                self.assertEqual(sum(counts.values()), shares['total'])
                if shares['exact']:
                    self.assertLessEqual(max(abs(counts[layer] - shares[layer]) for layer in counts), 1)


def add(policy: str) -> None:
    setattr(Selections, f'test_{policy}', lambda self: self.compare(policy))


for name in oracles(Offline(traces.Trace(1, 1, 1, 1, 1, 1, None), np.random.default_rng(0))):
    add(name)

if __name__ == '__main__':
    main()
