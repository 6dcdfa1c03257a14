"""What is wrong with a command line, beyond what argparse finds."""

from __future__ import annotations


class UsageError(Exception):
    """The command line cannot be carried out as given; says what to give."""
