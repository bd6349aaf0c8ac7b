"""What the capture suites share: running kvcast, reading traces, skipping."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

from kvcast_capture import safetensors_file

SKIPPED = 77
KVCAST = sys.argv[1] if len(sys.argv) > 1 else 'kvcast'


def check(path: Path) -> dict:
    """What `kvcast trace check` finds."""
    done = subprocess.run([KVCAST, 'trace', 'check', str(path), '--json'], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def metadata(path: Path) -> dict:
    return safetensors_file.read_header(path)[0]['__metadata__']


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
