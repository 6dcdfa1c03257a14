"""`rmq tail`: the messages of topics as lines, JSON or a format of one's own."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import (
    add_connection_options,
    connection_settings,
    queues_of,
    topics_of,
)
from rocketmq_cli.usage import EXIT_FAILED, UsageError, parse_moment_ms, report, require_positive
from rocketmq_wire.errors import raise_first

if TYPE_CHECKING:
    from rocketmq_cli.messages.printing import Printer
    from rocketmq_client.cluster import Cluster
    from rocketmq_wire.model import Bounds, QueueId

_LINE = r"%s\n"


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "tail",
        _tail,
        "  rmq tail orders -f\n"
        "  rmq tail orders 'pay*' --from -10            the last ten of every queue\n"
        "  rmq tail orders --from 2h --to 1h --json     between two and one hours ago\n"
        "  rmq tail orders --sql \"amount > 100\" --format '%p/%o %k: %s\\n'\n\n"
        "formats: %s body  %k keys  %T tags  %t topic  %b broker  %p queue  %o offset\n"
        "         %x store time  %X born time (%d %D: in ms)  %i id  %h properties\n"
        "         %S body's length  %% a %",
        description="Prints message bodies, one a line, queue after queue, and commits nothing. "
        "With --follow it waits for more, also of new queues and recreated topics.",
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="a topic, or a pattern: 'a*'")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new messages")
    parser.add_argument("--count", type=int, metavar="N", help="stop after N messages")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="START",
        help="earliest (default; latest with -f), an offset, -N (the last N of each queue), or a "
        "time",
    )
    parser.add_argument(
        "--to", dest="end", metavar="OFFSET|TIME", help="print up to here, exclusive"
    )
    parser.add_argument("--queue", type=int, metavar="INDEX", help="only queues of this index")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tags", default="*", metavar="'A || B'", help="only these tags")
    which.add_argument("--sql", metavar="EXPRESSION", help="only messages that match in SQL92")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--format", default=_LINE, help=r"what to print (default: '%%s\n')")
    shape.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_connection_options(parser)


def _tail(args: argparse.Namespace) -> int:
    from rocketmq_cli.messages.follow import Follower
    from rocketmq_cli.messages.printing import Printer
    from rocketmq_client.cluster import open_cluster

    require_positive("--count", args.count)
    if args.follow and args.end is not None:
        raise UsageError("--follow never ends: leave out --to")
    settings = connection_settings(args)
    printer = Printer(args)
    with open_cluster(settings) as cluster:
        topics = topics_of(cluster, args.topics)
        queues = [queue for topic in topics for queue in queues_of(cluster, topic, args.queue)]
        bounds = raise_first(cluster.bounds(queues))
        start = args.start or ("latest" if args.follow else "earliest")
        positions = _offsets_at(cluster, start, "--from", bounds)
        ends = {queue: bounds[queue].end for queue in queues}
        if args.end is not None:
            ends = _offsets_at(cluster, args.end, "--to", bounds)
        has_some = any(ends[queue] > at for queue, at in positions.items())
        if args.start not in (None, "latest") and not has_some:
            last = max(held.end for held in bounds.values())
            report(
                f"--from {args.start}: no queue has messages there, the longest ends at {last:,}"
            )
        if not args.follow:
            _print(cluster, printer, positions, ends)
        else:
            find = partial(topics_of, cluster, args.topics)
            with Follower(cluster, find, positions, index=args.queue) as follower:
                _print(cluster, printer, positions, {**positions, **ends})
                follower.run(printer)
    return 0 if printer.is_whole else EXIT_FAILED


def _print(
    cluster: Cluster, printer: Printer, positions: dict[QueueId, int], ends: Mapping[QueueId, int]
) -> None:
    """Print ranges, with a progress line unless the messages go to the terminal."""
    from rocketmq_cli.terminal.progress import CountLine

    size = sum(max(0, ends[queue] - at) for queue, at in positions.items())
    is_seen = sys.stdout.isatty()
    line = CountLine(total=printer.left, size_total=size, is_shown=not is_seen)
    try:
        printer.print_between(cluster, positions, ends, line)
    finally:
        line.close()


def _offsets_at(
    cluster: Cluster, text: str, option: str, bounds: Mapping[QueueId, Bounds]
) -> dict[QueueId, int]:
    """The offset that `text` means in every queue, within the queue's bounds."""

    if text == "earliest":
        return {queue: held.start for queue, held in bounds.items()}
    if text == "latest":
        return {queue: held.end for queue, held in bounds.items()}
    digits = text.removeprefix("-")
    if digits.isdigit() and len(digits) < 12:
        back = text.startswith("-")
        return {
            queue: min(max(held.end - int(digits) if back else int(digits), held.start), held.end)
            for queue, held in bounds.items()
        }
    try:
        time_ms = parse_moment_ms(text, time.time_ns() // 1_000_000)
    except UsageError as error:
        raise UsageError(f"{option}: {error}; or earliest, latest, an offset, -N") from None
    return raise_first(cluster.search_offsets(dict.fromkeys(bounds, time_ms)))
