"""Messages that are delivered later: how one says when, and how it is taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.model import Message
from rocketmq_wire.records.handles import RecallHandle
from rocketmq_wire.requests.messages import RecallMessage

_LEVEL_MAX: Final = 18


def delayed(
    message: Message,
    *,
    level: int | None = None,
    at_ms: int | None = None,
    after_ms: int | None = None,
) -> Message:
    """The message with its delay: one of RocketMQ's 18 levels, a time, or so long after its send.

    Times and delays need RocketMQ 5 or the bundled broker; levels every broker has. Raises
    LocalProtocolError.
    """
    given = [value for value in (level, at_ms, after_ms) if value is not None]
    if len(given) != 1:
        raise LocalProtocolError("give one of level, at_ms and after_ms")
    if level is not None and not 1 <= level <= _LEVEL_MAX:
        raise LocalProtocolError(f"delay levels are 1 to {_LEVEL_MAX}, not {level}")
    name = "DELAY" if level is not None else "TIMER_DELIVER_MS" if at_ms is not None else None
    properties = {**message.properties, name or "TIMER_DELAY_MS": str(given[0])}
    return replace(message, properties=properties)


def recall(cluster: Cluster, group: str, handle: str) -> str:
    """Have a message not delivered that waits for its time; its unique key.

    `handle` is what the send's reply said. Raises BrokerError: 604 when it waits no more.
    """
    try:
        named = RecallHandle.parse(handle)
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from error
    # The name server says where that broker is.
    cluster.route(named.topic)
    request = RecallMessage(named.topic, handle, group, named.broker)
    return cluster.transport.call(
        request, broker=named.broker, timeout_ms=cluster.settings.request_timeout_ms
    ).message_id
