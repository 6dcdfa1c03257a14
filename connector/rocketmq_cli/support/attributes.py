"""`--attribute NAME=VALUE`: attributes of topics and groups in RocketMQ 5.x."""

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
        help="an attribute of RocketMQ 5.x, such as message.type=FIFO; may be repeated",
    )


def attributes_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse the attributes. Raises UsageError for a text that is not NAME=VALUE."""
    named = {}
    for text in texts:
        name, divider, value = text.partition("=")
        if not name or not divider or not value or "," in text:
            raise UsageError(f"--attribute must be NAME=VALUE, without commas, not {text!r}")
        named[name.removeprefix("+")] = value
    return named
