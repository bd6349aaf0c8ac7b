#!/usr/bin/env python3
"""Measures libraries on a GPU machine at those cases of kvcast-kernels for which they have kernels, so that no profile
assumes that our kernels are the fastest.

    kernels/library.py --like gpu.json --json library.json [--seconds 60] [--wheels FOLDER]

gpu.json is a result of kvcast-kernels on the same device. Its environment and the axes of its rows are copied, so that
`kvcast calibrate cuda --from gpu.json --from library.json` fits both together and prefers the faster of two rows of one
case. Rows have one additional axis, `by`, with the name of the library. Needs PyTorch; uses FlashAttention and
FlashInfer if they can be imported, from the wheels of a folder if one is given (installed without a network). Results
are compared with plain attention in single precision before they are timed. What gets no row is listed under `skipped`
with its reason: a missing library, one whose result is wrong, or one that refuses a shape. FlashInfer has a page table
for each request; the host's time to plan a step is a row of its own, `plan_attention`. The file is written after each
case, so that an interrupted run keeps its results. Exit codes: 0 done, 2 wrong usage, 3 cases left, 77 no PyTorch or
no GPU.
"""
import argparse
import atexit
import glob
import importlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print('PyTorch is not installed: libraries were not measured', file=sys.stderr)
    sys.exit(77)

BENCHES = ('prefill_attention', 'decode_attention', 'topk')
SAMPLES = 20


class Timer:
    """Measures the seconds of one call with a cold cache; its launches are queued before it starts."""

    def __init__(self, device, l2_bytes):
        self.cuda = device == 'cuda'
        # A pass over four times the size of the L2 fills it with other data, dirty lines included, as in kvcast-kernels.
        self.flush = torch.zeros(max(1, int(4 * l2_bytes)), dtype=torch.uint8, device=device)
        self.held = 400_000

    def sample(self, call):
        if not self.cuda:
            begun = time.perf_counter()
            call()
            return time.perf_counter() - begun
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush.add_(1)
        torch.cuda._sleep(self.held)  # cycles that block the stream while the host queues the call
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def samples(self, call):
        call()  # loads modules and creates plans
        begun = time.perf_counter()
        call()
        self.held = max(400_000, int(4e9 * (time.perf_counter() - begun)))  # calls of many launches take longer to queue
        return sorted(self.sample(call) for _ in range(SAMPLES))

    def host_samples(self, call):
        """Measures the host's seconds of a call, until the device is idle."""
        call()
        return sorted(self.host_sample(call) for _ in range(SAMPLES))

    def host_sample(self, call):
        begun = time.perf_counter()
        call()
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begun


class Skipped(list):
    """Cases and libraries without a row, with the reason; each entry is printed once."""

    def add(self, by, reason, case=None):
        text = str(reason).strip()
        entry = {'by': by, 'reason': text.splitlines()[0] if text else type(reason).__name__}
        if case:
            entry.update(bench=case['bench'], axes=case['axes'])
        if entry not in self:
            self.append(entry)
            print(f'{by}: {entry["reason"]}' + (f' ({case["bench"]} {case["axes"]})' if case else ''), file=sys.stderr)


SKIPPED = Skipped()


def install_wheels(folder):
    """Installs all wheels of a folder for this process, without a network and without their dependencies."""
    wheels = sorted(glob.glob(os.path.join(folder, '*.whl')))
    if not wheels:
        SKIPPED.add('wheels', f'no wheel in {folder}')
        return
    target = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    done = subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', '--no-index', '--find-links', folder, '--no-deps',
                           '--target', target, *wheels], capture_output=True, text=True, check=False)
    sys.path.append(target)
    importlib.invalidate_caches()
    if done.returncode != 0:
        SKIPPED.add('wheels', next((line for line in done.stderr.splitlines() if 'error' in line.lower()), 'pip failed'))


def imported(module, title):
    """Imports a library; one that is missing or cannot be loaded is reported as skipped."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # pylint: disable=broad-exception-caught  # binaries for another PyTorch fail in many ways
        SKIPPED.add(title, error)
        return None


def random_half(*shape, device):
    kind = torch.float16 if device == 'cuda' else torch.float32
    return torch.randn(*shape, device=device, dtype=kind)


def plain_attention(query, keys, values, causal):
    """Computes attention [batch, heads, rows, dim] in single precision; keys and values have fewer heads."""
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.float().repeat_interleave(group, 1) for x in (keys, values))
    scores = query.float() @ keys.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        rows, columns = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(rows, columns, dtype=torch.bool, device=scores.device).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ values.float()


def agrees(got, expected):
    expected = expected.float()
    return bool(torch.isfinite(got).all()) and float((got.float() - expected).norm() / expected.norm()) < 1e-2


def sdpa_calls(query, keys, values, causal):
    """Yields (name, call) for each separate back end of PyTorch's attention."""
    if not hasattr(F, 'scaled_dot_product_attention'):
        return
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return
    grouped = {'enable_gqa': True} if keys.shape[1] != query.shape[1] else {}
    for backend, title in (('FLASH_ATTENTION', 'FlashAttention-2'), ('CUDNN_ATTENTION', 'cuDNN')):
        if not hasattr(SDPBackend, backend):
            continue

        def call(one=getattr(SDPBackend, backend)):
            with sdpa_kernel(one):
                return F.scaled_dot_product_attention(query, keys, values, is_causal=causal, **grouped)

        yield f'PyTorch {torch.__version__}, {title}', call


def flash_calls(query, keys, values, causal):
    """Yields (name, call) for FlashAttention's own packages, which split a long cache over the device. Layout: [batch, rows,
    heads, dim]."""
    q, k, v = (x.transpose(1, 2).contiguous() for x in (query, keys, values))
    for module, title in (('flash_attn_interface', 'FlashAttention-3'), ('flash_attn', 'FlashAttention-2')):
        package = imported(module, title)
        if not package:
            continue
        version = getattr(package, '__version__', 'of unknown version')

        def call(run=package.flash_attn_with_kvcache if not causal else package.flash_attn_func):
            out = run(q, k, v, causal=causal)
            return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

        yield f'{title} {version}', call


def flashinfer_calls(query, keys, values, causal):
    """Yields (name, call) for FlashInfer over a paged cache with pages of 16 tokens, as serving engines call it. The call
    has its plan as an attribute."""
    if causal:
        return
    flashinfer = imported('flashinfer', 'FlashInfer')
    batch, kv_heads, tokens, dim = keys.shape
    page = 16
    if not flashinfer or tokens % page:
        return
    pages = tokens // page
    cache = torch.stack([x.transpose(1, 2).reshape(batch * pages, page, kv_heads, dim) for x in (keys, values)], 1)
    space = torch.empty(256 << 20, dtype=torch.uint8, device=keys.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, 'NHD', use_tensor_cores=True)
    # Engines have the bounds of the page tables on the host, where they are read.
    ends, full = torch.arange(batch + 1, dtype=torch.int32) * pages, torch.full((batch,), page, dtype=torch.int32)
    table = torch.randperm(batch * pages, dtype=torch.int32, device=keys.device)
    cache[table.long()] = cache.clone()

    def plan():
        wrapper.plan(ends, table, full, query.shape[1], kv_heads, dim, page, data_type=keys.dtype)

    plan()
    rows = query[:, :, 0].contiguous()

    def call():
        return wrapper.run(rows, cache)[:, :, None]

    call.plan = plan
    yield f'FlashInfer {getattr(flashinfer, "__version__", "of unknown version")}', call


def attention_case(query, keys, values, causal):
    """Yields (name, call, check of the result). The check covers the last row, which sees all keys; in causal calls also the
    first rows."""
    rows = min(64, query.shape[2])
    last = plain_attention(query[:, :, -1:], keys, values, False)
    first = plain_attention(query[:, :, :rows], keys[:, :, :rows], values[:, :, :rows], True) if causal else last
    for calls in (sdpa_calls, flash_calls, flashinfer_calls):
        for name, call in calls(query, keys, values, causal):
            yield name, call, lambda got: agrees(got[:, :, -1:], last) and agrees(got[:, :, :rows], first)


def cases_of(bench, axes, device):
    """Yields (name, call, check of the result) for every library that has such a kernel."""
    a = axes
    if bench == 'topk':
        scores = torch.rand(int(a['rows']), int(a['n']), device=device)
        threshold = scores.sort(1, descending=True).values[:, int(a['k']) - 1]
        yield (f'PyTorch {torch.__version__}, topk', lambda: scores.topk(int(a['k']), 1, sorted=False).values,
               lambda got: bool((got.min(1).values == threshold).all()))
    elif bench == 'decode_attention':
        batch, context, kv_heads, group, dim = (int(a[k]) for k in ('batch', 'context', 'kv_heads', 'group', 'dim'))
        query = random_half(batch, kv_heads * group, 1, dim, device=device)
        keys, values = (random_half(batch, kv_heads, context, dim, device=device) for _ in range(2))
        yield from attention_case(query, keys, values, False)
    elif bench == 'prefill_attention':
        tokens, heads, group = (int(a[k]) for k in ('tokens', 'heads', 'group'))
        query = random_half(1, heads, tokens, 128, device=device)
        keys, values = (random_half(1, heads // group, tokens, 128, device=device) for _ in range(2))
        yield from attention_case(query, keys, values, True)


def row_of(own, name, seconds, **axes):
    middle = statistics.median(seconds)
    noise = statistics.pstdev(seconds) / statistics.mean(seconds)
    quarter = len(seconds) // 4
    return {**{key: own[key] for key in ('bench', 'mode', 'work', 'resource')}, 'axes': {**own['axes'], 'by': name, **axes}, 'pass': 1,
            'n': len(seconds), 'noise': noise, 'dropped_throttled': 0, 'stop_reason': 'settled', 'skip_reason': None,
            'time_s': {'min': seconds[0], 'q1': seconds[quarter], 'median': middle, 'q3': seconds[-1 - quarter],
                       'max': seconds[-1], 'mean': statistics.mean(seconds)},
            'notes': {}, 'repro': 'kernels/library.py'}


def write(path, environment, rows):
    temporary = path + '.part'
    with open(temporary, 'w', encoding='utf-8') as out:
        json.dump({'schema': 'kvcast-kernels/1', 'environment': environment, 'rows': rows, 'skipped': SKIPPED}, out)
    os.replace(temporary, path)


def spread_out(rows):
    """Orders cases in four passes from large to small, so that an interrupted run has cases of all sizes."""
    ordered = sorted(rows, key=lambda row: -row['time_s']['median'])
    return ordered[::4] + ordered[1::4] + ordered[2::4] + ordered[3::4]


def measure(row, device, timer, rows):
    """Adds the rows of all libraries for this case."""
    try:
        for name, call, is_right in cases_of(row['bench'], row['axes'], device):
            try:
                if not is_right(call()):
                    SKIPPED.add(name, 'wrong result', row)
                    continue
                rows.append(row_of(row, name, timer.samples(call)))
                if hasattr(call, 'plan'):
                    rows.append(row_of({**row, 'bench': 'plan_attention', 'resource': 'none', 'work': {}}, name,
                                       timer.host_samples(call.plan), clock='host'))
            except (RuntimeError, ValueError, TypeError, AssertionError) as error:
                SKIPPED.add(name, error, row)
    except (RuntimeError, TypeError) as error:  # out of memory, a library with other parameters
        SKIPPED.add('all', error, row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--like', required=True, help='results of kvcast-kernels on this device')
    parser.add_argument('--json', required=True, help='the results file; its existing rows are not measured again')
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--wheels', help='folder of wheels that are installed first')
    parser.add_argument('--device', default='cuda', choices=['cuda', 'cpu'], help='cpu: for tests of the script')
    options = parser.parse_args()
    if options.wheels:
        install_wheels(options.wheels)
    if options.device == 'cuda' and not torch.cuda.is_available():
        print('PyTorch finds no GPU: libraries were not measured', file=sys.stderr)
        return 77
    with open(options.like, encoding='utf-8') as file:
        like = json.load(file)
    rows = []
    if os.path.exists(options.json):
        with open(options.json, encoding='utf-8') as file:
            earlier = json.load(file)
        rows = earlier['rows']
        SKIPPED.extend(one for one in earlier.get('skipped', []) if 'bench' in one)
    seen = {(row['bench'], json.dumps({k: v for k, v in row['axes'].items() if k != 'by'}, sort_keys=True)) for row in rows}
    timer = Timer(options.device, like['environment'].get('l2_bytes') or 0)
    own = [row for row in like['rows'] if row['bench'] in BENCHES and row['mode'] == 'cold' and row['time_s']
           and row['axes'].get('page') != 1]  # libraries read whole pages
    by_bench = [spread_out([row for row in own if row['bench'] == bench]) for bench in BENCHES]
    turns = [row for turn in range(max(map(len, by_bench), default=0)) for row in (b[turn] for b in by_bench if turn < len(b))]
    end, left = time.monotonic() + options.seconds, 0
    for row in turns:
        if (row['bench'], json.dumps(row['axes'], sort_keys=True)) in seen:
            continue
        if time.monotonic() > end:
            left += 1
            continue
        measure(row, options.device, timer, rows)
        write(options.json, like['environment'], rows)
    print(f'{len(rows)} rows of libraries, {len(SKIPPED)} skipped, {left} cases left')
    return 3 if left else 0


if __name__ == '__main__':
    sys.exit(main())
