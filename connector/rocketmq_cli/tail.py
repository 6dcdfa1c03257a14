"""`rmq tail`: a topic's messages as lines, JSON or a format of one's own."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketmq_arrow.decode import Decoder
    from rocketmq_client.cluster import Cluster
    from rocketmq_client.transport import RangeChunk
    from rocketmq_wire.model import Bounds, QueueId

GROUP = "rmq-tail"
_WAIT_MS = 1_000
_LINE = r"%s\n"


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `tail`."""
    parser = verbs.add_parser(
        "tail",
        help="print a topic's messages",
        description="Prints message bodies, one a line, queue after queue; commits nothing.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="formats: %s body  %k keys  %T tags  %t topic  %b broker  %p queue  %o offset"
        "  %S body's length\n"
        "         %d store time  %D born time (ms)  %i id  %h properties  %% a %\n\n"
        "examples:\n"
        "  rmq tail orders -f\n"
        "  rmq tail orders --from -10                   the last ten of every queue\n"
        "  rmq tail orders --from 2h --to 1h --json     between two and one hours ago\n"
        "  rmq tail orders --sql \"amount > 100\" --format '%p/%o %k: %s\\n'",
    )
    parser.add_argument("topic")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what arrives")
    parser.add_argument("--count", type=int, metavar="N", help="stop after N messages")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="earliest|latest|OFFSET|-N|TIME",
        help="where every queue begins (default: latest with --follow, else earliest)",
    )
    parser.add_argument(
        "--to", dest="end", metavar="OFFSET|TIME", help="where every queue ends, exclusively"
    )
    parser.add_argument("--queue", type=int, metavar="INDEX", help="only queues of this index")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tags", default="*", metavar="'A || B'", help="only messages so tagged")
    which.add_argument("--sql", metavar="EXPRESSION", help="only messages whose properties fit")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--format", default=_LINE, help=r"what to print (default: '%%s\n')")
    shape.add_argument("--json", action="store_true", help="one JSON object a line")
    add_connection_options(parser)
    parser.set_defaults(run=_tail)


def _tail(args: argparse.Namespace) -> int:
    from rocketmq_client.arrivals import ArrivalWatch
    from rocketmq_client.cluster import open_cluster

    if args.count is not None and args.count < 1:
        raise UsageError(f"--count must be 1 or more, not {args.count}")
    if args.follow and args.end is not None:
        raise UsageError("--follow goes on for ever: leave out --to")
    settings = connection_settings(args)
    printer = _Printer(args)
    with open_cluster(settings) as cluster:
        queues = [
            queue for queue in cluster.queues(args.topic) if args.queue in (None, queue.index)
        ]
        if not queues:
            raise UsageError(f"topic {args.topic} has no queue {args.queue}")
        bounds = _bounds(cluster, queues)
        start = args.start or ("latest" if args.follow else "earliest")
        positions = _places(cluster, start, "--from", bounds)
        ends = {queue: bounds[queue].end for queue in queues}
        if args.end is not None:
            ends = _places(cluster, args.end, "--to", bounds)
        printer.print_between(cluster, positions, ends)
        if not args.follow or printer.is_done:
            return 0
        watch = ArrivalWatch(settings, tuple(queues))
        try:
            while not printer.is_done:
                positions = {queue: max(positions[queue], ends[queue]) for queue in queues}
                watch.wait(positions, _WAIT_MS)
                ends = {**positions, **watch.ends()}
                printer.print_between(cluster, positions, ends)
        finally:
            watch.close()
    return 0


def _bounds(cluster: Cluster, queues: list[QueueId]) -> dict[QueueId, Bounds]:
    from rocketmq_wire.model import Bounds

    found = cluster.bounds(queues)
    known: dict[QueueId, Bounds] = {}
    for queue, bounds in found.items():
        if not isinstance(bounds, Bounds):
            raise bounds
        known[queue] = bounds
    return known


def _places(
    cluster: Cluster, text: str, option: str, bounds: Mapping[QueueId, Bounds]
) -> dict[QueueId, int]:
    """The offset that a word means in every queue, within what the queue holds."""
    from rocketmq_cli.times import parse_moment_ms
    from rocketmq_wire.errors import RocketMQError

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
    places: dict[QueueId, int] = {}
    for queue, found in cluster.search_offsets(dict.fromkeys(bounds, time_ms)).items():
        if isinstance(found, RocketMQError):
            raise found
        places[queue] = found
    return places


class _Printer:
    """Downloads ranges and prints them, up to a count."""

    def __init__(self, args: argparse.Namespace) -> None:
        from rocketmq_arrow.columns import arrow_schema
        from rocketmq_arrow.decode import DecodeOptions, Decoder
        from rocketmq_cli.rendering import JSON_COLUMNS, Format
        from rocketmq_wire.model import Subscription
        from rocketmq_wire.tags import TagExpression

        expression = TagExpression.parse(args.tags)
        self._subscription = Subscription(args.tags)
        if args.sql is not None:
            self._subscription = Subscription(args.sql, "SQL92")
        self._left = args.count
        self._format = None if args.json else Format(args.format)
        self._decoder: Decoder = Decoder(
            DecodeOptions(
                schema=arrow_schema(JSON_COLUMNS if args.json else Format(args.format).columns),
                tags=None if expression.matches_all else expression.tags,
            )
        )

    @property
    def is_done(self) -> bool:
        return bool(self._left == 0)

    def print_between(
        self, cluster: Cluster, starts: Mapping[QueueId, int], ends: Mapping[QueueId, int]
    ) -> None:
        from rocketmq_client.transport import ReadSpec
        from rocketmq_wire.model import OffsetRange

        ranges = [
            OffsetRange(queue, start, ends[queue])
            for queue, start in sorted(starts.items())
            if ends[queue] > start
        ]
        if not ranges or self.is_done:
            return
        out = sys.stdout.buffer
        for chunk in cluster.read_ranges(ranges, ReadSpec(GROUP, self._subscription)):
            for batch in self._batches(chunk):
                if self._left is not None:
                    batch = batch.slice(0, self._left)
                    self._left -= batch.num_rows
                for piece in self._rendered(batch):
                    out.write(piece)
            if self.is_done:
                break
        out.flush()

    def _batches(self, chunk: RangeChunk) -> Iterable[pa.RecordBatch]:
        return self._decoder.decode(chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes)

    def _rendered(self, batch: pa.RecordBatch) -> Iterable[bytes | memoryview]:
        from rocketmq_cli.rendering import json_lines

        return json_lines(batch) if self._format is None else self._format.render(batch)
