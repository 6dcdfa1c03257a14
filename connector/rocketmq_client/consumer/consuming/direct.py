"""Has a message consumed that a tool handed to this member; it touches no queue's progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeStatus,
    OrderlyStatus,
    ReturnType,
    call_listener,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, ProtocolError, broker_error
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.members import ConsumeDirectly, ConsumeDirectlyReply, ConsumeResult

_RESULTS: Final[dict[object, ConsumeResult]] = {
    ConsumeStatus.SUCCESS: ConsumeResult.SUCCESS,
    ConsumeStatus.RECONSUME_LATER: ConsumeResult.LATER,
    OrderlyStatus.SUCCESS: ConsumeResult.SUCCESS,
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: ConsumeResult.LATER,
    OrderlyStatus.COMMIT: ConsumeResult.COMMIT,
    OrderlyStatus.ROLLBACK: ConsumeResult.ROLLBACK,
}


def consume_for_tool(
    listener: Callable[[list[ReceivedMessage], ConsumeContext], object],
    request: ConsumeDirectly,
    *,
    is_orderly: bool,
) -> ConsumeDirectlyReply | BrokerError:
    """Call the listener with the message, and say what came of it."""
    try:
        topic = decode_record(request.record)[0].topic
        (message,) = decode_messages(request.record, broker=request.broker, topic=topic)
    except (ProtocolError, ValueError) as error:
        return broker_error(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}")
    context = ConsumeContext(QueueId(topic, request.broker, message.queue_index))
    status, how, spent_ns = call_listener(listener, [message], context, (), slow_ns=2**62)
    if how is ReturnType.EXCEPTION:
        result = ConsumeResult.EXCEPTION
    elif how is ReturnType.RETURN_NULL:
        result = ConsumeResult.RETURN_NULL
    else:
        result = _RESULTS.get(status, ConsumeResult.LATER)
    return ConsumeDirectlyReply(result, spent_ns // 1_000_000, is_orderly, context.auto_commit)
