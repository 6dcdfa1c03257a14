"""Messages that are to be delivered later, by RocketMQ's 18 levels of delay.

Such a message is stored in `SCHEDULE_TOPIC_XXXX`, queue level - 1, and says in its properties where
it is to go. As all of a queue wait equally long, the first one is always the next one due: a level
needs no more than an offset, `config/delayOffset.json`. The offset is saved only when what was
delivered before it is durable: after a crash some may be delivered twice, none is lost.

A message that cannot be read holds its level, for an offset can say nothing else of it than that it
waits; the other levels go on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketmq_broker.engine.core.store_again import (
    REAL_QUEUE,
    REAL_TOPIC,
    UNREADABLE_PAUSE_MS,
    deliver,
)
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.queues.due_times import DELAYS_MS, SCHEDULE_TOPIC
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Host, QueueId, StoredMessage
from rocketmq_wire.plural import plural
from rocketmq_wire.records.record import decode_record

_LOG = logging.getLogger(__name__)

FILE_NAME: Final = "delayOffset.json"
DELAY: Final = "DELAY"
LEVEL_MAX: Final = len(DELAYS_MS)
# Of one level in one turn, so that a million that are due at once leave the loop its breath.
_TURN_COUNT_MAX: Final = 500
_TURN_BYTES_MAX: Final = 4 * 1024 * 1024


def level_of(properties: Mapping[str, str]) -> int:
    """The level that a message asks for, 0 for none; RocketMQ takes what is too high as 18."""
    text = properties.get(DELAY, "0")
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 9:
        return 0
    return max(0, min(int(text), LEVEL_MAX))


def delayed(
    queue: QueueId, properties: Mapping[str, str], level: int
) -> tuple[QueueId, dict[str, str]]:
    """Where a message waits that is for `queue`, and the properties that bring it there."""
    waits = QueueId(SCHEDULE_TOPIC, queue.broker, level - 1)
    named = {DELAY: str(level), REAL_TOPIC: queue.topic, REAL_QUEUE: str(queue.index)}
    return waits, {**properties, **named}


class _Delivered(NamedTuple):
    level: int
    offset: int
    """Behind the message delivered."""
    position: int
    """The log's end behind its delivery."""


class Delays:
    """What waits, level by level."""

    def __init__(
        self, stored: Mapping[str, Any] | None, *, store: Store, topics: Topics, store_host: Host
    ) -> None:
        self._store = store
        self._topics = topics
        self._store_host = store_host
        table = (stored or {}).get("offsetTable") or {}
        self._version = int(((stored or {}).get("dataVersion") or {}).get("counter", 0))
        self._offsets = {}
        for level in range(1, LEVEL_MAX + 1):
            # A crash may have cut the log shorter than the file that was saved beside it.
            end = store.bounds(SCHEDULE_TOPIC, level - 1).end
            self._offsets[level] = min(int(table.get(str(level), 0)), end)
        self._saved = dict(self._offsets)
        self._undurable: deque[_Delivered] = deque()
        self._due_ms = dict.fromkeys(self._offsets, 0)
        self._held_at: dict[int, int] = {}
        """By level, the last offset that could not be read."""
        self._is_changed = False

    def deliver(self, now_ms: int) -> bool:
        """Deliver what is due; True if something was appended to the log."""
        is_any = False
        for level in self._offsets:
            if now_ms >= self._due_ms[level]:
                is_any = self._deliver_level(level, now_ms) or is_any
        return is_any

    def waiting(self) -> dict[int, int]:
        """How many messages wait, by level; levels without any are left out."""
        counts = {
            level: self._store.bounds(SCHEDULE_TOPIC, level - 1).end - offset
            for level, offset in self._offsets.items()
        }
        return {level: count for level, count in counts.items() if count}

    def take_changes(self, durable_end: int) -> dict[str, Any] | None:
        """The file's new content, as far as deliveries are durable; None if nothing is new."""
        while self._undurable and self._undurable[0].position <= durable_end:
            level, offset, _ = self._undurable.popleft()
            self._saved[level] = offset
            self._is_changed = True
        if not self._is_changed:
            return None
        self._is_changed = False
        self._version += 1
        version = {"counter": self._version, "stateVersion": 0, "timestamp": 0}
        table = {str(level): offset for level, offset in self._saved.items()}
        return {"dataVersion": version, "offsetTable": table}

    def put_back(self) -> None:
        """What was taken could not be saved: it is to be taken again."""
        self._is_changed = True

    def _deliver_level(self, level: int, now_ms: int) -> bool:
        bounds = self._store.bounds(SCHEDULE_TOPIC, level - 1)
        start = max(self._offsets[level], bounds.start)
        if start > self._offsets[level]:
            lost = start - self._offsets[level]
            told = plural(lost, "message")
            _LOG.error("delay level %d: %s expired before delivery", level, told)
            self._offsets[level] = start
        if start >= bounds.end:
            return False
        try:
            found = self._store.read(
                *(SCHEDULE_TOPIC, level - 1, start),
                count_max=_TURN_COUNT_MAX,
                bytes_max=_TURN_BYTES_MAX,
            )
        except StorageError as error:
            self._hold(level, start, now_ms, str(error))
            return False
        if found.lost:
            told = plural(found.lost, "message")
            _LOG.error("delay level %d: %s lost before delivery", level, told)
            self._offsets[level] = found.next_begin
            return True
        # Copied: appending may move the log on to another file.
        data, at, is_any = b"".join(found.parts), 0, False
        for offset in range(start, start + found.count):
            try:
                # It gets a new checksum where it goes, so this is the last time to compare.
                message, at = decode_record(data, at)
            except CorruptRecordError as error:
                self._hold(level, offset, now_ms, error.reason)
                break
            due_ms = message.store_ms + DELAYS_MS[level - 1]
            if due_ms > now_ms:
                self._due_ms[level] = due_ms
                break
            position = self._deliver_one(message, now_ms)
            is_any = is_any or position is not None
            self._offsets[level] = offset + 1
            position = self._store.appended_end if position is None else position
            self._undurable.append(_Delivered(level, offset + 1, position))
        return is_any

    def _hold(self, level: int, offset: int, now_ms: int, reason: str) -> None:
        """Let a level wait at a message that cannot be read; said once."""
        self._due_ms[level] = now_ms + UNREADABLE_PAUSE_MS
        if self._held_at.get(level) != offset:
            self._held_at[level] = offset
            _LOG.error(
                "delay level %d delivers nothing any more: offset=%d of %s queue %d cannot be read "
                "until its file is put back or `rmq fsck DIR --repair` sets it aside: %s",
                *(level, offset, SCHEDULE_TOPIC, level - 1, reason),
            )

    def _deliver_one(self, message: StoredMessage, now_ms: int) -> int | None:
        """The log's end behind the delivered message; None where it has nowhere to go."""
        delivered = deliver(
            message, now_ms, store=self._store, topics=self._topics, store_host=self._store_host
        )
        return None if delivered is None else delivered.end_position
