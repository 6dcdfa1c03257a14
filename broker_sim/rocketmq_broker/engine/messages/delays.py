"""Messages with one of RocketMQ's 18 delay levels.

Such a message is stored in `SCHEDULE_TOPIC_XXXX`, queue level - 1; its properties name the queue it
is for. All messages of one queue wait equally long, so the first one is always due next: the state
of a level is one offset, in `config/delayOffset.json`. The broker saves the offset only when the
deliveries before it are durable: after a crash some may be delivered twice, none is lost.

A message that cannot be read stops its level, because one offset cannot express a gap; the other
levels continue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketmq_broker.engine.messages.store_again import (
    REAL_QUEUE,
    REAL_TOPIC,
    UNREADABLE_PAUSE_MS,
    deliver,
)
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.queues.consume_queue import DELAYS_MS, SCHEDULE_TOPIC
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import QueueId
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.plural import plural
from rocketmq_wire.records.record import decode_record

_LOG = logging.getLogger(__name__)

DELAYS_FILE: Final = "delayOffset.json"
DELAY: Final = "DELAY"
LEVEL_MAX: Final = len(DELAYS_MS)
# For one level in one turn, so that a million due messages do not block the loop.
_TURN_COUNT_MAX: Final = 500
_TURN_BYTES_MAX: Final = 4 * 1024 * 1024


def level_of(properties: Mapping[str, str]) -> int:
    """The delay level that the properties ask for, 0 for none; as in RocketMQ at most 18."""
    level = whole_number(properties.get(DELAY), digits_max=9, is_signed=True)
    return max(0, min(level or 0, LEVEL_MAX))


def delayed(
    queue: QueueId, properties: Mapping[str, str], level: int
) -> tuple[QueueId, dict[str, str]]:
    """The queue where a message for `queue` waits, and its properties there."""
    waits_in = QueueId(SCHEDULE_TOPIC, queue.broker, level - 1)
    target = {DELAY: str(level), REAL_TOPIC: queue.topic, REAL_QUEUE: str(queue.index)}
    return waits_in, {**properties, **target}


class _Delivered(NamedTuple):
    level: int
    offset: int
    """The offset behind the delivered message."""
    position: int
    """The end of the delivered record in the log."""


class Delays:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._store = tables.store
        stored: Mapping[str, Any] = self._store.configs.load(DELAYS_FILE)
        table = stored.get("offsetTable") or {}
        self._version = int((stored.get("dataVersion") or {}).get("counter", 0))
        self._offsets = {}
        for level in range(1, LEVEL_MAX + 1):
            # A crash may have lost the end of the log, and kept the file that was saved beside it.
            end = self._store.bounds(SCHEDULE_TOPIC, level - 1).end
            self._offsets[level] = min(int(table.get(str(level), 0)), end)
        self._saved = dict(self._offsets)
        self._undurable: deque[_Delivered] = deque()
        self._due_ms = dict.fromkeys(self._offsets, 0)
        self._unreadable: dict[int, int] = {}
        """By level, the last offset that could not be read."""
        self._is_changed = False

    def deliver(self, now_ms: int) -> bool:
        """Deliver the messages that are due; True if the log grew."""
        is_any = False
        for level in self._offsets:
            if now_ms >= self._due_ms[level]:
                is_any = self._deliver_level(level, now_ms) or is_any
        return is_any

    def waiting(self) -> dict[int, int]:
        """The number of waiting messages by level, without empty levels."""
        counts = {
            level: self._store.bounds(SCHEDULE_TOPIC, level - 1).end - offset
            for level, offset in self._offsets.items()
        }
        return {level: count for level, count in counts.items() if count}

    def take_changes(self, durable_end: int) -> dict[str, Any] | None:
        """The file's new content, up to the durable deliveries; None if nothing changed."""
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

    def _deliver_level(self, level: int, now_ms: int) -> bool:
        bounds = self._store.bounds(SCHEDULE_TOPIC, level - 1)
        start = max(self._offsets[level], bounds.start)
        if start > self._offsets[level]:
            expired = plural(start - self._offsets[level], "message")
            _LOG.error("delay level %d: %s expired before delivery", level, expired)
            self._offsets[level] = start
        if start >= bounds.end:
            return False
        try:
            found = self._store.read(
                SCHEDULE_TOPIC,
                level - 1,
                start,
                count_max=_TURN_COUNT_MAX,
                bytes_max=_TURN_BYTES_MAX,
            )
        except StorageError as error:
            self._stop_level(level, start, now_ms, str(error))
            return False
        if found.lost:
            lost = plural(found.lost, "message")
            _LOG.error("delay level %d: %s lost before delivery", level, lost)
            self._offsets[level] = found.next_begin
            return True
        # Copied: an append may begin another file of the log.
        data, at, is_any = b"".join(found.parts), 0, False
        for offset in range(start, start + found.count):
            try:
                # The delivered record gets a new checksum, so compare the old one now.
                message, at = decode_record(data, at)
            except CorruptRecordError as error:
                self._stop_level(level, offset, now_ms, error.reason)
                break
            due_ms = message.store_ms + DELAYS_MS[level - 1]
            if due_ms > now_ms:
                self._due_ms[level] = due_ms
                break
            appended = deliver(message, now_ms, self._tables)
            is_any = is_any or appended is not None
            self._offsets[level] = offset + 1
            position = appended.end_position if appended else self._store.appended_end
            self._undurable.append(_Delivered(level, offset + 1, position))
        return is_any

    def _stop_level(self, level: int, offset: int, now_ms: int, reason: str) -> None:
        """Pause a level at a message that cannot be read; log it once."""
        self._due_ms[level] = now_ms + UNREADABLE_PAUSE_MS
        if self._unreadable.get(level) != offset:
            self._unreadable[level] = offset
            _LOG.error(
                "delay level %d stops delivery: offset=%d of %s queue %d cannot be read "
                "until its file is restored or `rmq fsck DIR --repair` sets it aside: %s",
                level,
                offset,
                SCHEDULE_TOPIC,
                level - 1,
                reason,
            )
