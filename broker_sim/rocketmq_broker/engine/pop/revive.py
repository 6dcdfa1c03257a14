"""The revive topic: checkpoints and acknowledgements of pops, and the revival of messages.

A checkpoint lies in one of eight queues, and every record about it in the same queue. A start reads
each queue from its mark on: the committed offset of RocketMQ's revive group, which is the offset of
the last record that no start needs. After the start only a timer may add records that memory does
not know.

A message that is not acknowledged in time is stored again: in the group's retry topic of its topic,
or after its last attempt in `%DLQ%<group>`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final

from rocketmq_broker.engine.messages.retries import note_origin
from rocketmq_broker.engine.messages.store_again import (
    next_attempt,
    read_message,
    records_in,
    store_again,
    store_own,
)
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.in_flight import STAY_MS, GroupQueue, InFlightPop
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.reading import ReadResult
from rocketmq_broker.storage.settings import Appended
from rocketmq_wire.errors import BrokerBusyError, CorruptRecordError, ProtocolError
from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX, QueueId, StoredMessage
from rocketmq_wire.records import pop_checkpoints as checkpoints
from rocketmq_wire.records.handles import FIRST_POP_TIME, origin_topic_of
from rocketmq_wire.records.properties import DELIVER_MS, TAGS
from rocketmq_wire.records.record import decode_record

_LOG = logging.getLogger(__name__)

BACKOFF_SECONDS: Final = (
    *(10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200),
)
"""The waits before the broker tries a failed revival again."""
# In one turn, so that no turn blocks the loop.
_TURN_RECORDS_MAX: Final = 500
_TURN_POPS_MAX: Final = 64
_SCAN_BYTES_MAX: Final = 4 * 1024 * 1024
_CHECKPOINT_LEAD_MS: Final = 1_000


class Revival:
    def __init__(self, tables: Tables, cursors: Cursors) -> None:
        self._in_flight = cursors.in_flight
        self._tables = tables
        self._store = tables.store
        self._committed = tables.committed
        self._retry_kind = cursors.retry_kind
        self.topic: Final = checkpoints.REVIVE_TOPIC_PREFIX + tables.identity.cluster_name
        self._scanned: dict[int, int] = {}
        self._own: dict[int, set[int]] = {
            index: set() for index in range(checkpoints.REVIVE_QUEUE_COUNT)
        }
        """Offsets of records written since the start: memory knows their content."""
        self._damage: set[str] = set()
        """The damages that were logged."""
        for index in range(checkpoints.REVIVE_QUEUE_COUNT):
            mark = self._committed.get(checkpoints.REVIVE_GROUP, self._queue(index))
            bounds = self._store.bounds(self.topic, index)
            # The mark is the offset of the last record that no start needs.
            start = bounds.start if mark is None else max(mark + 1, bounds.start)
            self._scanned[index] = min(start, bounds.end)
            self._in_flight.note_revive_end(index, self._scanned[index])
        self._found: dict[GroupQueue, set[int]] = {}
        while not all(self._is_read(index) for index in self._scanned):
            self._read_back()
        self._commit_found()

    def turn(self, now_ms: int) -> bool:
        """Do due work within the limits of one turn; True if the log grew."""
        before = self._store.appended_end
        self._read_back()
        try:
            self._write_due(now_ms)
        except BrokerBusyError as error:
            _LOG.warning("pop: checkpoints wait for the disk: %s", error)
        self._revive_due(now_ms)
        self.advance()
        return self._store.appended_end > before

    def write_all(self, now_ms: int) -> None:
        """Write all that a start needs to continue where the broker stops."""
        self._write_due(now_ms, all_of_them=True)
        for pop in self._in_flight.unrecorded():
            self._write_ack(pop, pop.finished & ~pop.recorded, now_ms)

    def advance(self) -> None:
        """Advance committed offsets and marks up to the durable records."""
        self.advance_groups()
        for index, end in self._in_flight.take_marks(self._store.durable_end):
            queue = self._queue(index)
            mark = self._committed.get(checkpoints.REVIVE_GROUP, queue)
            if end > 0 and end - 1 != (-1 if mark is None else mark):
                self._committed.commit(checkpoints.REVIVE_GROUP, queue, end - 1)

    def advance_groups(self) -> None:
        """Advance the groups' committed offsets over finished or written pops that are durable."""
        durable_end = self._store.durable_end
        for queue, end in self._in_flight.take_committed(durable_end):
            if not self._committed.awaits_reset(queue.group, queue.queue):
                self._committed.commit(queue.group, queue.queue, end)

    # --- writing ------------------------------------------------------------------------------

    def write_checkpoint(self, pop: InFlightPop, now_ms: int) -> int:
        """Write a pop's checkpoint; returns the end of its record in the log."""
        # A start drops the checkpoints of groups that it does not know, as those of deleted ones.
        self._tables.groups.save()
        due_ms = pop.visible_ms - _CHECKPOINT_LEAD_MS
        checkpoint = checkpoints.Checkpoint(pop.key, pop.invisible_ms, pop.offsets, pop.finished)
        body = checkpoints.encode_checkpoint(checkpoint)
        appended = self._append(pop.revive_queue, checkpoints.CHECKPOINT_TAG, body, due_ms, now_ms)
        pop.unwritten = 0
        pop.recorded = pop.finished
        self._in_flight.note_written(pop, appended.start, appended.end_position)
        return appended.end_position

    def _write_due(self, now_ms: int, *, all_of_them: bool = False) -> None:
        count_max = sys.maxsize if all_of_them else _TURN_RECORDS_MAX
        before_ms = sys.maxsize if all_of_them else now_ms - STAY_MS
        for pop in self._in_flight.unwritten(before_ms, count_max):
            self.write_checkpoint(pop, now_ms)
        for pop in self._in_flight.unwritten_acks(before_ms, count_max):
            self._write_ack(pop, pop.unwritten, now_ms)
            pop.unwritten = 0

    def _write_ack(self, pop: InFlightPop, bits: int, now_ms: int) -> None:
        ack = checkpoints.Ack(pop.key, pop.offsets_of(bits))
        tag = checkpoints.ACK_TAG if len(ack.offsets) == 1 else checkpoints.BATCH_ACK_TAG
        self._append(pop.revive_queue, tag, checkpoints.encode_ack(ack), pop.visible_ms, now_ms)
        pop.recorded |= bits

    def _append(
        self, revive_queue: int, tag: str, body: bytes, due_ms: int, now_ms: int
    ) -> Appended:
        topics = self._tables.topics
        if topics.get(self.topic) is None:
            topics.ensure_group_topic(self.topic, checkpoints.REVIVE_QUEUE_COUNT)
        # RocketMQ's reviver reads a record's time from DELIVER_MS.
        properties = {TAGS: tag, DELIVER_MS: str(due_ms)}
        appended = store_own(body, now_ms, self._tables, self._queue(revive_queue), properties)
        self._own[revive_queue].add(appended.start)
        self._in_flight.note_revive_end(revive_queue, appended.start + 1)
        return appended

    # --- reading back -------------------------------------------------------------------------

    def _read_back(self) -> None:
        budget = _TURN_RECORDS_MAX
        for index in self._scanned:
            budget -= self._read_queue(index, budget)

    def _is_read(self, index: int) -> bool:
        own = self._own[index]
        while self._scanned[index] in own:
            own.remove(self._scanned[index])
            self._scanned[index] += 1
        return self._scanned[index] >= self._store.bounds(self.topic, index).end

    def _read_queue(self, index: int, count_max: int) -> int:
        if self._is_read(index) or count_max < 1:
            return 0
        bounds = self._store.bounds(self.topic, index)
        start = max(self._scanned[index], bounds.start)
        try:
            found = self._store.read(
                self.topic, index, start, count_max=count_max, bytes_max=_SCAN_BYTES_MAX
            )
        except DamagedStoreError as error:
            self._log_damage(index, start, error)
            found = ReadResult((), b"", 0, start)
        for offset, record in enumerate(records_in(found), start):
            if offset in self._own[index]:
                self._own[index].remove(offset)
            else:
                self._read_record(index, offset, record)
            self._scanned[index] = offset + 1
        if not found.count:
            # Skip the unreadable record, or the start would never end.
            self._scanned[index] = start + 1
        self._in_flight.note_revive_end(index, self._scanned[index])
        return max(found.count, 1)

    def _log_damage(self, index: int, offset: int, error: DamagedStoreError) -> None:
        """Log a damaged stretch of the log once; the records behind it are read."""
        if str(error) in self._damage:
            return
        self._damage.add(str(error))
        _LOG.error(
            "revive queue %d of %s cannot be read from offset %d on. Messages whose checkpoint is "
            "only there are not delivered again, messages acknowledged there may be: %s",
            index,
            self.topic,
            offset,
            error,
        )

    def _read_record(self, index: int, offset: int, record: bytes) -> None:
        """Take in a record that was written before this start, or by a timer."""
        try:
            message = decode_record(record)[0]
            tag = message.properties.get("TAGS")
            if tag == checkpoints.CHECKPOINT_TAG:
                checkpoint = checkpoints.decode_checkpoint(message.body)
                known = self._in_flight.get(checkpoint.key)
                queue = GroupQueue(*checkpoint.key[:3])
                self._found.setdefault(queue, set()).update(checkpoint.offsets)
                if known is None and checkpoint.pending:
                    finished = checkpoint.acked & ((1 << len(checkpoint.offsets)) - 1)
                    pop = InFlightPop(
                        checkpoint.key,
                        checkpoint.invisible_ms,
                        checkpoint.offsets,
                        end=checkpoint.offsets[-1] + 1,
                        revive_queue=index,
                        finished=finished,
                        recorded=finished,
                    )
                    self._in_flight.note_written(pop, offset, 0)
            elif tag in (checkpoints.ACK_TAG, checkpoints.BATCH_ACK_TAG):
                ack = checkpoints.decode_ack(message.body)
                acked = self._in_flight.get(ack.key)
                if acked is not None:
                    bits = acked.bits_of(ack.offsets)
                    acked.recorded |= bits
                    self._in_flight.finish(acked, bits)
        except ProtocolError as error:
            reason = error.reason if isinstance(error, CorruptRecordError) else error
            _LOG.error(
                "revive queue %d of %s, offset %d is passed over, it cannot be read: %s",
                index,
                self.topic,
                offset,
                reason,
            )

    def _commit_found(self) -> None:
        """Commit past messages with checkpoints: committed offsets are saved less often."""
        for queue, offsets in self._found.items():
            start = end = self._committed.get(queue.group, queue.queue)
            while end is not None and end in offsets:
                end += 1
            if end is not None and end != start:
                self._committed.commit(queue.group, queue.queue, end)
        self._found.clear()

    # --- reviving -----------------------------------------------------------------------------

    def _revive_due(self, now_ms: int) -> None:
        for pop in self._in_flight.take_due(now_ms, _TURN_POPS_MAX):
            if pop.checkpoint_offset >= 0 and not self._is_read(pop.revive_queue):
                # The records that are not read yet may contain an acknowledgement.
                self._in_flight.wait_until(pop, now_ms)
                continue
            try:
                self._revive(pop, now_ms)
            except Exception as error:  # noqa: BLE001 - one pop must not stop the others
                reason = error.reason if isinstance(error, CorruptRecordError) else error
                seconds = BACKOFF_SECONDS[min(pop.failures, len(BACKOFF_SECONDS) - 1)]
                pop.failures += 1
                self._in_flight.wait_until(pop, now_ms + seconds * 1_000)
                _LOG.error(
                    "topic=%s group=%s: a pop cannot be revived, next attempt in %d s: %s",
                    pop.key.topic,
                    pop.key.group,
                    seconds,
                    reason,
                )

    def _revive(self, pop: InFlightPop, now_ms: int) -> None:
        key = pop.key
        origin = origin_topic_of(key.topic, key.group)
        if self._tables.topics.get(origin) is None or key.group not in self._tables.groups:
            _LOG.warning("topic=%s group=%s is gone: a pop is dropped", key.topic, key.group)
            self._in_flight.finish(pop, pop.all_bits)
            return
        unreadable: DamagedStoreError | CorruptRecordError | None = None
        for index, offset in enumerate(pop.offsets):
            if pop.finished >> index & 1:
                continue
            try:
                message = read_message(self._store, pop.group_queue.queue, offset)
            except (DamagedStoreError, CorruptRecordError) as error:
                # This message waits for its repair; the others of this pop do not.
                unreadable = error
                continue
            position = 0
            if message is None:
                _LOG.warning(
                    "topic=%s queue=%d offset=%d expired before group %s consumed it",
                    key.topic,
                    key.queue_index,
                    offset,
                    key.group,
                )
            else:
                position = self._store_again(key, origin, message, now_ms)
            self._in_flight.finish(pop, 1 << index, position)
        if unreadable is not None:
            raise unreadable

    def _store_again(
        self, key: checkpoints.CheckpointKey, origin: str, message: StoredMessage, now_ms: int
    ) -> int:
        """Store a message in the group's retry topic or DLQ; returns the end in the log."""
        attempts = next_attempt(message)
        attempts_max = self._tables.groups.retry_limits(key.group)[1]
        properties = dict(message.properties)
        properties.setdefault(FIRST_POP_TIME, str(key.pop_ms))
        if attempts >= attempts_max:
            topic = DEAD_LETTER_PREFIX + key.group
            note_origin(properties, message, origin)
        elif key.topic.startswith(RETRY_PREFIX):
            topic = key.topic
        else:
            topic = self._retry_kind.topic_of(origin, key.group)
        self._tables.topics.ensure_group_topic(topic, 1)

        def store(properties: Mapping[str, str]) -> int:
            queue = QueueId(topic, "", 0)
            return store_again(
                message, now_ms, self._tables, queue, properties, reconsume_times=attempts
            ).end_position

        try:
            return store(properties)
        except ProtocolError as error:
            # The properties have no room left: store the message without the added ones.
            _LOG.warning("topic=%s: revived without added properties: %s", topic, error)
            return store(message.properties)

    def _queue(self, index: int) -> QueueId:
        return QueueId(self.topic, "", index)
