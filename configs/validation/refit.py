#!/usr/bin/env python3
"""Does again what depends on the cost model, and says what has moved.

    configs/validation/refit.py build/kvcast [--only PART ...] [--write]

Parts, in the order in which they depend on each other: `profiles` (fits of the machines under gpu/), `intervals` (half-widths, from the
residuals of `validate times`), and the suites of `kvcast validate`: kernels, policy_kernels, gpu_pipeline, gpu_prompts, recurrences,
times, papers, serving (the last three take minutes to an hour). Without --only: all but serving. Without --write nothing changes.

- profiles: numbers of a profile whose source names the measuring program are replaced by those of a new fit; others, which people chose
  from other sources, stay.
- suites: number of held-out cases, median and 90th percentile of their errors, and how many intervals hold theirs are compared with
  figures.json and put there.

Moved is what differs by more than 1 % of itself. Exit codes: 0 nothing has moved, 1 something has, 2 wrong usage or a command that failed.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError as error:
    print(f'skipped: {error}', file=sys.stderr)
    sys.exit(2)

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SUITES = ['kernels', 'policy_kernels', 'gpu_pipeline', 'gpu_prompts', 'recurrences', 'times', 'papers', 'serving']
PARTS = ['profiles', 'intervals', *SUITES]
# The machine from which the fit of each measured folder begins.
NEAREST = {'h100-kvcast': 'h100-sxm', 'h200-kvcast': 'h200'}
NUMBER = re.compile(r'value: ([-+.0-9e]+)')


def kvcast(program, *arguments, allowed=(0,)):
    done = subprocess.run([program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        print(f'kvcast {" ".join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}', file=sys.stderr)
        sys.exit(2)
    return done.stdout


def moved(before, after):
    """Texts of the numbers that differ by more than 1 %, by path; lists and maps are compared item by item."""
    def walk(a, b, path):
        if isinstance(a, dict) and isinstance(b, dict):
            for key in [*a, *(k for k in b if k not in a)]:
                yield from walk(a.get(key), b.get(key), f'{path}.{key}' if path else str(key))
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            for i, (x, y) in enumerate(zip(a, b)):
                yield from walk(x, y, f'{path}[{i}]')
        elif isinstance(a, (int, float)) and isinstance(b, (int, float)):
            if abs(a - b) > 0.01 * max(abs(a), abs(b)):
                yield f'{path}: {a:.4g} -> {b:.4g}'
        elif a != b:
            yield f'{path}: {a} -> {b}'
    return list(walk(before, after, ''))


def merged_profile(committed, fitted):
    """The committed text in which lines with a number of the measuring program have the number of the new fit."""
    def key_of(line):
        return line.split(':', 1)[0]
    new = {key_of(line): line for line in fitted.splitlines() if "kvcast's measuring program" in line}
    lines = []
    for line in committed.splitlines():
        replaced = "kvcast's measuring program" in line and key_of(line) in new
        lines.append(new[key_of(line)] if replaced else line)
    return '\n'.join(lines) + '\n'


def values(profile):
    """The numbers of a profile's lines by key, uncertainties and sources left out."""
    found = {}
    for line in profile.splitlines():
        number = NUMBER.search(line)
        if number and "kvcast's measuring program" in line:
            found[line.split(':', 1)[0].strip()] = float(number.group(1))
    return found


def refit_profiles(program, write):
    changes = []
    for name, nearest in NEAREST.items():
        folder, file = FOLDER / 'gpu' / name, ROOT / 'configs' / 'hardware' / f'{name}.yaml'
        with tempfile.TemporaryDirectory() as work:
            host, out = pathlib.Path(work) / 'host.yaml', pathlib.Path(work) / 'profile.yaml'
            kvcast(program, 'calibrate', 'cpu', '--from', folder / 'cpu.json', '-o', host)
            kvcast(program, 'calibrate', 'cuda', '--own-kernels', '--from', folder / 'kernels.json', '--host', host, '--profile', nearest,
                   '--budget-median', 12, '--budget-p90', 60, '-o', out)
            committed = file.read_text(encoding='utf-8')
            new = merged_profile(committed, out.read_text(encoding='utf-8'))
        changes += [f'profile {name}, {text}' for text in moved(values(committed), values(new))]
        if write:
            file.write_text(new, encoding='utf-8')
    return changes


def refit_intervals(program, write):
    file = FOLDER / 'intervals.yaml'
    with tempfile.TemporaryDirectory() as work:
        new = pathlib.Path(work) / 'intervals.yaml'
        kvcast(program, 'validate', 'times', '--intervals', new, allowed=(0, 1))
        text = new.read_text(encoding='utf-8')
    widths = [{key: item['value'] for key, item in yaml.safe_load(one).items()} for one in (file.read_text(encoding='utf-8'), text)]
    if write:
        file.write_text(text, encoding='utf-8')
    return [f'intervals, {change}' for change in moved(*widths)]


def figures_of(report):
    """{group: {n, median, p90, covered, intervals}} of a suite, errors in percent; '' is the whole suite."""
    return {group['group'] or 'all': {'n': group['n'], 'median': round(100 * group['median'], 2), 'p90': round(100 * group['p90'], 1),
                                      'covered': group['intervals']['bounds']['covered'], 'intervals': group['intervals']['bounds']['n']}
            for suite in report['suites'] for group in suite['summary'] if group['n'] > 0}


def text_of(figures):
    """JSON with a line for each group, so that a difference can be read."""
    def lines(groups):
        return ',\n'.join(f'  {json.dumps(group)}: {json.dumps(numbers)}' for group, numbers in sorted(groups.items()))
    return '{\n' + ',\n'.join(f' {json.dumps(suite)}: {{\n{lines(groups)}\n }}' for suite, groups in sorted(figures.items())) + '\n}\n'


def judge_suite(program, suite, write):
    file = FOLDER / 'figures.json'
    committed = json.loads(file.read_text(encoding='utf-8')) if file.exists() else {}
    now = figures_of(json.loads(kvcast(program, 'validate', suite, '--json', allowed=(0, 1))))
    changes = [f'{suite}, {change}' for change in moved(committed.get(suite, {}), now)]
    if write:
        committed[suite] = now
        file.write_text(text_of(committed), encoding='utf-8')
    return changes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('program', help='kvcast')
    parser.add_argument('--only', nargs='+', choices=PARTS, metavar='PART', help=', '.join(PARTS))
    parser.add_argument('--write', action='store_true', help='replace what is committed')
    options = parser.parse_args()
    program, changes = str(pathlib.Path(options.program).resolve()), []
    for part in options.only or PARTS[:-1]:
        if part == 'profiles':
            found = refit_profiles(program, options.write)
        elif part == 'intervals':
            found = refit_intervals(program, options.write)
        else:
            found = judge_suite(program, part, options.write)
        print(f'{part}: {f"{len(found)} moved" if found else "nothing has moved"}')
        for change in found:
            print(f'  {change}')
        changes += found
    return 1 if changes else 0


if __name__ == '__main__':
    sys.exit(main())
