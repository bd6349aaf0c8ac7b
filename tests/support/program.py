"""What Python suites share: the program that they run, the modules that they need, their end."""

import sys
import unittest

SKIPPED = 77
KVCAST = sys.argv[1] if len(sys.argv) > 1 else 'kvcast'


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
