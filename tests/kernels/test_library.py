"""Checks on the CPU that kernels/library.py writes rows that calibrate reads; skipped without PyTorch."""
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
sys.path.insert(0, os.path.join(PROJECT, 'kernels'))
import library  # noqa: E402


def row(bench, mode='cold', **axes):
    return {'bench': bench, 'mode': mode, 'axes': axes, 'work': {'bytes': 1}, 'resource': 'hbm', 'time_s': {'median': 1e-3}}


def run(folder, rows):
    like, out = os.path.join(folder, 'gpu.json'), os.path.join(folder, 'library.json')
    environment = {'program': 'kvcast-kernels', 'device': 'made up', 'l2_bytes': 1000}
    with open(like, 'w', encoding='utf-8') as file:
        json.dump({'schema': 'kvcast-kernels/1', 'environment': environment, 'rows': rows}, file)
    done = subprocess.run([sys.executable, os.path.join(PROJECT, 'kernels', 'library.py'), '--like', like, '--json', out,
                           '--device', 'cpu'], capture_output=True, text=True, check=True)
    with open(out, encoding='utf-8') as file:
        result = json.load(file)
    assert result['environment'] == environment
    return done.stdout, result['rows']


with tempfile.TemporaryDirectory() as folder:
    cases = [row('topk', rows=2, n=1000, k=64), row('topk', rows=1, n=300, k=30), row('topk', 'batch', rows=1, n=300, k=30),
             row('decode_attention', batch=1, context=64, kv_heads=2, group=2, page=1, dim=128), row('hbm_stream', bytes=4)]
    said, rows = run(folder, cases)
    # Two cases are measured: batches, single-token pages and cases for which no library has a kernel are left out.
    top = [r for r in rows if r['bench'] == 'topk']
    assert len(top) == 2 and len(rows) == 2, rows
    for one in rows:
        assert one['axes'].pop('by').startswith('PyTorch ' + torch.__version__)
        assert one['axes'] in [case['axes'] for case in cases[:2]]
        times = one['time_s']
        assert 0 < times['min'] <= times['q1'] <= times['median'] <= times['q3'] <= times['max']
        assert one['skip_reason'] is None and one['mode'] == 'cold' and one['n'] == library.SAMPLES
    # Existing rows are not measured again.
    again = run(folder, cases)[1]
    assert [r['time_s'] for r in again] == [r['time_s'] for r in rows]

# A wrong result is detected: one call ignores the mask, the other is right.
q, k, v = torch.randn(1, 4, 6, 128), torch.randn(1, 2, 6, 128), torch.randn(1, 2, 6, 128)
library.sdpa_calls = lambda *a: iter([('right', lambda: library.plain_attention(*a)),
                                      ('no mask', lambda: library.plain_attention(*a[:3], False))])
verdicts = [(name, is_right(call())) for name, call, is_right in library.attention_case(q, k, v, True)]
assert verdicts[:2] == [('right', True), ('no mask', False)], verdicts
print('library.py works')
