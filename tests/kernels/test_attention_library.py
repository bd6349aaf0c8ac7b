"""Checks on the CPU that kernels/attention_library.py writes rows that validate reads, and reports what has no row; skipped without
PyTorch."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    sys.exit(77)

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
KERNELS = os.path.join(PROJECT, 'kernels')
sys.path.insert(0, KERNELS)
import attention_cases as cases  # noqa: E402
import attention_library as program  # noqa: E402
from library import SKIPPED, Timer  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    like, out = os.path.join(folder, 'attention.json'), os.path.join(folder, 'attention_library.json')
    environment = {'program': 'kvcast-kernels', 'device': 'made up', 'l2_bytes': 1000}
    with open(like, 'w', encoding='utf-8') as file:
        json.dump({'schema': 'kvcast-kernels/1', 'environment': environment, 'rows': []}, file)
    command = [sys.executable, os.path.join(KERNELS, 'attention_library.py'), '--like', like, '--json', out, '--device', 'cpu']
    subprocess.run([*command, '--wheels', folder], capture_output=True, text=True, check=True)
    with open(out, encoding='utf-8') as file:
        result = json.load(file)
    assert result['environment'] == environment
    assert [one['by'] for one in result['skipped']] == ['wheels'], result['skipped']
    rows = result['rows']
    what = [r['axes']['what'] for r in rows if r['bench'] == 'mixed_attention']
    assert {name: what.count(name) for name in set(what)} == {'chunk': 2, 'decodes': 2, 'fused': 4, 'apart': 4}
    assert len([r for r in rows if r['bench'] == 'index_scores']) == 3 and len([r for r in rows if r['bench'] == 'topk']) == 1
    for r in rows:
        assert r['time_s']['min'] <= r['time_s']['median'] <= r['time_s']['max'] and r['axes']['by'], r
    # Without time, cases are left.
    assert subprocess.run([*command, '--seconds', '0'], capture_output=True, check=False).returncode == 3

# A library that aligns the mask with the first key is wrong wherever a chunk has a prefix, and one that fails is reported.
axes = {'kv_heads': 2, 'group': 2, 'dim': 64, 'chunk': 8, 'seen': 24, 'batch': 2, 'context': 16, 'what': 'fused'}
pool = {'query': torch.randn(10, 4, 64), 'keys': torch.randn(56, 2, 64), 'values': torch.randn(56, 2, 64)}
one = program.Pass(pool, axes, 'cpu')


def from_the_first_key(query, keys, values, q_ends, k_ends, *_):
    result = program.plain(query, keys, values, q_ends, k_ends)
    result[2:] = program.plain(query[2:], keys[32:40], values[32:40], program.ends([8], 'cpu'), program.ends([8], 'cpu'))
    return result


def refuses(*_):
    raise RuntimeError('no such shape\nand a trace')


assert one.is_right(one.runs(program.plain)()) and not one.is_right(one.runs(from_the_first_key)())
SKIPPED.clear()
row, timer, measured = cases.case('mixed_attention', axes), Timer('cpu', 1), []
program.measure_one(row, 'wrong', one.runs(from_the_first_key), one.is_right, timer, measured)
program.measure_one(row, 'refuses', one.runs(refuses), one.is_right, timer, measured)
assert not measured and [(s['by'], s['reason']) for s in SKIPPED] == [('wrong', 'wrong result'), ('refuses', 'no such shape')]
assert all(s['bench'] == 'mixed_attention' and s['axes'] == axes for s in SKIPPED)

# The indexer's scores by a loop over heads and tokens.
index = program.Index({'rows': 2, 'context': 5, 'shared': 0},
                      {'queries': torch.randn(2, 3, 4), 'weights': torch.rand(2, 3), 'keys': torch.randn(10, 4), 'scales': torch.rand(10)})
got = program.plain_scores(index)()
for r in range(2):
    for t in range(5):
        expected = sum(index.weights[r, h] * max(0.0, float(index.queries[r, h] @ index.keys[5 * r + t])) for h in range(3))
        assert abs(float(got[r, t] - expected * index.scales[5 * r + t])) < 1e-4
assert index.is_right(got) and not index.is_right(got.flip(1))
print('attention_library.py works')
