"""`rmq topic`: list, describe, create, alter and delete topics."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.output import Record, add_json_option, moment, show
from rocketmq_cli.suggest import confirm
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import PERMISSION_READ, PERMISSION_WRITE, TopicConfig, is_system_topic

_PERMISSIONS = {
    "rw": PERMISSION_READ | PERMISSION_WRITE,
    "r": PERMISSION_READ,
    "w": PERMISSION_WRITE,
}
_TITLES = {
    "broker": "broker",
    "queue": "queue",
    "start": "start",
    "end": "end",
    "messages": "messages",
    "newest": "newest",
}


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `topic` with its own verbs."""
    topic = verbs.add_parser("topic", help="list, describe, create, alter and delete topics")
    actions = topic.add_subparsers(metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create a topic, or change its queues")
    create.add_argument("topic")
    create.add_argument("--queues", type=int, default=8, help="queues a broker (default: 8)")
    create.add_argument("--permission", choices=_PERMISSIONS, default="rw")
    create.set_defaults(run=_create)

    alter = actions.add_parser(
        "alter",
        help="change a topic's queues or permission",
        description="Changes what is given, broker by broker, and keeps the rest.",
        epilog="example: rmq topic alter orders --queues 16",
    )
    alter.add_argument("topic")
    alter.add_argument("--queues", type=int, metavar="N", help="queues a broker")
    alter.add_argument("--permission", choices=_PERMISSIONS)
    alter.set_defaults(run=_alter)
    for parser in (create, alter):
        parser.add_argument("--broker", help="only on this broker (default: on every one)")
        parser.add_argument(
            "--shrink", action="store_true", help="also when that hides queues and what they hold"
        )

    show_names = actions.add_parser("list", help="the topics' names, one a line")
    show_names.add_argument("--all", action="store_true", help="RocketMQ's own topics too")
    show_names.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="a topic's queues and what they hold")
    describe.add_argument("topic")
    describe.set_defaults(run=_describe)

    delete = actions.add_parser("delete", help="delete a topic and all that it holds")
    delete.add_argument("topic")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    delete.set_defaults(run=_delete)

    for parser in (show_names, describe):
        add_json_option(parser)
    for parser in (create, alter, show_names, describe, delete):
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


def _alter(args: argparse.Namespace) -> int:
    if args.queues is None and args.permission is None:
        raise UsageError("what is to change? Give --queues or --permission")
    if args.queues is not None and args.queues < 1:
        raise UsageError(f"--queues must be 1 or more, not {args.queues}")
    with open_from(args) as cluster:
        if args.queues is not None and not args.shrink:
            _refuse_to_shrink(cluster, args.topic, args.queues, args.broker)
        before = cluster.topic_configs(args.topic)
        if args.broker is not None:
            if args.broker not in before:
                raise UsageError(
                    f"topic {args.topic} is not on broker {args.broker!r}; it is on"
                    f" {', '.join(before)}"
                )
            before = {args.broker: before[args.broker]}
        for broker, config in before.items():
            cluster.create_topic(_altered(config, args), broker=broker)
            print(f"topic {args.topic} on {broker}: {_described(_altered(config, args))}")
    return 0


def _altered(config: TopicConfig, args: argparse.Namespace) -> TopicConfig:
    if args.queues is not None:
        config = replace(config, read_queue_count=args.queues, write_queue_count=args.queues)
    if args.permission is not None:
        config = replace(config, permission=_PERMISSIONS[args.permission])
    return config


def _described(config: TopicConfig) -> str:
    names = {value: name for name, value in _PERMISSIONS.items()}
    queues = f"{config.read_queue_count} queues"
    if config.write_queue_count != config.read_queue_count:
        queues = f"{config.read_queue_count} queues to read, {config.write_queue_count} to write"
    return f"{queues}, permission {names.get(config.permission, config.permission)}"


def _list(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        topics = cluster.topics()
    wanted = [name for name in sorted(topics) if args.all or not is_system_topic(name)]
    if args.json:
        show(({"topic": name} for name in wanted), {}, as_json=True)
    else:
        for name in wanted:
            print(name)
    return 0


def _describe(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        stats = cluster.topic_stats(args.topic)
        configs = {} if args.json else cluster.topic_configs(args.topic)
    records: list[Record] = [
        {
            "topic": args.topic,
            "broker": queue.broker,
            "queue": queue.index,
            "start": stat.start,
            "end": stat.end,
            "messages": stat.end - stat.start,
            "newest": moment(stat.updated_ms),
        }
        for queue, stat in sorted(stats.items())
    ]
    if not args.json:
        total = sum(stat.end - stat.start for stat in stats.values())
        print(f"topic {args.topic}: {len(stats)} queues, {total:,} messages")
        for broker, config in configs.items():
            print(f"{broker}: {_described(config)}")
    show(records, _TITLES, as_json=args.json)
    return 0


def _delete(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        stats = cluster.topic_stats(args.topic)
        total = sum(stat.end - stat.start for stat in stats.values())
        confirm(f"delete topic {args.topic} and its {total:,} messages?", is_sure=args.yes)
        cluster.delete_topic(args.topic)
    print(f"topic {args.topic} is deleted")
    return 0
