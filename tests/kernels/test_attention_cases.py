"""Checks the predictions that kernels/attention_cases.py writes, and the lengths that it assumes."""
import csv
import json
import os
import subprocess
import sys
import tempfile

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
KVCAST = sys.argv[1]
sys.path.insert(0, os.path.join(PROJECT, 'kernels'))
import attention_cases as cases  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, 'first.csv')
    subprocess.run([sys.executable, os.path.join(PROJECT, 'kernels', 'attention_cases.py'), out, '--kvcast', KVCAST, '--profile',
                    'h100-sxm', '--profile', 'h200'], check=True, capture_output=True)
    with open(out, encoding='utf-8') as file:
        table = list(csv.DictReader(file))
    times = [line for line in table if line['unit'] == 'us']
    assert len(times) == len({line['case'] for line in times}) == len(cases.all_cases())
    assert all(float(line['h100-sxm']) > 1 and float(line['h200']) > 1 for line in times)
    # One share for each pass that one kernel computes.
    fused = [line for line in times if 'what=fused' in line['case']]
    shares = {line['case']: float(line['h100-sxm']) for line in table if line['unit'] == 'x'}
    assert set(shares) == {line['case'] + ' share' for line in fused}
    # Kernels that pack the heads of a group read nothing again; others read long contexts again for each head.
    for name, share in shares.items():
        assert share == 1 if cases.FLASH_3 in name else share > 1, (name, share)
    longest = max(share for name, share in shares.items() if 'group=8' in name and 'batch=64' in name)
    assert 7 < longest <= 8, longest

    # A library that is unknown to kvcast ends in its message.
    done = subprocess.run([sys.executable, os.path.join(PROJECT, 'kernels', 'attention_cases.py'), out, '--kvcast', KVCAST, '--profile',
                           'h9000'], check=False, capture_output=True, text=True)
    assert done.returncode == 1 and 'h9000' in done.stderr, done

    # The lengths are those of the kernel's program, where the emulator is built; rounding leaves the longest row a few tokens more.
    emulated = os.path.join(os.path.dirname(KVCAST), 'kvcast-kernels-emulated')
    if os.path.exists(emulated):
        path = os.path.join(folder, 'ragged.json')
        subprocess.run([emulated, '--bench', 'ragged_attention', '--axis', 'batch=2', '--axis', 'tokens=64', '--axis', 'dim=64', '--axis',
                        'group=1', '--axis', 'parts=equal', '--json', path], check=False, capture_output=True)
        with open(path, encoding='utf-8') as file:
            rows = json.load(file)['rows']
        assert len(rows) == len(cases.PROFILES), rows
        for row in rows:
            work, profile = row['work'], row['axes']['profile']
            assert work['sum'] == 2 * cases.KV_HEADS * 64
            assert 0 <= work['longest'] - int(64 * cases.longest_of(profile, 2)) <= 2 * cases.KV_HEADS, row
print('predictions of cases are written')
