"""Counts in words: `1 queue`, `2 queues`, `3,000 messages`."""

from __future__ import annotations


def plural(count: int, what: str) -> str:
    """A count and what is counted; only words that take an s are."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
