"""Calls listeners with the hooks around them, also for a message that a tool sends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeHook,
    ConsumeStatus,
    Listener,
    OrderlyStatus,
    ReturnType,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, ProtocolError, broker_error
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.members import ConsumeDirectly, ConsumeDirectlyReply, ConsumeResult

_LOG = logging.getLogger(__name__)
_RESULTS: Final[dict[object, ConsumeResult]] = {
    ConsumeStatus.SUCCESS: ConsumeResult.SUCCESS,
    ConsumeStatus.RECONSUME_LATER: ConsumeResult.LATER,
    OrderlyStatus.SUCCESS: ConsumeResult.SUCCESS,
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: ConsumeResult.LATER,
    OrderlyStatus.COMMIT: ConsumeResult.COMMIT,
    OrderlyStatus.ROLLBACK: ConsumeResult.ROLLBACK,
}


def consume_for_tool(
    listener: Listener,
    request: ConsumeDirectly,
    *,
    is_orderly: bool,
) -> ConsumeDirectlyReply | BrokerError:
    """Call the listener with a tool's message; this commits no offset."""
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


def call_listener(
    listener: Listener,
    messages: list[ReceivedMessage],
    context: ConsumeContext,
    hooks: Sequence[ConsumeHook],
    *,
    slow_ns: int,
) -> tuple[object, ReturnType, int]:
    """Returns the listener's status (None if it raised), the outcome and the time spent."""
    for hook in hooks:
        _call_hook(hook.before, messages, context)
    started_ns = time.monotonic_ns()
    status: object = None
    try:
        status = listener(messages, context)
        result = ReturnType.RETURN_NULL if status is None else ReturnType.SUCCESS
    except BaseException:  # noqa: BLE001 - its cancellation or exit is a failure too
        _LOG.exception("%s: the listener failed", context.queue)
        result = ReturnType.EXCEPTION
    spent_ns = time.monotonic_ns() - started_ns
    failures = (ConsumeStatus.RECONSUME_LATER, OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT)
    if spent_ns >= slow_ns:
        result = ReturnType.TIME_OUT
    elif result is ReturnType.SUCCESS and (status in failures or status is OrderlyStatus.ROLLBACK):
        result = ReturnType.FAILED
    for hook in hooks:
        _call_hook(hook.after, messages, context, result)
    return status, result, spent_ns


def _call_hook(method: Callable[..., None], *arguments: object) -> None:
    try:
        method(*arguments)
    except BaseException:  # noqa: BLE001 - an application's hook must not disturb consumption
        _LOG.exception("a consume hook failed")
