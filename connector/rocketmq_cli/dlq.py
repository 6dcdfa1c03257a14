"""`rmq dlq`: what consumers gave up on, and sending it again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.output import Record, add_json_option, moment, show
from rocketmq_cli.progress import CountLine
from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster
    from rocketmq_wire.model import Message, OffsetRange, QueueId, StoredMessage

# The group whose progress in a dead-letter topic says what was sent again.
REPLAY_GROUP = "rmq-dlq-replay"
_TITLES = {
    "group": "group",
    "messages": "messages",
    "waiting": "not replayed",
    "newest": "newest",
}


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `dlq` with its own verbs."""
    dlq = verbs.add_parser("dlq", help="list dead letters and send them again")
    actions = dlq.add_subparsers(metavar="ACTION", required=True)

    listed = actions.add_parser(
        "list",
        help="groups with dead letters, and how many",
        epilog="The letters themselves: rmq tail '%DLQ%GROUP' --json",
    )
    listed.add_argument("group", nargs="?", help="only this group")
    listed.set_defaults(run=_list)
    add_json_option(listed)

    replay = actions.add_parser(
        "replay",
        help="send a group's dead letters to their topic again",
        description="Sends every dead letter of a group that was not yet sent again to the topic "
        "it came from. What was sent is remembered at the broker as the progress of the group "
        f"{REPLAY_GROUP}: an interrupted replay goes on where it was, and may repeat one letter.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  rmq dlq replay billing                  what would be sent\n"
        "  rmq dlq replay billing --execute\n"
        "  rmq dlq replay billing --to orders-again --limit 100 --execute",
    )
    replay.add_argument("group")
    replay.add_argument("--to", metavar="TOPIC", help="this topic instead of each letter's own")
    replay.add_argument("--limit", type=int, metavar="N", help="at most so many")
    replay.add_argument("--again", action="store_true", help="also those that were sent before")
    replay.add_argument("--execute", action="store_true", help="do it; without, it is only counted")
    replay.set_defaults(run=_replay)
    for parser in (listed, replay):
        add_connection_options(parser)


def _list(args: argparse.Namespace) -> int:
    from rocketmq_wire.model import DEAD_LETTER_PREFIX

    with open_from(args) as cluster:
        topics = [name for name in cluster.topics() if name.startswith(DEAD_LETTER_PREFIX)]
        groups = [topic.removeprefix(DEAD_LETTER_PREFIX) for topic in topics]
        if args.group is not None:
            groups = [group for group in groups if group == args.group]
        records = [_summary(cluster, group) for group in groups]
    show(records, _TITLES, as_json=args.json)
    if not records and not args.json:
        print("no dead letters" + (f" of {args.group}" if args.group else ""))
    return 0


def _summary(cluster: Cluster, group: str) -> Record:
    from rocketmq_wire.model import DEAD_LETTER_PREFIX

    stats = cluster.topic_stats(DEAD_LETTER_PREFIX + group)
    progress = cluster.progress(REPLAY_GROUP, stats)
    waiting = 0
    for queue, stat in stats.items():
        replayed = progress.get(queue)
        waiting += stat.end - max(stat.start, replayed if isinstance(replayed, int) else 0)
    return {
        "group": group,
        "messages": sum(stat.end - stat.start for stat in stats.values()),
        "waiting": waiting,
        "newest": moment(max((stat.updated_ms for stat in stats.values()), default=0)),
    }


def _replay(args: argparse.Namespace) -> int:
    from rocketmq_cli.records import read_messages
    from rocketmq_client.producer import Producer

    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit must be 1 or more, not {args.limit}")
    with open_from(args) as cluster:
        ranges = list(_limited(_waiting(cluster, args.group, is_again=args.again), args.limit))
        count = sum(wanted.end - wanted.start for wanted in ranges)
        if not args.execute:
            print(f"{count:,} dead letters of {args.group} would be sent again: give --execute")
            return 0
        line = CountLine("messages")
        targets: dict[str, int] = {}
        with Producer(cluster.settings) as producer:
            for wanted in ranges:
                for queue, letter in read_messages(cluster, [wanted], REPLAY_GROUP):
                    message = revived(letter, args.to)
                    producer.send(message)
                    targets[message.topic] = targets.get(message.topic, 0) + 1
                    line.add(1)
                    # One by one: what is remembered is never ahead of what was stored.
                    _remember(cluster, queue, letter.queue_offset + 1)
        line.close()
    for topic, sent in sorted(targets.items()):
        print(f"sent {sent:,} to {topic}")
    print(f"sent {line.summary()}", file=sys.stderr)
    return 0


def revived(letter: StoredMessage, to: str | None) -> Message:
    """The message that a dead letter was. Raises UsageError when its topic is not known."""
    from rocketmq_cli.records import plain_body
    from rocketmq_wire.model import Message
    from rocketmq_wire.properties import KEYS, LIFE, TAGS

    properties = dict(letter.properties)
    topic = to or properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC")
    if topic is None:
        raise UsageError(
            f"the letter at {letter.topic} queue {letter.queue_index} offset {letter.queue_offset}"
            " does not say which topic it came from: give --to"
        )
    kept = {name: text for name, text in properties.items() if name not in LIFE}
    tags, keys = properties.get(TAGS), properties.get(KEYS)
    return Message(topic, plain_body(letter), tags, keys, kept, letter.flag)


def _waiting(cluster: Cluster, group: str, *, is_again: bool) -> Iterator[OffsetRange]:
    from rocketmq_wire.errors import RocketMQError, TopicNotFoundError
    from rocketmq_wire.model import DEAD_LETTER_PREFIX, Bounds, OffsetRange

    topic = DEAD_LETTER_PREFIX + group
    try:
        queues = cluster.queues(topic)
    except TopicNotFoundError:
        raise UsageError(
            f"group {group} has no dead letters; `rmq dlq list` lists who has"
        ) from None
    if not queues:
        raise UsageError(
            f"{topic} may not be read: rmq topic alter '{topic}' --permission rw changes that"
        )
    progress: Mapping[QueueId, object] = {} if is_again else cluster.progress(REPLAY_GROUP, queues)
    for queue, bounds in cluster.bounds(queues).items():
        if not isinstance(bounds, Bounds):
            raise bounds
        replayed = progress.get(queue)
        if isinstance(replayed, RocketMQError):
            raise replayed
        start = max(bounds.start, replayed if isinstance(replayed, int) else 0)
        if start < bounds.end:
            yield OffsetRange(queue, start, bounds.end)


def _limited(ranges: Iterator[OffsetRange], limit: int | None) -> Iterator[OffsetRange]:
    from rocketmq_wire.model import OffsetRange

    left = limit
    for wanted in ranges:
        if left is None:
            yield wanted
        elif left > 0:
            end = min(wanted.end, wanted.start + left)
            left -= end - wanted.start
            yield OffsetRange(wanted.queue, wanted.start, end)


def _remember(cluster: Cluster, queue: QueueId, offset: int) -> None:
    for error in cluster.commit(REPLAY_GROUP, {queue: offset}).values():
        if error is not None:
            raise error
