"""Half messages: stored apart, delivered by their commit, and checked with their producer.

    half     RMQ_SYS_TRANS_HALF_TOPIC queue 0; the properties name the message's topic and queue
    end      the message in its topic (commit only), directly followed by a record in
             RMQ_SYS_TRANS_OP_HALF_TOPIC queue 0 whose body is the half's offset: "17,"
    committed offsets of CID_RMQ_SYS_TRANS in both topics: everything before is ended

All of it is in the log, in RocketMQ's own form, so it survives whatever the log survives. A crash
may keep the committed message and lose the end record behind it. Then that message is the last of
its queue and names its half: the start reads it there, and commits no half message twice.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import DONE, Outcome, Peer
from rocketmq_broker.engine.messages.store_again import (
    REAL_QUEUE,
    REAL_TOPIC,
    message_at,
    records_in,
    store_again,
    store_own,
)
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.engine.transactions.table import (
    PENDING_MAX,
    Ended,
    HalfMessage,
    TransactionTable,
)
from rocketmq_broker.storage.settings import Appended
from rocketmq_wire.errors import CorruptRecordError, ProtocolError
from rocketmq_wire.model import QueueId, StoredMessage
from rocketmq_wire.numbers import QUEUE_DIGITS_MAX, whole_number
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import TAGS, UNIQUE_KEY
from rocketmq_wire.records.record import (
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    decode_record,
    encode_record,
)
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.permissions import PUBLISH, resources_of
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

CHECKS_FILE: Final = "transactionChecks.json"
_END_TAG: Final = "d"
_HOW_ENDED: Final = "RESOLUTION"
"""A property of this broker's own; RocketMQ reads only the body."""
_ENDINGS: Final = {ended.value: ended for ended in Ended}
_HALF_QUEUE: Final = QueueId(HALF_TOPIC, "", 0)
_END_QUEUE: Final = QueueId(END_TOPIC, "", 0)
# In one turn, so that a million due checks do not block the loop.
_CHECKS_A_TURN_MAX: Final = 200
_KNOWN: Final = 10_000
_OWN_PROPERTIES: Final = frozenset({PREPARED_OFFSET, CHECK_COUNT})
"""The broker's own notes in half messages; a client's are not stored."""
_READ_COUNT_MAX: Final = 1_000
_READ_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """A check to be sent over a client's connection."""

    peer_key: int
    request: CheckTransaction


class Transactions:
    def __init__(self, tables: Tables) -> None:
        self._config = tables.config
        self._tables = tables
        self._store = tables.store
        ends = [self._store.bounds(queue.topic, 0).end for queue in (_HALF_QUEUE, _END_QUEUE)]
        self._table = TransactionTable(*ends)
        self._next_peer = itertools.count()
        self._started_ms: int | None = None
        self._is_changed = False
        self._unwritten: deque[tuple[int, Ended]] = deque()
        self._had_pending = False
        stored: Mapping[str, Any] = self._store.configs.load(CHECKS_FILE)
        self._load(dict(stored.get("checks") or {}))

    @property
    def pending_count(self) -> int:
        return self._table.pending_count

    # --- half messages ------------------------------------------------------------------------

    def prepare(
        self, queue: QueueId, properties: Mapping[str, str], group: str
    ) -> tuple[QueueId, dict[str, str]]:
        """The queue that stores a half message for `queue`, and its properties. Refusals: 2."""
        if self.pending_count >= PENDING_MAX:
            raise refusals.too_many_waiting(PENDING_MAX, "half messages")
        target = {REAL_TOPIC: queue.topic, REAL_QUEUE: str(queue.index)}
        sent = {name: value for name, value in properties.items() if name not in _OWN_PROPERTIES}
        return QueueId(HALF_TOPIC, queue.broker, 0), {PRODUCER_GROUP: group, **sent, **target}

    def note_half(self, appended: Appended, properties: Mapping[str, str], now_ms: int) -> None:
        key = properties.get(UNIQUE_KEY, "")
        due_ms = self._first_check_at(now_ms, properties)
        self._table.add(HalfMessage(appended.start, appended.physical_start, key, due_ms))

    def _first_check_at(self, stored_ms: int, properties: Mapping[str, str]) -> int:
        own_ms = immunity_ms(properties)
        return stored_ms + (self._config.transaction_timeout_ms if own_ms is None else own_ms)

    # --- ends ---------------------------------------------------------------------------------

    def end(self, request: EndTransaction, peer: Peer, now_ms: int) -> Outcome:
        """Code 37. Refusals: 1, 16, 17, 604."""
        if request.resolution is Resolution.UNKNOWN:
            return DONE
        if request.half_offset < 0:
            found = self._table.find(request.transaction_id)
            if found is None:
                raise refusals.transaction_missing(request.transaction_id)
            request = replace(request, half_offset=found.offset, position=found.position)
        wanted = Ended.COMMIT if request.resolution is Resolution.COMMIT else Ended.ROLLBACK
        # The committed message gets a new checksum, so compare the old one now.
        message = message_at(self._store, request.position, check_crc=wanted is Ended.COMMIT)
        if message is None or message.topic != HALF_TOPIC:
            raise refusals.half_missing()
        peer.require(PUBLISH, _target_of(message)[0])
        _check_is_meant(message, request)
        half = self._table.get(request.half_offset)
        if half is None:
            # A repeated request gets the answer of the first one.
            ended = self._table.how_ended(request.half_offset)
            if ended is not wanted:
                raise refusals.already_ended(ended.value if ended is not None else "long ago")
            return self._tables.acknowledge(Done(), self._store.appended_end)
        if half.position != request.position:
            # Another message's body contains the bytes of a half message.
            raise refusals.half_missing()
        immune_ms = immunity_ms(message.properties)
        if immune_ms is not None and not request.is_from_check:
            # As brokers from 5.1 on: after this time only a checked producer may end the message.
            late_ms = now_ms - self._tables.ahead_ms() - message.born_ms - immune_ms
            if late_ms > 0:
                raise refusals.end_too_late(late_ms)
        if wanted is Ended.COMMIT:
            self._deliver(half, message, now_ms)
        self._end(half, wanted)
        self._write_ends(now_ms)
        return self._tables.acknowledge(Done(), self._store.appended_end)

    def _deliver(self, half: HalfMessage, message: StoredMessage, now_ms: int) -> None:
        """Store the message in its topic; the end record follows directly in the log."""
        topic, index = _target_of(message)
        if self._tables.topics.get(topic) is None:
            raise refusals.topic_missing(topic)
        own = (REAL_TOPIC, REAL_QUEUE, CHECK_COUNT)
        properties = {name: v for name, v in message.properties.items() if name not in own}
        try:
            store_again(
                replace(
                    message,
                    sys_flag=message.sys_flag & ~FLAG_TRANSACTION_MASK | FLAG_TRANSACTION_COMMIT,
                ),
                now_ms,
                self._tables,
                QueueId(topic, "", index),
                properties,
                prepared_offset=half.position,
            )
        except ProtocolError as error:
            raise refusals.message_illegal(f"it cannot be stored again: {error.detail}") from error

    def _end(self, half: HalfMessage, ended: Ended) -> None:
        """End a half message at once, even if the disk refuses the end record for now."""
        self._table.end(half, ended)
        self._unwritten.append((half.offset, ended))
        self._is_changed = self._is_changed or half.checks > 0

    def _write_ends(self, now_ms: int) -> None:
        """Store the end records that are due."""
        while self._unwritten:
            offset, ended = self._unwritten[0]
            properties = {TAGS: _END_TAG, _HOW_ENDED: ended.value}
            body = f"{offset},".encode()
            appended = store_own(body, now_ms, self._tables, _END_QUEUE, properties)
            self._unwritten.popleft()
            self._table.note_record(
                offset, end_offset=appended.start, end_position=appended.end_position
            )

    # --- checks -------------------------------------------------------------------------------

    def take_checks(self, now_ms: int) -> tuple[list[ClientCheck], bool]:
        """The checks that are due, and whether the log grew."""
        if self._started_ms is None:
            # As in RocketMQ, producers get time to reconnect after a start.
            self._started_ms = now_ms
        checks, before = [], self._store.appended_end
        self._write_ends(now_ms)
        if (
            now_ms < self._started_ms + self._config.transaction_check_interval_ms
            and self._had_pending
        ):
            return [], self._store.appended_end > before
        for half in self._table.take_due(now_ms, _CHECKS_A_TURN_MAX):
            try:
                check = self._check_due(half, now_ms)
            except Exception as error:  # noqa: BLE001 - one message must not stop the others
                # `take_due` removed the others of this turn already, so go through them all.
                self._table.postpone(half, now_ms + self._config.transaction_check_interval_ms)
                reason = error.reason if isinstance(error, CorruptRecordError) else error
                _LOG.error(
                    "half message %s, offset=%d of %s cannot be checked now: %s",
                    half.key,
                    half.offset,
                    HALF_TOPIC,
                    reason,
                )
                continue
            if check is not None:
                checks.append(check)
        return checks, self._store.appended_end > before

    def _check_due(self, half: HalfMessage, now_ms: int) -> ClientCheck | None:
        """The check of a due half message; None if there is none to send now."""
        record = self._store.record_at(half.position)
        if record is None:
            if half.position < self._store.log_start:
                _LOG.error("half message %s expired before it was ended", half.key)
                self._table.forget(half)
            else:
                # Not durable yet.
                self._table.postpone(half, now_ms + 1_000)
            return None
        # The check and the moved message get a new checksum, so compare the old one now.
        message = decode_record(bytes(record))[0]
        if half.checks >= self._config.transaction_check_max:
            self._give_up(half, message, now_ms)
            return None
        half.checks += 1
        self._is_changed = True
        self._table.postpone(half, now_ms + self._config.transaction_check_interval_ms)
        return self._check_of(half, message)

    def _check_of(self, half: HalfMessage, message: StoredMessage) -> ClientCheck | None:
        group = message.properties.get(PRODUCER_GROUP, "")
        topic, index = _target_of(message)
        # A client may name any producer group, and a check contains the message.
        wanted = PUBLISH.on(resources_of((topic,)))
        peers = self._tables.clients.producer_peers(group, wanted)
        if not peers:
            _LOG.warning("group=%s: no producer online to check half message %s", group, half.key)
            return None
        properties = {**message.properties, CHECK_COUNT: str(half.checks)}
        original = replace(message, topic=topic, queue_index=index, properties=properties)
        request = CheckTransaction(
            half.offset,
            half.position,
            encode_record(original),
            topic=topic,
            message_id=half.key,
            transaction_id=half.key,
            offset_message_id=offset_message_id(message.store_host, half.position),
            broker=self._tables.identity.broker_name,
        )
        return ClientCheck(peers[next(self._next_peer) % len(peers)], request)

    def _give_up(self, half: HalfMessage, message: StoredMessage, now_ms: int) -> None:
        """Move a half message that no producer decides to a topic where people find it."""
        _LOG.error(
            "half message %s for topic=%s: %d checks brought no decision: moved to %s",
            half.key,
            message.properties.get(REAL_TOPIC),
            half.checks,
            UNRESOLVED_TOPIC,
        )
        self._tables.topics.ensure_group_topic(UNRESOLVED_TOPIC, 1)
        queue = QueueId(UNRESOLVED_TOPIC, "", 0)
        store_again(message, now_ms, self._tables, queue, message.properties)
        self._end(half, Ended.UNRESOLVED)
        self._write_ends(now_ms)

    # --- the saved state ----------------------------------------------------------------------

    def commit_offsets(self) -> None:
        """Move the committed offsets in both topics up to the durable ends."""
        committed = self._tables.committed
        starts = self._table.restart_offsets(self._store.durable_end)
        for queue, start in zip((_HALF_QUEUE, _END_QUEUE), starts, strict=True):
            if start and committed.get(SYSTEM_GROUP, queue) != start:
                committed.commit(SYSTEM_GROUP, queue, start)

    def take_changes(self) -> dict[str, Any] | None:
        """The number of checks of pending half messages; None if nothing changed."""
        if not self._is_changed:
            return None
        self._is_changed = False
        checks = {str(half.offset): half.checks for half in self._table.pending() if half.checks}
        return {"checks": checks}

    def _load(self, checks: dict[str, Any]) -> None:
        """Read the pending half messages from the log."""
        table, store = self._table, self._store
        ended: set[int] = set()
        ends = store.bounds(END_TOPIC, 0)
        end_start = self._start_of(_END_QUEUE)
        # Earlier ends are read, too, to answer repeated requests.
        # The body names the half message: a damaged body would end another one, so check its CRC.
        first_end = max(min(end_start, ends.end - _KNOWN), ends.start)
        for message in self._read(END_TOPIC, 0, first_end, check_crc=True):
            # Records of RocketMQ do not contain how it ended.
            how = _ENDINGS.get(message.properties.get(_HOW_ENDED, ""))
            for text in message.body.decode("ascii", "replace").split(","):
                offset = whole_number(text)
                if offset is None:
                    continue
                if message.queue_offset >= end_start:
                    ended.add(offset)
                    table.note_read(offset, message.queue_offset)
                if how is not None:
                    table.remember(offset, how)
        targets: set[tuple[str, int]] = set()
        for message in self._read(HALF_TOPIC, 0, self._start_of(_HALF_QUEUE)):
            properties = message.properties
            if {message.queue_offset, whole_number(properties.get(PREPARED_OFFSET))} & ended:
                continue
            count = checks.get(str(message.queue_offset), properties.get(CHECK_COUNT, "0"))
            table.add(
                HalfMessage(
                    message.queue_offset,
                    message.physical_offset,
                    properties.get(UNIQUE_KEY, ""),
                    self._first_check_at(message.store_ms, properties),
                    whole_number(str(count)) or 0,
                )
            )
            targets.add(_target_of(message))
        self._had_pending = table.pending_count > 0
        self._repair(targets)

    def _repair(self, targets: set[tuple[str, int]]) -> None:
        """Store the end records that a crash lost behind the last committed messages."""
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
        # The store raises 0 to its own latest time.
        self._write_ends(0)

    def _start_of(self, queue: QueueId) -> int:
        """The committed offset in one of the two queues, within its bounds."""
        start = self._store.bounds(queue.topic, queue.index).start
        return max(self._tables.committed.get(SYSTEM_GROUP, queue) or 0, start)

    def _read(
        self, topic: str, index: int, start: int, *, check_crc: bool = False
    ) -> Iterator[StoredMessage]:
        """The records of a queue; damaged ones are logged and skipped."""
        while True:
            found = self._store.read(
                topic, index, start, count_max=_READ_COUNT_MAX, bytes_max=_READ_BYTES_MAX
            )
            if not found.count and not found.lost:
                return
            where = f"{topic} queue {index}, from offset {start}"
            for record in records_in(found):
                message = _decoded(record, where, check_crc)
                if message is not None:
                    yield message
            start = found.next_begin


def _decoded(record: bytes, where: str, check_crc: bool) -> StoredMessage | None:
    try:
        return decode_record(record, check_crc=check_crc)[0]
    except CorruptRecordError as error:
        _LOG.error("%s: a record cannot be read and is passed over: %s", where, error.reason)
        return None


def _target_of(message: StoredMessage) -> tuple[str, int]:
    index = whole_number(message.properties.get(REAL_QUEUE), digits_max=QUEUE_DIGITS_MAX)
    return message.properties.get(REAL_TOPIC, ""), index or 0


def _check_is_meant(message: StoredMessage, request: EndTransaction) -> None:
    """Refuse (1), in RocketMQ's words, a request that names another message."""
    if message.properties.get(PRODUCER_GROUP) != request.group:
        raise refusals.end_illegal("The producer group wrong")
    if message.queue_offset != request.half_offset:
        raise refusals.end_illegal("The transaction state table offset wrong")
    if message.physical_offset != request.position:
        raise refusals.end_illegal("The commit log offset wrong")
