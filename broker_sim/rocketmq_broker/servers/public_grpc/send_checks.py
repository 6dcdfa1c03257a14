"""Checks of messages to send: those of RocketMQ's proxy, in its order."""

from __future__ import annotations

import unicodedata
from typing import Any

from rocketmq_broker.servers.public_grpc.limits import PublicLimits
from rocketmq_broker.servers.public_grpc.routing import lite_refusal
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal
from rocketmq_wire.grpc.public.messages import (
    DELAY,
    FIFO,
    LITE,
    MESSAGE_TYPE_NAMES,
    PRIORITY,
    SYSTEM_PROPERTIES,
    TRANSACTION,
    milliseconds,
)


def check_message(
    message: Any, accepted: tuple[int, ...], limits: PublicLimits, *, now_ms: int
) -> None:
    """Raises PublicRefusal for a message that may not be sent to its topic."""
    system = message.system_properties
    _check_tag(system)
    for key in system.keys:
        _check_text("a key", key, PublicCode.ILLEGAL_MESSAGE_KEY)
    if system.HasField("message_group"):
        _check_group(system.message_group, limits)
    if system.message_type == LITE or system.lite_topic:
        raise lite_refusal(f"a message of lite topic {system.lite_topic[:80]!r}")
    _check_user_properties(message, limits)
    if not system.message_id.strip():
        raise PublicRefusal(PublicCode.ILLEGAL_MESSAGE_ID, "message id cannot be null or empty")
    if not message.body:
        raise PublicRefusal(PublicCode.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(message.body) > limits.body_size_max:
        raise PublicRefusal(
            PublicCode.MESSAGE_BODY_TOO_LARGE,
            f"message body has {len(message.body)} bytes, more than {limits.body_size_max}",
        )
    _check_type(system, accepted)
    _check_times(system, limits, now_ms)


def _check_tag(system: Any) -> None:
    if system.HasField("tag"):
        _check_text("tag", system.tag, PublicCode.ILLEGAL_MESSAGE_TAG)
        if "|" in system.tag:
            raise PublicRefusal(PublicCode.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")


def _check_group(group: str, limits: PublicLimits) -> None:
    _check_text("message group", group, PublicCode.ILLEGAL_MESSAGE_GROUP)
    if len(group.encode()) >= limits.group_size_max:
        raise PublicRefusal(
            PublicCode.ILLEGAL_MESSAGE_GROUP,
            f"message group must have less than {limits.group_size_max} bytes",
        )


def _check_text(name: str, text: str, code: PublicCode) -> None:
    if not text.strip():
        raise PublicRefusal(code, f"{name} cannot be blank")
    if _has_control(text):
        raise PublicRefusal(code, f"{name} cannot have control characters")


def _check_user_properties(message: Any, limits: PublicLimits) -> None:
    system = message.system_properties
    properties = message.user_properties
    if len(properties) > limits.user_properties_max:
        raise PublicRefusal(
            PublicCode.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(properties)} user properties, more than {limits.user_properties_max}",
        )
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        if name in SYSTEM_PROPERTIES:
            raise PublicRefusal(
                PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}"
            )
        if _has_control(name) or _has_control(value):
            raise PublicRefusal(
                PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the name or value of property {name!r} has control characters",
            )
        size += len(name.encode()) + len(value.encode())
    if size > limits.properties_size_max:
        raise PublicRefusal(
            PublicCode.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties take {size} bytes, more than {limits.properties_size_max}",
        )


def _check_type(system: Any, accepted: tuple[int, ...]) -> None:
    kind = system.message_type
    name = MESSAGE_TYPE_NAMES.get(kind)
    has_property = {
        FIFO: system.HasField("message_group"),
        DELAY: system.HasField("delivery_timestamp"),
        PRIORITY: system.HasField("priority"),
    }
    conflict = None
    if name is None:
        conflict = f"message type {kind} is not one"
    elif not has_property.get(kind, True):
        conflict = f"a message of type {name} lacks the property that makes it one"
    elif kind == TRANSACTION and (has_property[FIFO] or has_property[DELAY]):
        conflict = "a transactional message can have neither a group nor a time of delivery"
    elif kind not in accepted:
        takes = ", ".join(MESSAGE_TYPE_NAMES[one] for one in accepted)
        conflict = f"the topic takes messages of type {takes}, not {name}"
    if conflict is not None:
        raise PublicRefusal(PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, conflict)


def _check_times(system: Any, limits: PublicLimits, now_ms: int) -> None:
    delay_ms = milliseconds(system.delivery_timestamp) - now_ms
    if system.HasField("delivery_timestamp") and delay_ms > limits.delay_ms_max:
        raise PublicRefusal(
            PublicCode.ILLEGAL_DELIVERY_TIME,
            f"the time of delivery is {delay_ms} ms away, more than {limits.delay_ms_max}",
        )
    wait_ms = milliseconds(system.orphaned_transaction_recovery_duration)
    if wait_ms > limits.recovery_ms_max:
        raise PublicRefusal(
            PublicCode.BAD_REQUEST,
            f"the transaction is to be checked after {wait_ms} ms, "
            f"more than {limits.recovery_ms_max}",
        )


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" for character in text)
