"""SendMessage, EndTransaction and RecallMessage, and the checks of messages to send."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketmq_broker.servers.public_grpc.caller import Caller, ok_reply
from rocketmq_broker.servers.public_grpc.lookup import LIMITS, accepted_types
from rocketmq_broker.servers.public_grpc.routing import lite_refusal, require_topic, topic_named
from rocketmq_broker.servers.shell.clock import TimeSlices
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import LocalProtocolError, PublicRefusal, RocketMQError
from rocketmq_wire.grpc.public import messages as wire
from rocketmq_wire.grpc.public.status import code_of_send, make_status, status_of
from rocketmq_wire.hashes import consistent_hash, java_hash
from rocketmq_wire.model import PERMISSION_WRITE, QueueId, TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import RecallMessage, SendMessage, SendStatus
from rocketmq_wire.requests.pop import ANY_QUEUE
from rocketmq_wire.requests.transactions import EndTransaction, Resolution
from rocketmq_wire.stubs import public

_COMMIT, _ROLLBACK = 1, 2
"""`TransactionResolution` in the protocol."""
_SYSTEM_SIZE_MAX: Final = 2 * LIMITS.properties_size_max
"""Bytes of the system properties: tag, keys, and what has a size of its own."""
_FROM_CHECK: Final = 2
"""`TransactionSource` in the protocol: the server asked."""


async def send(caller: Caller, request: Any) -> Any:
    """Store every message; the results keep the order of the messages."""
    if not request.messages:
        raise PublicRefusal(PublicCode.MESSAGE_CORRUPTED, "no message to send")
    topics = {message.topic.name for message in request.messages}
    if len(topics) > 1:
        raise PublicRefusal(PublicCode.MESSAGE_CORRUPTED, "topic in messages are not same")
    name = topic_named(request.messages[0].topic)
    config = require_topic(caller, name)
    if not config.permission & PERMISSION_WRITE or not config.write_queue_count:
        raise PublicRefusal(PublicCode.FORBIDDEN, f"no queue of topic {name} can be written")
    accepted, slices = accepted_types(config), TimeSlices()
    for message in request.messages:
        # All or none: one wrong message refuses the whole request.
        check_message(message, accepted, now_ms=caller.now_ms)
        await slices.pause()
    reply = public.message_class("SendMessageResponse")()
    for message in request.messages:
        await slices.pause()
        queue = _queue_of(caller, config, request.messages, message)
        reply.entries.append(await _send_one(caller, queue, message))
    reply.status.CopyFrom(common_status([entry.status for entry in reply.entries]))
    return reply


def _queue_of(
    caller: Caller, config: TopicConfig, messages: Sequence[Any], message: Any
) -> QueueId:
    index = ANY_QUEUE
    if message.system_properties.message_type == wire.PRIORITY:
        # Each priority has a queue; receives try the highest one first.
        priority = message.system_properties.priority
        index = min(max(priority, 0), config.write_queue_count - 1)
    # The messages of a group keep their order in one queue.
    group = messages[0].system_properties.message_group
    if group and len(messages) == 1:
        index = consistent_hash(java_hash(group), config.write_queue_count)
    return QueueId(config.name, caller.service.lookup.broker_name, index)


async def _send_one(caller: Caller, queue: QueueId, message: Any) -> Any:
    entry = public.message_class("SendResultEntry")()
    outgoing = wire.outgoing_of(message, topic=queue.topic, now_ms=caller.now_ms)
    try:
        sent = await caller.ask(
            SendMessage(
                queue.topic,
                queue,
                outgoing.born_ms,
                outgoing.body,
                _encoded(outgoing.properties),
                sys_flag=outgoing.sys_flag,
            )
        )
    except RocketMQError as error:
        entry.status.CopyFrom(status_of(error))
        return entry
    entry.status.CopyFrom(make_status(code_of_send(sent.status)))
    if sent.status is not SendStatus.OK:
        return entry
    entry.message_id = message.system_properties.message_id
    entry.offset = sent.start
    if message.system_properties.message_type == wire.TRANSACTION:
        entry.transaction_id = sent.transaction_id or entry.message_id
    if sent.recall_handle is not None:
        entry.recall_handle = sent.recall_handle
    return entry


async def end_transaction(caller: Caller, request: Any) -> Any:
    """Commit or roll back a half message."""
    name = topic_named(request.topic)
    if not request.transaction_id.strip():
        raise PublicRefusal(PublicCode.INVALID_TRANSACTION_ID, "transaction id cannot be blank")
    if request.resolution not in (_COMMIT, _ROLLBACK):
        raise PublicRefusal(PublicCode.BAD_REQUEST, "the resolution is neither commit nor rollback")
    is_commit = request.resolution == _COMMIT
    await caller.ask(
        EndTransaction(
            group=name,
            half_offset=-1,
            position=-1,
            resolution=Resolution.COMMIT if is_commit else Resolution.ROLLBACK,
            message_id=request.message_id,
            transaction_id=request.transaction_id,
            topic=name,
            is_from_check=request.source == _FROM_CHECK,
            broker=caller.service.lookup.broker_name,
        )
    )
    return ok_reply("EndTransaction")


async def recall(caller: Caller, request: Any) -> Any:
    """Cancel a delayed message."""
    name = topic_named(request.topic)
    recalled = await caller.ask(
        RecallMessage(name, request.recall_handle, broker=caller.service.lookup.broker_name)
    )
    return ok_reply("RecallMessage", message_id=recalled.message_id)


def common_status(statuses: Sequence[Any]) -> Any:
    """The status of all entries; MULTIPLE_RESULTS if their codes differ."""
    codes = {status.code for status in statuses}
    return make_status(PublicCode(codes.pop()) if len(codes) == 1 else PublicCode.MULTIPLE_RESULTS)


def _encoded(properties: Mapping[str, str]) -> bytes:
    try:
        return encode_properties(properties)
    except LocalProtocolError as error:
        raise PublicRefusal(PublicCode.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from error


# --- checks of a message, in the order of RocketMQ's proxy ------------------------------------


def check_message(message: Any, accepted: tuple[int, ...], *, now_ms: int) -> None:
    """Raises PublicRefusal for a message that may not be sent to its topic."""
    system = message.system_properties
    # Before each of its keys is looked at.
    size = system.ByteSize()
    _check_max(
        size,
        _SYSTEM_SIZE_MAX,
        PublicCode.MESSAGE_PROPERTIES_TOO_LARGE,
        f"system properties take {size} bytes",
    )
    _check_tag(system)
    for key in system.keys:
        _check_text("a key", key, PublicCode.ILLEGAL_MESSAGE_KEY)
    if system.HasField("message_group"):
        _check_group(system.message_group)
    if system.message_type == wire.LITE or system.lite_topic:
        raise lite_refusal(f"a message of lite topic {system.lite_topic[:80]!r}")
    _check_user_properties(message)
    if not system.message_id.strip():
        raise PublicRefusal(PublicCode.ILLEGAL_MESSAGE_ID, "message id cannot be null or empty")
    if not message.body:
        raise PublicRefusal(PublicCode.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    size = len(message.body)
    text = f"message body has {size} bytes"
    _check_max(size, LIMITS.body_size_max, PublicCode.MESSAGE_BODY_TOO_LARGE, text)
    _check_type(system, accepted)
    _check_times(system, now_ms)


def _check_tag(system: Any) -> None:
    if system.HasField("tag"):
        _check_text("tag", system.tag, PublicCode.ILLEGAL_MESSAGE_TAG)
        if "|" in system.tag:
            raise PublicRefusal(PublicCode.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")


def _check_group(group: str) -> None:
    _check_text("message group", group, PublicCode.ILLEGAL_MESSAGE_GROUP)
    if len(group.encode()) >= LIMITS.group_size_max:
        raise PublicRefusal(
            PublicCode.ILLEGAL_MESSAGE_GROUP,
            f"message group must have less than {LIMITS.group_size_max} bytes",
        )


def _check_text(name: str, text: str, code: PublicCode) -> None:
    if not text.strip():
        raise PublicRefusal(code, f"{name} cannot be blank")
    if _has_control(text):
        raise PublicRefusal(code, f"{name} cannot have control characters")


def _check_user_properties(message: Any) -> None:
    system = message.system_properties
    properties = message.user_properties
    count, too_large = len(properties), PublicCode.MESSAGE_PROPERTIES_TOO_LARGE
    _check_max(count, LIMITS.user_properties_max, too_large, f"{count} user properties")
    size = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        if name in wire.SYSTEM_PROPERTIES:
            raise PublicRefusal(
                PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}"
            )
        if _has_control(name) or _has_control(value):
            raise PublicRefusal(
                PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the name or value of property {name!r} has control characters",
            )
        size += len(name.encode()) + len(value.encode())
    _check_max(size, LIMITS.properties_size_max, too_large, f"properties take {size} bytes")


def _check_type(system: Any, accepted: tuple[int, ...]) -> None:
    kind = system.message_type
    name = wire.MESSAGE_TYPE_NAMES.get(kind)
    has_property = {
        wire.FIFO: system.HasField("message_group"),
        wire.DELAY: system.HasField("delivery_timestamp"),
        wire.PRIORITY: system.HasField("priority"),
    }
    conflict = None
    if name is None:
        conflict = f"message type {kind} is not one"
    elif not has_property.get(kind, True):
        conflict = f"a message of type {name} lacks the property that makes it one"
    elif kind == wire.TRANSACTION and (has_property[wire.FIFO] or has_property[wire.DELAY]):
        conflict = "a transactional message can have neither a group nor a time of delivery"
    elif kind not in accepted:
        takes = ", ".join(wire.MESSAGE_TYPE_NAMES[one] for one in accepted)
        conflict = f"the topic takes messages of type {takes}, not {name}"
    if conflict is not None:
        raise PublicRefusal(PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, conflict)


def _check_times(system: Any, now_ms: int) -> None:
    if system.HasField("delivery_timestamp"):
        delay_ms = wire.milliseconds(system.delivery_timestamp) - now_ms
        text = f"the time of delivery is {delay_ms} ms away"
        _check_max(delay_ms, LIMITS.delay_ms_max, PublicCode.ILLEGAL_DELIVERY_TIME, text)
    wait_ms = wire.milliseconds(system.orphaned_transaction_recovery_duration)
    text = f"the transaction is to be checked after {wait_ms} ms"
    _check_max(wait_ms, LIMITS.recovery_ms_max, PublicCode.BAD_REQUEST, text)


def _check_max(value: int, value_max: int, code: PublicCode, text: str) -> None:
    if value > value_max:
        raise PublicRefusal(code, f"{text}, more than {value_max}")


def _has_control(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" for character in text)
