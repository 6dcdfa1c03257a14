"""Messages with a delivery time of their own, and their recall.

Such a message waits in `rmq_sys_wheel_timer` queue 0, as in RocketMQ; its properties name the queue
it is for and the time (TIMER_OUT_MS). The wake-up is this broker's own: memory holds the times, and
`config/timers.json` holds the time up to which all messages are delivered, and the offset of the
first one that waits. A start reads the queue from that offset and takes the messages due later. The
file only covers durable deliveries: after a crash some messages may be delivered twice, none is
lost, none comes early. A due message that cannot be read is held: the file names it, and the broker
tries it again.

A recall is a record of the same queue, in RocketMQ's form (TIMER_DEL_UNIQKEY).
"""

from __future__ import annotations

import heapq
import logging
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Outcome
from rocketmq_broker.engine.messages.store_again import (
    REAL_QUEUE,
    REAL_TOPIC,
    UNREADABLE_PAUSE_MS,
    deliver,
    read_message,
    records_in,
    store_own,
)
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.disk.config_files import TIMERS
from rocketmq_broker.storage.errors import StorageError
from rocketmq_wire.errors import CorruptRecordError, RemoteProtocolError
from rocketmq_wire.model import QueueId, StoredMessage
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.plural import plural
from rocketmq_wire.records.handles import RecallHandle
from rocketmq_wire.records.properties import DELIVER_MS, TAGS, UNIQUE_KEY
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import RecallMessage, RecallReply

_LOG = logging.getLogger(__name__)

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
_QUEUE: Final = QueueId(TIMER_TOPIC, "", 0)
DUE: Final = "TIMER_OUT_MS"
DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
DELAY_MS: Final = "TIMER_DELAY_MS"
RECALLED: Final = "TIMER_DEL_UNIQKEY"
_RECALL_TAG: Final = "_RECALL_TAG_"
WAITING_MAX: Final = 1_000_000
"""Some 250 bytes each."""
_BLOCK: Final = 4_096
# In one turn, so that a million due messages do not block the loop.
_TURN_COUNT_MAX: Final = 500
_READ_COUNT_MAX: Final = 10_000
_READ_BYTES_MAX: Final = 4 * 1024 * 1024
_DUE_BYTES: Final = f"{DUE}\x01".encode()
_RECALLED_BYTES: Final = f"{RECALLED}\x01".encode()
_ROLLED: Final = "TIMER_ROLL_TIMES"
_ROLLED_BYTES: Final = f"{_ROLLED}\x01".encode()


def due_of(
    properties: Mapping[str, str], *, now_ms: int, delay_ms_max: int, ahead_ms: int = 0
) -> int | None:
    """The delivery time that the properties ask for; None: at once. Refusals: 13.

    `now_ms` and the delivery time are the broker's, which is `ahead_ms` ahead of the wall clock.
    """
    if DUE in properties:
        # As in RocketMQ, the message was delivered already, and a client forwards it.
        return None
    for name, unit_ms, base_ms in (
        (DELAY_SECONDS, 1_000, now_ms),
        (DELAY_MS, 1, now_ms),
        (DELIVER_MS, 1, ahead_ms),
    ):
        text = properties.get(name)
        if text is None:
            continue
        number = whole_number(text, is_signed=True)
        if number is None:
            raise refusals.timer_illegal(f"{name} is not a number: {text[:40]!r}")
        due_ms = base_ms + number * unit_ms
        if due_ms - now_ms > delay_ms_max:
            raise refusals.timer_illegal(
                f"the delay time should not be bigger than the max delay {delay_ms_max}ms"
            )
        return due_ms if due_ms > now_ms else None
    return None


class _Delivered(NamedTuple):
    position: int
    """The end of the delivered records in the log."""
    until_ms: int
    start: int
    """The offset of the first message that waited then."""


class Timers:
    def __init__(self, tables: Tables) -> None:
        stored: Mapping[str, Any] = tables.store.configs.load(TIMERS)
        self._tables = tables
        self._store = tables.store
        self._slots: dict[int, list[int]] = {}
        """The offsets of waiting messages, by delivery time."""
        self._due: list[int] = []
        self._blocks: dict[int, int] = {}
        """The number of waiting messages by block of offsets, in the queue's order."""
        self.waiting_count = 0
        self._next = 0
        self._opened_ms = -1
        self._until_ms = int(stored.get("deliveredUntilMs", 0))
        self._undurable: deque[_Delivered] = deque()
        self._saved = self._until_ms, int(stored.get("start", 0))
        self._is_changed = False
        self._held: dict[int, int | None] = {}
        """Due offsets that could not be read; the value is the log's end behind the delivery."""
        self._load(self._saved[1], frozenset(stored.get("held", ())))

    # --- storing ------------------------------------------------------------------------------

    def wait(
        self, queue: QueueId, properties: Mapping[str, str], due_ms: int
    ) -> tuple[QueueId, dict[str, str]]:
        """The queue where a message for `queue` waits, and its properties there.

        A sender may recall messages of its own topic by a property. Refusals: 2, 604.
        """
        if not properties.get(RECALLED, f"{queue.topic}+").startswith(f"{queue.topic}+"):
            raise refusals.recall_illegal("topic not match")
        if self.waiting_count >= WAITING_MAX:
            raise refusals.too_many_waiting(WAITING_MAX, "messages with a delivery time")
        # The clock may step back; all times up to `_until_ms` count as delivered.
        due_ms = max(due_ms, self._until_ms + 1)
        target = {DUE: str(due_ms), REAL_TOPIC: queue.topic, REAL_QUEUE: str(queue.index)}
        return QueueId(TIMER_TOPIC, queue.broker, 0), {**properties, **target}

    def note(self, offset: int, properties: Mapping[str, str]) -> str | None:
        """Note a stored message that waits, and return the handle that recalls it.

        A message that recalls others does not wait: as in RocketMQ, nobody gets it.
        """
        due_ms = whole_number(properties[DUE]) or 0
        if RECALLED in properties:
            self._next = max(self._next, offset + 1)
            self._recall_waiting(due_ms, properties[RECALLED], offset)
            return None
        self._add(due_ms, offset)
        unique_key = properties.get(UNIQUE_KEY, "")
        broker = self._tables.identity.broker_name
        return RecallHandle(properties[REAL_TOPIC], broker, due_ms, unique_key).text()

    def _add(self, due_ms: int, offset: int) -> None:
        slot = self._slots.get(due_ms)
        if slot is None:
            self._slots[due_ms] = [offset]
            heapq.heappush(self._due, due_ms)
        else:
            slot.append(offset)
        block = offset // _BLOCK
        self._blocks[block] = self._blocks.get(block, 0) + 1
        self._next = max(self._next, offset + 1)
        self.waiting_count += 1

    def _remove(self, offset: int) -> None:
        block = offset // _BLOCK
        self._blocks[block] -= 1
        if not self._blocks[block]:
            del self._blocks[block]
        self.waiting_count -= 1

    # --- delivering ---------------------------------------------------------------------------

    def is_due(self, now_ms: int) -> bool:
        return bool(self._due) and self._due[0] <= now_ms

    def deliver(self, now_ms: int) -> bool:
        """Deliver some of the due messages; True if the log grew."""
        count = 0
        while self.is_due(now_ms) and count < _TURN_COUNT_MAX:
            due_ms = self._due[0]
            slot = self._slots[due_ms]
            if due_ms != self._opened_ms:
                # Reversed: messages leave at the end. None is added from now on.
                slot.reverse()
                self._opened_ms = due_ms
            while slot and count < _TURN_COUNT_MAX:
                if not self._deliver_one(slot[-1], now_ms):
                    # Not visible yet, nor acknowledged to its sender.
                    return count > 0
                self._remove(slot.pop())
                count += 1
            if slot:
                break
            heapq.heappop(self._due)
            del self._slots[due_ms]
            # A message held since an earlier start was due before.
            self._until_ms = max(self._until_ms, due_ms)
            start = next(iter(self._blocks), None)
            start = self._next if start is None else start * _BLOCK
            self._undurable.append(_Delivered(self._store.appended_end, self._until_ms, start))
        return count > 0

    def _deliver_one(self, offset: int, now_ms: int) -> bool:
        """Deliver, hold or drop a message; False if it is not visible yet."""
        bounds = self._store.bounds(TIMER_TOPIC, 0)
        if offset >= bounds.end:
            return False
        try:
            # The delivered record gets a new checksum, so compare the old one now.
            message = read_message(self._store, _QUEUE, offset)
        except (StorageError, CorruptRecordError) as error:
            reason = error.reason if isinstance(error, CorruptRecordError) else str(error)
            self._hold(offset, now_ms, reason)
            return True
        if message is None:
            _LOG.error("offset=%d of %s expired while it waited", offset, TIMER_TOPIC)
        else:
            deliver(message, now_ms, self._tables)
        if offset in self._held:
            self._held[offset] = self._store.appended_end
        return True

    def _hold(self, offset: int, now_ms: int, reason: str) -> None:
        """Keep a due message that cannot be read, and deliver the others; log it once."""
        # Behind the slot in delivery, even if the clock stepped back.
        self._add(max(now_ms, self._opened_ms) + UNREADABLE_PAUSE_MS, offset)
        if offset not in self._held:
            self._held[offset] = None
            _LOG.error(
                "offset=%d of %s is due and cannot be read: it waits until its file is restored or "
                "`rmq fsck DIR --repair` sets it aside: %s",
                offset,
                TIMER_TOPIC,
                reason,
            )

    # --- recalling ----------------------------------------------------------------------------

    def recall(self, request: RecallMessage, now_ms: int) -> Outcome:
        """Code 370. Refusals: 17, 604."""
        self._tables.topics.require(request.topic)
        try:
            handle = RecallHandle.parse(request.handle)
        except RemoteProtocolError as error:
            raise refusals.recall_illegal("recall handle is invalid") from error
        if handle.topic != request.topic:
            raise refusals.recall_illegal("topic not match")
        if handle.broker != self._tables.identity.broker_name:
            raise refusals.recall_illegal("broker service not available")
        if handle.due_ms <= now_ms:
            raise refusals.recall_illegal("timestamp invalid")
        # RocketMQ rounds the stored time, and adds one in the handle.
        key = f"{handle.topic}+{handle.unique_key}"
        for due_ms in (handle.due_ms, handle.due_ms - 1):
            for offset in self._waiting(due_ms, key):
                end_position = self._store_recall(request, handle, due_ms, now_ms)
                self._slots[due_ms].remove(offset)
                self._remove(offset)
                return self._tables.acknowledge(RecallReply(handle.unique_key), end_position)
        raise refusals.recall_illegal(
            "the message does not wait: it was delivered or recalled already"
        )

    def _waiting(self, due_ms: int, key: str, before: int = sys.maxsize) -> Iterator[int]:
        """The offsets below `before` of the messages due then with this topic and unique key."""
        for offset in tuple(self._slots.get(due_ms, ())):
            if offset < before:
                message = read_message(self._store, _QUEUE, offset, check_crc=False)
                if message is not None and _key_of(message) == key:
                    yield offset

    def _recall_waiting(self, due_ms: int, key: str, before: int) -> None:
        for offset in self._waiting(due_ms, key, before):
            self._slots[due_ms].remove(offset)
            self._remove(offset)

    def _store_recall(
        self, request: RecallMessage, handle: RecallHandle, due_ms: int, now_ms: int
    ) -> int:
        properties = {
            TAGS: _RECALL_TAG,
            RECALLED: f"{handle.topic}+{handle.unique_key}",
            UNIQUE_KEY: handle.unique_key,
            DELIVER_MS: str(due_ms),
            DUE: str(due_ms),
            REAL_TOPIC: handle.topic,
            REAL_QUEUE: "0",
            "PGROUP": request.group,
        }
        appended = store_own(b"0", now_ms, self._tables, _QUEUE, properties)
        return appended.end_position

    # --- the configuration file ----------------------------------------------------------------

    def take_changes(self, durable_end: int) -> dict[str, Any] | None:
        """The file's new content, up to the durable deliveries; None if nothing changed."""
        while self._undurable and self._undurable[0].position <= durable_end:
            _, until_ms, start = self._undurable.popleft()
            self._saved = until_ms, start
            self._is_changed = True
        for offset, end in tuple(self._held.items()):
            if end is not None and end <= durable_end:
                del self._held[offset]
                self._is_changed = True
        if not self._is_changed:
            return None
        self._is_changed = False
        content = {"deliveredUntilMs": self._saved[0], "start": self._saved[1]}
        return {**content, "held": list(self._held)} if self._held else content

    def _load(self, start: int, held: frozenset[int]) -> None:
        """Read the waiting messages from the queue; those in `held` are due again."""
        bounds = self._store.bounds(TIMER_TOPIC, 0)
        self._next, start = bounds.end, max(start, bounds.start)
        recalled: list[tuple[int, str, int]] = []
        while start < bounds.end:
            found = self._store.read(
                TIMER_TOPIC, 0, start, count_max=_READ_COUNT_MAX, bytes_max=_READ_BYTES_MAX
            )
            if found.lost:
                lost = plural(found.lost, "message")
                _LOG.error("%s of %s lost before delivery", lost, TIMER_TOPIC)
                start = found.next_begin
                continue
            if not found.count:
                break
            for record in records_in(found):
                if start in held:
                    self._held[start] = None
                    self._add(self._until_ms, start)
                else:
                    try:
                        self._load_one(record, start, recalled)
                    except Exception as error:  # noqa: BLE001 - one record must not stop a start
                        _LOG.error(
                            "topic=%s queue=0 offset=%d cannot be read and is passed over: %r",
                            TIMER_TOPIC,
                            start,
                            error,
                        )
                start += 1
        for due_ms, key, before in recalled:
            self._recall_waiting(due_ms, key, before)

    def _load_one(self, record: bytes, offset: int, recalled: list[tuple[int, str, int]]) -> None:
        if _RECALLED_BYTES in record or _ROLLED_BYTES in record:
            message = decode_record(record, check_crc=False)[0]
            properties = message.properties
            due_ms = whole_number(properties.get(DUE)) or 0
            if RECALLED in properties:
                if properties[RECALLED].startswith(f"{properties.get(REAL_TOPIC)}+"):
                    recalled.append((due_ms, properties[RECALLED], offset))
                return
            if _ROLLED in properties:
                # RocketMQ stored the message again, and uses this copy alone.
                recalled.append((due_ms, _key_of(message), offset))
        # The properties end a record, so the last match is theirs, not the body's.
        at = record.rfind(_DUE_BYTES)
        text = record[at + len(_DUE_BYTES) :].partition(b"\x02")[0] if at >= 0 else b""
        due = whole_number(text.decode("latin-1"))
        if due is not None and due > self._until_ms:
            self._add(due, offset)


def _key_of(message: StoredMessage) -> str:
    properties = message.properties
    return f"{properties.get(REAL_TOPIC, '')}+{properties.get(UNIQUE_KEY, '')}"
