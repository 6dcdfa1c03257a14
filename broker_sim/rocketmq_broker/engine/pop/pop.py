"""Pops: which queues one reads, which messages it takes, and when it waits instead.

A pop reads the group's retry topic first (one pop in five) or last, and in between the queue that
it names, or all queues of the topic, each time beginning with another one. The broker's loop is one
thread, so no two pops read a queue at once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_broker.engine.core.outcomes import Answer, HoldPop, Outcome
from rocketmq_broker.engine.messages.filtering import Filter
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPop, InFlightPops
from rocketmq_broker.engine.pop.orderly import OrderlyPops
from rocketmq_broker.engine.pop.read import (
    DamageLog,
    Found,
    pop_filter_of,
    read_queue,
    with_receipts,
)
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import broker_error
from rocketmq_wire.model import Buffer, TopicConfig
from rocketmq_wire.records.handles import ORDERLY_REVIVE_QUEUE, RetryKind
from rocketmq_wire.records.pop_checkpoints import REVIVE_QUEUE_COUNT, CheckpointKey
from rocketmq_wire.requests.pop import (
    POP_COUNT_MAX,
    AwaitMessages,
    AwaitMessagesReply,
    PopMessages,
    PoppedSpan,
    PopReply,
    PopStatus,
)

RETRY_TURN: Final = 5
"""One pop in so many reads the retry topic first, so that retries cannot starve."""
IN_FLIGHT_MAX: Final = 200_000
"""The most pops in flight; beyond it pops find nothing until some are acknowledged."""
_LATE_MS: Final = 500


@dataclass(frozen=True, slots=True)
class PopLimits:
    """The most that one pop gets, the naming of retry topics, and the longest wait."""

    bytes_max: int
    allows_sql: bool
    retry_kind: RetryKind
    poll_ms_max: int
    """0: no pop waits."""


@dataclass(slots=True)
class _Take:
    """The messages that a pop took so far, and its remaining limits."""

    count_left: int
    bytes_left: int
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


class Popping:
    """Pops messages, and holds pops that find none."""

    def __init__(
        self,
        limits: PopLimits,
        tables: Tables,
        *,
        in_flight: InFlightPops,
        orderly: OrderlyPops,
        cursors: Cursors,
    ) -> None:
        self._limits = limits
        self._tables = tables
        self._broker_name = tables.identity.broker_name
        self._in_flight = in_flight
        self._orderly = orderly
        self._cursors = cursors
        self._damage = DamageLog()
        self._pop_counts: dict[tuple[str, str], int] = {}
        self._next_revive_queue = itertools.count()

    def pop(self, request: PopMessages, now_ms: int, *, is_final: bool = False) -> Outcome:
        """Take messages, or hold the request. Refusals: 1, 16, 17, 23, 26, 29."""
        if not request.born_ms:
            request = replace(request, born_ms=now_ms)
        born_ms = request.born_ms
        if now_ms - born_ms - request.poll_ms > _LATE_MS:
            return Answer(PopReply(PopStatus.POLLING_TIMEOUT, remark="it came too late"))
        if request.count_max > POP_COUNT_MAX:
            raise broker_error(
                ResponseCode.INVALID_PARAMETER,
                f"pop message's num is greater than {POP_COUNT_MAX}: {request.count_max}",
            )
        config = self._cursors.require_poppable(request.queue, request.group)
        wanted = pop_filter_of(request.subscription, allows_sql=self._limits.allows_sql)
        take = _Take(max(request.count_max, 0), self._limits.bytes_max)
        revive_queue = ORDERLY_REVIVE_QUEUE
        if not request.is_orderly:
            revive_queue = next(self._next_revive_queue) % REVIVE_QUEUE_COUNT
        if request.count_max > 0:
            self._collect(request, config, wanted, take, revive_queue, now_ms)
        if take.damage is not None and not take.spans:
            raise take.damage
        poll_ms = min(request.poll_ms, self._limits.poll_ms_max)
        expires_at_ms = born_ms + poll_ms
        if not take.spans and request.count_max > 0 and not is_final and expires_at_ms > now_ms:
            return HoldPop(request.group, request.queue, expires_at_ms, request)
        return Answer(
            PopReply(
                PopStatus.FOUND if take.spans else PopStatus.POLLING_TIMEOUT,
                now_ms,
                request.invisible_ms,
                revive_queue,
                take.rest_count,
                tuple(take.spans),
                tuple(take.parts),
                b"".join(take.sizes),
                remark="FOUND" if take.spans else "NO_MESSAGE_IN_QUEUE",
            )
        )

    def polling_full(self, hold: HoldPop, now_ms: int) -> PopReply | AwaitMessagesReply:
        """The reply to a request that cannot wait because too many wait already."""
        if isinstance(hold.request, AwaitMessages):
            return AwaitMessagesReply(has_message=False, is_polling_full=True)
        invisible_ms = hold.request.invisible_ms
        return PopReply(PopStatus.POLLING_FULL, now_ms, invisible_ms, remark="NO_MESSAGE_IN_QUEUE")

    def _collect(
        self,
        request: PopMessages,
        config: TopicConfig,
        wanted: Filter,
        take: _Take,
        revive_queue: int,
        now_ms: int,
    ) -> None:
        pop_count = self._count_pop(request.group, config.name)
        is_retry_first = pop_count % RETRY_TURN == 0 and not request.is_orderly

        def pop_queue(topic: str, index: int, retry: RetryKind) -> None:
            try:
                self._pop_queue(request, topic, index, retry, wanted, take, revive_queue, now_ms)
            except DamageLog.ERRORS as error:
                self._damage.report(topic, index, error)
                take.damage = error

        def pop_retries() -> None:
            kind = self._retry_kind(pop_count)
            topic = kind.topic_of(config.name, request.group)
            retries = self._tables.topics.get(topic)
            for index in range(retries.read_queue_count if retries is not None else 0):
                pop_queue(topic, index, kind)

        if is_retry_first:
            pop_retries()
        if request.queue.index >= 0:
            pop_queue(config.name, request.queue.index, RetryKind.NONE)
        else:
            count = config.read_queue_count
            for index in range(pop_count, pop_count + count):
                pop_queue(config.name, index % count, RetryKind.NONE)
        if not is_retry_first and not request.is_orderly and take.count_left > 0:
            pop_retries()

    def _pop_queue(
        self,
        request: PopMessages,
        topic: str,
        index: int,
        retry: RetryKind,
        wanted: Filter,
        take: _Take,
        revive_queue: int,
        now_ms: int,
    ) -> None:
        queue = GroupQueue(topic, request.group, index)
        start, end = self._cursors.begin(queue, request.init_mode)
        if request.is_orderly and self._orderly.is_blocked(queue, request.attempt_id, now_ms):
            return
        key = CheckpointKey(topic, request.group, index, start, now_ms, self._broker_name)
        is_closed = not request.is_orderly and (
            len(self._in_flight) >= IN_FLIGHT_MAX or self._in_flight.get(key) is not None
        )
        if take.count_left < 1 or take.bytes_left < 1 or start >= end or is_closed:
            take.rest_count += max(end - start, 0)
            return
        found = read_queue(
            self._tables.store,
            topic,
            index,
            start,
            wanted=wanted,
            count_max=take.count_left,
            bytes_max=take.bytes_left,
        )
        take.rest_count += end - found.end
        if request.is_orderly:
            self._take_in_order(request, queue, start, found, take, now_ms)
            return
        pop = InFlightPop(key, request.invisible_ms, found.offsets, found.end, revive_queue)
        if not found.offsets and self._in_flight.next_offset(queue, -1) < 0:
            # No pop is in flight before this one: the group passes the examined messages at once.
            self._cursors.commit(queue, found.end)
            return
        self._in_flight.add(queue, pop)
        if found.offsets:
            span = PoppedSpan(retry, index, start, found.offsets)
            if retry is not RetryKind.NONE:
                found = self._with_receipts(request, span, found, revive_queue, now_ms)
            take.add(span, found)

    def _take_in_order(
        self,
        request: PopMessages,
        queue: GroupQueue,
        start: int,
        found: Found,
        take: _Take,
        now_ms: int,
    ) -> None:
        if not found.offsets:
            self._cursors.commit(queue, found.end)
            return
        attempts = self._orderly.take(
            queue,
            attempt_id=request.attempt_id,
            pop_ms=now_ms,
            invisible_ms=request.invisible_ms,
            offsets=found.offsets,
        )
        self._cursors.commit(queue, start)
        span = PoppedSpan(RetryKind.NONE, queue.queue_index, start, found.offsets, attempts)
        take.add(span, found)

    def _with_receipts(
        self, request: PopMessages, span: PoppedSpan, found: Found, revive_queue: int, now_ms: int
    ) -> Found:
        reply = PopReply(PopStatus.FOUND, now_ms, request.invisible_ms, revive_queue, 0, (span,))
        return with_receipts(found, request.queue.topic, reply.handles(self._broker_name))

    def _count_pop(self, group: str, topic: str) -> int:
        count = self._pop_counts.get((group, topic), 0) + 1
        self._pop_counts[group, topic] = count
        return count

    def _retry_kind(self, pop_count: int) -> RetryKind:
        """The retry topic that a pop reads: with new names, every second pop drains the old one."""
        if self._limits.retry_kind is RetryKind.V2 and pop_count % 2:
            return RetryKind.V1
        return self._limits.retry_kind
