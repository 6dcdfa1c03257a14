"""Sends of the public service: messages -> the broker's own sends -> one result per message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketmq_broker.servers.public_grpc.caller import Caller, ok_reply
from rocketmq_broker.servers.public_grpc.limits import PublicLimits
from rocketmq_broker.servers.public_grpc.lookup import Lookup, accepted_types
from rocketmq_broker.servers.public_grpc.routing import require_topic, topic_named
from rocketmq_broker.servers.public_grpc.send_checks import check_message
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import LocalProtocolError, PublicRefusal, RocketMQError
from rocketmq_wire.grpc.public.messages import PRIORITY, TRANSACTION, outgoing_of
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
_FROM_CHECK: Final = 2
"""`TransactionSource` in the protocol: the server asked."""


class Sends:
    """SendMessage, EndTransaction and RecallMessage."""

    def __init__(self, lookup: Lookup, limits: PublicLimits) -> None:
        self._lookup = lookup
        self._limits = limits

    async def send(self, caller: Caller, request: Any) -> Any:
        """Store every message; the results keep the order of the messages."""
        if not request.messages:
            raise PublicRefusal(PublicCode.MESSAGE_CORRUPTED, "no message to send")
        topics = {message.topic.name for message in request.messages}
        if len(topics) > 1:
            raise PublicRefusal(PublicCode.MESSAGE_CORRUPTED, "topic in messages are not same")
        name = topic_named(request.messages[0].topic)
        config = require_topic(self._lookup, name)
        if not config.permission & PERMISSION_WRITE or not config.write_queue_count:
            raise PublicRefusal(PublicCode.FORBIDDEN, f"no queue of topic {name} can be written")
        accepted = accepted_types(config)
        for message in request.messages:
            # All or none: one wrong message refuses the whole request.
            check_message(message, accepted, self._limits, now_ms=caller.now_ms)
        reply = public.message_class("SendMessageResponse")()
        for message in request.messages:
            queue = self._queue_of(config, request.messages, message)
            reply.entries.append(await self._send_one(caller, queue, message))
        reply.status.CopyFrom(common_status([entry.status for entry in reply.entries]))
        return reply

    def _queue_of(self, config: TopicConfig, messages: Sequence[Any], message: Any) -> QueueId:
        index = ANY_QUEUE
        if message.system_properties.message_type == PRIORITY:
            # Each priority has a queue; receives try the highest one first.
            priority = message.system_properties.priority
            index = min(max(priority, 0), config.write_queue_count - 1)
        # The messages of a group keep their order in one queue.
        group = messages[0].system_properties.message_group
        if group and len(messages) == 1:
            index = consistent_hash(java_hash(group), config.write_queue_count)
        return QueueId(config.name, self._lookup.broker_name, index)

    async def _send_one(self, caller: Caller, queue: QueueId, message: Any) -> Any:
        entry = public.message_class("SendResultEntry")()
        outgoing = outgoing_of(message, topic=queue.topic, now_ms=caller.now_ms)
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
        if message.system_properties.message_type == TRANSACTION:
            entry.transaction_id = sent.transaction_id or entry.message_id
        if sent.recall_handle is not None:
            entry.recall_handle = sent.recall_handle
        return entry

    async def end_transaction(self, caller: Caller, request: Any) -> Any:
        """Commit or roll back a half message."""
        name = topic_named(request.topic)
        if not request.transaction_id.strip():
            raise PublicRefusal(PublicCode.INVALID_TRANSACTION_ID, "transaction id cannot be blank")
        if request.resolution not in (_COMMIT, _ROLLBACK):
            raise PublicRefusal(
                PublicCode.BAD_REQUEST, "the resolution is neither commit nor rollback"
            )
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
                broker=self._lookup.broker_name,
            )
        )
        return ok_reply("EndTransaction")

    async def recall(self, caller: Caller, request: Any) -> Any:
        """Cancel a delayed message."""
        name = topic_named(request.topic)
        recalled = await caller.ask(
            RecallMessage(name, request.recall_handle, broker=self._lookup.broker_name)
        )
        return ok_reply("RecallMessage", message_id=recalled.message_id)


def common_status(statuses: Sequence[Any]) -> Any:
    """The status of all entries; MULTIPLE_RESULTS if their codes differ."""
    if len({status.code for status in statuses}) == 1:
        return statuses[0]
    return make_status(PublicCode.MULTIPLE_RESULTS)


def _encoded(properties: Mapping[str, str]) -> bytes:
    try:
        return encode_properties(properties)
    except LocalProtocolError as error:
        raise PublicRefusal(PublicCode.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from error
