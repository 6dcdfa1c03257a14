"""Transactional messages: stored apart, delivered when committed, asked about when nobody ends one.

    half     RMQ_SYS_TRANS_HALF_TOPIC queue 0, with its true topic and queue among its properties
    end      the message in its topic (commit only), then at once a record in
             RMQ_SYS_TRANS_OP_HALF_TOPIC queue 0 whose body names the half's offset: "17,"
    progress of CID_RMQ_SYS_TRANS in both: everything before is settled

All of it is in the log, in RocketMQ's own form, so it survives whatever the log survives. A crash
may keep the message and lose the record behind it. Then that message is the last of its queue and
names the half it came from: the start looks there, and commits nothing twice.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rocketmq_arrow.encode.record_block import block_from_message
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Outcome
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.core.store_again import REAL_QUEUE, REAL_TOPIC, block_again
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.engine.transactions.table import PENDING_MAX, Ended, Half, TransactionTable
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.settings import Appended
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerBusyError, CorruptRecordError, ProtocolError
from rocketmq_wire.model import QueueId, StoredMessage
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import TAGS, UNIQUE_KEY, encode_properties
from rocketmq_wire.records.record import (
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    decode_record,
    encode_record,
)
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.transactions import (
    CHECK_COUNT,
    END_TOPIC,
    HALF_TOPIC,
    PREPARED_OFFSET,
    PRODUCER_GROUP,
    SYSTEM_GROUP,
    UNRESOLVED_TOPIC,
    CheckTransaction,
    EndTransaction,
    Resolution,
    immunity_ms,
)

_LOG = logging.getLogger(__name__)

FILE_NAME: Final = "transactionChecks.json"
_END_TAG: Final = "d"
_HOW_ENDED: Final = "RESOLUTION"
"""A property of our own; RocketMQ reads nothing but the body."""
_ENDINGS: Final = {ended.value: ended for ended in Ended}
_HALVES: Final = QueueId(HALF_TOPIC, "", 0)
_ENDS: Final = QueueId(END_TOPIC, "", 0)
# In one turn, so that a million that are due at once leave the loop its breath.
_CHECKS_A_TURN_MAX: Final = 200
_KNOWN: Final = 10_000
_READ_COUNT_MAX: Final = 1_000
_READ_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """When producers are asked, and how often."""

    first_check_ms: int
    """After its birth, unless the message says otherwise itself (transactionTimeOut)."""
    check_interval_ms: int
    checks_max: int


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """A question for the client behind a connection."""

    peer_key: int
    request: CheckTransaction


class Transactions:
    """The rules, over the log and the producers online."""

    def __init__(
        self,
        limits: TransactionLimits,
        stored_checks: Mapping[str, Any] | None,
        *,
        identity: Identity,
        store: Store,
        topics: Topics,
        clients: Clients,
        progress: Progress,
        waits_for_sync: bool,
    ) -> None:
        self._limits = limits
        self._identity = identity
        self._store = store
        self._topics = topics
        self._clients, self._progress = clients, progress
        self._waits_for_sync = waits_for_sync
        self._table = TransactionTable()
        self._turns = itertools.count()
        self._started_ms: int | None = None
        self._is_changed = False
        self._unwritten: deque[tuple[int, Ended]] = deque()
        self._had_pending = False
        self._load(dict((stored_checks or {}).get("checks") or {}))

    @property
    def pending_count(self) -> int:
        """How many half messages are not ended."""
        return self._table.pending_count

    # --- half messages ------------------------------------------------------------------------

    def halve(
        self, queue: QueueId, properties: Mapping[str, str], group: str
    ) -> tuple[QueueId, dict[str, str]]:
        """Where a half message for `queue` is stored, and with which properties. Refusals: 2."""
        if self.pending_count >= PENDING_MAX:
            raise refusals.too_many_waiting("half messages", PENDING_MAX)
        named = {REAL_TOPIC: queue.topic, REAL_QUEUE: str(queue.index)}
        return QueueId(HALF_TOPIC, queue.broker, 0), {
            PRODUCER_GROUP: group,
            **properties,
            **named,
        }

    def note_half(self, appended: Appended, properties: Mapping[str, str], now_ms: int) -> None:
        """A half message was stored."""
        first_ms = immunity_ms(properties)
        wait_ms = self._limits.first_check_ms if first_ms is None else first_ms
        key = properties.get(UNIQUE_KEY, "")
        half = Half(appended.start, appended.physical_start, key, now_ms + wait_ms)
        self._table.add(half)

    # --- ends ---------------------------------------------------------------------------------

    def end(self, request: EndTransaction, now_ms: int) -> Outcome:
        """Code 37. Refusals: 1, 17, 604."""
        if request.resolution is Resolution.UNKNOWN:
            return Answer(Done())
        if request.half_offset < 0:
            found = self._table.find(request.transaction_id)
            if found is None:
                raise refusals.transaction_missing(request.transaction_id)
            request = replace(request, half_offset=found.offset, position=found.position)
        wanted = Ended.COMMIT if request.resolution is Resolution.COMMIT else Ended.ROLLBACK
        message = self._half_at(request.position, check_crc=wanted is Ended.COMMIT)
        _check_is_meant(message, request)
        half = self._table.get(request.half_offset)
        if half is None:
            return self._answer_again(request.half_offset, wanted)
        immune_ms = immunity_ms(message.properties)
        if immune_ms is not None and not request.is_from_check:
            # As brokers from 5.1 on: from then on only who is asked may answer.
            late_ms = now_ms - message.born_ms - immune_ms
            if late_ms > 0:
                raise refusals.end_too_late(late_ms)
        if wanted is Ended.COMMIT:
            self._deliver(half, message, now_ms)
        self._end(half, wanted)
        self._write_ends(now_ms)
        return self._acknowledged(self._store.appended_end)

    def _answer_again(self, offset: int, wanted: Ended) -> Outcome:
        """The half was ended before: a request that is repeated has the same answer."""
        ended = self._table.how_ended(offset)
        if ended is not wanted:
            raise refusals.already_ended(ended.value if ended is not None else "long ago")
        return self._acknowledged(self._store.appended_end)

    def _half_at(self, position: int, *, check_crc: bool) -> StoredMessage:
        record = self._store.record_at(position)
        try:
            # Committed, it gets a new checksum: this is the last time to compare.
            message = None if record is None else decode_record(record, check_crc=check_crc)[0]
        except CorruptRecordError as error:
            raise refusals.record_damaged(position, error.reason) from error
        if message is None or message.topic != HALF_TOPIC:
            raise refusals.half_missing()
        return message

    def _deliver(self, half: Half, message: StoredMessage, now_ms: int) -> None:
        """Put the message into its topic; what follows in the log says that it is done."""
        topic, index = _target_of(message)
        if self._topics.get(topic) is None:
            raise refusals.topic_missing(topic)
        named = (REAL_TOPIC, REAL_QUEUE, CHECK_COUNT)
        properties = {name: v for name, v in message.properties.items() if name not in named}
        try:
            block = block_again(
                replace(
                    message,
                    sys_flag=message.sys_flag & ~FLAG_TRANSACTION_MASK | FLAG_TRANSACTION_COMMIT,
                ),
                topic=topic,
                queue_index=index,
                properties=properties,
                store_host=self._identity.store_host,
                reconsume_times=message.reconsume_times,
                prepared_offset=half.position,
            )
        except ProtocolError as error:
            raise refusals.message_illegal(f"it cannot be stored again: {error.detail}") from error
        self._store.append(topic, index, block, now_ms)

    def _end(self, half: Half, ended: Ended) -> None:
        """From here on it is ended, even if the disk refuses the record that says so for now."""
        self._table.end(half, ended)
        self._unwritten.append((half.offset, ended))
        self._is_changed = self._is_changed or half.checks > 0

    def _write_ends(self, now_ms: int) -> None:
        """Store the records of what has ended."""
        while self._unwritten:
            offset, ended = self._unwritten[0]
            block = block_from_message(
                topic=END_TOPIC,
                queue_index=0,
                body=f"{offset},".encode(),
                properties=encode_properties({TAGS: _END_TAG, _HOW_ENDED: ended.value}),
                flag=0,
                sys_flag=0,
                born_ms=now_ms,
                born_host=self._identity.store_host,
                store_host=self._identity.store_host,
            )
            appended = self._store.append(END_TOPIC, 0, block, now_ms)
            self._unwritten.popleft()
            self._table.note_record(
                offset, end_offset=appended.start, end_position=appended.end_position
            )

    def _acknowledged(self, position: int) -> Outcome:
        return AfterSync(Done(), position) if self._waits_for_sync else Answer(Done())

    # --- checks -------------------------------------------------------------------------------

    def take_checks(self, now_ms: int) -> tuple[list[ClientCheck], bool]:
        """Whom to ask now about which half messages, and whether the log grew."""
        if self._started_ms is None:
            # After a start the producers have to find their broker again first, as in RocketMQ.
            self._started_ms = now_ms
        checks, before = [], self._store.appended_end
        self._write_ends(now_ms)
        if now_ms < self._started_ms + self._limits.check_interval_ms and self._had_pending:
            return [], self._store.appended_end > before
        for half in self._table.take_due(now_ms, _CHECKS_A_TURN_MAX):
            try:
                check = self._check_due(half, now_ms)
            except (BrokerBusyError, StorageError, CorruptRecordError) as error:
                # The others of this turn are taken off what is due: they must not suffer by it.
                self._table.postpone(half, now_ms + self._limits.check_interval_ms)
                reason = error.reason if isinstance(error, CorruptRecordError) else error
                _LOG.error(
                    "half message %s, offset=%d of %s: nobody can be asked about it now: %s",
                    *(half.key, half.offset, HALF_TOPIC, reason),
                )
                continue
            if check is not None:
                checks.append(check)
        return checks, self._store.appended_end > before

    def _check_due(self, half: Half, now_ms: int) -> ClientCheck | None:
        """What to ask about a half message that is due, if there is whom to ask."""
        record = self._store.record_at(half.position)
        if record is None:
            if half.position < self._store.log_start:
                _LOG.error("half message %s expired before it was ended", half.key)
                self._table.forget(half)
            else:
                # Not durable yet.
                self._table.postpone(half, now_ms + 1_000)
            return None
        # Who is asked gets it with a new checksum, and so does where it may be moved.
        message = decode_record(bytes(record))[0]
        if half.checks >= self._limits.checks_max:
            self._give_up(half, message, now_ms)
            return None
        half.checks += 1
        self._is_changed = True
        self._table.postpone(half, now_ms + self._limits.check_interval_ms)
        return self._check_of(half, message)

    def _check_of(self, half: Half, message: StoredMessage) -> ClientCheck | None:
        group = message.properties.get(PRODUCER_GROUP, "")
        peers = self._clients.producer_peers(group)
        if not peers:
            _LOG.warning("group=%s: no producer online to ask about %s", group, half.key)
            return None
        topic, index = _target_of(message)
        properties = {**message.properties, CHECK_COUNT: str(half.checks)}
        restored = replace(message, topic=topic, queue_index=index, properties=properties)
        request = CheckTransaction(
            half.offset,
            half.position,
            encode_record(restored),
            topic=topic,
            message_id=half.key,
            transaction_id=half.key,
            offset_message_id=offset_message_id(message.store_host, half.position),
            broker=self._identity.broker_name,
        )
        return ClientCheck(peers[next(self._turns) % len(peers)], request)

    def _give_up(self, half: Half, message: StoredMessage, now_ms: int) -> None:
        """Nobody says what became of it: it goes where people can look for it."""
        _LOG.error(
            "half message %s for topic=%s was asked about %d times in vain: moved to %s",
            half.key,
            message.properties.get(REAL_TOPIC),
            half.checks,
            UNRESOLVED_TOPIC,
        )
        self._topics.ensure_group_topic(UNRESOLVED_TOPIC, 1)
        block = block_again(
            message,
            topic=UNRESOLVED_TOPIC,
            queue_index=0,
            properties=message.properties,
            store_host=self._identity.store_host,
            reconsume_times=message.reconsume_times,
        )
        self._store.append(UNRESOLVED_TOPIC, 0, block, now_ms)
        self._end(half, Ended.UNRESOLVED)
        self._write_ends(now_ms)

    # --- what is kept -------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring the progress in both topics to what is durable."""
        starts = self._table.settle(self._store.durable_end)
        for queue, start in zip((_HALVES, _ENDS), starts, strict=True):
            if start and self._progress.get(SYSTEM_GROUP, queue) != start:
                self._progress.commit(SYSTEM_GROUP, queue, start)

    def take_changes(self) -> dict[str, Any] | None:
        """How often was asked about what is pending; None if nothing is new."""
        if not self._is_changed:
            return None
        self._is_changed = False
        checks = {str(half.offset): half.checks for half in self._table.pending() if half.checks}
        return {"checks": checks}

    def put_back(self) -> None:
        """What was taken could not be saved: it is to be taken again."""
        self._is_changed = True

    def _load(self, checks: dict[str, Any]) -> None:
        """Find out from the log what is pending."""
        table, store = self._table, self._store
        ended: set[int] = set()
        ends = store.bounds(END_TOPIC, 0)
        settled = self._start_of(_ENDS)
        # Of the last ones it is to be known how they ended, settled or not.
        # Which half is named stands in a body: a wrong one would end a half that nobody ended.
        first_end = max(min(settled, ends.end - _KNOWN), ends.start)
        for message in self._read(END_TOPIC, 0, first_end, check_crc=True):
            # RocketMQ's own records do not say how.
            how = _ENDINGS.get(message.properties.get(_HOW_ENDED, ""))
            for text in message.body.decode("ascii", "replace").split(","):
                if text.isascii() and text.isdecimal():
                    if message.queue_offset >= settled:
                        ended.add(int(text))
                        table.note_read(int(text), message.queue_offset)
                    if how is not None:
                        table.remember(int(text), how)
        table.begin(store.bounds(HALF_TOPIC, 0).end, ends.end)
        targets: set[tuple[str, int]] = set()
        for message in self._read(HALF_TOPIC, 0, self._start_of(_HALVES)):
            properties = message.properties
            first = properties.get(PREPARED_OFFSET, "")
            if message.queue_offset in ended or (first.isdecimal() and int(first) in ended):
                continue
            count = checks.get(str(message.queue_offset), properties.get(CHECK_COUNT, "0"))
            first_ms = immunity_ms(properties)
            wait_ms = self._limits.first_check_ms if first_ms is None else first_ms
            table.add(
                Half(
                    message.queue_offset,
                    message.physical_offset,
                    properties.get(UNIQUE_KEY, ""),
                    message.store_ms + wait_ms,
                    int(count) if str(count).isdecimal() else 0,
                )
            )
            targets.add(_target_of(message))
        self._had_pending = table.pending_count > 0
        self._repair(targets)

    def _repair(self, targets: set[tuple[str, int]]) -> None:
        """Store the end's record of what was committed last, should a crash have taken it."""
        by_position = {half.position: half for half in self._table.pending()}
        for topic, index in sorted(targets):
            end = self._store.bounds(topic, index).end
            for message in self._read(topic, index, max(end - 1, 0)):
                half = by_position.get(message.prepared_transaction_offset)
                if (
                    half is not None
                    and message.sys_flag & FLAG_TRANSACTION_MASK == FLAG_TRANSACTION_COMMIT
                ):
                    _LOG.info("half message %s was committed before the crash", half.key)
                    self._end(half, Ended.COMMIT)
        # The store's own time is later than 0, and what counts.
        self._write_ends(0)

    def _start_of(self, queue: QueueId) -> int:
        """Where what is not settled begins."""
        start = self._store.bounds(queue.topic, queue.index).start
        return max(self._progress.get(SYSTEM_GROUP, queue) or 0, start)

    def _read(
        self, topic: str, index: int, start: int, *, check_crc: bool = False
    ) -> Iterator[StoredMessage]:
        """The records of a queue; those that cannot be read are told of and passed over."""
        while True:
            found = self._store.read(
                topic, index, start, count_max=_READ_COUNT_MAX, bytes_max=_READ_BYTES_MAX
            )
            if not found.count and not found.lost:
                return
            data, at = b"".join(found.parts), 0
            for size in np.frombuffer(found.sizes, "<i4").tolist():
                try:
                    yield decode_record(data[at : at + size], check_crc=check_crc)[0]
                except CorruptRecordError as error:
                    _LOG.error(
                        "%s queue %d, from offset %d: a record cannot be read and is passed "
                        "over: %s",
                        *(topic, index, start, error.reason),
                    )
                at += size
            start = found.next_begin


def _target_of(message: StoredMessage) -> tuple[str, int]:
    index = message.properties.get(REAL_QUEUE, "0")
    return message.properties.get(REAL_TOPIC, ""), int(index) if index.isdecimal() else 0


def _check_is_meant(message: StoredMessage, request: EndTransaction) -> None:
    """Raises the refusal (1) of a request that means another message, in RocketMQ's words."""
    if message.properties.get(PRODUCER_GROUP) != request.group:
        raise refusals.end_illegal("The producer group wrong")
    if message.queue_offset != request.half_offset:
        raise refusals.end_illegal("The transaction state table offset wrong")
    if message.physical_offset != request.position:
        raise refusals.end_illegal("The commit log offset wrong")
