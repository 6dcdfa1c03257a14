"""`rmq dlq`: lists the dead letters of consumer groups, and sends them again."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_noun, add_verb
from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.terminal.output import Record, add_json_option, moment, show, show_json, titles_of
from rocketmq_cli.terminal.progress import CountLine
from rocketmq_cli.usage import (
    EXIT_FAILED,
    NotThereError,
    UsageError,
    partly_done,
    report,
    require_positive,
)
from rocketmq_wire.errors import raise_first
from rocketmq_wire.plural import plural

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster
    from rocketmq_wire.model import Bounds, Message, OffsetRange, QueueId, QueueStats, StoredMessage

# The group whose committed offsets in a dead-letter topic say what was sent again.
REPLAY_GROUP = "rmq-dlq-replay"
_TITLES = titles_of("group", "messages", notReplayed="not replayed", newest="newest")


def add_parser(verbs: Verbs) -> None:
    actions = add_noun(verbs, "dlq", "rmq dlq list")
    listed = add_verb(
        actions,
        "list",
        _list,
        "  rmq dlq list\n"
        "  rmq dlq list billing --json\n"
        "  rmq tail '%DLQ%billing' --json          the dead letters themselves",
        summary="count the dead letters of each group",
    )
    listed.add_argument("group", metavar="GROUP", nargs="?", help="only this group")
    replay = add_verb(
        actions,
        "replay",
        _replay,
        "  rmq dlq replay billing                  only count\n"
        "  rmq dlq replay billing --execute\n"
        "  rmq dlq replay billing --to orders-again --limit 100 --execute",
        summary="send a group's dead letters to their topic again",
        description="Sends a group's dead letters to their original topics, except those already "
        "replayed. The broker stores how far the replay came as the committed offsets of "
        f"the group {REPLAY_GROUP}: the next replay resumes there, and may repeat one dead letter. "
        "It does not know what the job redrive_dead_letters.py sent: use one of the two for a "
        "group.",
    )
    replay.add_argument("group", metavar="GROUP")
    replay.add_argument("--to", metavar="TOPIC", help="this topic instead of the original one")
    replay.add_argument("--limit", type=int, metavar="N", help="at most N dead letters")
    replay.add_argument("--again", action="store_true", help="also those that were sent before")
    replay.add_argument("--execute", action="store_true", help="send them (default: only count)")
    for parser in (listed, replay):
        add_json_option(parser)
        add_connection_options(parser)


def _list(args: argparse.Namespace) -> int:
    from rocketmq_cli.groups import known_group
    from rocketmq_wire.model import DEAD_LETTER_PREFIX

    missing: set[str] = set()
    with open_from(args) as cluster:
        topics = [name for name in cluster.topics() if name.startswith(DEAD_LETTER_PREFIX)]
        groups = [topic.removeprefix(DEAD_LETTER_PREFIX) for topic in topics]
        if args.group is not None:
            groups = [group for group in groups if group == args.group]
            if not groups:
                known_group(cluster, args.group)
        records = [_summary(cluster, group, missing) for group in groups]
    show(records, _TITLES, as_json=args.json)
    if not records and not args.json:
        print("no dead letters" + (f" of {args.group}" if args.group else ""))
    for broker in sorted(missing):
        report(f"{broker} did not report its dead letters")
    return EXIT_FAILED if missing else 0


def _summary(cluster: Cluster, group: str, missing: set[str]) -> Record:
    """Count a group's dead letters; brokers that do not answer are added to `missing`."""
    from rocketmq_cli.commands.topic import silent_brokers
    from rocketmq_wire.model import DEAD_LETTER_PREFIX

    topic = DEAD_LETTER_PREFIX + group
    stats = cluster.topic_stats(topic)
    missing.update(silent_brokers(cluster, topic, stats))
    replayed = _replayed(cluster, stats)
    waiting = sum(stat.end - max(stat.start, replayed[queue]) for queue, stat in stats.items())
    return {
        "group": group,
        "messages": sum(stat.end - stat.start for stat in stats.values()),
        "notReplayed": waiting,
        "newest": moment(max((stat.updated_ms for stat in stats.values()), default=0)),
    }


def _replay(args: argparse.Namespace) -> int:
    require_positive("--limit", args.limit)
    sent: Counter[str] = Counter()
    with open_from(args) as cluster:
        bounds = _bounds(cluster, args.group)
        if args.to is not None:
            _require_topic(cluster, args.to)
        replayed = _replayed(cluster, bounds)
        ranges = _ranges(bounds, {} if args.again else replayed, args.limit)
        count = sum(map(len, ranges))
        if args.execute:
            line = CountLine(total=count)
            try:
                with partly_done(lambda: f"not all was sent; sent so far: {line.count:,}"):
                    for topic in _send(cluster, ranges, replayed, args.to):
                        sent[topic] += 1
                        line.add(1)
            finally:
                line.close()
    if args.json:
        record: Record = {
            "group": args.group,
            "messages": count,
            "executed": args.execute,
            "sent": dict(sorted(sent.items())),
        }
        show_json(record)
    elif not args.execute:
        print(f"{plural(count, 'dead letter')} of {args.group} would be sent again: give --execute")
    for topic, sent_count in sorted(sent.items()) if not args.json else ():
        print(f"sent {sent_count:,} to {topic}")
    if args.execute:
        print(f"sent {line.summary()}", file=sys.stderr)
    return 0


def _send(
    cluster: Cluster, ranges: Sequence[OffsetRange], replayed: Mapping[QueueId, int], to: str | None
) -> Iterator[str]:
    """Send the dead letters of ranges again and yield the topic of each."""
    from rocketmq_cli.messages.records import read_messages
    from rocketmq_client.producer.producer import Producer

    with Producer(cluster.settings) as producer:
        for wanted in ranges:
            for queue, dead in read_messages(cluster, [wanted], REPLAY_GROUP):
                message = revived(dead, to)
                producer.send(message)
                # One by one: the committed offset is never ahead of what was stored. It never
                # decreases either, or the next replay would repeat an earlier one.
                done = max(replayed[queue], dead.queue_offset + 1)
                raise_first(cluster.commit(REPLAY_GROUP, {queue: done}))
                yield message.topic


def revived(dead: StoredMessage, to: str | None) -> Message:
    """The original message of a dead letter. Raises UsageError if its topic is unknown."""
    from rocketmq_cli.messages.records import plain_body
    from rocketmq_wire.model import Message
    from rocketmq_wire.records.properties import KEYS, LIFECYCLE, LITE_TOPIC, TAGS

    properties = dict(dead.properties)
    topic = to or properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC")
    name = f"the dead letter at {dead.topic} queue {dead.queue_index} offset {dead.queue_offset}"
    if topic is None:
        raise UsageError(f"{name} does not name its original topic: give --to")
    kept = {key: text for key, text in properties.items() if key not in LIFECYCLE}
    if kept.pop(LITE_TOPIC, None) and to is None:
        raise UsageError(
            f"{name} is of a lite topic, and lite topics are not supported: give --to to send it as"
            " an ordinary message"
        )
    tags, keys = properties.get(TAGS), properties.get(KEYS)
    return Message(topic, plain_body(dead), tags, keys, kept, dead.flag)


def _bounds(cluster: Cluster, group: str) -> dict[QueueId, Bounds]:
    from rocketmq_wire.errors import TopicNotFoundError
    from rocketmq_wire.model import DEAD_LETTER_PREFIX

    topic = DEAD_LETTER_PREFIX + group
    try:
        queues = cluster.queues(topic)
    except TopicNotFoundError:
        raise NotThereError(
            f"group {group} has no dead letters; `rmq dlq list` lists the groups that have some"
        ) from None
    if not queues:
        raise UsageError(
            f"{topic} may not be read: rmq topic alter '{topic}' --permission rw changes that"
        )
    return raise_first(cluster.bounds(queues))


def _require_topic(cluster: Cluster, topic: str) -> None:
    from rocketmq_cli.connection import with_suggestion
    from rocketmq_wire.errors import TopicNotFoundError

    try:
        cluster.route(topic)
    except TopicNotFoundError as error:
        raise with_suggestion(cluster, [topic], error) from None


def _replayed(cluster: Cluster, ends: Mapping[QueueId, Bounds | QueueStats]) -> dict[QueueId, int]:
    """The replay's committed offset of each queue, 0 if there is none."""
    # An offset behind the end is that of a deleted topic of the same name.
    return {
        queue: 0 if at is None or at > ends[queue].end else at
        for queue, at in raise_first(cluster.committed_offsets(REPLAY_GROUP, ends)).items()
    }


def _ranges(
    bounds: Mapping[QueueId, Bounds], starts: Mapping[QueueId, int], limit: int | None
) -> list[OffsetRange]:
    """The ranges to send again, together at most `limit` messages."""
    from rocketmq_wire.model import OffsetRange

    found: list[OffsetRange] = []
    left = sys.maxsize if limit is None else limit
    for queue, held in bounds.items():
        start = max(held.start, starts.get(queue, 0))
        end = min(held.end, start + left)
        if start < end:
            found.append(OffsetRange(queue, start, end))
            left -= end - start
    return found
