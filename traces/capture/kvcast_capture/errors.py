"""The one error that is the caller's to mend."""


class CaptureError(Exception):
    """What was asked for is wrong or contradicts what is there; the message names it and what is known."""
