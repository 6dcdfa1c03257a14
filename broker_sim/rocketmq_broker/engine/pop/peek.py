"""Read-only pop requests: PEEK_MESSAGE and NOTIFICATION."""

from __future__ import annotations

from dataclasses import replace

from rocketmq_broker.engine.core.outcomes import Answer, HoldPop, Outcome
from rocketmq_broker.engine.messages.filtering import EVERYTHING
from rocketmq_broker.engine.pop.cursors import Cursors
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
    """Shows messages without popping them."""

    def __init__(self, limits: PopLimits, store: Store, cursors: Cursors) -> None:
        self._limits = limits
        self._store = store
        self._cursors = cursors

    def peek(self, request: PeekMessages, now_ms: int) -> Outcome:
        """Return messages that stay visible. Refusals: 16, 17, 26, 29."""
        config = self._cursors.require_poppable(request.queue, request.group)
        count_left = min(max(request.count_max, 1), POP_COUNT_MAX)
        rest_count = 0
        spans: list[PoppedSpan] = []
        parts: list[Buffer] = []
        sizes = b""
        for queue in self._cursors.queues_of(config, request.queue, request.group):
            bounds = self._cursors.bounds(queue)
            start = max(self._cursors.peek_begin(queue), bounds.start)
            if count_left < 1 or start >= bounds.end:
                rest_count += max(bounds.end - start, 0)
                continue
            found = read_queue(
                self._store,
                queue,
                start,
                wanted=EVERYTHING,
                count_max=count_left,
                bytes_max=self._limits.bytes_max,
            )
            kind = retry_kind_of(queue.topic)
            spans.append(PoppedSpan(kind, queue.queue_index, start, found.offsets))
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
        """Answer whether a pop would find messages, or hold the request until one would."""
        if not request.born_ms:
            request = replace(request, born_ms=now_ms)
        config = self._cursors.require_poppable(request.queue, request.group)
        for queue in self._cursors.queues_of(config, request.queue, request.group):
            end = self._cursors.bounds(queue).end
            is_blocked = request.is_orderly and self._cursors.orderly.is_blocked(
                queue, request.attempt_id, now_ms
            )
            if not is_blocked and self._cursors.peek_begin(queue) < end:
                return Answer(AwaitMessagesReply(has_message=True))
        expires_at_ms = request.born_ms + min(request.poll_ms, self._limits.poll_ms_max)
        if is_final or expires_at_ms <= now_ms:
            return Answer(AwaitMessagesReply(has_message=False))
        return HoldPop(request.group, request.queue, expires_at_ms, request)
