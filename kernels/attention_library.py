#!/usr/bin/env python3
"""Measures libraries at attention that no kernel of kvcast-kernels has: passes of decodes together with a prefill chunk, scores of
an FP8 indexer, and top-k of its rows.

    kernels/attention_library.py --like attention.json --json attention_library.json [--seconds 100] [--wheels FOLDER]

attention.json is a result of kvcast-kernels on the same device, whose environment is copied; without --like the environment has only
the device's name. Cases are those of kernels/attention_cases.py. A pass is measured as one kernel of unequal lengths (FlashAttention-2
of PyTorch; FlashAttention-3 if it can be imported), as its two parts, and as one part after the other (cuDNN too). The indexer
multiplies as torch._scaled_mm, sequence by sequence, and as one Triton kernel. Results are compared with plain attention before they
are timed; what gets no row is listed under `skipped` with its reason. The file is written after each group of cases. Exit codes: 0
done, 2 wrong usage, 3 cases left, 77 no PyTorch or no GPU.
"""
import argparse
import json
import os
import sys
import time

import attention_cases as cases
import library
from library import SKIPPED, torch

FEW = 10  # samples of a case
HALVES = {'cuda': torch.float16, 'cpu': torch.float32}


def flash_2(query, keys, values, q_ends, k_ends, q_most, k_most):
    return torch.ops.aten._flash_attention_forward(query, keys, values, q_ends, k_ends, q_most, k_most, 0.0, True, False)[0]


def packaged(module):
    """Returns the call of FlashAttention's own package: causal, aligned at the last key."""
    def call(query, keys, values, q_ends, k_ends, q_most, k_most):
        out = module.flash_attn_varlen_func(query, keys, values, q_ends, k_ends, q_most, k_most, causal=True)
        return out[0] if isinstance(out, tuple) else out
    return call


def plain(query, keys, values, q_ends, k_ends, *_):
    """Sequence by sequence in single precision, for the CPU and for comparisons."""
    out = torch.empty_like(query)
    q_ends, k_ends = q_ends.tolist(), k_ends.tolist()
    for (a, b), (c, d) in zip(zip(q_ends, q_ends[1:]), zip(k_ends, k_ends[1:])):
        group = query.shape[1] // keys.shape[1]
        k, v = (x[c:d].float().transpose(0, 1).repeat_interleave(group, 0) for x in (keys, values))
        scores = query[a:b].float().transpose(0, 1) @ k.transpose(1, 2) * query.shape[2] ** -0.5
        scores = scores.masked_fill(torch.ones(b - a, d - c, dtype=torch.bool, device=scores.device).triu(d - c - (b - a) + 1), -1e30)
        out[a:b] = (torch.softmax(scores, -1) @ v).transpose(0, 1).to(out.dtype)
    return out


def ends(lengths, device):
    return torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)


class Pass:
    """Decodes, then one chunk, side by side in memory; without decodes or without a chunk, the other alone."""

    def __init__(self, pool, axes, device):
        batch, chunk = axes.get('batch', 0), axes.get('chunk', 0)
        self.q = [1] * batch + [chunk] * (chunk > 0)
        self.k = [axes.get('context', 0)] * batch + [axes.get('seen', 0)] * (chunk > 0)
        self.query = pool['query'][:sum(self.q), :axes['kv_heads'] * axes['group']].contiguous()
        self.keys, self.values = pool['keys'][:sum(self.k)], pool['values'][:sum(self.k)]
        self.bounds = (ends(self.q, device), ends(self.k, device), max(self.q), max(self.k))

    def runs(self, call):
        return lambda: call(self.query, self.keys, self.values, *self.bounds)

    def is_right(self, out):
        """Compares the first and the last decode, and the first and the last row of the chunk."""
        out = out.reshape(self.query.shape)
        for at in {0, len(self.q) - 1}:
            a, c = sum(self.q[:at]), sum(self.k[:at])
            for row in {0, self.q[at] - 1}:
                seen = self.k[at] - (self.q[at] - 1 - row)
                one = [ends([n], self.query.device) for n in (1, seen)]
                expected = plain(self.query[a + row:a + row + 1], self.keys[c:c + seen], self.values[c:c + seen], *one)
                if not library.agrees(out[a + row:a + row + 1], expected):
                    return False
        return True


def cudnn(one):
    """The same by scaled_dot_product_attention with cuDNN: sequences of one shape, without a prefix."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    count, rows, seen = len(one.q), one.q[0], one.k[0]
    query = one.query.reshape(count, rows, *one.query.shape[1:]).transpose(1, 2)
    keys, values = (x.reshape(count, seen, *x.shape[1:]).transpose(1, 2) for x in (one.keys, one.values))

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return library.F.scaled_dot_product_attention(query, keys, values, is_causal=rows > 1, enable_gqa=True).transpose(1, 2)

    return call


def parts_of(axes):
    """The parts of a pass, as axes of each alone."""
    common = {k: axes[k] for k in ('kv_heads', 'group', 'dim')}
    names = {'decodes': ('batch', 'context'), 'chunk': ('chunk', 'seen')}
    wanted = ['decodes', 'chunk'] if axes['what'] in ('fused', 'apart') else [axes['what']]
    return [{**common, **{k: axes[k] for k in names[name]}} for name in wanted]


def mixed_call(one, pool, device, make):
    """Returns (call, check of its result) of a case. make: from a Pass to the call that computes it."""
    axes = one['axes']
    if axes['what'] != 'apart':
        whole = Pass(pool, axes, device)
        return make(whole), whole.is_right
    passes = [Pass(pool, part, device) for part in parts_of(axes)]
    calls = [make(part) for part in passes]
    return lambda: [call() for call in calls], lambda outs: all(p.is_right(o) for p, o in zip(passes, outs))


def mixed_backends(device):
    """Yields (name, function from a Pass to a call, cases that it has)."""
    if device == 'cpu':
        yield 'plain', lambda one: one.runs(plain), lambda axes: True
        return
    if hasattr(torch.ops.aten, '_flash_attention_forward'):
        yield cases.FLASH_2, lambda one: one.runs(flash_2), lambda axes: True
    else:
        SKIPPED.add(cases.FLASH_2, 'PyTorch has no _flash_attention_forward')
    for module, title in (('flash_attn_interface', cases.FLASH_3), ('flash_attn', 'FlashAttention-2')):
        package = library.imported(module, title)
        if package:
            yield title, lambda one, call=packaged(package): one.runs(call), lambda axes: True
    SKIPPED.add(cases.CUDNN, 'no call for unequal lengths, nor for a chunk with a prefix: fused passes and prefixes are left out')
    yield cases.CUDNN, cudnn, lambda axes: axes['what'] != 'fused' and axes.get('seen', 1) == axes.get('chunk', 1)


def measure_one(row, name, call, is_right, timer, rows):
    try:
        if not is_right(call()):
            SKIPPED.add(name, 'wrong result', row)
            return
        rows.append(library.row_of(row, name, timer.samples(call)))
        rows[-1]['notes'] = {'torch': torch.__version__}
    except Exception as error:  # pylint: disable=broad-exception-caught  # libraries and compilers fail in many ways
        SKIPPED.add(name, error, row)


def mixed(wanted, device, timer, rows):
    """Adds the rows of passes; yields after each case."""
    if not wanted:
        return
    axes = [one['axes'] for one in wanted]
    tokens = max(a.get('batch', 0) * a.get('context', 0) + a.get('seen', 0) for a in axes)
    heads = max(a['kv_heads'] * a['group'] for a in axes)
    shapes = {'query': (max(a.get('batch', 0) + a.get('chunk', 0) for a in axes), heads), 'keys': (tokens, axes[0]['kv_heads']),
              'values': (tokens, axes[0]['kv_heads'])}
    pool = {k: torch.randn(*shape, axes[0]['dim'], dtype=HALVES[device], device=device) for k, shape in shapes.items()}
    backends = list(mixed_backends(device))
    for one in wanted:
        for name, make, has in backends:
            if has(one['axes']):
                try:
                    call, is_right = mixed_call(one, pool, device, make)
                except Exception as error:  # pylint: disable=broad-exception-caught
                    SKIPPED.add(name, error, one)
                    continue
                measure_one(one, name, call, is_right, timer, rows)
        yield


class Index:
    """Queries, keys, scales and weights of an indexer."""

    def __init__(self, axes, pool):
        self.rows, self.context, self.shared = axes['rows'], axes['context'], bool(axes['shared'])
        self.queries, self.weights = pool['queries'][:self.rows], pool['weights'][:self.rows]
        count = self.context * (1 if self.shared else self.rows)
        self.keys, self.scales = pool['keys'][:count], pool['scales'][:count]
        self.out = torch.empty(self.rows, self.context, device=self.queries.device)

    def sequences(self):
        """Yields (queries, keys, scales, weights, out) of each sequence."""
        step = self.rows if self.shared else 1
        for i in range(0, self.rows, step):
            keys = slice(0, self.context) if self.shared else slice(i * self.context, (i + 1) * self.context)
            yield self.queries[i:i + step], self.keys[keys], self.scales[keys], self.weights[i:i + step], self.out[i:i + step]

    def is_right(self, out):
        last = list(self.sequences())[-1]
        products = torch.relu(last[0][-1].float() @ last[1].float().t())
        return library.agrees(out[-1], (last[3][-1].float() @ products) * last[2])


def scaled_products(one):
    """torch._scaled_mm, then ReLU and the weighted sum over heads, sequence by sequence."""
    unit = torch.ones((), device=one.out.device)

    def call():
        for queries, keys, scales, weights, out in one.sequences():
            rows, heads, dim = queries.shape
            products = torch._scaled_mm(queries.reshape(rows * heads, dim), keys.t(), scale_a=unit, scale_b=unit,
                                        out_dtype=torch.bfloat16)
            products = products.view(rows, heads, -1).relu_()
            out.copy_(torch.bmm(weights[:, None].to(products.dtype), products)[:, 0] * scales)
        return one.out

    return call


def plain_scores(one):
    def call():
        for queries, keys, scales, weights, out in one.sequences():
            out.copy_((weights[:, :, None] * torch.relu(queries.float() @ keys.float().t())).sum(1) * scales)
        return one.out
    return call


def index(wanted, device, timer, rows):
    if not wanted:
        return
    axes = [one['axes'] for one in wanted]
    kind = getattr(torch, 'float8_e4m3fn', None) if device == 'cuda' else torch.float32
    if kind is None:
        SKIPPED.add('all', 'PyTorch has no FP8 numbers')
        return
    backends = [('plain', plain_scores)] if device == 'cpu' else [(cases.SCALED, scaled_products)]
    fused = library.imported('index_scores', cases.TRITON) if device == 'cuda' else None
    if fused:
        backends.append((cases.TRITON, lambda x: lambda: fused.score(x.queries, x.keys, x.scales, x.weights, x.out, x.context, x.shared)))
    most, (heads, dim) = max(a['rows'] for a in axes), (axes[0]['heads'], axes[0]['dim'])
    count = max(a['context'] * (1 if a['shared'] else a['rows']) for a in axes)
    pool = {'queries': torch.randn(most, heads, dim, device=device).to(kind), 'weights': torch.rand(most, heads, device=device),
            'scales': torch.rand(count, device=device) + 0.5, 'keys': torch.empty(count, dim, dtype=kind, device=device)}
    step = 1 << 20
    for i in range(0, count, step):  # without a copy of all keys in single precision
        some = pool['keys'][i:i + step]
        some.copy_(torch.randn(some.shape, device=device).to(kind))
    for one in wanted:
        for name, make in backends:
            x = Index(one['axes'], pool)
            measure_one(one, name, make(x), x.is_right, timer, rows)
        yield


def topk(wanted, device, timer, rows):
    for one in wanted:
        for name, call, is_right in library.cases_of('topk', one['axes'], device):
            measure_one(one, name if device == 'cpu' else cases.TOPK, call, is_right, timer, rows)
        yield


def chain(device, timer, rows):
    """Adds rows from which the time of a kernel and the time between two events follow."""
    one = torch.zeros(1, device=device)
    for kernels in (1, 33):
        row = cases.case('launch_chain', {'how': 'stream', 'clock': 'device', 'kernels': kernels}, 'none', launches=kernels)
        measure_one(row, 'PyTorch', lambda n=kernels: [one.add_(1) for _ in range(n)], lambda _: True, timer, rows)


def environment_of(like, device):
    if like:
        with open(like, encoding='utf-8') as file:
            return json.load(file)['environment']
    name = torch.cuda.get_device_name() if device == 'cuda' else 'cpu'
    return {'program': 'kvcast-kernels', 'device': name}


def small():
    """Cases for the CPU."""
    return {'mixed': list(cases.mixed_cases((1, 3), (96,), (32,), (0, 64), (2,))), 'index': list(cases.index_cases((1, 3), (256,))),
            'topk': list(cases.topk_cases((2,), (1000,), 64))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n', maxsplit=1)[0])
    parser.add_argument('--like', help='results of kvcast-kernels on this device')
    parser.add_argument('--json', required=True, help='the results file')
    parser.add_argument('--seconds', type=float, default=100)
    parser.add_argument('--wheels', help='folder of wheels that are installed first')
    parser.add_argument('--device', default='cuda', choices=['cuda', 'cpu'], help='cpu: small cases, for tests of the script')
    options = parser.parse_args()
    if options.wheels:
        library.install_wheels(options.wheels)
    if options.device == 'cuda' and not torch.cuda.is_available():
        print('PyTorch finds no GPU: libraries were not measured', file=sys.stderr)
        return 77
    environment, rows = environment_of(options.like, options.device), []
    l2 = environment.get('l2_bytes') or (50 << 20 if options.device == 'cuda' else 0)
    library.SAMPLES = FEW
    timer = library.Timer(options.device, l2)
    wanted = small() if options.device == 'cpu' else {'mixed': list(cases.mixed_cases()), 'index': list(cases.index_cases()),
                                                      'topk': list(cases.topk_cases())}
    end, left = time.monotonic() + options.seconds, 0
    chain(options.device, timer, rows)
    for name, function in (('index', index), ('topk', topk), ('mixed', mixed)):
        done = 0
        for _ in function(wanted[name], options.device, timer, rows):
            done += 1
            if done % 16 == 0:
                library.write(options.json, environment, rows)
            if time.monotonic() > end:
                break
        left += len(wanted[name]) - done
        library.write(options.json, environment, rows)
        print(f'{name}: {done} of {len(wanted[name])} cases, {len(rows)} rows, {options.seconds - (end - time.monotonic()):.0f} s')
        if options.device == 'cuda':
            torch.cuda.empty_cache()
    print(f'{len(rows)} rows of libraries, {len(SKIPPED)} skipped, {left} cases left: {os.path.abspath(options.json)}')
    return 3 if left else 0


if __name__ == '__main__':
    sys.exit(main())
