"""Helpers shared by the capture suites: running kvcast, reading traces, skipping."""

import json
import subprocess
from pathlib import Path

from kvcast_capture import safetensors_file
from program import KVCAST, main, need

__all__ = ['KVCAST', 'check', 'main', 'metadata', 'need']


def check(path: Path) -> dict:
    """Returns the findings of `kvcast trace check`."""
    done = subprocess.run([KVCAST, 'trace', 'check', str(path), '--json'], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def metadata(path: Path) -> dict:
    return safetensors_file.read_header(path)[0]['__metadata__']
