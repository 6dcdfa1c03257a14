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
from rocketmq_wire.grpc.public.messages import GZIP, milliseconds, named_properties
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
    return f"/{public.SERVICE}/{name}"


def telemetry(group: str, topics: Mapping[str, Subscription]) -> bytes:
    """The first message of a client's settings stream."""
    return _encoded(
        "TelemetryCommand",
        settings={
            "client_type": SIMPLE_CONSUMER,
            "user_agent": {"version": CLIENT_VERSION, "platform": "Python"},
            "request_timeout": _duration(10_000),
            "subscription": {
                "group": {"name": group},
                "long_polling_timeout": _duration(POLL_MS),
                "subscriptions": [
                    {"topic": {"name": topic}, "expression": _expression(subscription)}
                    for topic, subscription in topics.items()
                ],
            },
        },
    )


def heartbeat(group: str) -> bytes:
    """The request that keeps a client registered."""
    return _encoded("HeartbeatRequest", client_type=SIMPLE_CONSUMER, group={"name": group})


def route_query(topic: str, address: tuple[str, int]) -> bytes:
    """The request for a topic's queues; `address` is the service's own."""
    host, port = address
    endpoints = {"scheme": 1, "addresses": [{"host": host, "port": port}]}
    return _encoded("QueryRouteRequest", topic={"name": topic}, endpoints=endpoints)


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
    return _encoded(
        "ReceiveMessageRequest",
        batch_size=count_max,
        group={"name": group},
        message_queue=_parsed("MessageQueue", queue),
        filter_expression=_expression(subscription),
        invisible_duration=_duration(invisible_ms),
        long_polling_timeout=_duration(poll_ms),
    )


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
    entries = [{"receipt_handle": handle.text()} for handle in handles]
    return _encoded(
        "AckMessageRequest", group={"name": group}, topic={"name": topic}, entries=entries
    )


def ack_errors(answer: Buffer) -> list[BrokerError]:
    """The errors of messages that were not acknowledged. Raises RemoteProtocolError."""
    response = _parsed("AckMessageResponse", answer)
    statuses = [entry.status for entry in response.entries] or [response.status]
    return [error for status in statuses if (error := error_of_status(status)) is not None]


def change(group: str, topic: str, handle: ReceiptHandle, invisible_ms: int) -> bytes:
    """The request for another invisible time, counted from now."""
    return _encoded(
        "ChangeInvisibleDurationRequest",
        group={"name": group},
        topic={"name": topic},
        receipt_handle=handle.text(),
        invisible_duration=_duration(invisible_ms),
    )


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


def _encoded(name: str, **fields: Any) -> bytes:
    return bytes(public.message_class(name)(**fields).SerializeToString())


def _duration(milliseconds_: int) -> dict[str, int]:
    return {"seconds": milliseconds_ // 1_000, "nanos": milliseconds_ % 1_000 * 1_000_000}


def _expression(subscription: Subscription) -> dict[str, int | str]:
    kind = _TAG if subscription.kind == "TAG" else _SQL
    return {"type": kind, "expression": subscription.expression}


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
