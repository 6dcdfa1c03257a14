"""Acknowledgements of popped messages, and changes of their invisible time."""

from __future__ import annotations

from rocketmq_broker.engine.core.outcomes import DONE, Answer, Outcome
from rocketmq_broker.engine.pop.cursors import Cursors
from rocketmq_broker.engine.pop.in_flight import GroupQueue, InFlightPop
from rocketmq_broker.engine.pop.revive import Revival
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import ProtocolError, broker_error
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.records.pop_checkpoints import REVIVE_QUEUE_COUNT, CheckpointKey
from rocketmq_wire.requests.pop import (
    AckMessage,
    AckMessages,
    ChangeInvisibleTime,
    InvisibleTimeReply,
)


class Acknowledging:
    def __init__(self, tables: Tables, cursors: Cursors, revival: Revival) -> None:
        self._tables = tables
        self._cursors = cursors
        self._in_flight = cursors.in_flight
        self._orderly = cursors.orderly
        self._revival = revival
        self._freed: dict[GroupQueue, None] = {}

    def take_freed(self, now_ms: int) -> list[GroupQueue]:
        freed = self._freed
        self._freed = {}
        return list(dict.fromkeys([*freed, *self._orderly.take_free(now_ms)]))

    def ack(self, request: AckMessage, now_ms: int) -> Outcome:
        """Acknowledge a message. Refusals: 1, 13, 17, 208.

        As in RocketMQ, the request succeeds for a message that is no longer in flight.
        """
        self._cursors.require_message(request.queue, request.offset, is_end_allowed=True)
        handle = _handle_of(request.handle)
        queue = GroupQueue(request.queue.topic, request.group, request.queue.index)
        if handle.is_orderly:
            self._ack_in_order(queue, request.offset, handle.pop_ms, now_ms)
            return DONE
        pop = self._in_flight.get(_key_of(queue, handle))
        if pop is not None:
            self._in_flight.acknowledge(pop, pop.bits_of((request.offset,)), now_ms)
        self._revival.advance_groups()
        return DONE

    def ack_all(self, request: AckMessages, now_ms: int) -> Outcome:
        """Acknowledge many messages. As in RocketMQ, single unknown ones are skipped."""
        if not request.spans:
            raise broker_error(ResponseCode.NO_MESSAGE, "a batch without acknowledgements")
        for span in request.spans:
            queue = GroupQueue(span.stored_topic, span.group, span.queue_index)
            if span.is_orderly:
                for offset in span.offsets:
                    self._ack_in_order(queue, offset, span.pop_ms, now_ms)
                continue
            key = CheckpointKey(*queue, span.start, span.pop_ms, request.broker)
            pop = self._in_flight.get(key)
            if pop is not None:
                self._in_flight.acknowledge(pop, pop.bits_of(span.offsets), now_ms)
        self._revival.advance_groups()
        return DONE

    def _ack_in_order(self, queue: GroupQueue, offset: int, pop_ms: int, now_ms: int) -> None:
        committed = self._cursors.committed(queue)
        if committed is not None and offset < committed:
            return
        if not self._orderly.knows(queue):
            # The pop of this handle is forgotten: an earlier message may be unacknowledged, or the
            # queue may belong to a recreated topic. Only the next message can be acknowledged.
            if offset == committed and self._cursors.may_have_popped(queue, offset, pop_ms):
                self._cursors.commit(queue, offset + 1)
                self._freed[queue] = None
            return
        try:
            following = self._orderly.acknowledge(queue, offset, pop_ms)
        except KeyError:
            raise broker_error(
                ResponseCode.MESSAGE_ILLEGAL, f"offset is illegal: {offset} is not in flight"
            ) from None
        if following is None:
            return
        self._cursors.commit(queue, following)
        if not self._orderly.is_blocked(queue, "", now_ms):
            self._freed[queue] = None

    def change(self, request: ChangeInvisibleTime, now_ms: int) -> Outcome:
        """Begin a new invisible time of a message now. Refusals: 1, 13, 17, 208.

        The message is then in flight by a new pop, and acknowledged in its old one. Refuses (208) a
        message that is visible again: it would be in flight twice.
        """
        self._cursors.require_message(request.queue, request.offset, is_end_allowed=False)
        handle = _handle_of(request.handle)
        queue = GroupQueue(request.queue.topic, request.group, request.queue.index)
        invisible_ms = max(request.invisible_ms, 0)
        if handle.is_orderly:
            visible_ms = now_ms + invisible_ms
            pop_ms = handle.pop_ms
            self._orderly.change(queue, request.offset, pop_ms=pop_ms, visible_ms=visible_ms)
            return Answer(InvisibleTimeReply(pop_ms, visible_ms - pop_ms, handle.revive_queue))
        if not 0 <= handle.revive_queue < REVIVE_QUEUE_COUNT:
            raise broker_error(
                ResponseCode.SYSTEM_ERROR, "the receipt handle names no revive queue"
            )
        old = self._in_flight.get(_key_of(queue, handle))
        if old is not None:
            # Others of its pop may be in flight after it was acknowledged or stored again.
            is_in_flight = bool(old.bits_of((request.offset,)) & ~old.finished)
        else:
            is_in_flight = handle.pop_ms <= now_ms < handle.visible_ms
        if not is_in_flight:
            raise broker_error(
                ResponseCode.NO_MESSAGE, "the message is visible again: its handle is void"
            )
        # The clock may have stepped back since the pop.
        pop_ms = max(now_ms, handle.pop_ms + 1)
        key = CheckpointKey(*queue, request.offset, pop_ms, handle.broker)
        while self._in_flight.get(key) is not None:
            # Two pops of one millisecond would have the same key.
            key = key._replace(pop_ms=key.pop_ms + 1)
        pop = InFlightPop(
            key, invisible_ms, (request.offset,), request.offset + 1, handle.revive_queue
        )
        position = self._revival.write_checkpoint(pop, now_ms)
        if old is not None:
            self._in_flight.acknowledge(old, old.bits_of((request.offset,)), now_ms, position)
        reply = InvisibleTimeReply(key.pop_ms, invisible_ms, handle.revive_queue)
        return self._tables.acknowledge(reply, position)


def _handle_of(text: str) -> ReceiptHandle:
    try:
        return ReceiptHandle.parse(text)
    except ProtocolError as error:
        raise broker_error(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _key_of(queue: GroupQueue, handle: ReceiptHandle) -> CheckpointKey:
    return CheckpointKey(*queue, handle.start, handle.pop_ms, handle.broker)
