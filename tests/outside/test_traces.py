"""Trace files as other programs write them: valid files work and give the same answer, invalid ones are refused by name."""

import json
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import KVCAST, main, need

need('numpy')

import numpy as np

import traces

STEPS, PROMPT, CAPTURED = 4, 40, 10


def take_apart(blob: bytes) -> tuple:
    size = struct.unpack('<Q', blob[:8])[0]
    return json.loads(blob[8:8 + size]), blob[8 + size:]


def put_together(header: dict, data: bytes, **how) -> bytes:
    text = json.dumps(header, **how).encode()
    return struct.pack('<Q', len(text)) + text + data


def with_header(change):
    """Returns a function on a file's bytes that changes the header in place, or replaces it by the result of `change`."""
    def apply(blob: bytes) -> bytes:
        header, data = take_apart(blob)
        return put_together(change(header) or header, data)
    return apply


def as_the_library(blob: bytes) -> bytes:
    """Rewrites a file like Python's safetensors: wider numbers first, names in order, the header padded with blanks to a multiple of
    8 bytes."""
    header, data = take_apart(blob)
    meta = header.pop('__metadata__')
    width = {'F32': 4, 'BF16': 2, 'F16': 2, 'I32': 4, 'I64': 8}
    out, parts, at = {'__metadata__': meta}, [], 0
    for name in sorted(header, key=lambda n: (-width[header[n]['dtype']], n)):
        begin, end = header[name]['data_offsets']
        out[name] = {**header[name], 'data_offsets': [at, at + end - begin]}
        parts.append(data[begin:end])
        at += end - begin
    text = json.dumps(out, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + b''.join(parts)


class Traces(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / 'trace.safetensors'
        self.trace = traces.draw(np.random.default_rng(3), n_kv=2, group=2, d=8, prompt=PROMPT, steps=STEPS, layers=[3, 7], n_layers=8,
                                 captured=CAPTURED)

    def tearDown(self):
        self.folder.cleanup()

    def replay(self, *, meta=None, tensors=None, blob=None, dtype='F32', padding=0, policy=('quest', 'budget=16', 'page=8')):
        """Replays the trace with some metadata, tensors or bytes changed; returns the finished process."""
        described, named = traces.describe(self.trace), traces.tensors_of(self.trace, dtype)
        described = {k: v for k, v in {**described, **(meta or {})}.items() if v is not None}
        named = {k: v for k, v in {**named, **(tensors or {})}.items() if v is not None}
        traces.write_tensors(self.path, described, named, padding)
        if blob:
            self.path.write_bytes(blob(self.path.read_bytes()))
        sets = [part for one in policy[1:] for part in ('--set', one)]
        return subprocess.run([KVCAST, 'replay', '--trace', self.path, '--policy', policy[0], *sets, '--json'], capture_output=True, text=True)

    def test_all_files_that_the_format_allows_give_the_same_answer(self):
        t = self.trace
        hidden = {f'layers.{layer}.hidden': ('F32', np.ones((CAPTURED + STEPS, 12))) for layer in t.keys}
        allowed = {
            'plain': {}, 'header filled with blanks': {'padding': 13}, 'I64 positions': {'tensors': {'query_positions': ('I64', t.positions)}},
            'metadata last': {'blob': with_header(lambda h: {**{k: v for k, v in h.items() if k != '__metadata__'}, **h})},
            'names in order': {'blob': lambda b: put_together(*take_apart(b), sort_keys=True)}, 'the library': {'blob': as_the_library},
            'other tensors': {'tensors': {'extra': ('F32', np.zeros((2, 2)))}}, 'other metadata': {'meta': {'camera': 'x'}},
            'hidden states': {'tensors': hidden}, 'BF16': {'dtype': 'BF16'}, 'F16': {'dtype': 'F16'},
            'BF16 by the library': {'dtype': 'BF16', 'blob': as_the_library},
            'numbers of two kinds': {'tensors': {'layers.3.keys': ('BF16', t.keys[3])}},
            'a known model of another shape': {'meta': {'model': 'llama-3.1-8b'}}, 'turns and blocks': {'meta': {'turns': '[0,20]', 'block_tokens': '8'}},
        }
        answers = set()
        for name, how in allowed.items():
            with self.subTest(name):
                done = self.replay(**how)
                self.assertEqual(done.returncode, 0, done.stderr)
                answers.add(round(json.loads(done.stdout)['recall_mass_mean'], 6))
                self.assertEqual(subprocess.run([KVCAST, 'trace', 'check', self.path], capture_output=True).returncode, 0)
        self.assertEqual(len(answers), 1)

    def test_missing_and_wrong_parts_are_named(self):
        t = self.trace
        numbers = lambda name, value: {'tensors': {name: ('F32', np.where(np.arange(np.size(x := self.tensor(name))).reshape(np.shape(x)) == 5, value, x))}}
        positions = lambda *p: {'tensors': {'query_positions': ('I32', np.concatenate(p))}}
        refused = {
            'not a number': (numbers('layers.7.values', np.nan), 'layers.7.values.*0, 0, 5.*nan'),
            'infinite': (numbers('layers.3.keys', np.inf), 'layers.3.keys.*inf'),
            'a query that is none': (numbers('layers.3.queries', np.nan), 'layers.3.queries'),
            'cut data': ({'blob': lambda b: b[:-4]}, 'outside of'), 'cut header': ({'blob': lambda b: b[:100]}, 'header length'),
            'nothing': ({'blob': lambda b: b''}, 'empty'), 'bytes of no tensor': ({'blob': lambda b: b + b'1234'}, 'belong to no tensor'),
            'endless header': ({'blob': lambda b: struct.pack('<Q', 2 ** 62) + b[8:]}, 'header length'),
            'no metadata': ({'blob': with_header(lambda h: h.pop('__metadata__') and None)}, 'format'),
            'another format': ({'meta': {'format': 'kvcast-trace/2'}}, 'known: kvcast-trace/1'),
            'another source': ({'meta': {'source': 'dream'}}, 'known: captured, synthetic'),
            'layers out of order': ({'meta': {'layers': '7,3'}}, 'layers'), 'a layer twice': ({'meta': {'layers': '3,3'}}, 'layers'),
            'a layer beyond': ({'meta': {'layers': '3,9'}}, 'layers'), 'no layers': ({'meta': {'layers': ''}}, 'layers'),
            'query heads that do not divide': ({'meta': {'n_q_heads': '3'}}, 'n_q_heads'),
            'other query heads': ({'meta': {'n_q_heads': '8'}}, 'layers.3.queries'), 'other dimension': ({'meta': {'head_dim': '16'}}, 'layers.3.keys'),
            'shorter prompt': ({'meta': {'prompt_tokens': '39'}}, 'query_positions'), 'a step more': ({'meta': {'decode_steps': '5'}}, '40 .. 44'),
            'theta below 0': ({'meta': {'rope_theta': '-1'}}, 'rope_theta'), 'targets for one step': ({'meta': {'targets': '[[1]]'}}, 'targets'),
            'a target to come': ({'meta': {'targets': '[[99],[],[],[]]'}}, 'targets'), 'text for targets': ({'meta': {'targets': 'no'}}, 'targets'),
            'no values': ({'tensors': {'layers.7.values': None}}, 'layers.7.values.*missing'),
            'hidden states of one layer': ({'tensors': {'layers.3.hidden': ('F32', np.ones((CAPTURED + STEPS, 12)))}}, 'layers.7.hidden'),
            'descending': (positions(t.positions[::-1]), 'not ascending'), 'before the start': (positions([-1], t.positions[1:]), 'query_positions'),
            'a decode position short': (positions([20], t.positions[:11], t.positions[12:]), '40 .. 43'),
            'numbers for positions': ({'tensors': {'query_positions': ('F32', t.positions)}}, 'known: I32, I64'),
            'overlap': ({'blob': with_header(lambda h: h['layers.3.values'].update(data_offsets=h['layers.3.keys']['data_offsets']))}, 'data_offsets'),
            'a window that was not captured': ({'policy': ('snapkv', 'window=11', 'budget=20')}, 'window of 11'),
            'all queries': ({'policy': ('h2o', 'budget=20')}, '0 to 39'),
        }
        for key in traces.describe(t):
            refused[f'no {key}'] = ({'meta': {key: None}}, f'{key} is missing')
        for name, (how, reason) in refused.items():
            with self.subTest(name):
                done = self.replay(**how)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, reason)
                if 'policy' not in how:
                    self.assertIn('trace.safetensors', done.stderr)
                    self.assertEqual(subprocess.run([KVCAST, 'trace', 'check', self.path], capture_output=True).returncode, 1)

    def tensor(self, name: str) -> np.ndarray:
        return traces.tensors_of(self.trace, 'F32')[name][1]


if __name__ == '__main__':
    main()
