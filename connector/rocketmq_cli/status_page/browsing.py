"""Finds the messages that a page shows: by key or id, or the newest of a topic, page by page.

Messages are ordered newest first; within a millisecond by queue, in a queue by falling offset. A
page ends at a message, its `Cursor`; the next page begins behind it. So no message is shown twice
or left out while new ones arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rocketmq_cli.connection import queues_of
from rocketmq_cli.messages.records import message_record, read_messages
from rocketmq_cli.terminal.output import Cell
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import Cluster
from rocketmq_client.lookup import find_by_id, find_by_key
from rocketmq_wire.errors import raise_first
from rocketmq_wire.model import OffsetRange, QueueId, StoredMessage
from rocketmq_wire.numbers import DIGITS_MAX, whole_number

_GROUP: Final = "rmq-status-page"
_SHOWN_MAX: Final = 50
_PER_QUEUE_MIN: Final = 5


class Cursor(NamedTuple):
    """A message's position in the order of pages; smaller ones come first."""

    newest_first: int
    """The negative store time."""
    broker: str
    index: int  # type: ignore[assignment]  # Hides the method of tuple.
    last_first: int
    """The negative offset."""

    @classmethod
    def of(cls, broker: str, message: StoredMessage) -> Cursor:
        return cls(-message.store_ms, broker, message.queue_index, -message.queue_offset)

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The inverse of `str`. Raises UsageError."""
        time_ms, _, rest = text.partition("/")
        broker, _, numbers = rest.partition("/")
        index, _, offset = numbers.partition("/")
        if not broker or not all(map(_is_number, (time_ms, index, offset))):
            raise UsageError(f"older must be TIME/BROKER/QUEUE/OFFSET, not {text[:100]!r}")
        return cls(-int(time_ms), broker, int(index), -int(offset))

    def __str__(self) -> str:
        return f"{-self.newest_first}/{self.broker}/{self.index}/{-self.last_first}"


class Browsed(NamedTuple):
    """The messages of a page, and the cursor of the next; None if there is none."""

    records: Sequence[Mapping[str, Cell]]
    older: Cursor | None = None


def wrong_value(wanted: Mapping[str, str]) -> str | None:
    """Describe a wrong queue, offset or cursor of the request; None if all are right."""
    for name in ("queue", "offset"):
        text = wanted.get(name, "").strip()
        if text and not _is_number(text):
            shown = text if len(text) <= DIGITS_MAX else f"{text[:DIGITS_MAX]}…"
            return f"{name} must be a number of at most {DIGITS_MAX} digits, not {shown!r}"
    try:
        Cursor.parse(wanted["older"])
    except KeyError:
        return None
    except UsageError as error:
        return str(error)
    return None


def _is_number(text: str) -> bool:
    return whole_number(text) is not None


def browse(cluster: Cluster, wanted: Mapping[str, str]) -> Browsed:
    """The messages of a request whose values are right."""
    topic, key, queue, offset, older = (
        wanted.get(name, "").strip() for name in ("topic", "key", "queue", "offset", "older")
    )
    if key:
        named = find_by_id(cluster, topic, key, _SHOWN_MAX)
        named = named or find_by_key(cluster, topic, key, _SHOWN_MAX)
        return Browsed([message_record(broker, message) for broker, message in named])
    queues = queues_of(cluster, topic, int(queue)) if queue else cluster.queues(topic)
    bounds = raise_first(cluster.bounds(queues))
    starts = {queue: held.start for queue, held in bounds.items()}
    ends = {queue: held.end for queue, held in bounds.items()}
    if older:
        behind = _ends_behind(cluster, Cursor.parse(older), queues)
        ends = {queue: max(starts[queue], min(ends[queue], behind[queue])) for queue in queues}
    elif offset:
        starts = {queue: max(starts[queue], int(offset)) for queue in queues}
        ends = {queue: min(ends[queue], starts[queue] + _SHOWN_MAX) for queue in queues}
    found, is_more = _newest(cluster, starts, ends)
    records = [message_record(each.broker, message) for each, message in found]
    is_more = is_more or any(bounds[queue].start < start for queue, start in starts.items())
    last = Cursor.of(found[-1][0].broker, found[-1][1]) if found and is_more else None
    return Browsed(records, last)


def _ends_behind(
    cluster: Cluster, cursor: Cursor, queues: Sequence[QueueId]
) -> Mapping[QueueId, int]:
    """The offset in each queue below which all messages come behind the cursor."""
    time_ms = -cursor.newest_first
    here = (cursor.broker, cursor.index)
    # In its millisecond the cursor's page has shown the queues before its own, not those behind it.
    times = {q: time_ms + ((q.broker, q.index) > here) for q in queues}
    ends = raise_first(cluster.search_offsets(times))
    return {q: -cursor.last_first if (q.broker, q.index) == here else ends[q] for q in queues}


def _newest(
    cluster: Cluster, starts: Mapping[QueueId, int], ends: Mapping[QueueId, int]
) -> tuple[list[tuple[QueueId, StoredMessage]], bool]:
    """The newest messages of `[start, end)` of all queues, and whether there are more.

    It reads a few of each queue. Messages older than the oldest one that was read of a queue with
    more may have newer ones before them, so that queue is read on until a page is certain.
    """
    count = max(_PER_QUEUE_MIN, -(-_SHOWN_MAX // max(1, len(ends))))
    found: dict[Cursor, tuple[QueueId, StoredMessage]] = {}
    left = {queue: end for queue, end in ends.items() if starts[queue] < end}
    oldest: dict[QueueId, Cursor] = {}
    due = sorted(left)
    while due:
        ranges = [OffsetRange(q, max(starts[q], left[q] - count), left[q]) for q in due]
        for queue, message in read_messages(cluster, ranges, _GROUP):
            cursor = Cursor.of(queue.broker, message)
            found[cursor] = (queue, message)
            oldest[queue] = max(oldest.get(queue, cursor), cursor)
        for each in ranges:
            left[each.queue] = each.start
            if each.start == starts[each.queue]:
                del left[each.queue]
        limit = min((oldest[queue] for queue in left if queue in oldest), default=None)
        certain = [cursor for cursor in found if limit is None or cursor <= limit]
        due = [queue for queue in left if queue not in oldest]
        if not due and len(certain) < _SHOWN_MAX:
            due = [queue for queue in left if oldest[queue] == limit]
    shown = sorted(found)[:_SHOWN_MAX]
    return [found[cursor] for cursor in shown], bool(left) or len(found) > len(shown)
