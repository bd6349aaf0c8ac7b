"""Traces: the inputs of attention of a few layers, written and read as safetensors files (traces/README.md)."""

import json
import operator
import os

try:
    import numpy as np
except ImportError:  # only arrays need it
    np = None

from . import _kvcast
from ._errors import Error

_NAMES = {'<f2': 'F16', '<f4': 'F32', '<i4': 'I32', '<i8': 'I64'}
_TYPES = {'F16': '<f2', 'BF16': '<u2', 'F32': '<f4', 'I32': '<i4', 'I64': '<i8'}


class _Tensor:
    """An array as a file has it; `bits` of BF16, which numpy lacks, are 16-bit integers."""

    def __init__(self, bits, dtype):
        self.bits, self.dtype = bits, dtype

    @classmethod
    def of(cls, values):
        """Wraps an array of numpy, a tensor of torch (its memory is shared if it lies on the CPU), or lists."""
        if hasattr(values, 'detach'):
            values = values.detach().cpu()
            if str(values.dtype) == 'torch.bfloat16':
                import torch
                return cls(values.contiguous().view(torch.int16).numpy().view('<u2'), 'BF16')
            values = values.numpy()
        values = np.asarray(values)
        if values.dtype.kind == 'f' and values.dtype.itemsize > 4 or values.dtype.kind not in 'fi':
            values = values.astype('<f4')
        values = values.astype(values.dtype.newbyteorder('<'), copy=False)
        if values.dtype.str not in _NAMES:
            raise Error(f'arrays of {values.dtype} are not written: float16, float32 or bfloat16 are')
        return cls(values, _NAMES[values.dtype.str])

    def floats(self):
        """The numbers in single precision."""
        if self.dtype != 'BF16':
            return np.asarray(self.bits, dtype=np.float32)
        return (np.asarray(self.bits, dtype=np.uint32) << 16).view(np.float32)

    def __getitem__(self, index):
        return _Tensor(self.bits[index], self.dtype)

    @property
    def shape(self):
        return self.bits.shape


def _by_layer(values, layers):
    """Tensors by layer id, from a dict, an array of all layers, or that of one."""
    if isinstance(values, dict):
        return {int(layer): _Tensor.of(array) for layer, array in values.items()}
    tensor = _Tensor.of(values)
    if len(tensor.shape) == 3:
        tensor = _Tensor(tensor.bits[None], tensor.dtype)
    if len(tensor.shape) != 4:
        raise Error(f'keys, values and queries have the shape [layers, heads, positions, head_dim], not {list(tensor.shape)}')
    ids = [int(layer) for layer in layers] if layers is not None else list(range(tensor.shape[0]))
    if len(set(ids)) != len(ids) or len(ids) != tensor.shape[0]:
        raise Error(f'layers: {ids} for arrays of {tensor.shape[0]} layers; expected that many different ids')
    return {layer: tensor[i] for i, layer in enumerate(ids)}


def _whole(name, value):
    try:
        return operator.index(value)
    except TypeError:
        raise Error(f'{name}: expected an integer, found {value!r}') from None


def _check_shapes(tensors, decode_steps):
    """Finds arrays that do not belong together, by the names of the arguments."""
    ids = {kind: sorted(by_layer) for kind, by_layer in tensors.items()}
    if not ids['keys']:
        raise Error('keys: there is no layer')
    for kind in ('values', 'queries'):
        if ids[kind] != ids['keys']:
            raise Error(f'{kind} are of the layers {ids[kind]}, keys of {ids["keys"]}')
    kv_heads, positions, dim = tensors['keys'][ids['keys'][0]].shape
    q_heads, count, _ = tensors['queries'][ids['keys'][0]].shape
    expected = {'keys': (kv_heads, positions, dim), 'values': (kv_heads, positions, dim), 'queries': (q_heads, count, dim)}
    for kind, by_layer in tensors.items():
        for layer, tensor in by_layer.items():
            if tensor.shape != expected[kind]:
                raise Error(f'{kind} of layer {layer} have the shape {list(tensor.shape)}, expected {list(expected[kind])}')
    if q_heads % kv_heads:
        raise Error(f'queries: {q_heads} query heads are no multiple of {kv_heads} KV heads')
    if not 1 <= decode_steps <= min(count, positions - 1):
        raise Error(f'decode_steps: {decode_steps}, of {count} queries and {positions} positions')


class Trace:
    """Attention of one sequence: keys and values as cached, queries of its decode steps, all after RoPE.

    keys, values: [layers, kv_heads, positions, head_dim], or a dict from layer ids to [kv_heads, positions, head_dim].
    queries:      [layers, q_heads, n_queries, head_dim] likewise. Unless query_positions names their positions, they are the last
                  ones: those of `decode_steps` decode steps, and before them the last prompt queries.
    decode_steps: how many of the last positions are decode steps.
    Everything else is metadata: model, n_layers, rope_theta, layers (ids), task, targets, turns, provenance.
    Arrays of numpy and CPU tensors of torch are not copied before they are written.
    """

    def __init__(self, keys, values, queries, *, decode_steps, query_positions=None, layers=None, model='', n_layers=None,
                 rope_theta=10000.0, **metadata):
        self._tensors = {kind: _by_layer(arrays, layers)
                         for kind, arrays in (('keys', keys), ('values', values), ('queries', queries))}
        decode_steps = _whole('decode_steps', decode_steps)
        _check_shapes(self._tensors, decode_steps)
        ids = sorted(self._tensors['keys'])
        heads, positions, dim = self._tensors['keys'][ids[0]].shape
        count = self._tensors['queries'][ids[0]].shape[1]
        if query_positions is None:
            query_positions = np.arange(positions - count, positions)
        self._file = None
        self.query_positions = np.asarray(query_positions, dtype='<i8')
        self.metadata = {
            'format': 'kvcast-trace/1', 'model': model or 'unnamed', 'source': 'captured', 'layers': ','.join(map(str, ids)),
            'n_layers': _whole('n_layers', n_layers or ids[-1] + 1),
            'n_q_heads': self._tensors['queries'][ids[0]].shape[0], 'n_kv_heads': heads,
            'head_dim': dim, 'rope_theta': float(rope_theta), 'prompt_tokens': positions - decode_steps, 'decode_steps': decode_steps,
            **metadata}

    @classmethod
    def open(cls, path):
        """The trace of a file, whose arrays stay there until they are read."""
        _kvcast.validate_trace(os.fspath(path))
        with open(path, 'rb') as file:
            size = int.from_bytes(file.read(8), 'little')
            header = json.loads(file.read(size))
        trace = cls.__new__(cls)
        trace._file = os.fspath(path)
        trace.metadata = {key: _KINDS.get(key, str)(text) for key, text in header.pop('__metadata__', {}).items()}
        arrays = {name: _Tensor(np.memmap(path, _TYPES[t['dtype']], 'r', 8 + size + t['data_offsets'][0], tuple(t['shape'])),
                                t['dtype']) for name, t in header.items() if t['dtype'] in _TYPES}
        trace.query_positions = np.asarray(arrays['query_positions'].bits)
        trace._tensors = {kind: {layer: arrays[f'layers.{layer}.{kind}'] for layer in trace.layers}
                          for kind in ('keys', 'values', 'queries')}
        return trace

    @property
    def layers(self):
        """Ids of the captured layers."""
        return [int(layer) for layer in self.metadata['layers'].split(',')]

    @property
    def prompt_tokens(self):
        return self.metadata['prompt_tokens']

    @property
    def decode_steps(self):
        return self.metadata['decode_steps']

    def keys(self, layer):
        """[kv_heads, positions, head_dim] in single precision."""
        return self._tensors['keys'][layer].floats()

    def values(self, layer):
        """[kv_heads, positions, head_dim] in single precision."""
        return self._tensors['values'][layer].floats()

    def queries(self, layer):
        """[q_heads, n_queries, head_dim] in single precision, at query_positions."""
        return self._tensors['queries'][layer].floats()

    def save(self, path):
        """Writes the file, which `kvcast replay`, `kvcast run` and Trace.open read."""
        tensors = {'query_positions': _Tensor.of(self.query_positions)}
        for layer in self.layers:
            for kind, by_layer in self._tensors.items():
                tensors[f'layers.{layer}.{kind}'] = by_layer[layer]
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in self.metadata.items()}
        header, end = {'__metadata__': texts}, 0
        for name, tensor in tensors.items():
            header[name] = {'dtype': tensor.dtype, 'shape': tensor.shape, 'data_offsets': [end, end + tensor.bits.nbytes]}
            end += tensor.bits.nbytes
        text = json.dumps(header).encode()
        text += b' ' * (-len(text) % 8)
        part = f'{os.fspath(path)}.part'
        with open(part, 'wb') as file:
            file.write(len(text).to_bytes(8, 'little') + text)
            for tensor in tensors.values():
                np.ascontiguousarray(tensor.bits).tofile(file)
        os.replace(part, path)

    def file_in(self, folder):
        """The path of the trace's file; written to the folder if it has none."""
        if self._file is None:
            path = os.path.join(folder, 'trace.safetensors')
            self.save(path)
            return path
        return self._file

    def __repr__(self):
        return (f'<kvcast.Trace of {self.metadata["model"]}: layers {self.metadata["layers"]}, {self.prompt_tokens} prompt tokens, '
                f'{self.decode_steps} decode steps>')


_KINDS = {'rope_theta': float,
          **dict.fromkeys(('n_layers', 'n_q_heads', 'n_kv_heads', 'head_dim', 'prompt_tokens', 'decode_steps'), int)}
