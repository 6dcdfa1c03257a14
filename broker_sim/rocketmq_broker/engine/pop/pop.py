"""Lending messages out: which queues a pop looks at, what it takes, and when it waits instead.

A pop looks at the group's retry topic of the topic first (one in five times) or last, and in
between at the queue it names or at all of them, each time beginning with another one. The broker's
loop is one thread, so that no two pops meet in a queue.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_broker.engine.core.outcomes import Answer, HoldPop, Outcome
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.messages.filtering import Filter
from rocketmq_broker.engine.pop.cursors import Places
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPop, InFlightPops
from rocketmq_broker.engine.pop.orderly import Orders
from rocketmq_broker.engine.pop.read import (
    Found,
    Unreadable,
    pop_filter_of,
    read_queue,
    with_receipts,
)
from rocketmq_broker.storage.store import Store
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
"""Of so many pops one looks at the retry topic first, so that retries cannot starve."""
LOANS_MAX: Final = 200_000
"""Loans that are kept at once; beyond it pops find nothing until some are settled."""
_LATE_MS: Final = 500


@dataclass(frozen=True, slots=True)
class PopLimits:
    """What one pop gets at most, and which retry topics there are."""

    bytes_max: int
    allows_sql: bool
    retry_kind: RetryKind
    poll_ms_max: int
    """0: no pop waits."""


@dataclass(slots=True)
class _Take:
    """What a pop has found so far."""

    count_left: int
    bytes_left: int
    spans: list[PoppedSpan] = field(default_factory=list)
    parts: list[Buffer] = field(default_factory=list)
    sizes: list[bytes] = field(default_factory=list)
    rest_count: int = 0
    damage: Exception | None = None
    """Why a queue could not be read."""

    def add(self, span: PoppedSpan, found: Found) -> None:
        self.spans.append(span)
        self.parts += found.parts
        self.sizes.append(found.sizes)
        self.count_left -= len(span.offsets)
        self.bytes_left -= sum(map(len, found.parts))


class Popping:
    """The rule of pop, over the broker's tables and its store."""

    def __init__(
        self,
        limits: PopLimits,
        *,
        broker_name: str,
        loans: InFlightPops,
        orders: Orders,
        places: Places,
        store: Store,
        topics: Topics,
    ) -> None:
        self.limits, self._broker_name = limits, broker_name
        self._loans, self._orders, self._places = loans, orders, places
        self._store, self._topics = store, topics
        self._unreadable = Unreadable()
        self._turns: dict[tuple[str, str], int] = {}
        self._revive_turns = itertools.count()

    # --- lending ------------------------------------------------------------------------------

    def pop(self, request: PopMessages, now_ms: int, *, is_final: bool = False) -> Outcome:
        """Lend messages, or hold the request. Refusals: 1, 16, 17, 23, 26, 29."""
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
        config = self._places.require_poppable(request.queue, request.group)
        wanted = pop_filter_of(request.subscription, allows_sql=self.limits.allows_sql)
        take = _Take(max(request.count_max, 0), self.limits.bytes_max)
        revive_queue = ORDERLY_REVIVE_QUEUE
        if not request.is_orderly:
            revive_queue = next(self._revive_turns) % REVIVE_QUEUE_COUNT
        if request.count_max > 0:
            self._collect(request, config, wanted, take, revive_queue, now_ms)
        if take.damage is not None and not take.spans:
            raise take.damage
        poll_ms = min(request.poll_ms, self.limits.poll_ms_max)
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
        """The answer to a request that would wait where too many wait already."""
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
        turn = self._next_turn(request.group, config.name)
        is_retry_first = turn % RETRY_TURN == 0 and not request.is_orderly

        def pop_queue(topic: str, index: int, retry: RetryKind) -> None:
            try:
                self._pop_queue(request, topic, index, retry, wanted, take, revive_queue, now_ms)
            except Unreadable.ERRORS as error:
                self._unreadable.tell(topic, index, error)
                take.damage = error

        def pop_retries() -> None:
            kind = self._retry_kind(turn)
            topic = kind.topic_of(config.name, request.group)
            retries = self._topics.get(topic)
            for index in range(retries.read_queue_count if retries is not None else 0):
                pop_queue(topic, index, kind)

        if is_retry_first:
            pop_retries()
        if request.queue.index >= 0:
            pop_queue(config.name, request.queue.index, RetryKind.NONE)
        else:
            count = config.read_queue_count
            for index in range(turn, turn + count):
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
        place = GroupQueue(topic, request.group, index)
        start, end = self._places.begin(place, request.init_mode)
        if request.is_orderly and self._orders.is_blocked(place, request.attempt_id, now_ms):
            return
        key = CheckpointKey(topic, request.group, index, start, now_ms, self._broker_name)
        is_closed = not request.is_orderly and (
            len(self._loans) >= LOANS_MAX or self._loans.get(key) is not None
        )
        if take.count_left < 1 or take.bytes_left < 1 or start >= end or is_closed:
            take.rest_count += max(end - start, 0)
            return
        found = read_queue(
            self._store,
            topic,
            index,
            start,
            wanted=wanted,
            count_max=take.count_left,
            bytes_max=take.bytes_left,
        )
        take.rest_count += end - found.end
        if request.is_orderly:
            self._take_in_order(request, place, start, found, take, now_ms)
            return
        loan = InFlightPop(key, request.invisible_ms, found.offsets, found.end, revive_queue)
        if not found.offsets and self._loans.next_offset(place, -1) < 0:
            # Nothing is lent before it: what did not match is behind the group at once.
            self._places.commit(place, found.end)
            return
        self._loans.lend(place, loan)
        if found.offsets:
            span = PoppedSpan(retry, index, start, found.offsets)
            if retry is not RetryKind.NONE:
                found = self._with_receipts(request, span, found, revive_queue, now_ms)
            take.add(span, found)

    def _take_in_order(
        self,
        request: PopMessages,
        place: GroupQueue,
        start: int,
        found: Found,
        take: _Take,
        now_ms: int,
    ) -> None:
        if not found.offsets:
            self._places.commit(place, found.end)
            return
        attempts = self._orders.take(
            place,
            attempt_id=request.attempt_id,
            pop_ms=now_ms,
            invisible_ms=request.invisible_ms,
            offsets=found.offsets,
        )
        self._places.commit(place, start)
        span = PoppedSpan(RetryKind.NONE, place.queue_index, start, found.offsets, attempts)
        take.add(span, found)

    def _with_receipts(
        self, request: PopMessages, span: PoppedSpan, found: Found, revive_queue: int, now_ms: int
    ) -> Found:
        reply = PopReply(PopStatus.FOUND, now_ms, request.invisible_ms, revive_queue, 0, (span,))
        return with_receipts(found, request.queue.topic, reply.handles(self._broker_name))

    def _next_turn(self, group: str, topic: str) -> int:
        turn = self._turns.get((group, topic), 0) + 1
        self._turns[group, topic] = turn
        return turn

    def _retry_kind(self, turn: int) -> RetryKind:
        """Which retry topic a turn looks at: brokers with the new names drain the old ones."""
        if self.limits.retry_kind is RetryKind.V2 and turn % 2:
            return RetryKind.V1
        return self.limits.retry_kind
