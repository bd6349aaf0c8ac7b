"""Helpers shared by the suites of the trained model: running kvcast, skipping."""

import json
import subprocess
from pathlib import Path

from program import KVCAST, main, need

__all__ = ['KVCAST', 'kvcast', 'main', 'need', 'replay']


def kvcast(*arguments: str) -> str:
    done = subprocess.run([KVCAST, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f'kvcast {" ".join(map(str, arguments))}: {done.stderr}')
    return done.stdout


def replay(trace: Path, policy: str, settings: dict, folder: Path) -> tuple[dict, list[dict]]:
    """Returns the answer of `kvcast replay` and its selections."""
    out = folder / 'selections.jsonl'
    sets = [part for key, value in settings.items() for part in ('--set', f'{key}={value}')]
    answer = json.loads(kvcast('replay', '--trace', trace, '--policy', policy, *sets, '--selections', out, '--json'))
    return answer, [json.loads(line) for line in out.read_text().splitlines()]
