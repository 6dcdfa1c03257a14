"""Looking at queues without borrowing from them: peek, and waiting for something to pop."""

from __future__ import annotations

from dataclasses import replace

from rocketmq_broker.engine.core.outcomes import Answer, HoldPop, Outcome
from rocketmq_broker.engine.messages.filtering import EVERYTHING
from rocketmq_broker.engine.pop.cursors import Places
from rocketmq_broker.engine.pop.orderly import Orders
from rocketmq_broker.engine.pop.pop import PopLimits
from rocketmq_broker.engine.pop.read import read_queue
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import Buffer
from rocketmq_wire.records.handles import retry_kind_of
from rocketmq_wire.requests.pop import (
    POP_COUNT_MAX,
    AwaitMessages,
    AwaitMessagesReply,
    PeekMessages,
    PoppedSpan,
    PopReply,
    PopStatus,
)


class Peeking:
    """Peek and await, over the queues as groups see them."""

    def __init__(self, limits: PopLimits, *, orders: Orders, places: Places, store: Store) -> None:
        self._orders, self._places, self._store = orders, places, store
        self._bytes_max, self._poll_ms_max = limits.bytes_max, limits.poll_ms_max

    def peek(self, request: PeekMessages, now_ms: int) -> Outcome:
        """Show messages and lend none. Refusals: 16, 17, 26, 29."""
        config = self._places.require_poppable(request.queue, request.group)
        count_left = min(max(request.count_max, 1), POP_COUNT_MAX)
        rest_count, spans, sizes = 0, [], b""
        parts: list[Buffer] = []
        for place in self._places.all_of(config, request.queue, request.group):
            bounds = self._places.bounds(place)
            start = max(self._places.peek_begin(place), bounds.start)
            if count_left < 1 or start >= bounds.end:
                rest_count += max(bounds.end - start, 0)
                continue
            found = read_queue(
                self._store,
                place.topic,
                place.queue_index,
                start,
                wanted=EVERYTHING,
                count_max=count_left,
                bytes_max=self._bytes_max,
            )
            kind = retry_kind_of(place.topic)
            spans.append(PoppedSpan(kind, place.queue_index, start, found.offsets))
            parts += found.parts
            sizes += found.sizes
            count_left -= len(found.offsets)
            rest_count += bounds.end - found.end
        return Answer(
            PopReply(
                PopStatus.FOUND if spans else PopStatus.NOT_FOUND,
                now_ms,
                rest_count=rest_count,
                spans=tuple(spans),
                records=tuple(parts),
                sizes=sizes,
                remark="FOUND" if spans else "NO_MESSAGE_IN_QUEUE",
            )
        )

    def await_messages(
        self, request: AwaitMessages, now_ms: int, *, is_final: bool = False
    ) -> Outcome:
        """Say whether a pop would find something, or hold the request until it would."""
        if not request.born_ms:
            request = replace(request, born_ms=now_ms)
        config = self._places.require_poppable(request.queue, request.group)
        for place in self._places.all_of(config, request.queue, request.group):
            end = self._places.bounds(place).end
            is_blocked = request.is_orderly and self._orders.is_blocked(
                place, request.attempt_id, now_ms
            )
            if not is_blocked and self._places.peek_begin(place) < end:
                return Answer(AwaitMessagesReply(has_message=True))
        poll_ms = min(request.poll_ms, self._poll_ms_max)
        expires_at_ms = request.born_ms + poll_ms
        if is_final or expires_at_ms <= now_ms:
            return Answer(AwaitMessagesReply(has_message=False))
        return HoldPop(request.group, request.queue, expires_at_ms, request)
