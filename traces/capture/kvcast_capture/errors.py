"""The exception for errors that the caller can correct."""


class CaptureError(Exception):
    """A request is invalid or contradicts existing data; the message names the cause and the valid choices."""
