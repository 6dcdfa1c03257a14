"""Requests and answers of a popping client at RocketMQ's public gRPC service, as bytes.

The service sends messages, not records. This module encodes them as records, with the queue and the
offset of their receipt handles, so that consumers handle all popped records the same way.
"""

from __future__ import annotations

import hashlib
import ipaddress
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import BrokerError, CorruptRecordError
from rocketmq_wire.grpc.public.messages import (
    GZIP,
    milliseconds,
    named_properties,
    put_duration,
)
from rocketmq_wire.grpc.public.status import check_status, error_of_status
from rocketmq_wire.model import Buffer, Host, StoredMessage, Subscription
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.records.record import FLAG_COMPRESSED, encode_record
from rocketmq_wire.stubs import public

SIMPLE_CONSUMER: Final = 3
"""`ClientType` in the protocol."""
POLL_MS: Final = 20_000
"""The time for which a proxy holds a receive; proxies clamp it to 5 to 20 s."""
CLIENT_VERSION: Final = "5.0.7"
"""The protocol version of the client; proxies choose some error codes by it."""
_TAG, _SQL = 1, 2
_READABLE: Final = (2, 4)
"""`Permission` in the protocol: READ and READ_WRITE."""
_NOWHERE: Final = Host(bytes(4), 0)
_DIGESTS: Final[Mapping[int, Callable[[bytes], str]]] = {
    1: lambda body: f"{zlib.crc32(body):08X}",
    2: lambda body: hashlib.md5(body, usedforsecurity=False).hexdigest(),
    3: lambda body: hashlib.sha1(body, usedforsecurity=False).hexdigest(),
}


def path_of(name: str) -> str:
    """The HTTP/2 path of a call."""
    return f"/{public.SERVICE}/{name}"


def telemetry(group: str, topics: Mapping[str, Subscription]) -> bytes:
    """The first message of a client's settings stream."""
    command = public.message_class("TelemetryCommand")()
    settings = command.settings
    settings.client_type = SIMPLE_CONSUMER
    settings.user_agent.version = CLIENT_VERSION
    settings.user_agent.platform = "Python"
    put_duration(settings.request_timeout, 10_000)
    settings.subscription.group.name = group
    put_duration(settings.subscription.long_polling_timeout, POLL_MS)
    for topic, subscription in topics.items():
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        _put_expression(entry.expression, subscription)
    return bytes(command.SerializeToString())


def heartbeat(group: str) -> bytes:
    """The request that keeps a client registered."""
    request = public.message_class("HeartbeatRequest")(client_type=SIMPLE_CONSUMER)
    request.group.name = group
    return bytes(request.SerializeToString())


def route_query(topic: str, address: tuple[str, int]) -> bytes:
    """The request for a topic's queues; `address` is the service's own."""
    request = public.message_class("QueryRouteRequest")()
    request.topic.name = topic
    request.endpoints.scheme = 1
    request.endpoints.addresses.add(host=address[0], port=address[1])
    return bytes(request.SerializeToString())


def brokers_of(topic: str, answer: Buffer) -> tuple[tuple[str, bytes], ...]:
    """The brokers with readable queues of the topic: their name, and a queue for `receive`.

    Raises BrokerError and RemoteProtocolError.
    """
    response = _parsed("QueryRouteResponse", answer)
    check_status(response.status)
    found: dict[str, bytes] = {}
    for queue in response.message_queues:
        if queue.permission in _READABLE and queue.broker.name not in found:
            queue.topic.name = topic
            found[queue.broker.name] = bytes(queue.SerializeToString())
    return tuple(sorted(found.items()))


def receive(
    group: str,
    queue: bytes,
    subscription: Subscription,
    *,
    count_max: int,
    invisible_ms: int,
    poll_ms: int = POLL_MS,
) -> bytes:
    """A request for messages; `queue` is as `brokers_of` gave it."""
    request = public.message_class("ReceiveMessageRequest")(batch_size=count_max)
    request.group.name = group
    request.message_queue.ParseFromString(queue)
    _put_expression(request.filter_expression, subscription)
    put_duration(request.invisible_duration, invisible_ms)
    put_duration(request.long_polling_timeout, poll_ms)
    return bytes(request.SerializeToString())


def received(topic: str, frames: Sequence[Buffer]) -> tuple[bytes, tuple[ReceiptHandle, ...]]:
    """The messages of an answer as records, and their handles in the same order.

    Raises BrokerError, RemoteProtocolError and CorruptRecordError.
    """
    records: list[bytes] = []
    handles: list[ReceiptHandle] = []
    for frame in frames:
        response = _parsed("ReceiveMessageResponse", frame)
        kind = response.WhichOneof("content")
        if kind == "status" and response.status.code != PublicCode.MESSAGE_NOT_FOUND:
            check_status(response.status)
        elif kind == "message":
            handle = ReceiptHandle.parse(response.message.system_properties.receipt_handle)
            records.append(encode_record(_stored(topic, response.message, handle)))
            handles.append(handle)
    return b"".join(records), tuple(handles)


def acks(group: str, topic: str, handles: Iterable[ReceiptHandle]) -> bytes:
    """The acknowledgement of messages popped for a topic."""
    request = public.message_class("AckMessageRequest")()
    request.group.name, request.topic.name = group, topic
    for handle in handles:
        request.entries.add(receipt_handle=handle.text())
    return bytes(request.SerializeToString())


def ack_errors(answer: Buffer) -> list[BrokerError]:
    """The errors of messages that were not acknowledged. Raises RemoteProtocolError."""
    response = _parsed("AckMessageResponse", answer)
    statuses = [entry.status for entry in response.entries] or [response.status]
    return [error for status in statuses if (error := error_of_status(status)) is not None]


def change(group: str, topic: str, handle: ReceiptHandle, invisible_ms: int) -> bytes:
    """The request for another invisible time, counted from now."""
    request = public.message_class("ChangeInvisibleDurationRequest")()
    request.group.name, request.topic.name = group, topic
    request.receipt_handle = handle.text()
    put_duration(request.invisible_duration, invisible_ms)
    return bytes(request.SerializeToString())


def changed(answer: Buffer) -> ReceiptHandle:
    """The handle that replaces the old one. Raises BrokerError and RemoteProtocolError."""
    response = _parsed("ChangeInvisibleDurationResponse", answer)
    check_status(response.status)
    return ReceiptHandle.parse(response.receipt_handle)


def settings_answered(frame: Buffer) -> bool:
    """True for the answer to a client's settings. Raises BrokerError if it refuses them."""
    command = _parsed("TelemetryCommand", frame)
    if command.HasField("status"):
        check_status(command.status)
    return bool(command.WhichOneof("command") == "settings")


def _parsed(name: str, content: Buffer) -> Any:
    return public.parse(name, bytes(content))


def _put_expression(expression: Any, subscription: Subscription) -> None:
    expression.type = _TAG if subscription.kind == "TAG" else _SQL
    expression.expression = subscription.expression


def _stored(topic: str, message: Any, handle: ReceiptHandle) -> StoredMessage:
    system = message.system_properties
    digest = _DIGESTS.get(system.body_digest.type)
    if digest is not None and system.body_digest.checksum:
        # Some clients leave out leading zeros.
        wanted = system.body_digest.checksum.upper().lstrip("0")
        if digest(message.body).upper().lstrip("0") != wanted:
            raise CorruptRecordError(
                f"{topic} from {handle.broker}", handle.offset, "its body is not as it was sent"
            )
    return StoredMessage(
        topic=topic,
        body=message.body,
        properties=named_properties(message),
        flag=0,
        queue_index=handle.queue_index,
        queue_offset=handle.offset,
        physical_offset=max(handle.position or 0, 0),
        sys_flag=FLAG_COMPRESSED if system.body_encoding == GZIP else 0,
        born_ms=milliseconds(system.born_timestamp),
        born_host=_host(system.born_host),
        store_ms=milliseconds(system.store_timestamp),
        store_host=_host(system.store_host),
        reconsume_times=max(system.delivery_attempt - 1, 0),
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
    )


def _host(text: str) -> Host:
    """The host in `address:port` or an address; 0.0.0.0 for any but an IPv4 address."""
    address, _, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "0")
    try:
        packed = ipaddress.IPv4Address(address).packed
        return Host(packed, int(port))
    except ValueError:
        return _NOWHERE
