"""`rmq topic`: list, describe, create, alter and delete topics."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from rocketmq_cli.arguments import Verbs, add_attribute_option, add_noun, add_verb, attributes_of
from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.errors import ConfigUnknownError
from rocketmq_cli.terminal import output
from rocketmq_cli.usage import (
    EXIT_FAILED,
    NotThereError,
    UsageError,
    confirm,
    report,
    require_positive,
)
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import (
    MASTER_ID,
    PERMISSION_READ,
    PERMISSION_WRITE,
    QueueId,
    QueueStats,
    TopicConfig,
    is_internal_topic,
)
from rocketmq_wire.plural import plural

_QUEUES = 8
_PERMISSIONS = {
    "rw": PERMISSION_READ | PERMISSION_WRITE,
    "r": PERMISSION_READ,
    "w": PERMISSION_WRITE,
}
# Long enough for a rate, short enough to wait for.
_RATE_OVER_S = 1.0
_LONG_TITLES = output.titles_of("topic", "queues", "messages", rate="messages/s", newest="newest")
_TITLES = output.titles_of("broker", "queue", "start", "end", "messages", "newest")


def add_parser(verbs: Verbs) -> None:
    actions = add_noun(verbs, "topic", "rmq topic create orders --queues 16")
    changes = _add_changes(actions)
    listed = add_verb(
        actions,
        "list",
        _list,
        "  rmq topic list\n  rmq topic list --long\n  rmq topic list --all --json",
        summary="print the topics' names, one a line",
    )
    all_help = "RocketMQ's own topics, too, and PYSPARK_DECISIONS of transactional writes"
    listed.add_argument("--all", action="store_true", help=all_help)
    long_help = "with queues, messages, and the rate within a second"
    listed.add_argument("-l", "--long", action="store_true", help=long_help)
    describe = add_verb(
        actions,
        "describe",
        _describe,
        "  rmq topic describe orders\n  rmq topic describe orders --json",
        summary="show a topic's queues with their bounds",
    )
    describe.add_argument("topic", metavar="TOPIC")
    delete = add_verb(
        actions,
        "delete",
        _delete,
        "  rmq topic delete orders\n  rmq topic delete orders --yes --json",
        summary="delete a topic and all its messages",
    )
    delete.add_argument("topic", metavar="TOPIC")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    for parser in (*changes, listed, describe, delete):
        output.add_json_option(parser)
        add_connection_options(parser)


def _add_changes(actions: Verbs) -> Sequence[argparse.ArgumentParser]:
    create = add_verb(
        actions,
        "create",
        _create,
        "  rmq topic create orders --queues 16\n"
        "  rmq topic create archive --queues 4 --permission r --broker broker-a --json\n"
        "  rmq topic create chats --attribute message.type=FIFO",
        summary="create a topic, or change its queues",
        description="Creates a topic on every broker, or on one. If the topic exists, only the "
        "given settings change.",
    )
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument(
        "--queues",
        type=int,
        metavar="N",
        help=f"queues per broker (default: {_QUEUES}, or as many as exist)",
    )
    create.add_argument("--permission", choices=_PERMISSIONS, help="default: rw, or unchanged")
    alter = add_verb(
        actions,
        "alter",
        _alter,
        "  rmq topic alter orders --queues 16",
        summary="change a topic's queues, permission or attributes",
        description="Changes the given settings, broker by broker, and keeps the others.",
    )
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--queues", type=int, metavar="N", help="queues per broker")
    alter.add_argument("--permission", choices=_PERMISSIONS)
    changes = (create, alter)
    for parser in changes:
        parser.add_argument("--broker", help="only on this broker (default: on every one)")
        add_attribute_option(parser)
        parser.add_argument(
            "--shrink", action="store_true", help="even if that hides queues and their messages"
        )
    return changes


def _create(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        before = _configs(cluster, args)
        names = [args.broker] if args.broker is not None else _masters(cluster)
        new = TopicConfig(args.topic, read_queue_count=_QUEUES, write_queue_count=_QUEUES)
        return _carry_out(cluster, args, {name: before.get(name, new) for name in names}, before)


def _alter(args: argparse.Namespace) -> int:
    if args.queues is None and args.permission is None and not args.attribute:
        raise UsageError("nothing to change: give --queues, --permission or --attribute")
    with open_from(args) as cluster:
        before = _configs(cluster, args)
        if not before:
            raise TopicNotFoundError(17, f"topic[{args.topic}] not exist")
        if args.broker is not None:
            if args.broker not in before:
                raise NotThereError(
                    f"topic {args.topic} is not on broker {args.broker!r}; it is on"
                    f" {', '.join(before)}"
                )
            before = {args.broker: before[args.broker]}
        return _carry_out(cluster, args, before, before)


def _configs(cluster: Cluster, args: argparse.Namespace) -> dict[str, TopicConfig]:
    """The topic's settings by broker; empty when there is no such topic.

    Raises RocketMQError when a broker that has the topic does not report it: the change would
    reset it.
    """
    try:
        route = cluster.route(args.topic)
        found = cluster.topic_configs(args.topic)
    except TopicNotFoundError:
        return {}
    for queues in route.queue_sets:
        if queues.broker not in found and args.broker in (None, queues.broker):
            raise ConfigUnknownError(args.topic, queues.broker)
    return found


def _masters(cluster: Cluster) -> list[str]:
    brokers = cluster.cluster_info().brokers
    names = sorted(broker.name for broker in brokers if MASTER_ID in broker.addresses)
    if not names:
        raise NotThereError("no broker with a master is registered there")
    return names


def _carry_out(
    cluster: Cluster,
    args: argparse.Namespace,
    wanted: Mapping[str, TopicConfig],
    before: Mapping[str, TopicConfig],
) -> int:
    require_positive("--queues", args.queues)
    if args.queues is not None and not args.shrink:
        _refuse_to_shrink(args, [before[name] for name in wanted if name in before])
    for broker, config in wanted.items():
        changed = _altered(config, args)
        cluster.create_topic(changed, broker=broker)
        state = ""
        if args.run is _create and broker in before:
            state = f" existed and is {'unchanged' if changed == config else 'changed'}"
        text = f"topic {args.topic} on {broker}{state}: {_described(changed)}"
        output.show_result(_record(changed, broker), text, as_json=args.json)
    return 0


def _refuse_to_shrink(args: argparse.Namespace, before: Sequence[TopicConfig]) -> None:
    count = max((config.read_queue_count for config in before), default=0)
    if count > args.queues:
        raise UsageError(
            f"topic {args.topic} has {plural(count, 'queue')}: with {args.queues}, "
            "the messages of the others would not be readable. Give --shrink to do it anyway."
        )


def _altered(config: TopicConfig, args: argparse.Namespace) -> TopicConfig:
    if args.queues is not None:
        config = replace(config, read_queue_count=args.queues, write_queue_count=args.queues)
    if args.permission is not None:
        config = replace(config, permission=_PERMISSIONS[args.permission])
    if args.attribute:
        attributes = {**config.attributes, **attributes_of(args.attribute)}
        config = replace(config, attributes=attributes)
    return config


def _record(config: TopicConfig, broker: str) -> output.Record:
    return {
        "topic": config.name,
        "broker": broker,
        "readQueues": config.read_queue_count,
        "writeQueues": config.write_queue_count,
        "permission": _permission(config),
    }


def _permission(config: TopicConfig) -> str:
    names = {value: name for name, value in _PERMISSIONS.items()}
    return names.get(config.permission, str(config.permission))


def _described(config: TopicConfig) -> str:
    queues = plural(config.read_queue_count, "queue")
    if config.write_queue_count != config.read_queue_count:
        queues = f"{queues} to read, {config.write_queue_count} to write"
    return f"{queues}, permission {_permission(config)}"


def _list(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        topics = cluster.topics()
        wanted = [name for name in sorted(topics) if args.all or not is_internal_topic(name)]
        if args.long:
            return _list_long(cluster, wanted, as_json=args.json)
    for name in wanted:
        output.show_result({"topic": name}, name, as_json=args.json)
    return 0


def _list_long(cluster: Cluster, topics: Sequence[str], *, as_json: bool) -> int:
    """Show topics with what is stored now, and what was stored within a second."""
    missing: set[str] = set()
    began = time.monotonic()
    before = _stats(cluster, topics, missing)
    time.sleep(_RATE_OVER_S)
    took_s = time.monotonic() - began
    now = _stats(cluster, before, missing)
    records: list[output.Record] = [
        {
            "topic": topic,
            "queues": len(stats),
            "messages": sum(stat.end - stat.start for stat in stats.values()),
            "rate": round(
                sum(
                    max(0, stat.end - before[topic][queue].end)
                    for queue, stat in stats.items()
                    if queue in before[topic]
                )
                / took_s,
                1,
            ),
            "newest": output.moment(max((stat.updated_ms for stat in stats.values()), default=0)),
        }
        for topic, stats in now.items()
    ]
    output.show(records, _LONG_TITLES, as_json=as_json)
    for broker in sorted(missing):
        report(f"{broker} did not report its topics: there may be more messages")
    return EXIT_FAILED if missing else 0


def _stats(
    cluster: Cluster, topics: Iterable[str], missing: set[str]
) -> dict[str, dict[QueueId, QueueStats]]:
    """The queues of topics; brokers that do not answer are added to `missing`."""
    found: dict[str, dict[QueueId, QueueStats]] = {}
    for topic in topics:
        # A topic may be deleted since it was listed.
        with suppress(TopicNotFoundError):
            found[topic] = cluster.topic_stats(topic)
            missing.update(silent_brokers(cluster, topic, found[topic]))
    return found


def _describe(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        stats = cluster.topic_stats(args.topic)
        missing = silent_brokers(cluster, args.topic, stats)
        configs = {} if args.json else cluster.topic_configs(args.topic)
    records: list[output.Record] = [
        {
            "topic": args.topic,
            "broker": queue.broker,
            "queue": queue.index,
            "start": stat.start,
            "end": stat.end,
            "messages": stat.end - stat.start,
            "newest": output.moment(stat.updated_ms),
        }
        for queue, stat in sorted(stats.items())
    ]
    if not args.json:
        total = sum(stat.end - stat.start for stat in stats.values())
        at_least = "at least " if missing else ""
        queues, messages = plural(len(stats), "queue"), plural(total, "message")
        print(f"topic {args.topic}: {at_least}{queues}, {at_least}{messages}")
        for broker, config in configs.items():
            print(f"{broker}: {_described(config)}")
    output.show(records, _TITLES, as_json=args.json)
    if not missing:
        return 0
    report(f"{', '.join(missing)} did not report the queues of topic {args.topic}")
    return EXIT_FAILED


def silent_brokers(cluster: Cluster, topic: str, stats: Mapping[QueueId, QueueStats]) -> list[str]:
    """The brokers that have a topic and are missing from its statistics."""
    answered = {queue.broker for queue in stats}
    return [q.broker for q in cluster.route(topic).queue_sets if q.broker not in answered]


def _delete(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        stats = cluster.topic_stats(args.topic)
        total = sum(stat.end - stat.start for stat in stats.values())
        messages = plural(total, "message")
        confirm(f"delete topic {args.topic} and its {messages}?", is_sure=args.yes)
        cluster.delete_topic(args.topic)
    record = {"topic": args.topic, "deleted": True, "messages": total}
    output.show_result(record, f"topic {args.topic} is deleted", as_json=args.json)
    return 0
