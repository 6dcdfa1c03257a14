"""The revive topic: loans and acknowledgements written to it, read back, and messages revived.

A checkpoint lies in one of eight queues, and every record about it in the same one. A start reads
the queues from the mark on: the progress of RocketMQ's own revive group, which names the last
record that is done with. Later on only a timer may put records there that are not known yet.

What is not acknowledged in time is stored anew, in the group's retry topic of the topic, or with
its attempts used up in `%DLQ%<group>`.
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np

from rocketmq_arrow.encode.record_block import block_from_message
from rocketmq_broker.engine.core.store_again import block_again
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.engine.messages.retries import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPop, InFlightPops
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.queues.reading import ReadResult
from rocketmq_broker.storage.settings import Appended
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerBusyError, CorruptRecordError, ProtocolError
from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX, Host, QueueId, StoredMessage
from rocketmq_wire.records.handles import FIRST_POP_TIME, RetryKind, origin_topic_of
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.pop_checkpoints import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    REVIVE_GROUP,
    REVIVE_QUEUE_COUNT,
    REVIVE_TOPIC_PREFIX,
    Ack,
    CheckpointKey,
    decode_ack,
    decode_checkpoint,
    encode_ack,
    encode_checkpoint,
)
from rocketmq_wire.records.properties import DELIVER_MS, TAGS, UNIQUE_KEY, encode_properties
from rocketmq_wire.records.record import decode_record

_LOG = logging.getLogger(__name__)

BACKOFF_SECONDS: Final = (
    *(10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200),
)
"""How long to wait before what could not be stored anew is tried again."""
# Of one turn, so that the loop has its breath between two.
_TURN_RECORDS_MAX: Final = 500
_TURN_LOANS_MAX: Final = 64
_SCAN_BYTES_MAX: Final = 4 * 1024 * 1024
_CHECKPOINT_LEAD_MS: Final = 1_000


class Revival:
    """Writes loans, reads them back after a start, and stores anew what was not consumed."""

    def __init__(
        self,
        loans: InFlightPops,
        *,
        store: Store,
        topics: Topics,
        groups: Groups,
        progress: Progress,
        cluster_name: str,
        store_host: Host,
        retry_kind: RetryKind,
    ) -> None:
        self._loans = loans
        self._store = store
        self._store_host = store_host
        self._topics, self._groups, self._progress = topics, groups, progress
        self._retry_kind = retry_kind
        self.topic: Final = REVIVE_TOPIC_PREFIX + cluster_name
        self._scanned: dict[int, int] = {}
        self._own: dict[int, set[int]] = {index: set() for index in range(REVIVE_QUEUE_COUNT)}
        """Records of ours that are not read back: what they say is known."""
        self._damage: set[str] = set()
        """What was said of damaged log."""
        for index in range(REVIVE_QUEUE_COUNT):
            mark = progress.get(REVIVE_GROUP, self._queue(index))
            bounds = store.bounds(self.topic, index)
            # The mark names the last record that is done with.
            start = bounds.start if mark is None else max(mark + 1, bounds.start)
            self._scanned[index] = min(start, bounds.end)
            loans.note_revive_end(index, self._scanned[index])
        self._found: dict[GroupQueue, set[int]] = {}
        while not all(self._is_read(index) for index in self._scanned):
            self._read_back()
        self._pass_found()

    def turn(self, now_ms: int) -> bool:
        """Do what is due, as much as one turn takes; True if the log grew."""
        before = self._store.appended_end
        self._read_back()
        try:
            self._write_loans(now_ms)
            self._write_acks(now_ms)
        except BrokerBusyError as error:
            _LOG.warning("pop: checkpoints wait for the disk: %s", error)
        self._revive_due(now_ms)
        self.advance()
        return self._store.appended_end > before

    def write_all(self, now_ms: int) -> None:
        """Write every loan and acknowledgement: the broker stops."""
        self._write_loans(now_ms, all_of_them=True)
        self._write_acks(now_ms, all_of_them=True)

    def advance(self) -> None:
        """Let progress and marks follow what is durable now."""
        self.advance_groups()
        for index, end in self._loans.take_marks(self._store.durable_end):
            queue = self._queue(index)
            mark = self._progress.get(REVIVE_GROUP, queue)
            if end > 0 and end - 1 != (-1 if mark is None else mark):
                self._progress.commit(REVIVE_GROUP, queue, end - 1)

    def advance_groups(self) -> None:
        """Let the groups' progress follow what is settled or written, and durable."""
        durable_end = self._store.durable_end
        for place, end in self._loans.take_progress(durable_end):
            queue = QueueId(place.topic, "", place.queue_index)
            if not self._progress.awaits_reset(place.group, queue):
                self._progress.commit(place.group, queue, end)

    # --- writing ------------------------------------------------------------------------------

    def write_loan(self, loan: InFlightPop, now_ms: int) -> int:
        """Write a loan's checkpoint; the log's end behind it."""
        due_ms = loan.visible_ms - _CHECKPOINT_LEAD_MS
        body = encode_checkpoint(loan.checkpoint())
        appended = self._append(loan.revive_queue, CHECKPOINT_TAG, body, due_ms, now_ms)
        loan.unwritten = 0
        if self._loans.get(loan.key) is loan:
            self._loans.note_written(loan, appended.start, appended.end_position)
        else:
            self._loans.adopt(loan, appended.start, appended.end_position)
        return appended.end_position

    def write_ack(self, ack: Ack, revive_queue: int, due_ms: int, now_ms: int) -> None:
        """Write an acknowledgement of a checkpoint that may be in the topic."""
        tag = ACK_TAG if len(ack.offsets) == 1 else BATCH_ACK_TAG
        self._append(revive_queue, tag, encode_ack(ack), due_ms, now_ms)

    def _write_loans(self, now_ms: int, *, all_of_them: bool = False) -> None:
        count_max = len(self._loans) if all_of_them else _TURN_RECORDS_MAX
        old = self._loans.take_old(now_ms, count_max, all_of_them=all_of_them)
        written = 0
        try:
            for loan in old:
                self.write_loan(loan, now_ms)
                written += 1
        finally:
            self._loans.put_back_old(old[written:])

    def _write_acks(self, now_ms: int, *, all_of_them: bool = False) -> None:
        count_max = 1 << 30 if all_of_them else _TURN_RECORDS_MAX
        acked = self._loans.take_acked(now_ms, count_max, all_of_them=all_of_them)
        written = 0
        try:
            for loan in acked:
                ack = Ack(loan.key, loan.offsets_of(loan.unwritten))
                self.write_ack(ack, loan.revive_queue, loan.visible_ms, now_ms)
                loan.unwritten = 0
                written += 1
        finally:
            self._loans.put_back_acked(acked[written:])

    def _append(
        self, revive_queue: int, tag: str, body: bytes, due_ms: int, now_ms: int
    ) -> Appended:
        if self._topics.get(self.topic) is None:
            self._topics.ensure_group_topic(self.topic, REVIVE_QUEUE_COUNT)
        block = block_from_message(
            topic=self.topic,
            queue_index=revive_queue,
            body=body,
            # RocketMQ's reviver reads a record's time from DELIVER_MS.
            properties=encode_properties({TAGS: tag, DELIVER_MS: str(due_ms)}),
            flag=0,
            sys_flag=0,
            born_ms=now_ms,
            born_host=self._store_host,
            store_host=self._store_host,
            reconsume_times=0,
        )
        appended = self._store.append(self.topic, revive_queue, block, now_ms)
        self._own[revive_queue].add(appended.start)
        self._loans.note_revive_end(revive_queue, appended.start + 1)
        return appended

    # --- reading back -------------------------------------------------------------------------

    def _read_back(self) -> None:
        budget = _TURN_RECORDS_MAX
        for index in self._scanned:
            budget -= self._read_queue(index, budget)

    def _is_read(self, index: int) -> bool:
        self._skip_own(index)
        return self._scanned[index] >= self._store.bounds(self.topic, index).end

    def _skip_own(self, index: int) -> None:
        own = self._own[index]
        while self._scanned[index] in own:
            own.remove(self._scanned[index])
            self._scanned[index] += 1

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
            self._say_damaged(index, start, error)
            found = ReadResult((), b"", 0, start)
        data, at = b"".join(found.parts), 0
        for offset, size in enumerate(np.frombuffer(found.sizes, "<i4").tolist(), start):
            if offset in self._own[index]:
                self._own[index].remove(offset)
            else:
                self._take_in(index, offset, data[at : at + size])
            at += size
            self._scanned[index] = offset + 1
        if not found.count:
            # Nothing can be read there: it is passed, or a start would never end.
            self._scanned[index] = start + 1
        self._loans.note_revive_end(index, self._scanned[index])
        return max(found.count, 1)

    def _say_damaged(self, index: int, offset: int, error: DamagedStoreError) -> None:
        """Once for each stretch of the log: what is behind it is read all the same."""
        if str(error) in self._damage:
            return
        self._damage.add(str(error))
        _LOG.error(
            "revive queue %d of %s cannot be read from offset %d on. What was popped and is named "
            "there alone is not given out again, what was acknowledged there may be: %s",
            *(index, self.topic, offset, error),
        )

    def _take_in(self, index: int, offset: int, record: bytes) -> None:
        """A record that was written before this start, or by a timer."""
        try:
            message = decode_record(record)[0]
            tag = message.properties.get("TAGS")
            if tag == CHECKPOINT_TAG:
                checkpoint = decode_checkpoint(message.body)
                known = self._loans.get(checkpoint.key)
                place = GroupQueue(*checkpoint.key[:3])
                self._found.setdefault(place, set()).update(checkpoint.offsets)
                if known is None and checkpoint.pending:
                    loan = InFlightPop(
                        checkpoint.key,
                        checkpoint.invisible_ms,
                        checkpoint.offsets,
                        end=checkpoint.offsets[-1] + 1,
                        revive_queue=index,
                        settled=checkpoint.acked & ((1 << len(checkpoint.offsets)) - 1),
                    )
                    self._loans.adopt(loan, offset, 0)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = decode_ack(message.body)
                acked = self._loans.get(ack.key)
                if acked is not None:
                    self._loans.settle(acked, acked.bits_of(ack.offsets))
        except ProtocolError as error:
            reason = error.reason if isinstance(error, CorruptRecordError) else error
            _LOG.error(
                "revive queue %d of %s, offset %d is passed over, it cannot be read: %s",
                *(index, self.topic, offset, reason),
            )

    def _pass_found(self) -> None:
        """Let progress pass what is lent already: it is saved less often than checkpoints."""
        for place, offsets in self._found.items():
            queue = QueueId(place.topic, "", place.queue_index)
            start = end = self._progress.get(place.group, queue)
            while end is not None and end in offsets:
                end += 1
            if end is not None and end != start:
                self._progress.commit(place.group, queue, end)
        self._found.clear()

    # --- reviving -----------------------------------------------------------------------------

    def _revive_due(self, now_ms: int) -> None:
        for loan in self._loans.take_due(now_ms, _TURN_LOANS_MAX):
            if loan.place >= 0 and not self._is_read(loan.revive_queue):
                # An acknowledgement may still lie in the records that are not read yet.
                self._loans.wait_until(loan, now_ms)
                continue
            try:
                self._revive(loan, now_ms)
            except (BrokerBusyError, StorageError, CorruptRecordError) as error:
                reason = error.reason if isinstance(error, CorruptRecordError) else error
                seconds = BACKOFF_SECONDS[min(loan.failures, len(BACKOFF_SECONDS) - 1)]
                loan.failures += 1
                self._loans.wait_until(loan, now_ms + seconds * 1_000)
                _LOG.error(
                    "topic=%s group=%s: cannot be revived, again in %d s: %s",
                    *(loan.key.topic, loan.key.group, seconds, reason),
                )

    def _revive(self, loan: InFlightPop, now_ms: int) -> None:
        key = loan.key
        origin = origin_topic_of(key.topic, key.group)
        if self._topics.get(origin) is None or key.group not in self._groups:
            _LOG.warning("topic=%s group=%s is gone: a loan is dropped", key.topic, key.group)
            self._loans.settle(loan, (1 << len(loan.offsets)) - 1)
            return
        unreadable: DamagedStoreError | CorruptRecordError | None = None
        for index, offset in enumerate(loan.offsets):
            if loan.settled >> index & 1:
                continue
            try:
                message = self._message_at(key, offset)
            except (DamagedStoreError, CorruptRecordError) as error:
                # It waits until it is repaired; the others of this pop do not.
                unreadable = error
                continue
            position = 0
            if message is None:
                _LOG.warning(
                    "topic=%s queue=%d offset=%d expired before group %s consumed it",
                    *(key.topic, key.queue_index, offset, key.group),
                )
            else:
                position = self._store_anew(key, origin, message, now_ms)
            self._loans.settle(loan, 1 << index, position)
        if unreadable is not None:
            raise unreadable

    def _message_at(self, key: CheckpointKey, offset: int) -> StoredMessage | None:
        found = self._store.read(
            key.topic, key.queue_index, offset, count_max=1, bytes_max=_SCAN_BYTES_MAX
        )
        if not found.count:
            return None
        # It gets a new checksum where it goes, so this is the last time to compare.
        return decode_record(b"".join(found.parts))[0]

    def _store_anew(
        self, key: CheckpointKey, origin: str, message: StoredMessage, now_ms: int
    ) -> int:
        """Put a message in the group's retry topic, or among its dead letters; the log's end."""
        attempts = message.reconsume_times + 1
        attempts_max = self._groups.retry_limits(key.group)[1]
        properties = dict(message.properties)
        properties.setdefault(FIRST_POP_TIME, str(key.pop_ms))
        if attempts >= attempts_max:
            topic = DEAD_LETTER_PREFIX + key.group
            properties.setdefault(RETRY_TOPIC, origin)
            properties.setdefault(
                ORIGIN_MESSAGE_ID,
                properties.get(UNIQUE_KEY)
                or offset_message_id(message.store_host, message.physical_offset),
            )
        elif key.topic.startswith(RETRY_PREFIX):
            topic = key.topic
        else:
            topic = self._retry_kind.topic_of(origin, key.group)
        self._topics.ensure_group_topic(topic, 1)
        try:
            block = block_again(
                message,
                topic=topic,
                queue_index=0,
                properties=properties,
                store_host=self._store_host,
                reconsume_times=attempts,
            )
        except ProtocolError as error:
            # Its properties have no room left: it goes on without the time of its first pop.
            _LOG.warning("topic=%s: revived without added properties: %s", topic, error)
            block = block_again(
                message,
                topic=topic,
                queue_index=0,
                properties=message.properties,
                store_host=self._store_host,
                reconsume_times=attempts,
            )
        return self._store.append(topic, 0, block, now_ms).end_position

    def _queue(self, index: int) -> QueueId:
        return QueueId(self.topic, "", index)
