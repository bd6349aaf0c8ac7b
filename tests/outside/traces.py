"""Traces as another program would write and read them: the safetensors layout, with only numpy."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Trace:
    """keys, values: layer -> [n_kv, P, d]; queries: layer -> [n_q, n_queries, d]; all float64."""
    n_layers: int
    n_q: int
    n_kv: int
    d: int
    prompt: int
    steps: int
    positions: np.ndarray
    keys: dict = field(default_factory=dict)
    values: dict = field(default_factory=dict)
    queries: dict = field(default_factory=dict)

    @property
    def group(self) -> int:
        return self.n_q // self.n_kv

    def q(self, layer: int, kv_head: int, position: int) -> np.ndarray:
        """Returns the queries of a KV head at a position, [group, d]."""
        at = int(np.searchsorted(self.positions, position))
        assert self.positions[at] == position
        return self.queries[layer][kv_head * self.group:(kv_head + 1) * self.group, at]

    def q_rows(self, layer: int, kv_head: int, begin: int, end: int) -> np.ndarray:
        """Returns queries [group, end - begin, d]."""
        return np.stack([self.q(layer, kv_head, i) for i in range(begin, end)], axis=1)


def encode(array: np.ndarray, dtype: str) -> bytes:
    if dtype == 'F32':
        return array.astype('<f4').tobytes()
    if dtype == 'F16':
        return array.astype('<f2').tobytes()
    if dtype == 'BF16':  # the upper half of a float; numbers on the grid below have no more bits
        return (array.astype('<f4').view('<u4') >> 16).astype('<u2').tobytes()
    return array.astype({'I32': '<i4', 'I64': '<i8'}[dtype]).tobytes()


def decode(data: bytes, dtype: str, shape: list) -> np.ndarray:
    if dtype == 'BF16':
        wide = np.frombuffer(data, '<u2').astype('<u4') << 16
        return wide.view('<f4').astype(float).reshape(shape)
    return np.frombuffer(data, {'F16': '<f2', 'F32': '<f4', 'I32': '<i4', 'I64': '<i8'}[dtype]).astype(float).reshape(shape)


def write_tensors(path: Path, metadata: dict, tensors: dict, padding: int = 0) -> None:
    """Writes a file. tensors: name -> (dtype, array), in file order."""
    header, data = {'__metadata__': metadata}, b''
    for name, (dtype, array) in tensors.items():
        part = encode(np.asarray(array), dtype)
        header[name] = {'dtype': dtype, 'shape': list(np.shape(array)), 'data_offsets': [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode() + b' ' * padding
    Path(path).write_bytes(struct.pack('<Q', len(text)) + text + data)


def describe(trace: Trace) -> dict:
    return {'format': 'kvcast-trace/1', 'model': 'anything', 'source': 'synthetic',
            'layers': ','.join(map(str, sorted(trace.keys))), 'n_layers': str(trace.n_layers), 'n_q_heads': str(trace.n_q),
            'n_kv_heads': str(trace.n_kv), 'head_dim': str(trace.d), 'rope_theta': '10000',
            'prompt_tokens': str(trace.prompt), 'decode_steps': str(trace.steps)}


def tensors_of(trace: Trace, dtype: str, integers: str = 'I32') -> dict:
    out = {'query_positions': (integers, trace.positions)}
    for layer in sorted(trace.keys):
        for name in ('keys', 'values', 'queries'):
            out[f'layers.{layer}.{name}'] = (dtype, getattr(trace, name)[layer])
    return out


def write(path: Path, trace: Trace, dtype: str, integers: str = 'I32') -> None:
    write_tensors(path, describe(trace), tensors_of(trace, dtype, integers))


def read(path: Path) -> Trace:
    blob = Path(path).read_bytes()
    size = struct.unpack('<Q', blob[:8])[0]
    header, base = json.loads(blob[8:8 + size]), 8 + size
    meta = header['__metadata__']

    def tensor(name: str) -> np.ndarray:
        entry = header[name]
        begin, end = entry['data_offsets']
        return decode(blob[base + begin:base + end], entry['dtype'], entry['shape'])

    trace = Trace(*(int(meta[key]) for key in ('n_layers', 'n_q_heads', 'n_kv_heads', 'head_dim', 'prompt_tokens', 'decode_steps')),
                  positions=tensor('query_positions').astype(int))
    for layer in map(int, meta['layers'].split(',')):
        for name in ('keys', 'values', 'queries'):
            getattr(trace, name)[layer] = tensor(f'layers.{layer}.{name}')
    return trace


def draw(rng: np.random.Generator, *, n_kv: int, group: int, d: int, prompt: int, steps: int, layers: list, n_layers: int,
         captured: int | None = None, ties: bool = False, fine: bool = False) -> Trace:
    """Draws a trace of numbers on a grid of quarters: products and their sums are exact in any order and any of the formats, so
    that ties of logits are ties everywhere. Successive queries are similar, some keys stand out, and `ties` repeats keys. `fine`
    has no ties except those of repeated keys."""
    captured = prompt if captured is None else min(captured, prompt)
    total = prompt + steps
    positions = np.arange(prompt - captured, total)
    trace = Trace(n_layers, n_kv * group, n_kv, d, prompt, steps, positions)

    def grid(array: np.ndarray) -> np.ndarray:
        return array.astype('f4').astype(float) if fine else np.clip(np.round(array * 4), -12, 12) / 4

    for layer in layers:
        keys = rng.normal(size=(n_kv, total, d))
        keys += rng.normal(size=(n_kv, 1, d)) * 0.4
        if ties:
            source = rng.integers(0, total, size=total // 2)
            keys[:, rng.integers(0, total, size=total // 2)] = keys[:, source]
        trace.keys[layer] = grid(keys)
        trace.values[layer] = grid(rng.normal(size=(n_kv, total, d)))
        drift = rng.normal(size=(n_kv * group, len(positions), d))
        for i in range(1, len(positions)):
            turn = rng.choice([0.2, 0.5, 1.2])
            drift[:, i] = (drift[:, i - 1] + turn * drift[:, i]) / np.sqrt(1 + turn * turn)
        trace.queries[layer] = grid(drift * 1.3)
    return trace
