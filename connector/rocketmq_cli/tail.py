"""`rmq tail`: the bodies of a topic's messages, one a line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.usage import UsageError
from rocketmq_wire.model import Bounds, OffsetRange, QueueId, Subscription

if TYPE_CHECKING:
    from rocketmq_arrow.decode import Decoder
    from rocketmq_client.cluster import Cluster

GROUP = "rmq-tail"
_WAIT_MS = 1_000


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `tail`."""
    parser = verbs.add_parser(
        "tail",
        help="print a topic's messages",
        description="Prints message bodies, one a line, queue after queue; commits nothing.",
    )
    parser.add_argument("topic")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what arrives")
    parser.add_argument("--count", type=int, metavar="N", help="stop after N messages")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="earliest|latest|OFFSET",
        help="where every queue begins (default: latest with --follow, else earliest)",
    )
    parser.add_argument("--queue", type=int, metavar="INDEX", help="only queues of this index")
    parser.add_argument("--tags", default="*", metavar="'A || B'", help="only messages so tagged")
    add_connection_options(parser)
    parser.set_defaults(run=_tail)


def _tail(args: argparse.Namespace) -> int:
    from rocketmq_client.arrivals import ArrivalWatch
    from rocketmq_client.cluster import open_cluster

    settings = connection_settings(args)
    printer = _Printer(args.tags, args.count)
    with open_cluster(settings) as cluster:
        queues = [
            queue for queue in cluster.queues(args.topic) if args.queue in (None, queue.index)
        ]
        if not queues:
            raise UsageError(f"topic {args.topic} has no queue {args.queue}")
        bounds = _bounds(cluster, queues)
        start = args.start or ("latest" if args.follow else "earliest")
        positions = {queue: _start_of(start, bounds[queue]) for queue in queues}
        ends = {queue: bounds[queue].end for queue in queues}
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
    found = cluster.bounds(queues)
    known: dict[QueueId, Bounds] = {}
    for queue, bounds in found.items():
        if not isinstance(bounds, Bounds):
            raise bounds
        known[queue] = bounds
    return known


def _start_of(text: str, bounds: Bounds) -> int:
    if text == "earliest":
        return bounds.start
    if text == "latest":
        return bounds.end
    if not text.isdigit():
        raise UsageError(f"--from must be earliest, latest or an offset, not {text!r}")
    return min(max(int(text), bounds.start), bounds.end)


class _Printer:
    """Downloads ranges and prints their bodies, up to a count."""

    def __init__(self, tags: str, count_max: int | None) -> None:
        from rocketmq_arrow.columns import arrow_schema
        from rocketmq_arrow.decode import DecodeOptions, Decoder
        from rocketmq_wire.tags import TagExpression

        expression = TagExpression.parse(tags)
        self._tags = tags
        self._left = count_max
        self._decoder: Decoder = Decoder(
            DecodeOptions(
                schema=arrow_schema(("body",)),
                tags=None if expression.matches_all else expression.tags,
            )
        )

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def print_between(
        self, cluster: Cluster, starts: dict[QueueId, int], ends: dict[QueueId, int]
    ) -> None:
        ranges = [
            OffsetRange(queue, start, ends[queue])
            for queue, start in sorted(starts.items())
            if ends[queue] > start
        ]
        if not ranges or self.is_done:
            return
        out = sys.stdout.buffer
        for body in self._bodies(cluster, ranges):
            out.write(body + b"\n")
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    break
        out.flush()

    def _bodies(self, cluster: Cluster, ranges: list[OffsetRange]) -> Iterator[bytes]:
        from rocketmq_client.transport import ReadSpec

        spec = ReadSpec(GROUP, Subscription(self._tags))
        for chunk in cluster.read_ranges(ranges, spec):
            batches = self._decoder.decode(
                chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes
            )
            for batch in batches:
                yield from batch.column(0).to_pylist()
