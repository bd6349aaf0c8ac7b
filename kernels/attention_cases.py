#!/usr/bin/env python3
"""Cases of attention over unequal lengths, of passes with a prefill chunk, and of sparse latent attention, and what a profile predicts
for them before they are measured.

    kernels/attention_cases.py OUT.csv --kvcast build/bin/kvcast --profile h100-sxm --profile h100-kvcast

Writes one line per case: its id, as `kvcast validate policy_kernels --json` has it, its quantity and unit, and the number that each
profile predicts. Cases are those of kernels/attention_library.py and of kvcast-kernels with the options OWN below; no time enters.
Needs neither PyTorch nor a GPU. Exit codes: 0 done, 1 kvcast failed, 2 wrong usage.
"""
import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
import tempfile

KV_HEADS, DIM = 8, 128
INDEX_HEADS, INDEX_DIM, CHOSEN = 64, 128, 2048
CONTEXTS = [32768, 65536, 131072]  # of sparse attention
QUERY_ROWS = [1, 8, 64]
PROFILES = ['equal', 'duo', 'linear', 'geometric', 'sequence']
TOKEN_BYTES = [656, 1152]  # a latent vector and its rotated key in FP8 with scales, and in 16 bits
GATHERED = [16384, 32768, 131072]
HOST_BYTES = [CHOSEN * 656, CHOSEN * 1152, 1 << 24, 1 << 27]
# Names of libraries as they stand in results; the versions are in the notes of a row.
FLASH_2, FLASH_3, CUDNN, TOPK = 'PyTorch, FlashAttention-2', 'FlashAttention-3', 'PyTorch, cuDNN', 'PyTorch, topk'
SCALED, TRITON = 'PyTorch, scaled products', 'Triton, one kernel'


def joined(numbers):
    return ','.join(map(str, numbers))


# Options of kvcast-kernels for its share of the cases.
OWN = [['--bench', 'ragged_attention'],
       ['--bench', 'topk', '--axis', 'n=32768', '--axis', f'k={CHOSEN}', '--axis', f'rows={joined(QUERY_ROWS)}'],
       ['--bench', 'hbm_gather', '--axis', f'row_bytes={joined(TOKEN_BYTES)}', '--axis', f'gathered={joined(GATHERED)}',
        '--axis', 'run=1'],
       ['--bench', 'zero_copy_gather', '--axis', f'piece={joined(TOKEN_BYTES)}', '--axis', f'bytes={joined(HOST_BYTES)}']]


def case(bench, axes, resource='hbm', **work):
    return {'bench': bench, 'axes': axes, 'mode': 'cold', 'work': work, 'resource': resource}


def mixed_cases(batches=(1, 8, 32, 64), contexts=(4096, 32768), chunks=(512, 2048), prefixes=(0, 8192), groups=(4, 8)):
    """Yields attention of a pass: `batch` decodes over `context` tokens each and one chunk whose last token sees `seen`. what: one
    kernel for all (fused), one after the other (apart), or only one of the two."""
    for group in groups:
        both = {'kv_heads': KV_HEADS, 'group': group, 'dim': DIM}
        parts = [({'chunk': c, 'seen': p + c}, 2 * c * (2 * p + c) * group * KV_HEADS * DIM, 4 * (p + c) * KV_HEADS * DIM)
                 for p, c in itertools.product(prefixes, chunks)]
        decodes = [({'batch': b, 'context': n}, 4 * b * n * group * KV_HEADS * DIM, 4 * b * n * KV_HEADS * DIM)
                   for b, n in itertools.product(batches, contexts)]
        for what, some in (('chunk', parts), ('decodes', decodes)):
            for axes, flops, read in some:
                yield case('mixed_attention', {**both, **axes, 'what': what}, bytes=read, flops=flops)
        for (a, flops, read), (b, more, further) in itertools.product(parts, decodes):
            for what in ('fused', 'apart'):
                yield case('mixed_attention', {**both, **a, **b, 'what': what}, bytes=read + further, flops=flops + more)


def index_cases(rows=QUERY_ROWS, contexts=CONTEXTS):
    """Yields scores of an indexer for `rows` queries: each of a sequence of its own, or all of one (shared)."""
    for count, context, shared in itertools.product(rows, contexts, (0, 1)):
        if count > 1 or not shared:
            keys = context * (1 if shared else count)
            yield case('index_scores', {'rows': count, 'context': context, 'heads': INDEX_HEADS, 'dim': INDEX_DIM, 'shared': shared},
                       bytes=keys * (INDEX_DIM + 4) + 4 * count * context, flops=2 * count * context * INDEX_HEADS * INDEX_DIM)


def topk_cases(rows=QUERY_ROWS, contexts=CONTEXTS, k=CHOSEN):
    for count, context in itertools.product(rows, contexts):
        yield case('topk', {'rows': count, 'n': context, 'k': k}, bytes=4 * count * (context + k))


def longest_of(profile, batch):
    """The longest row over the mean one, as in kernels/cuda/ragged_attention.cu."""
    if profile == 'sequence':
        return batch / 2
    shares = {'equal': [1], 'duo': [1, 1 / 16], 'linear': [0.2 + 1.6 * i / (KV_HEADS - 1) for i in range(KV_HEADS)],
              'geometric': [2 ** (5 * (i / (KV_HEADS - 1) - 1)) for i in range(KV_HEADS)]}[profile]
    return max(shares) * len(shares) / sum(shares)


def own_cases():
    """Yields the cases of kvcast-kernels with the options OWN."""
    for batch, tokens, profile, parts in itertools.product((1, 8), (2048, 8192, 32768), PROFILES, ('by_length', 'equal')):
        if batch > 1 or profile != 'sequence':
            total = batch * KV_HEADS * tokens
            yield case('ragged_attention', {'batch': batch, 'tokens': tokens, 'kv_heads': KV_HEADS, 'group': 4, 'page': 32, 'dim': DIM,
                                            'profile': profile, 'parts': parts},
                       bytes=4 * total * DIM, sum=total, longest=tokens * longest_of(profile, batch))
    yield from topk_cases(contexts=[32768])
    for size, gathered in itertools.product(TOKEN_BYTES, GATHERED):
        yield case('hbm_gather', {'row_bytes': size, 'rows': 1 << 20, 'gathered': gathered, 'run': 1},
                   bytes=2 * size * gathered + 4 * gathered)
    for piece, size in itertools.product(TOKEN_BYTES, HOST_BYTES):
        yield case('zero_copy_gather', {'piece': piece, 'bytes': size, 'blocks': 128}, 'h2d', bytes=size // piece * piece)


def by(name, cases):
    return [{**one, 'axes': {**one['axes'], 'by': name}} for one in cases]


def all_cases():
    return [*own_cases(), *by(FLASH_2, mixed_cases()), *by(FLASH_3, mixed_cases()),
            *by(CUDNN, [c for c in mixed_cases(prefixes=[0]) if c['axes']['what'] != 'fused']),
            *by(SCALED, index_cases()), *by(TRITON, index_cases()), *by(TOPK, topk_cases())]


def predictions(kvcast, profile):
    """Returns {(id, quantity, unit): predicted}. Times that are not measured are 1 s, and 2 s for a pass of two parts."""
    rows = [{**one, 'skip_reason': None, 'time_s': {'median': 2.0 if one['axes'].get('what') in ('fused', 'apart') else 1.0}}
            for one in all_cases()]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'cases.json')
        with open(path, 'w', encoding='utf-8') as out:
            json.dump({'schema': 'kvcast-kernels/1', 'environment': {'program': 'kvcast-kernels', 'device': 'none'}, 'rows': rows}, out)
        done = subprocess.run([kvcast, 'validate', 'policy_kernels', '--from', path, '--profile', profile, '--json'],
                              capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr or f'{kvcast} prints nothing')
    return {(c['id'], c['quantity'], c['unit']): c['predicted'] for c in json.loads(done.stdout)['suites'][0]['cases']}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n', maxsplit=1)[0])
    parser.add_argument('out', metavar='OUT.csv')
    parser.add_argument('--kvcast', default='kvcast')
    parser.add_argument('--profile', action='append', required=True)
    options = parser.parse_args()
    columns = [predictions(options.kvcast, profile) for profile in options.profile]
    with open(options.out, 'w', encoding='utf-8', newline='') as out:
        table = csv.writer(out, lineterminator='\n')
        table.writerow(['case', 'quantity', 'unit', *options.profile])
        for key in columns[0]:
            table.writerow([*key, *(f'{column[key]:.5g}' for column in columns)])
    print(f'{len(columns[0])} cases of {len(options.profile)} profiles')
    return 0


if __name__ == '__main__':
    sys.exit(main())
