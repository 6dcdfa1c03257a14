"""The end of loans: acknowledgements, and loans that are made anew with another time."""

from __future__ import annotations

from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Outcome
from rocketmq_broker.engine.pop.cursors import Places
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPop, InFlightPops
from rocketmq_broker.engine.pop.orderly import Orders
from rocketmq_broker.engine.pop.revive import Revival
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import ProtocolError, broker_error
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.records.pop_checkpoints import REVIVE_QUEUE_COUNT, CheckpointKey
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.pop import (
    AckMessage,
    AckMessages,
    ChangeInvisibleTime,
    InvisibleTimeReply,
)


class Acknowledging:
    """Ack and change, over the loans and the orders."""

    def __init__(
        self,
        *,
        loans: InFlightPops,
        orders: Orders,
        revival: Revival,
        places: Places,
        waits_for_sync: bool,
    ) -> None:
        self._loans, self._orders, self._revival = loans, orders, revival
        self._places, self._waits_for_sync = places, waits_for_sync
        self._freed: dict[GroupQueue, None] = {}

    def take_freed(self, now_ms: int) -> list[GroupQueue]:
        """Queues that may be popped in order again since the last time."""
        freed, self._freed = self._freed, {}
        return list(dict.fromkeys([*freed, *self._orders.take_free(now_ms)]))

    def ack(self, request: AckMessage, now_ms: int) -> Outcome:
        """Settle a message.

        Refusals: 1, 13, 17, 208. A message that is not lent any more is no matter, as in RocketMQ.
        """
        self._places.require_held(request.queue, request.offset, is_end_allowed=True)
        handle = _handle_of(request.handle)
        place = GroupQueue(request.queue.topic, request.group, request.queue.index)
        if handle.is_orderly:
            self._ack_in_order(place, request.offset, handle.pop_ms, now_ms)
            return Answer(Done())
        loan = self._loans.get(_key_of(place, handle))
        if loan is not None:
            self._loans.acknowledge(loan, loan.bits_of((request.offset,)), now_ms)
        self._revival.advance_groups()
        return Answer(Done())

    def ack_all(self, request: AckMessages, now_ms: int) -> Outcome:
        """Settle many messages; what is wrong with single ones is passed over, as in RocketMQ."""
        if not request.spans:
            raise broker_error(ResponseCode.NO_MESSAGE, "a batch without acknowledgements")
        for span in request.spans:
            place = GroupQueue(span.stored_topic, span.group, span.queue_index)
            if span.is_orderly:
                for offset in span.offsets:
                    self._ack_in_order(place, offset, span.pop_ms, now_ms)
                continue
            key = CheckpointKey(*place, span.start, span.pop_ms, request.broker)
            loan = self._loans.get(key)
            if loan is not None:
                self._loans.acknowledge(loan, loan.bits_of(span.offsets), now_ms)
        self._revival.advance_groups()
        return Answer(Done())

    def _ack_in_order(self, place: GroupQueue, offset: int, pop_ms: int, now_ms: int) -> None:
        progress = self._places.progress(place)
        if progress is not None and offset < progress:
            return
        if not self._orders.knows(place):
            # Whose the handle is nobody knows: what is before its message may never have been
            # settled, and the queue may be another one that has the name of a deleted one.
            if offset == progress and self._places.may_have_lent(place, offset, pop_ms):
                self._places.commit(place, offset + 1)
                self._freed[place] = None
            return
        try:
            following = self._orders.acknowledge(place, offset, pop_ms)
        except KeyError:
            raise broker_error(
                ResponseCode.MESSAGE_ILLEGAL, f"offset is illegal: {offset} is not lent"
            ) from None
        if following is None:
            return
        self._places.commit(place, following)
        if not self._orders.is_blocked(place, "", now_ms):
            self._freed[place] = None

    def change(self, request: ChangeInvisibleTime, now_ms: int) -> Outcome:
        """Lend a message anew from now on, and settle what it was lent by. Refusals: 1, 13, 17,
        208: also for a message that came again meanwhile, which would be lent twice.
        """
        self._places.require_held(request.queue, request.offset, is_end_allowed=False)
        handle = _handle_of(request.handle)
        place = GroupQueue(request.queue.topic, request.group, request.queue.index)
        invisible_ms = max(request.invisible_ms, 0)
        if handle.is_orderly:
            visible_ms = now_ms + invisible_ms
            pop_ms = handle.pop_ms
            self._orders.change(place, request.offset, pop_ms=pop_ms, visible_ms=visible_ms)
            reply = InvisibleTimeReply(
                handle.pop_ms, visible_ms - handle.pop_ms, handle.revive_queue
            )
            return Answer(reply)
        if not 0 <= handle.revive_queue < REVIVE_QUEUE_COUNT:
            raise broker_error(
                ResponseCode.SYSTEM_ERROR, "the receipt handle names no revive queue"
            )
        old = self._loans.get(_key_of(place, handle))
        if old is None and now_ms >= handle.visible_ms:
            raise broker_error(
                ResponseCode.NO_MESSAGE, "the message is visible again: its handle is void"
            )
        key = CheckpointKey(*place, request.offset, now_ms, handle.broker)
        while self._loans.get(key) is not None or key.pop_ms <= handle.pop_ms:
            # Two of one millisecond would be one.
            key = key._replace(pop_ms=key.pop_ms + 1)
        loan = InFlightPop(
            key, invisible_ms, (request.offset,), request.offset + 1, handle.revive_queue
        )
        position = self._revival.write_loan(loan, now_ms)
        if old is not None:
            self._loans.acknowledge(old, old.bits_of((request.offset,)), now_ms, position)
        reply = InvisibleTimeReply(key.pop_ms, invisible_ms, handle.revive_queue)
        return AfterSync(reply, position) if self._waits_for_sync else Answer(reply)


def _handle_of(text: str) -> ReceiptHandle:
    try:
        return ReceiptHandle.parse(text)
    except ProtocolError as error:
        raise broker_error(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _key_of(place: GroupQueue, handle: ReceiptHandle) -> CheckpointKey:
    return CheckpointKey(*place, handle.start, handle.pop_ms, handle.broker)
