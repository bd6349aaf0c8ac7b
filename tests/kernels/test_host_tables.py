"""Checks that planned cases of large tables state the work that the program states, and what the script runs."""
import json
import os
import subprocess
import sys
import tempfile

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
SCRIPT = os.path.join(PROJECT, 'kernels', 'host_tables.py')
sys.path.insert(0, os.path.join(PROJECT, 'kernels'))
import host_tables

with open(os.path.join(PROJECT, 'configs', 'validation', 'gpu', 'h100-kvcast', 'cpu.json'), encoding='utf-8') as file:
    rows = [row for row in json.load(file)['rows'] if row['bench'] in ('cpu_gather_dot', 'cpu_sparse_attention') and row['work']]
assert {row['bench'] for row in rows} == {'cpu_gather_dot', 'cpu_sparse_attention'}
for row in rows:
    work = host_tables.planned(row['bench'], row['axes'])['work']
    assert {name: row['work'][name] for name in work} == work, row['axes']

largest = [axes['rows'] * axes['dim'] * 2 for axes in host_tables.axes_of(host_tables.GATHERS, 16)]
both = [axes['items'] * axes['context'] * axes['dim'] * 4 for axes in host_tables.axes_of(host_tables.ATTENTION, 16)]
assert max(largest) == largest[-1] == both[0] == 2 ** 36, 'a table is filled once for both'

with tempfile.TemporaryDirectory() as folder:
    plan, program, said = (os.path.join(folder, name) for name in ('plan.json', 'program', 'said'))
    subprocess.run([sys.executable, SCRIPT, '--plan', plan, '--threads', '16'], check=True)
    with open(plan, encoding='utf-8') as file:
        assert len(json.load(file)['rows']) == len(largest) + len(both)
    with open(program, 'w', encoding='utf-8') as file:
        file.write(f'#!/bin/sh\necho "$@" > {said}\n[ "$2" = slow.json ] && exec sleep 60\nexit 4\n')
    os.chmod(program, 0o755)
    run = [sys.executable, SCRIPT, program]
    assert subprocess.run([*run, 'out.json', '--threads', '3'], check=False).returncode == 4
    with open(said, encoding='utf-8') as file:
        text = file.read()
    assert '--json out.json' in text and '--axis threads=3' in text and 'rows=65536,7812500,67108864,268435456' in text
    assert subprocess.run([*run, 'slow.json', '--seconds', '0.5'], check=False, capture_output=True).returncode == 3
    assert subprocess.run([sys.executable, SCRIPT, plan], check=False, capture_output=True).returncode == 2
print('plans state the work of the program')
