"""`rmq produce`: one message a line of standard input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.progress import CountLine
from rocketmq_cli.usage import UsageError

_READ_BYTES = 1 << 20
_BATCH_MAX_DEFAULT = 1_000


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `produce`."""
    parser = verbs.add_parser(
        "produce",
        help="send standard input, one message a line",
        description="Sends every line of standard input as one message, in batches. Empty lines "
        "are left out: RocketMQ has no empty messages.",
    )
    parser.add_argument("topic")
    parser.add_argument("--tags", help="a tag for every message")
    parser.add_argument("--keys", help="keys for every message, separated by blanks")
    parser.add_argument("--queue", type=int, metavar="INDEX", help="only to queues of this index")
    parser.add_argument(
        "--batch",
        type=int,
        default=_BATCH_MAX_DEFAULT,
        metavar="N",
        help=f"messages a batch at most (default: {_BATCH_MAX_DEFAULT})",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing at the end")
    add_connection_options(parser)
    parser.set_defaults(run=_produce)


def _produce(args: argparse.Namespace) -> int:
    from rocketmq_cli.sending import LineSender

    if args.batch < 1:
        raise UsageError(f"--batch must be 1 or more, not {args.batch}")
    line = CountLine("messages")
    sender = LineSender(
        connection_settings(args),
        args.topic,
        tags=args.tags,
        keys=args.keys,
        queue_index=args.queue,
        batch_max=args.batch,
    )
    is_done = False
    try:
        with sender:
            for lines in read_lines(sys.stdin.buffer):
                sender.send(lines)
                line.add(len(lines))
        is_done = True
    finally:
        line.close()
        if not is_done:
            print(f"rmq: not all was sent; stored so far: {sender.stored:,}", file=sys.stderr)
    if not args.quiet:
        print(f"sent {line.summary()}", file=sys.stderr)
    return 0


def read_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lines as they become available: many at a time from a pipe, one by one from a terminal.

    A last line without an end counts; empty lines are left out, as RocketMQ refuses empty bodies.
    """
    rest = b""
    read = getattr(source, "read1", source.read)
    while data := read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if wanted := [line.removesuffix(b"\r") for line in lines if line.strip(b"\r")]:
            yield wanted
    if rest.strip(b"\r"):
        yield [rest.removesuffix(b"\r")]
