#!/usr/bin/env python3
"""Measures gathers and attention on all of the host's cores, from tables of up to 64 GiB: as many keys and values as a host holds for
32 sequences of 128K tokens, while the fits of a profile end at 2 GB. `kvcast validate policy_kernels` compares predictions with the rows.

    kernels/host_tables.py build/kvcast-kernels-cpu OUT.json [--seconds 85]
    kernels/host_tables.py --plan OUT.json --threads 16    the same cases, each with a time of 1 s in place of a measured one

The program fills a table with all threads and keeps it for the cases that follow; tables that do not fit in memory are rows with a
reason. Rows are written after each case. Exit codes: those of the program, 3 if time ran out.
"""
import argparse
import itertools
import json
import os
import subprocess
import sys

# The largest table of the gathers comes last and is that of the first attention. 1024 items: 128 sequences of 8 KV heads.
GATHERS = {'dim': [128], 'rows': [65536, 7812500, 67108864, 268435456], 'gathered': [4096], 'run': [1, 16]}
ATTENTION = {'items': [1024, 64], 'context': [131072, 32768, 8192], 'tokens': [512], 'group': [4], 'dim': [128]}


def axes_of(cases, threads):
    for values in itertools.product(*cases.values()):
        yield {**dict(zip(cases, values)), 'threads': threads}


def planned(bench, axes):
    if bench == 'cpu_gather_dot':
        rows = axes['gathered'] * axes['threads']
        work = {'bytes': 2 * rows * axes['dim'], 'flops': 2 * rows * axes['dim'], 'rows': rows}
    else:
        elements = axes['items'] * axes['tokens'] * axes['dim']
        work = {'bytes': 4 * elements, 'flops': 4 * elements * axes['group'], 'rows': 2 * axes['items'] * axes['tokens']}
    return {'bench': bench, 'axes': axes, 'mode': 'cold', 'work': work, 'time_s': {'median': 1}, 'skip_reason': None}


def write_plan(path, threads):
    rows = [planned(bench, axes) for bench, cases in (('cpu_gather_dot', GATHERS), ('cpu_sparse_attention', ATTENTION))
            for axes in axes_of(cases, threads)]
    with open(path, 'w', encoding='utf-8') as file:
        json.dump({'schema': 'kvcast-kernels/1', 'rows': rows,
                   'environment': {'program': 'kvcast-kernels-cpu', 'host_cpu': 'not measured', 'cores': threads}}, file, indent=1)


def measure(program, path, threads, seconds):
    command = [program, '--json', path]
    for bench in ('cpu_fork_join', 'cpu_gather_dot', 'cpu_sparse_attention'):
        command += ['--bench', bench]
    for name, values in {**GATHERS, **ATTENTION, 'threads': [threads]}.items():
        command += ['--axis', f'{name}={",".join(map(str, values))}']
    try:
        return subprocess.run(command, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f'stopped after {seconds:g} s; the rows so far are in {path}')
        return 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('program', nargs='?', help='kvcast-kernels-cpu')
    parser.add_argument('out', help='the results file (JSON)')
    parser.add_argument('--plan', action='store_true', help='measure nothing')
    parser.add_argument('--threads', type=int, default=len(os.sched_getaffinity(0)), help='all that this process may use')
    parser.add_argument('--seconds', type=float, default=85)
    options = parser.parse_args()
    if options.plan == bool(options.program):
        parser.error('give either the program or --plan')
    if options.plan:
        write_plan(options.out, options.threads)
        return 0
    return measure(options.program, options.out, options.threads, options.seconds)


if __name__ == '__main__':
    sys.exit(main())
