"""What the suites of the trained model share: running kvcast, skipping."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

SKIPPED = 77
KVCAST = sys.argv[1] if len(sys.argv) > 1 else 'kvcast'


def kvcast(*arguments: str) -> str:
    done = subprocess.run([KVCAST, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f'kvcast {" ".join(map(str, arguments))}: {done.stderr}')
    return done.stdout


def replay(trace: Path, policy: str, settings: dict, folder: Path) -> tuple[dict, list[dict]]:
    """What `kvcast replay` answers, and its selections."""
    out = folder / 'selections.jsonl'
    sets = [part for key, value in settings.items() for part in ('--set', f'{key}={value}')]
    answer = json.loads(kvcast('replay', '--trace', trace, '--policy', policy, *sets, '--selections', out, '--json'))
    return answer, [json.loads(line) for line in out.read_text().splitlines()]


def need(*modules: str) -> None:
    """Ends the program as skipped where a module is missing."""
    for name in modules:
        try:
            __import__(name)
        except ImportError as error:
            print(f'skipped: {error} (this suite needs {", ".join(modules)})')
            sys.exit(SKIPPED)


def main() -> None:
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
