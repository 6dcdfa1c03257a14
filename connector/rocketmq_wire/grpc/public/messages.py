"""Messages of the public gRPC service <-> properties and records as brokers store them."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.numbers import DIGITS_MAX, whole_number
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import (
    DELIVER_MS,
    KEYS,
    LITE_TOPIC,
    MESSAGE_GROUP,
    TAGS,
    UNIQUE_KEY,
)
from rocketmq_wire.records.record import FLAG_COMPRESSED, FLAG_TRANSACTION_PREPARED, body_crc
from rocketmq_wire.requests.transactions import CHECK_IMMUNITY, PRODUCER_GROUP, TRANSACTIONAL
from rocketmq_wire.stubs import public

NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY = range(1, 7)
"""`MessageType` in the protocol."""
IDENTITY, GZIP = 1, 2
"""`Encoding` in the protocol."""
MESSAGE_TYPE_NAMES: Final = {
    NORMAL: "NORMAL",
    FIFO: "FIFO",
    DELAY: "DELAY",
    TRANSACTION: "TRANSACTION",
    LITE: "LITE",
    PRIORITY: "PRIORITY",
}

TRACE_CONTEXT: Final = "TRACE_CONTEXT"
_INT32_MAX: Final = 2**31 - 1
_INT32_DIGITS_MAX: Final = 9
MESSAGE_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
BORN_HOST: Final = "__BORNHOST"
BORN_MS: Final = "BORN_TIMESTAMP"
_DELAYS: Final = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", DELIVER_MS)
_DEAD_TOPIC, _DEAD_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
SYSTEM_PROPERTIES: Final = frozenset(
    {
        *(KEYS, TAGS, UNIQUE_KEY, "WAIT", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "MSG_REGION"),
        *_DELAYS,
        *("TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_ENQUEUE_MS"),
        *("TIMER_DEQUEUE_MS", "TIMER_DELAY_LEVEL", "TIMER_ROLL_LABEL", "TIMER_DEL_MS"),
        *(TRANSACTIONAL, PRODUCER_GROUP, CHECK_IMMUNITY, "__transactionId__"),
        *("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_PREPARED_ID"),
        *("BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
        *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "TRACE_ON", "CLUSTER"),
        *("MIN_OFFSET", "MAX_OFFSET", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"),
        *("MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_NUM", "INNER_BASE"),
        *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO"),
        *("__STARTDELIVERTIME", "__CRC32#", MESSAGE_GROUP, BORN_HOST, BORN_MS, TRACE_CONTEXT),
        *(_DEAD_TOPIC, _DEAD_ID, LITE_TOPIC, MESSAGE_PRIORITY, "CLIENT_HOST"),
    }
)
"""Names that user properties may not have; readers do not return them as user properties."""

_OPTIONAL_TEXTS: Final = {
    MESSAGE_GROUP: "message_group",
    TRACE_CONTEXT: "trace_context",
    LITE_TOPIC: "lite_topic",
}
# A digest that matches no body.
_NO_DIGEST: Final = "0" * 32


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as a send request carries it."""

    properties: Mapping[str, str]
    body: bytes
    sys_flag: int
    born_ms: int


def named_properties(message: Any) -> dict[str, str]:
    """The properties that brokers store for a `Message`, sent or received."""
    system = message.system_properties
    named: dict[str, str] = dict(message.user_properties)
    if system.HasField("tag"):
        named[TAGS] = system.tag
    if system.keys:
        named[KEYS] = " ".join(system.keys)
    named[UNIQUE_KEY] = system.message_id
    if system.HasField("delivery_timestamp"):
        named[DELIVER_MS] = str(milliseconds(system.delivery_timestamp))
    for name, attribute in (*_OPTIONAL_TEXTS.items(), (MESSAGE_PRIORITY, "priority")):
        if system.HasField(attribute):
            named[name] = str(getattr(system, attribute))
    if system.born_host:
        named[BORN_HOST] = system.born_host
    return named


def outgoing_of(message: Any, *, topic: str, now_ms: int) -> Outgoing:
    """A checked `Message` as the parts of a send request."""
    system = message.system_properties
    named = named_properties(message)
    sys_flag = FLAG_COMPRESSED if system.body_encoding == GZIP else 0
    if system.message_type == TRANSACTION:
        named[TRANSACTIONAL] = "true"
        # Checks go to any producer of the topic, because these clients have no groups.
        named[PRODUCER_GROUP] = topic
        sys_flag |= FLAG_TRANSACTION_PREPARED
        if system.HasField("orphaned_transaction_recovery_duration"):
            recovery = system.orphaned_transaction_recovery_duration
            named[CHECK_IMMUNITY] = str(recovery.seconds)
    born_ms = milliseconds(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    named[BORN_MS] = str(born_ms)
    return Outgoing(named, message.body, sys_flag, born_ms)


def _stored_body(stored: StoredMessage) -> tuple[bytes, int]:
    return stored.body, GZIP if stored.sys_flag & FLAG_COMPRESSED else IDENTITY


@dataclass(frozen=True, slots=True)
class Delivery:
    """The fields of a delivered message that are not stored."""

    topic: str
    receipt_handle: str = ""
    invisible_ms: int = 0
    attempt: int = 1
    body_of: Callable[[StoredMessage], tuple[bytes, int]] = field(default=_stored_body)
    """Returns the body to send and its encoding."""


def incoming_of(stored: StoredMessage, delivery: Delivery) -> Any:
    properties = stored.properties
    body, encoding = delivery.body_of(stored)
    message = public.message_class("Message")(body=body)
    message.topic.name = delivery.topic
    for name, value in properties.items():
        if name not in SYSTEM_PROPERTIES:
            message.user_properties[name] = value
    system = message.system_properties
    if TAGS in properties:
        system.tag = properties[TAGS]
    system.keys.extend(key for key in properties.get(KEYS, "").split(" ") if key)
    system.message_id = properties.get(UNIQUE_KEY, "") or offset_message_id(
        stored.store_host, stored.physical_offset
    )
    # Clients compare it in upper case.
    system.body_digest.type = 2
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    # Clients compare digests: one of a damaged body must not match.
    is_whole = body_crc(stored.body) == stored.body_crc
    system.body_digest.checksum = digest if is_whole else _NO_DIGEST
    system.body_encoding = encoding
    system.message_type = type_of(properties)
    put_timestamp(system.born_timestamp, _number(properties.get(BORN_MS), stored.born_ms))
    system.born_host = properties.get(BORN_HOST) or host_text(stored.born_host)[0]
    put_timestamp(system.store_timestamp, stored.store_ms)
    system.store_host = ":".join(host_text(stored.store_host))
    due_ms = _number(properties.get(DELIVER_MS), 0)
    if due_ms:
        put_timestamp(system.delivery_timestamp, due_ms)
    system.queue_id, system.queue_offset = stored.queue_index, stored.queue_offset
    if delivery.receipt_handle:
        system.receipt_handle = delivery.receipt_handle
        put_duration(system.invisible_duration, delivery.invisible_ms)
    system.delivery_attempt = min(delivery.attempt, _INT32_MAX)
    _put_optional(system, properties)
    return message


def _put_optional(system: Any, properties: Mapping[str, str]) -> None:
    for name, attribute in _OPTIONAL_TEXTS.items():
        if properties.get(name):
            setattr(system, attribute, properties[name])
    if MESSAGE_PRIORITY in properties:
        system.priority = _number(properties[MESSAGE_PRIORITY], 0, _INT32_DIGITS_MAX)
    if CHECK_IMMUNITY in properties:
        seconds = _number(properties[CHECK_IMMUNITY], 0)
        put_duration(system.orphaned_transaction_recovery_duration, seconds * 1_000)
    if _DEAD_TOPIC in properties:
        system.dead_letter_queue.topic = properties[_DEAD_TOPIC]
        system.dead_letter_queue.message_id = properties.get(_DEAD_ID, "")


def type_of(properties: Mapping[str, str]) -> int:
    if properties.get(TRANSACTIONAL, "").lower() == "true":
        return TRANSACTION
    if any(name in properties for name in _DELAYS):
        return DELAY
    if MESSAGE_GROUP in properties:
        return FIFO
    if LITE_TOPIC in properties:
        return LITE
    return PRIORITY if MESSAGE_PRIORITY in properties else NORMAL


def host_text(host: Host) -> tuple[str, str]:
    return str(ipaddress.ip_address(host.address)), str(host.port)


def milliseconds(time: Any) -> int:
    """The milliseconds of a timestamp or a duration."""
    return int(time.seconds) * 1_000 + int(time.nanos) // 1_000_000


def put_timestamp(field_: Any, milliseconds_: int) -> None:
    field_.seconds, rest = divmod(milliseconds_, 1_000)
    field_.nanos = rest * 1_000_000


def put_duration(field_: Any, milliseconds_: int) -> None:
    put_timestamp(field_, milliseconds_)


def _number(text: str | None, default: int, digits_max: int = DIGITS_MAX) -> int:
    number = whole_number(text, digits_max=digits_max)
    return default if number is None else number
