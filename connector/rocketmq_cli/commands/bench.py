"""`rmq bench`: measures how fast this machine sends messages to a cluster and reads them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.terminal.output import Record, add_json_option, show, titles_of
from rocketmq_cli.terminal.progress import CountLine
from rocketmq_cli.usage import EXIT_FAILED, confirm, report, require_positive
from rocketmq_wire.plural import plural

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster

_BATCH = 1_000
_LISTED_WITHIN_S = 10
_POLL_S = 0.02
_TITLES = titles_of(
    "what", "messages", bytes="body bytes", seconds="seconds", rate="messages/s", mib="MiB/s"
)


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "bench",
        _bench,
        "  rmq bench --messages 200000 --size 100 --yes",
        description="Creates a topic, sends messages in batches, reads them, and deletes the "
        "topic. It is one process without Spark; ./run bench has the project's own measurements.",
    )
    parser.add_argument("--messages", type=int, default=100_000, help="how many (default: 100000)")
    parser.add_argument("--size", type=int, default=100, help="body bytes (default: 100)")
    parser.add_argument("--queues", type=int, default=8, help="queues per broker (default: 8)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json_option(parser)
    add_connection_options(parser)


def _bench(args: argparse.Namespace) -> int:
    from rocketmq_cli.messages.sending import LineSender
    from rocketmq_client.cluster import open_cluster
    from rocketmq_wire.model import TopicConfig

    for name in ("messages", "size", "queues"):
        require_positive(f"--{name}", getattr(args, name))
    settings = connection_settings(args)
    where = settings.cluster_address
    confirm(f"send {plural(args.messages, 'message')} to {where}?", is_sure=args.yes)
    topic = f"rmq-bench-{time.time_ns() // 1_000_000}"
    results: list[Record] = []
    with open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig(topic, args.queues, args.queues))
        try:
            began = time.perf_counter()
            line = CountLine(total=args.messages, done=" sent")
            with LineSender(settings, topic) as sender:
                for some in _bodies(args.messages, args.size):
                    sender.send(some)
                    line.add(len(some))
            line.close()
            results.append(_result("send", sender.stored, args.size, began))
            _await_listed(cluster, topic, sender.stored)
            began = time.perf_counter()
            results.append(_result("read", _read(cluster, topic), args.size, began))
        finally:
            cluster.delete_topic(topic)
    show(results, _TITLES, as_json=args.json)
    read = results[1]["messages"]
    if read != args.messages:
        report(f"{plural(args.messages, 'message')} sent, {read:,} of them were read")
        return EXIT_FAILED
    return 0


def _bodies(count: int, size: int) -> Iterator[list[bytes]]:
    """Yield bodies of one size that all differ, so that nothing can be cached or compressed."""
    step = _BATCH * 8
    for first in range(0, count, step):
        numbers = range(first, min(first + step, count))
        yield [(b"%d " % number).ljust(size, b"x")[:size] for number in numbers]


def _await_listed(cluster: Cluster, topic: str, count: int) -> None:
    """Wait, at most ten seconds, until the brokers list what they acknowledged."""
    give_up_at = time.monotonic() + _LISTED_WITHIN_S
    while time.monotonic() < give_up_at:
        stats = cluster.topic_stats(topic).values()
        if sum(stat.end - stat.start for stat in stats) >= count:
            return
        time.sleep(_POLL_S)


def _read(cluster: Cluster, topic: str) -> int:
    from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
    from rocketmq_arrow.source_columns import arrow_schema
    from rocketmq_client.download.contract import ReadSpec
    from rocketmq_wire.model import Bounds, OffsetRange

    decoder = Decoder(DecodeOptions(schema=arrow_schema(("body",))))
    ranges = [
        OffsetRange(queue, held.start, held.end)
        for queue, held in cluster.bounds(cluster.queues(topic)).items()
        if isinstance(held, Bounds) and held.end > held.start
    ]
    line = CountLine(total=sum(map(len, ranges)), done=" read")
    for chunk in cluster.read_ranges(ranges, ReadSpec("rmq-bench")):
        for batch in decoder.decode(chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes):
            line.add(batch.num_rows)
    line.close()
    return line.count


def _result(what: str, count: int, size: int, began: float) -> Record:
    seconds = time.perf_counter() - began
    return {
        "what": what,
        "messages": count,
        "bytes": size,
        "seconds": round(seconds, 3),
        "rate": round(count / seconds),
        "mib": round(count * size / seconds / (1 << 20), 1),
    }
