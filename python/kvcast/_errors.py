"""Failures: the user's input is wrong (Error), or kvcast is (BrokenInvariant)."""


class Error(Exception):
    """The input is wrong; the text is that of the command: what was found, where, and what is known."""


class BrokenInvariant(RuntimeError):
    """A defect of kvcast."""


class Cancelled(Exception):
    """Work that was closed before its end."""


for _type in (Error, BrokenInvariant, Cancelled):
    _type.__module__ = 'kvcast'
