"""A job's command line -> the source's options: what every job that reads topics has in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from rocketmq_wire.errors import RocketMQError


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster, the topics, the group and `--option`."""
    cluster = parser.add_mutually_exclusive_group(required=True)
    cluster.add_argument("--name-server", metavar="HOST:PORT[;...]")
    cluster.add_argument("--endpoints", metavar="HOST:PORT", help="gRPC instead")
    parser.add_argument("--topic", required=True, help="several are separated by commas")
    parser.add_argument("--group", help="consumer group whose offsets at the broker shall follow")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="any other option of the source; may be repeated",
    )


def source_options(args: argparse.Namespace, **named: object) -> dict[str, str]:
    """The source's options: those of `add_source_arguments`, the job's own, then `--option`s.

    What is None is left out, and an `--option` beats what has a name of its own here.
    """
    options = {
        "nameServer": args.name_server,
        "endpoints": args.endpoints,
        "subscribe": args.topic,
        "group": args.group,
        **named,
    }
    others = dict(args.option)
    replaced = {key.lower() for key in others}
    return {
        key: str(value)
        for key, value in options.items()
        if value is not None and key.lower() not in replaced
    } | others


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """End the job with an error of ours as its only words: it says what happened and what to do."""
    try:
        yield
    except RocketMQError as error:
        raise SystemExit(str(error)) from None


def _key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"an option is KEY=VALUE, got {text!r}")
    return key, value
