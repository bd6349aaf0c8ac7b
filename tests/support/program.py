"""Helpers shared by Python suites: the program under test, required modules, seeds, the main function."""

import datetime
import os
import sys
import unittest

SKIPPED = 77
KVCAST = sys.argv[1] if len(sys.argv) > 1 else 'kvcast'


def need(*modules: str) -> None:
    """Exits as skipped if a module is missing."""
    for name in modules:
        try:
            __import__(name)
        except ImportError as error:
            print(f'skipped: {error} (this suite needs {", ".join(modules)})')
            sys.exit(SKIPPED)


def seed_of_day() -> int:
    """Returns a seed that changes every day; DAY_SEED repeats the cases of another day."""
    seed = int(os.environ.get('DAY_SEED', datetime.date.today().toordinal()))
    print(f'cases of the day: DAY_SEED={seed}', flush=True)
    return seed


def main() -> None:
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
