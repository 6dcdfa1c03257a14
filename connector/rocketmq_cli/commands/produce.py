"""`rmq produce`: sends the lines or JSON objects of files or standard input as messages."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.terminal.progress import CountLine
from rocketmq_cli.usage import (
    UsageError,
    parse_duration_ms,
    partly_done,
    report,
    require_positive,
)

if TYPE_CHECKING:
    from rocketmq_cli.messages.lines import MessageDefaults

_READ_BYTES = 1 << 20
_WARNINGS_MAX = 10
_BATCH_MAX_DEFAULT = 1_000
LINE_SIZE_MAX = 4 << 20
"""The largest body that brokers accept by default."""
# Such a body as JSON with every byte escaped, and as much again for the other fields.
_JSON_LINE_SIZE_MAX = 32 << 20


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "produce",
        _produce,
        "  seq 1 1000 | rmq produce numbers\n"
        "  rmq produce orders orders.txt --keys order-1 --property region=eu --rate 500\n"
        "  rmq tail orders --json | rmq produce orders-copy --json\n\n"
        "Fields of --json: body or bodyBase64; optionally tags, keys (text or list), properties,\n"
        "queue, broker. With queue alone, the brokers that have this queue take turns.",
        description="Sends every line as one message, in batches. Empty lines are skipped.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", default=[], help="default: standard input"
    )
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
    later.add_argument("--delay", metavar="TIME", help="deliver after this time (RocketMQ 5)")
    parser.add_argument("--key-separator", metavar="TEXT", help="a line is KEYS TEXT BODY")
    parser.add_argument(
        "--group-key", metavar="GROUP", help="one queue, in order, for a group; %%k: the keys"
    )
    parser.add_argument("--queue", type=int, metavar="INDEX", help="only to queues of this index")
    parser.add_argument("--rate", type=float, metavar="N", help="at most N messages a second")
    parser.add_argument(
        "--batch",
        type=int,
        default=_BATCH_MAX_DEFAULT,
        metavar="N",
        help=f"at most N messages a batch (default: {_BATCH_MAX_DEFAULT})",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no summary")
    add_connection_options(parser)


def _produce(args: argparse.Namespace) -> int:
    from rocketmq_cli.messages.sending import LineSender

    require_positive("--batch", args.batch)
    if args.rate is not None and args.rate <= 0:
        raise UsageError(f"--rate must be more than 0, not {args.rate}")
    for name in args.files:
        if not Path(name).is_file():
            raise UsageError(f"{name} is no file; nothing was sent")
    sizes = [Path(name).stat().st_size for name in args.files]
    _refuse_conflicts(args)
    line = CountLine(size_total=sum(sizes) or None)
    sender = LineSender(
        connection_settings(args),
        args.topic,
        defaults=_defaults(args),
        is_json=args.json,
        queue_index=args.queue,
        batch_max=args.batch,
    )
    try:
        with partly_done(lambda: f"not all was sent; stored so far: {sender.stored:,}"), sender:
            lines = _lines(args.files, _JSON_LINE_SIZE_MAX if args.json else LINE_SIZE_MAX)
            for some in lines if args.rate is None else paced(lines, args.rate):
                sender.send(some)
                # Counts the line ends of all but empty lines.
                line.add(len(some), sum(map(len, some)) + len(some))
    finally:
        line.close()
    if not args.quiet:
        print(f"sent {line.summary()}", file=sys.stderr)
    return 0


def _refuse_conflicts(args: argparse.Namespace) -> None:
    if args.key_separator is not None and (args.json or args.keys or not args.key_separator):
        raise UsageError("--key-separator is a text, and goes with neither --json nor --keys")
    if args.group_key is None:
        return
    if not args.group_key:
        raise UsageError("--group-key must not be empty")
    if args.queue is not None:
        raise UsageError("--group-key chooses the queue: leave out --queue")
    if args.delay is not None or args.delay_level is not None:
        raise UsageError("a delay would break the order of --group-key: leave out one")


def _defaults(args: argparse.Namespace) -> MessageDefaults:
    """The fields of messages whose lines do not give their own."""
    from rocketmq_cli.messages.lines import MessageDefaults

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
    reported: set[str] = set()

    def warn(where: str, text: str) -> None:
        if text not in reported and len(reported) < _WARNINGS_MAX:
            reported.add(text)
            report(f"{where}: {text}")

    separator = None if args.key_separator is None else args.key_separator.encode()
    return MessageDefaults(
        args.tags, args.keys, properties, key_separator=separator, group=args.group_key, warn=warn
    )


def _lines(files: Sequence[str], size_max: int) -> Iterator[list[bytes]]:
    if not files:
        yield from read_lines(sys.stdin.buffer, size_max)
    for name in files:
        with Path(name).open("rb") as source:
            yield from read_lines(source, size_max)


def paced(lines: Iterable[list[bytes]], rate: float) -> Iterator[list[bytes]]:
    """Yield lines at a rate: those of 0.1 s at a time, one by one below ten a second."""
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
    """Yield lines as they arrive: many at a time from a pipe, one by one from a terminal.

    The last line needs no end. Empty lines are skipped: RocketMQ refuses empty bodies.
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
