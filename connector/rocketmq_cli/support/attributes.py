"""`--attribute NAME=VALUE`: what RocketMQ 5.x keeps of topics and groups beside their settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rocketmq_cli.usage import UsageError


def add_attribute_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one that RocketMQ 5.x knows, as message.type=FIFO; may be given several times",
    )


def attributes_of(texts: Sequence[str]) -> dict[str, str]:
    """Raises UsageError for what is not NAME=VALUE."""
    named = {}
    for text in texts:
        name, divider, value = text.partition("=")
        if not name or not divider or not value or "," in text:
            raise UsageError(f"--attribute must be NAME=VALUE, without commas, not {text!r}")
        named[name.removeprefix("+")] = value
    return named
