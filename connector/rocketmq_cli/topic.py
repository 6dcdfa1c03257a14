"""`rmq topic`: create, list and describe topics."""

from __future__ import annotations

import argparse
from typing import Any

from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.table import format_table, format_time
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import PERMISSION_READ, PERMISSION_WRITE, TopicConfig, is_system_topic

_PERMISSIONS = {
    "rw": PERMISSION_READ | PERMISSION_WRITE,
    "r": PERMISSION_READ,
    "w": PERMISSION_WRITE,
}


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `topic` with its own verbs."""
    topic = verbs.add_parser("topic", help="create, list and describe topics")
    actions = topic.add_subparsers(metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create a topic, or change its queues")
    create.add_argument("topic")
    create.add_argument("--queues", type=int, default=8, help="queues a broker (default: 8)")
    create.add_argument("--permission", choices=_PERMISSIONS, default="rw")
    create.add_argument("--broker", help="only on this broker (default: on every one)")
    create.add_argument(
        "--shrink", action="store_true", help="also when that hides queues and what they hold"
    )
    create.set_defaults(run=_create)

    show = actions.add_parser("list", help="the topics' names, one a line")
    show.add_argument("--all", action="store_true", help="RocketMQ's own topics too")
    show.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="a topic's queues and what they hold")
    describe.add_argument("topic")
    describe.set_defaults(run=_describe)

    for parser in (create, show, describe):
        add_connection_options(parser)


def _create(args: argparse.Namespace) -> int:
    if args.queues < 1:
        raise UsageError(f"--queues must be 1 or more, not {args.queues}")
    config = TopicConfig(
        args.topic,
        read_queue_count=args.queues,
        write_queue_count=args.queues,
        permission=_PERMISSIONS[args.permission],
    )
    with open_from(args) as cluster:
        if not args.shrink:
            _refuse_to_shrink(cluster, args.topic, args.queues, args.broker)
        cluster.create_topic(config, broker=args.broker)
    print(f"topic {args.topic}: {args.queues} queues")
    return 0


def _refuse_to_shrink(cluster: Cluster, topic: str, count: int, broker: str | None) -> None:
    try:
        queues = cluster.queues(topic)
    except TopicNotFoundError:
        return
    known = [queue.index + 1 for queue in queues if broker in (None, queue.broker)]
    if known and max(known) > count:
        raise UsageError(
            f"topic {topic} has {max(known)} queues: with {count}, what the others hold could not "
            "be read any more. Give --shrink to do it all the same."
        )


def _list(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        topics = cluster.topics()
    for topic in sorted(topics):
        if args.all or not is_system_topic(topic):
            print(topic)
    return 0


def _describe(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        stats = cluster.topic_stats(args.topic)
    rows = [
        (
            queue.broker,
            str(queue.index),
            f"{stat.start:,}",
            f"{stat.end:,}",
            f"{stat.end - stat.start:,}",
            format_time(stat.updated_ms),
        )
        for queue, stat in sorted(stats.items())
    ]
    total = sum(stat.end - stat.start for stat in stats.values())
    print(f"topic {args.topic}: {len(rows)} queues, {total:,} messages")
    print(format_table(("broker", "queue", "start", "end", "messages", "newest"), rows))
    return 0
