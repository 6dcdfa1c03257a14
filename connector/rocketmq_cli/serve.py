"""`rmq serve`: the bundled broker in the foreground."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Lists the verb; its arguments are read by the broker itself."""
    verbs.add_parser("serve", help="run the bundled broker", add_help=False)


def run(words: Sequence[str]) -> int:
    """Serve until told to stop."""
    from rocketmq_broker_sim import __main__ as broker

    parser = argparse.ArgumentParser(
        prog="rmq serve", description="Runs the bundled broker until it is told to stop."
    )
    broker.add_arguments(parser)
    return broker.run(parser.parse_args(words))
