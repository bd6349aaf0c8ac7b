"""Checks on the CPU that kernels/library.py writes rows that calibrate reads; skipped without PyTorch."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import zipfile

try:
    import torch
except ImportError:
    sys.exit(77)

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(PROJECT, 'kernels'))
import library  # noqa: E402

library_names = {name for module, name in (('flash_attn_interface', 'FlashAttention-3'), ('flash_attn', 'FlashAttention-2'))
                 if importlib.util.find_spec(module)}


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
    return done, result


with tempfile.TemporaryDirectory() as folder:
    cases = [row('topk', rows=2, n=1000, k=64), row('topk', rows=1, n=300, k=30), row('topk', 'batch', rows=1, n=300, k=30),
             row('decode_attention', batch=1, context=64, kv_heads=2, group=2, page=1, dim=128), row('hbm_stream', bytes=4)]
    rows = run(folder, cases)[1]['rows']
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
    again = run(folder, cases)[1]['rows']
    assert [r['time_s'] for r in again] == [r['time_s'] for r in rows]

# A wrong result is detected: one call ignores the mask, the other is right.
q, k, v = torch.randn(1, 4, 6, 128), torch.randn(1, 2, 6, 128), torch.randn(1, 2, 6, 128)
library.sdpa_calls = lambda *a: iter([('right', lambda: library.plain_attention(*a)),
                                      ('no mask', lambda: library.plain_attention(*a[:3], False))])
verdicts = [(name, is_right(call())) for name, call, is_right in library.attention_case(q, k, v, True)]
assert verdicts[:2] == [('right', True), ('no mask', False)], verdicts

# FlashInfer as a stand-in: each request has pages of its own, and the plan is timed on the host.
STAND_IN = '''
import torch
__version__ = '0.stand-in'
class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(self, space, layout, use_tensor_cores):
        assert layout == 'NHD' and use_tensor_cores
    def plan(self, ends, table, last, heads, kv_heads, dim, page, data_type):
        assert sorted(table.tolist()) == list(range(ends[-1])) and last.tolist() == [page] * (len(ends) - 1)
        self.ends, self.table, self.group = ends.tolist(), table.long(), heads // kv_heads
    def run(self, rows, cache):
        out = torch.empty_like(rows)
        for i, (a, b) in enumerate(zip(self.ends, self.ends[1:])):
            keys, values = (cache[self.table[a:b], j].flatten(0, 1).transpose(0, 1).repeat_interleave(self.group, 0) for j in (0, 1))
            scores = (keys @ rows[i, :, :, None]).squeeze(2) * rows.shape[2] ** -0.5
            out[i] = (torch.softmax(scores, 1)[:, None] @ values)[:, 0]
        return out
'''
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, 'flashinfer.py'), 'w', encoding='utf-8') as file:
        file.write(STAND_IN)
    os.environ['PYTHONPATH'] = folder + os.pathsep + os.environ.get('PYTHONPATH', '')
    axes = {'batch': 3, 'context': 64, 'kv_heads': 2, 'group': 2, 'page': 32, 'dim': 64}
    done, result = run(folder, [row('decode_attention', **axes)])
    # A missing library is reported once, whatever the number of cases.
    missing = {one['by'] for one in result['skipped'] if 'bench' not in one}
    assert missing == {'FlashAttention-3', 'FlashAttention-2'} - library_names, result['skipped']
    assert all(f'{name}: ' in done.stderr for name in missing), done.stderr
    by = {r['bench']: r for r in result['rows'] if r['axes']['by'] == 'FlashInfer 0.stand-in'}
    assert set(by) == {'decode_attention', 'plan_attention'}, result
    assert by['plan_attention']['axes'] == {**axes, 'by': 'FlashInfer 0.stand-in', 'clock': 'host'}

# Wheels are installed for the process alone; those that cannot be are reported.
def wheel(folder, name, text):
    with zipfile.ZipFile(os.path.join(folder, f'{name}-1-py3-none-any.whl'), 'w') as archive:
        archive.writestr(f'{name}.py', text)
        archive.writestr(f'{name}-1.dist-info/METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: 1\nRequires-Dist: elsewhere\n')
        archive.writestr(f'{name}-1.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        archive.writestr(f'{name}-1.dist-info/RECORD', '')


library.SKIPPED.clear()
with tempfile.TemporaryDirectory() as folder:
    library.install_wheels(folder)
    wheel(folder, 'carried_library', 'number = 7\n')
    wheel(folder, 'broken_library', 'raise OSError("made for another PyTorch")\n')
    library.install_wheels(folder)
    with open(os.path.join(folder, 'empty-1-py3-none-any.whl'), 'w', encoding='utf-8') as file:
        file.write('no archive')
    library.install_wheels(folder)
assert [one['by'] for one in library.SKIPPED] == ['wheels', 'wheels'], library.SKIPPED
assert library.imported('carried_library', 'carried').number == 7
assert library.imported('broken_library', 'broken') is None
assert library.SKIPPED[-1] == {'by': 'broken', 'reason': 'made for another PyTorch'}

print('library.py works')
