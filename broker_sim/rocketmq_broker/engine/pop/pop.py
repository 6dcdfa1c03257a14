"""Pops: which queues one reads, which messages it takes, and when it waits instead.

PEEK_MESSAGE and NOTIFICATION look at the same queues and change nothing.

A pop reads the group's retry topic first (one pop in five) or last, and in between the queue that
it names, or all queues of the topic, each time beginning with another one. The broker's loop is one
thread, so no two pops read a queue at once.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np

from rocketmq_arrow.decode.layout import QUEUE_OFFSET_AT
from rocketmq_broker.engine.core.activity import Activity
from rocketmq_broker.engine.core.outcomes import Answer, HoldPop, Outcome
from rocketmq_broker.engine.messages.filtering import (
    EVERYTHING,
    Filter,
    filter_of,
    read_matching,
    selector_scan_max,
)
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPop
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import CorruptRecordError, broker_error
from rocketmq_wire.model import Buffer, TopicConfig
from rocketmq_wire.plural import plural
from rocketmq_wire.records.handles import (
    ORDERLY_REVIVE_QUEUE,
    RECEIPT,
    ReceiptHandle,
    RetryKind,
    retry_kind_of,
)
from rocketmq_wire.records.pop_checkpoints import REVIVE_QUEUE_COUNT, CheckpointKey
from rocketmq_wire.records.record import decode_record, encode_record
from rocketmq_wire.requests.pop import (
    POP_COUNT_MAX,
    AwaitMessages,
    AwaitMessagesReply,
    PeekMessages,
    PopMessages,
    PoppedSpan,
    PopReply,
    PopStatus,
)

_LOG = logging.getLogger(__name__)

RETRY_TURN: Final = 5
"""Every fifth pop reads the retry topic first, so that retries cannot starve."""
IN_FLIGHT_MAX: Final = 200_000
"""The most pops in flight; beyond it pops find nothing until some are acknowledged."""
_LATE_MS: Final = 500
_LOGGED_MAX: Final = 1_000
_OFFSET: Final = struct.Struct(">q")
_CRC_AT: Final = slice(8, 12)
_SCAN_MAX: Final = 800
_Waiting = TypeVar("_Waiting", PopMessages, AwaitMessages)


@dataclass(frozen=True, slots=True)
class Found:
    """The matching messages of a queue from an offset on."""

    parts: tuple[Buffer, ...]
    sizes: bytes
    offsets: tuple[int, ...]
    end: int
    """The offset behind the last examined entry."""


@dataclass(slots=True)
class _Pop:
    """One pop: its request, the messages that it took so far, and its remaining limits."""

    request: PopMessages
    wanted: Filter
    revive_queue: int
    now_ms: int
    count_left: int
    bytes_left: int
    scan_left: int
    """Records to examine, over all queues."""
    spans: list[PoppedSpan] = field(default_factory=list)
    parts: list[Buffer] = field(default_factory=list)
    sizes: list[bytes] = field(default_factory=list)
    rest_count: int = 0
    damage: Exception | None = None
    """The reason why a queue could not be read."""

    def add(self, span: PoppedSpan, found: Found) -> None:
        self.spans.append(span)
        self.parts += found.parts
        self.sizes.append(found.sizes)
        self.count_left -= len(span.offsets)
        self.bytes_left -= sum(map(len, found.parts))

    def reply(self, otherwise: PopStatus) -> PopReply:
        """The reply; `otherwise` is its status without messages."""
        return PopReply(
            PopStatus.FOUND if self.spans else otherwise,
            self.now_ms,
            self.request.invisible_ms,
            self.revive_queue,
            self.rest_count,
            tuple(self.spans),
            tuple(self.parts),
            b"".join(self.sizes),
            remark="FOUND" if self.spans else "NO_MESSAGE_IN_QUEUE",
        )


class Popping:
    def __init__(self, tables: Tables, cursors: Cursors, activity: Activity) -> None:
        self._config = tables.config
        self._tables = tables
        self._activity = activity
        self._broker_name = tables.identity.broker_name
        self._cursors = cursors
        self._in_flight = cursors.in_flight
        self._orderly = cursors.orderly
        self._logged: set[str] = set()
        """The damages that were logged."""
        self._pop_counts: dict[tuple[str, str], int] = {}
        self._next_revive_queue = itertools.count()

    def pop(self, request: PopMessages, now_ms: int, *, is_final: bool = False) -> Outcome:
        """Take messages, or hold the request. Refusals: 1, 16, 17, 23, 26, 29."""
        wall_ms = now_ms - self._tables.ahead_ms()
        request = _born(request, wall_ms)
        if wall_ms - request.born_ms - request.poll_ms > _LATE_MS:
            self._activity.pulled_messages(0, 0, now_ms)
            return Answer(PopReply(PopStatus.POLLING_TIMEOUT, remark="it came too late"))
        if request.count_max > POP_COUNT_MAX:
            raise broker_error(
                ResponseCode.INVALID_PARAMETER,
                f"pop message's num is greater than {POP_COUNT_MAX}: {request.count_max}",
            )
        config = self._cursors.require_poppable(request.queue, request.group)
        allows_sql = self._config.property_filter
        wanted = filter_of(request.subscription, allows_sql=allows_sql, is_strict=True)
        revive_queue = ORDERLY_REVIVE_QUEUE
        if not request.is_orderly:
            revive_queue = next(self._next_revive_queue) % REVIVE_QUEUE_COUNT
        count_max = max(request.count_max, 0)
        bytes_max = self._config.transfer_bytes_max
        scan_max = selector_scan_max(wanted)
        pop = _Pop(request, wanted, revive_queue, now_ms, count_max, bytes_max, scan_max)
        if count_max > 0:
            for queue, kind in self._queues(pop, config):
                self._pop_queue(pop, queue, kind)
        if pop.spans:
            self._cursors.save_starts()
        if pop.damage is not None and not pop.spans:
            raise pop.damage
        hold = self._hold(request, now_ms)
        if not pop.spans and count_max > 0 and not is_final and hold is not None:
            return hold
        for span, sizes in zip(pop.spans, pop.sizes, strict=True):
            topic = span.retry.topic_of(request.queue.topic, request.group)
            size = int(np.frombuffer(sizes, "<i4").sum())
            self._activity.given_to(request.group, topic, len(span.offsets), size, now_ms)
        count = sum(len(span.offsets) for span in pop.spans)
        self._activity.pulled_messages(count, bytes_max - pop.bytes_left, now_ms)
        return Answer(pop.reply(PopStatus.POLLING_TIMEOUT))

    def peek(self, request: PeekMessages, now_ms: int) -> Outcome:
        """Return messages that stay visible. Refusals: 16, 17, 26, 29."""
        config = self._cursors.require_poppable(request.queue, request.group)
        count_max = min(max(request.count_max, 1), POP_COUNT_MAX)
        shown = PopMessages(request.group, request.queue, count_max, invisible_ms=0)
        bytes_max = self._config.transfer_bytes_max
        pop = _Pop(shown, EVERYTHING, 0, now_ms, count_max, bytes_max, 1)
        for queue in self._cursors.queues_of(config, request.queue, request.group):
            bounds = self._cursors.bounds(queue)
            start = max(self._cursors.peek_begin(queue), bounds.start)
            if pop.count_left < 1 or start >= bounds.end:
                pop.rest_count += max(bounds.end - start, 0)
                continue
            found = read_queue(
                self._tables.store,
                queue,
                start,
                wanted=EVERYTHING,
                count_max=pop.count_left,
                bytes_max=bytes_max,
                scan_max=_SCAN_MAX,
            )
            kind = retry_kind_of(queue.topic)
            pop.add(PoppedSpan(kind, queue.queue_index, start, found.offsets), found)
            pop.rest_count += bounds.end - found.end
        return Answer(pop.reply(PopStatus.NOT_FOUND))

    def await_messages(
        self, request: AwaitMessages, now_ms: int, *, is_final: bool = False
    ) -> Outcome:
        """Answer whether a pop would find messages, or hold the request until one would."""
        request = _born(request, now_ms - self._tables.ahead_ms())
        config = self._cursors.require_poppable(request.queue, request.group)
        for queue in self._cursors.queues_of(config, request.queue, request.group):
            is_blocked = request.is_orderly and self._orderly.is_blocked(
                queue, request.attempt_id, now_ms
            )
            if not is_blocked and self._cursors.peek_begin(queue) < self._cursors.bounds(queue).end:
                return Answer(AwaitMessagesReply(has_message=True))
        hold = None if is_final else self._hold(request, now_ms)
        return hold or Answer(AwaitMessagesReply(has_message=False))

    def resume(self, hold: HoldPop, now_ms: int, *, is_final: bool) -> Outcome:
        """Decide again about a held request: messages came, or its time is over (`is_final`)."""
        if isinstance(hold.request, AwaitMessages):
            return self.await_messages(hold.request, now_ms, is_final=is_final)
        return self.pop(hold.request, now_ms, is_final=is_final)

    def _hold(self, request: PopMessages | AwaitMessages, now_ms: int) -> HoldPop | None:
        """The request as one that waits for messages; None if its time is over."""
        poll_ms = min(request.poll_ms, self._config.longest_hold_ms)
        expires_at_ms = request.born_ms + self._tables.ahead_ms() + poll_ms
        if expires_at_ms <= now_ms:
            return None
        return HoldPop(request.group, request.queue, expires_at_ms, request)

    def polling_full(self, hold: HoldPop, now_ms: int) -> PopReply | AwaitMessagesReply:
        """The reply to a request that cannot wait because too many wait already."""
        if isinstance(hold.request, AwaitMessages):
            return AwaitMessagesReply(has_message=False, is_polling_full=True)
        invisible_ms = hold.request.invisible_ms
        return PopReply(PopStatus.POLLING_FULL, now_ms, invisible_ms, remark="NO_MESSAGE_IN_QUEUE")

    def _queues(self, pop: _Pop, config: TopicConfig) -> Iterator[tuple[GroupQueue, RetryKind]]:
        """The queues that a pop reads, in order."""
        request, group = pop.request, pop.request.group
        pop_count = self._count_pop(group, config.name)
        is_retry_first = pop_count % RETRY_TURN == 0 and not request.is_orderly
        if is_retry_first:
            yield from self._retry_queues(config.name, group, pop_count)
        if request.queue.index >= 0:
            yield GroupQueue(config.name, group, request.queue.index), RetryKind.NONE
        else:
            count = config.read_queue_count
            for index in range(pop_count, pop_count + count):
                yield GroupQueue(config.name, group, index % count), RetryKind.NONE
        if not is_retry_first and not request.is_orderly and pop.count_left > 0:
            yield from self._retry_queues(config.name, group, pop_count)

    def _retry_queues(
        self, topic: str, group: str, pop_count: int
    ) -> Iterator[tuple[GroupQueue, RetryKind]]:
        kind = self._cursors.retry_kind
        if kind is RetryKind.V2 and pop_count % 2:
            # With new names, every second pop drains the old retry topic.
            kind = RetryKind.V1
        retries = self._tables.topics.get(kind.topic_of(topic, group))
        count = retries.read_queue_count if retries is not None else 0
        first = pop_count // RETRY_TURN
        for index in range(first, first + count):
            yield GroupQueue(kind.topic_of(topic, group), group, index % count), kind

    def _pop_queue(self, pop: _Pop, queue: GroupQueue, kind: RetryKind) -> None:
        """Read a queue; if it is damaged, log it once and pop the other queues.

        If the pop failed as a whole, the client would not get the messages already popped for it.
        """
        try:
            self._read_queue(pop, queue, kind)
        except (DamagedStoreError, CorruptRecordError) as error:
            text = f"topic={queue.topic} queue={queue.queue_index}: pops cannot read it: {error}"
            if text not in self._logged and len(self._logged) < _LOGGED_MAX:
                self._logged.add(text)
                _LOG.error("%s", text)
            pop.damage = error

    def _read_queue(self, pop: _Pop, queue: GroupQueue, kind: RetryKind) -> None:
        request = pop.request
        start, end = self._cursors.begin(queue, request.init_mode)
        if request.is_orderly and self._orderly.is_blocked(queue, request.attempt_id, pop.now_ms):
            pop.rest_count += max(end - start, 0)
            return
        key = CheckpointKey(*queue, start, pop.now_ms, self._broker_name)
        is_closed = not request.is_orderly and (
            len(self._in_flight) >= IN_FLIGHT_MAX or self._in_flight.get(key) is not None
        )
        is_full = min(pop.count_left, pop.bytes_left, pop.scan_left) < 1
        if is_full or start >= end or is_closed:
            pop.rest_count += max(end - start, 0)
            return
        found = read_queue(
            self._tables.store,
            queue,
            start,
            wanted=pop.wanted,
            count_max=pop.count_left,
            bytes_max=pop.bytes_left,
            scan_max=_SCAN_MAX if pop.wanted.selector is None else pop.scan_left,
        )
        pop.rest_count += end - found.end
        if pop.wanted.selector is not None:
            pop.scan_left -= found.end - start
        if request.is_orderly:
            self._take_in_order(pop, queue, start, found)
        elif found.offsets or self._in_flight.next_offset(queue, -1) >= 0:
            self._take(pop, queue, kind, key, found)
        else:
            # No pop is in flight before this one: the group passes the examined messages at once.
            self._cursors.commit(queue, found.end)

    def _take(
        self, pop: _Pop, queue: GroupQueue, kind: RetryKind, key: CheckpointKey, found: Found
    ) -> None:
        request = pop.request
        self._in_flight.add(
            queue,
            InFlightPop(key, request.invisible_ms, found.offsets, found.end, pop.revive_queue),
        )
        if not found.offsets:
            return
        span = PoppedSpan(kind, queue.queue_index, key.start, found.offsets)
        if kind is not RetryKind.NONE:
            reply = PopReply(
                PopStatus.FOUND, pop.now_ms, request.invisible_ms, pop.revive_queue, spans=(span,)
            )
            found = with_receipts(found, request.queue.topic, reply.handles(self._broker_name))
        pop.add(span, found)

    def _take_in_order(self, pop: _Pop, queue: GroupQueue, start: int, found: Found) -> None:
        if not found.offsets:
            self._cursors.commit(queue, found.end)
            return
        attempts = self._orderly.take(queue, pop.request, pop.now_ms, found.offsets)
        self._cursors.commit(queue, start)
        span = PoppedSpan(RetryKind.NONE, queue.queue_index, start, found.offsets, attempts)
        pop.add(span, found)

    def _count_pop(self, group: str, topic: str) -> int:
        count = self._pop_counts.get((group, topic), 0) + 1
        self._pop_counts[group, topic] = count
        return count


def _born(request: _Waiting, wall_ms: int) -> _Waiting:
    """The request with the time of its arrival in place of none, or of one in the future.

    Both are times of the wall clock, as clients name them.
    """
    # Else a client could make the broker hold it for years.
    is_known = request.born_ms and request.born_ms <= wall_ms
    return request if is_known else replace(request, born_ms=wall_ms)


def read_queue(
    store: Store,
    queue: GroupQueue,
    start: int,
    *,
    wanted: Filter,
    count_max: int,
    bytes_max: int,
    scan_max: int,
) -> Found:
    """The matching messages from an offset on, which must lie within the queue's bounds."""
    read = read_matching(
        store,
        queue.topic,
        queue.queue_index,
        start,
        wanted,
        count_max=count_max,
        bytes_max=bytes_max,
        scan_max=scan_max,
    )
    if read.lost:
        # A reply to a pop cannot report lost messages.
        _LOG.error(
            "topic=%s queue=%d: pops skip %s before offset %d, which a repair gave up; "
            "the read began at offset %d",
            queue.topic,
            queue.queue_index,
            plural(read.lost, "message"),
            read.next_begin,
            start,
        )
    if read.count == read.next_begin - start:
        offsets = tuple(range(start, read.next_begin))
    else:
        offsets = _offsets_in(read.parts, read.sizes)
    return Found(read.parts, read.sizes, offsets, read.next_begin)


def with_receipts(found: Found, topic: str, handles: Sequence[ReceiptHandle]) -> Found:
    """Records of a retry topic under the popped topic's name, each with its receipt handle."""
    data, at, records = b"".join(found.parts), 0, []
    for handle in handles:
        message, at = decode_record(data, at, check_crc=False)
        properties = {**message.properties, RECEIPT: handle.text()}
        record = bytearray(encode_record(replace(message, topic=topic, properties=properties)))
        # The stored checksum: the client must be able to see that the body changed.
        record[_CRC_AT] = message.body_crc.to_bytes(4, "big", signed=True)
        records.append(bytes(record))
    sizes = np.array([len(record) for record in records], "<i4").tobytes()
    return replace(found, parts=tuple(records), sizes=sizes)


def _offsets_in(parts: Sequence[Buffer], sizes: Buffer) -> tuple[int, ...]:
    """The queue offsets in the records. A record's own size may be damaged; `sizes` are not."""
    data, at, offsets = b"".join(parts), 0, []
    for size in np.frombuffer(sizes, "<i4").tolist():
        (offset,) = _OFFSET.unpack_from(data, at + QUEUE_OFFSET_AT)
        offsets.append(offset)
        at += size
    return tuple(offsets)
