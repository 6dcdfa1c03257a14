"""The errors of the fixtures."""

from __future__ import annotations


class StreamTimeoutError(AssertionError):
    """A stream did not end in time."""
