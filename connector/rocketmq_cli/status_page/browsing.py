"""Finds the messages that the message browser requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rocketmq_cli.connection import queues_of
from rocketmq_cli.messages.records import message_record, read_messages
from rocketmq_cli.terminal.output import Cell
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.lookup import find_by_id, find_by_key
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError, raise_first
from rocketmq_wire.model import OffsetRange

_GROUP: Final = "rmq-status-page"
_SHOWN_MAX: Final = 50
_NEWEST_PER_QUEUE: Final = 10
# The digits of the largest offset, 2^63 - 1.
_DIGITS_MAX: Final = 19


class Browsed(NamedTuple):
    """Messages, or the reason why there are none."""

    messages: Sequence[Mapping[str, Cell]] = ()
    problem: str | None = None
    is_missing: bool = False
    """True if the requested topic or queue does not exist."""


def wrong_number(wanted: Mapping[str, str]) -> str | None:
    """Describe a wrong queue or offset of the request; None if both are right."""
    for name in ("queue", "offset"):
        text = wanted.get(name, "").strip()
        if text and not (text.isdecimal() and len(text) <= _DIGITS_MAX):
            shown = text if len(text) <= _DIGITS_MAX else f"{text[:_DIGITS_MAX]}…"
            return f"{name} must be a number of at most {_DIGITS_MAX} digits, not {shown!r}"
    return None


def browse(settings: ConnectionSettings, wanted: Mapping[str, str]) -> Browsed:
    """Find messages by key, or by queue and offset; else the newest of every queue.

    The caller has checked the numbers in `wanted`.
    """
    topic = wanted.get("topic", "").strip()
    if not topic:
        return Browsed()
    queue, offset = wanted.get("queue", "").strip(), wanted.get("offset", "").strip()
    try:
        with open_cluster(settings) as cluster:
            key = wanted.get("key", "").strip()
            if key:
                return Browsed(_by_key(cluster, topic, key))
            found = _by_queue(
                cluster, topic, int(queue) if queue else None, int(offset) if offset else None
            )
            return Browsed(found)
    except (TopicNotFoundError, UsageError) as error:
        return Browsed(problem=str(error), is_missing=True)
    except RocketMQError as error:
        return Browsed(problem=str(error))


def _by_key(cluster: Cluster, topic: str, key: str) -> Sequence[Mapping[str, Cell]]:
    found = find_by_id(cluster, topic, key, _SHOWN_MAX)
    found = found or find_by_key(cluster, topic, key, _SHOWN_MAX)
    return [message_record(broker, message) for broker, message in found]


def _by_queue(
    cluster: Cluster, topic: str, index: int | None, offset: int | None
) -> Sequence[Mapping[str, Cell]]:
    queues = cluster.queues(topic) if index is None else queues_of(cluster, topic, index)
    count = _SHOWN_MAX if index is not None else _NEWEST_PER_QUEUE
    ranges = []
    for queue, held in sorted(raise_first(cluster.bounds(queues)).items()):
        start = max(held.start, held.end - count if offset is None else offset)
        end = min(held.end, start + count)
        if start < end:
            ranges.append(OffsetRange(queue, start, end))
    messages = read_messages(cluster, ranges, _GROUP)
    found = [message_record(queue.broker, message) for queue, message in messages]
    return sorted(found, key=lambda record: str(record["stored"]), reverse=True)[:_SHOWN_MAX]
