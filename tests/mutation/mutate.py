#!/usr/bin/env python3
"""Checks which changes of the code the test suite detects.

    tests/mutation/mutate.py --check            # every mutant still matches exactly one location of the code; seconds
    tests/mutation/mutate.py BUILD_FOLDER [N..] # builds and runs the suites of each mutant (or of those numbers); minutes each

A mutant is a change of one location that makes the program wrong (mutants.json: file, text, its replacement, and the suites
that should detect it). It is killed when a suite fails or the code no longer compiles, and survives when all pass. The files
are restored after each mutant, however the run ends. BUILD_FOLDER must be configured and up to date. Exit codes: 0 all
killed, 1 some survived, 2 wrong usage or a mutant that does not match exactly one location.
"""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent


def mutants():
    return json.loads((HERE / 'mutants.json').read_text(encoding='utf-8'))['mutants']


def problems(mutant):
    path = PROJECT / mutant['file']
    if not path.is_file():
        return f'{mutant["file"]}: no such file'
    found = path.read_text(encoding='utf-8').count(mutant['find'])
    if found != 1:
        return f'{mutant["file"]}: "{mutant["find"]}" occurs {found} times'
    if not mutant['suites'] or mutant['replace'] == mutant['find']:
        return f'{mutant["file"]}: a mutant must change something and name suites'
    return ''


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, **options).returncode


def target(suite):
    """Returns what is built for a suite: its program, or kvcast for a suite in Python."""
    return 'kvcast' if suite.startswith('outside_') else suite


def verdict(mutant, build):
    path = PROJECT / mutant['file']
    original = path.read_text(encoding='utf-8')
    try:
        path.write_text(original.replace(mutant['find'], mutant['replace']), encoding='utf-8')
        if run(['cmake', '--build', build, '--target', *map(target, mutant['suites'])]) != 0:
            return 'killed by the compiler'
        for suite in mutant['suites']:
            if run(['ctest', '--test-dir', build, '-R', f'^{suite}$', '--timeout', '600']) != 0:
                return f'killed by {suite}'
        return 'SURVIVED'
    finally:
        path.write_text(original, encoding='utf-8')


def main(arguments):
    if not arguments:
        print(__doc__)
        return 2
    wrong = [text for text in map(problems, mutants()) if text]
    if wrong:
        print('\n'.join(wrong))
        return 2
    if arguments == ['--check']:
        print(f'{len(mutants())} mutants match one place each')
        return 0
    if not (pathlib.Path(arguments[0]) / 'CMakeCache.txt').is_file():  # a build that fails would kill every mutant
        print(f'{arguments[0]}: not a configured build folder')
        return 2
    chosen = [int(text) for text in arguments[1:]] or range(len(mutants()))
    survived = 0
    for number in chosen:
        mutant = mutants()[number]
        said = verdict(mutant, arguments[0])
        survived += said == 'SURVIVED'
        print(f'{number}: {said}: {mutant["file"]}: {mutant["find"]} -> {mutant["replace"] or "nothing"}', flush=True)
    print(f'{len(chosen) - survived} of {len(chosen)} killed')
    return 1 if survived else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
