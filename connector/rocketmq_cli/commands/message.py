"""`rmq message get`: one message by its id, key or offset, with all its fields."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_noun, add_verb
from rocketmq_cli.connection import add_connection_options, open_from, queues_of
from rocketmq_cli.errors import MessageNotFoundError
from rocketmq_cli.terminal.output import Record, add_json_option, cell_text, show_json
from rocketmq_cli.usage import UsageError
from rocketmq_wire.errors import raise_first

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster

_GROUP = "rmq-message"


def add_parser(verbs: Verbs) -> None:
    actions = add_noun(verbs, "message", "rmq message get orders --key order-42")
    get = add_verb(
        actions,
        "get",
        _get,
        "  rmq message get orders --key order-42\n"
        "  rmq message get orders --id 7F00000100002A9F00000000000000AB\n"
        "  rmq message get orders --queue 3 --offset 1000 --json",
        summary="show the matching messages, newest first",
        description="Finds messages by key or id through the brokers' key index, or by offset.",
    )
    get.add_argument("topic", metavar="TOPIC")
    which = get.add_mutually_exclusive_group(required=True)
    which.add_argument("--key", help="one of the message's keys")
    which.add_argument("--id", help="the id that its producer or its broker gave it")
    which.add_argument("--offset", type=int, metavar="N", help="its offset, with --queue")
    get.add_argument("--queue", type=int, metavar="INDEX", help="the queue of --offset")
    get.add_argument(
        "--broker", metavar="NAME", help="the broker of --offset, if there are several"
    )
    get.add_argument("--limit", type=int, default=32, metavar="N", help="at most N messages")
    add_json_option(get)
    add_connection_options(get)


def _get(args: argparse.Namespace) -> int:
    if args.offset is None and (args.queue is not None or args.broker is not None):
        raise UsageError("--queue and --broker go with --offset")
    with open_from(args) as cluster:
        by = _by_index if args.offset is None else _by_offset
        found = by(cluster, args)
    if not found:
        wanted = args.key or args.id or f"at offset {args.offset} of queue {args.queue}"
        raise MessageNotFoundError(f"{wanted} in {args.topic}")
    if args.json:
        show_json(*found)
        return 0
    for number, record in enumerate(found):
        if number:
            print()
        for name, value in record.items():
            # Numbers have no separators, so that they can be copied into other commands.
            text = str(value) if isinstance(value, int) else cell_text(value)
            print(f"{name:<14} {text}")
    return 0


def _by_offset(cluster: Cluster, args: argparse.Namespace) -> list[Record]:
    from rocketmq_cli.messages.records import message_record, read_messages
    from rocketmq_wire.model import OffsetRange

    if args.queue is None:
        raise UsageError("--offset needs --queue")
    queues = queues_of(cluster, args.topic, args.queue, args.broker)
    found: list[Record] = []
    for queue, bounds in raise_first(cluster.bounds(queues)).items():
        if bounds.start <= args.offset < bounds.end:
            wanted = OffsetRange(queue, args.offset, args.offset + 1)
            for at, message in read_messages(cluster, [wanted], _GROUP):
                found.append(message_record(at.broker, message))
    return found


def _by_index(cluster: Cluster, args: argparse.Namespace) -> list[Record]:
    from rocketmq_cli.messages.records import message_record
    from rocketmq_client.lookup import find_by_id, find_by_key

    if args.key is not None:
        found = find_by_key(cluster, args.topic, args.key, args.limit)
    else:
        found = find_by_id(cluster, args.topic, args.id, args.limit)
    return [message_record(broker, message) for broker, message in found]
