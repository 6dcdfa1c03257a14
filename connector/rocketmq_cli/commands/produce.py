"""`rmq produce`: lines or JSON objects of files or standard input as messages."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.terminal.progress import CountLine
from rocketmq_cli.usage import UsageError, report, require_positive

if TYPE_CHECKING:
    from rocketmq_cli.messages.lines import Sending

_READ_BYTES = 1 << 20
_WARNINGS_MAX = 10
_BATCH_MAX_DEFAULT = 1_000
LINE_SIZE_MAX = 4 << 20
"""Brokers take bodies of 4 MiB by default."""
# Such a body as JSON, every byte of it escaped, with as much room beside it.
_JSON_LINE_SIZE_MAX = 32 << 20


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `produce`."""
    parser = verbs.add_parser(
        "produce",
        help="send lines or JSON as messages",
        description="Sends every line as one message, in batches. Empty lines are left out: "
        "RocketMQ has no empty messages.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  seq 1 1000 | rmq produce numbers\n"
        "  rmq produce orders orders.txt --keys order-1 --property region=eu --rate 500\n"
        "  rmq tail orders --json | rmq produce orders-copy --json\n\n"
        "with --json a line is an object with body or bodyBase64, and where wanted tags,\n"
        "keys (text, or a list), properties, queueId and brokerName; others are left out.\n"
        "With queueId alone the brokers that have this queue take turns.",
    )
    parser.add_argument("topic")
    parser.add_argument("files", metavar="FILE", nargs="*", help="files (default: standard input)")
    parser.add_argument("--json", action="store_true", help="a line is a JSON object")
    parser.add_argument("--tags", help="a tag for every message")
    parser.add_argument("--keys", help="keys for every message, separated by blanks")
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property for every message; may be repeated",
    )
    later = parser.add_mutually_exclusive_group()
    later.add_argument("--delay-level", type=int, metavar="1-18", help="deliver after this level")
    later.add_argument(
        "--delay", metavar="TIME", help="deliver after this time, to the second (RocketMQ 5)"
    )
    parser.add_argument("--queue", type=int, metavar="INDEX", help="only to queues of this index")
    parser.add_argument("--rate", type=float, metavar="N", help="messages a second at most")
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
    from rocketmq_cli.messages.sending import LineSender

    require_positive("--batch", args.batch)
    if args.rate is not None and args.rate <= 0:
        raise UsageError(f"--rate must be more than 0, not {args.rate}")
    for name in args.files:
        if not Path(name).is_file():
            raise UsageError(f"{name} is no file; nothing was sent")
    sizes = [Path(name).stat().st_size for name in args.files]
    line = CountLine(size_total=sum(sizes) or None)
    sender = LineSender(
        connection_settings(args),
        args.topic,
        defaults=_defaults(args),
        is_json=args.json,
        queue_index=args.queue,
        batch_max=args.batch,
    )
    is_done = False
    try:
        with sender:
            lines = _lines(args.files, _JSON_LINE_SIZE_MAX if args.json else LINE_SIZE_MAX)
            for some in lines if args.rate is None else paced(lines, args.rate):
                sender.send(some)
                # With the ends of the lines; those of empty ones are few.
                line.add(len(some), sum(map(len, some)) + len(some))
        is_done = True
    finally:
        line.close()
        if not is_done:
            report(f"not all was sent; stored so far: {sender.stored:,}")
    if not args.quiet:
        print(f"sent {line.summary()}", file=sys.stderr)
    return 0


class _Warnings:
    """Says once what is true of many lines."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, where: str, told: str) -> None:
        if told not in self._told and len(self._told) < _WARNINGS_MAX:
            self._told.add(told)
            report(f"{where}: {told}")


def _defaults(args: argparse.Namespace) -> Sending:
    """What every message gets that does not say otherwise."""
    from rocketmq_cli.messages.lines import Sending
    from rocketmq_cli.times import parse_duration_ms

    properties: dict[str, str] = {}
    for text in args.property:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--property is NAME=VALUE, not {text!r}")
        properties[name] = value
    if args.delay_level is not None:
        require_positive("--delay-level", args.delay_level)
        properties["DELAY"] = str(args.delay_level)
    if args.delay is not None:
        properties["TIMER_DELAY_MS"] = str(parse_duration_ms(args.delay))
    return Sending(args.tags, args.keys, properties, _Warnings())


def _lines(files: Sequence[str], size_max: int) -> Iterator[list[bytes]]:
    if not files:
        yield from read_lines(sys.stdin.buffer, size_max)
    for name in files:
        with Path(name).open("rb") as source:
            yield from read_lines(source, size_max)


def paced(lines: Iterable[list[bytes]], rate: float) -> Iterator[list[bytes]]:
    """Lines at a rate: a tenth of a second's at a time, one by one below ten a second."""
    step = max(1, round(rate / 10))
    began = time.monotonic()
    sent = 0
    for some in lines:
        for at in range(0, len(some), step):
            wait_s = began + sent / rate - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            part = some[at : at + step]
            sent += len(part)
            yield part


def read_lines(source: BinaryIO, size_max: int = LINE_SIZE_MAX) -> Iterator[list[bytes]]:
    """Lines as they become available: many at a time from a pipe, one by one from a terminal.

    A last line without an end counts; empty lines are left out, as RocketMQ refuses empty bodies.
    Raises UsageError for a line that is longer than `size_max`, before more of it is read.
    """
    begun: list[bytes] = []
    size = count = 0
    read = getattr(source, "read1", source.read)
    while data := read(_READ_BYTES):
        head, end, others = data.partition(b"\n")
        begun.append(head)
        size += len(head)
        # One byte more may be the first half of the line's end.
        if size > size_max + (b"".join(begun[-2:])[-1:] == b"\r"):
            raise UsageError(
                f"line {count + 1}, not counting empty ones, is longer than {size_max:,} bytes"
            )
        if not end:
            continue
        *lines, rest = others.split(b"\n")
        lines.insert(0, b"".join(begun))
        begun, size = [rest], len(rest)
        if wanted := [line.removesuffix(b"\r") for line in lines if line.strip(b"\r")]:
            count += len(wanted)
            yield wanted
    if last := b"".join(begun).removesuffix(b"\r"):
        yield [last]
