"""Counts in words: `1 queue`, `2 queues`, `3,000 messages`."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Formats a count with its noun, adding an s for the plural."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
