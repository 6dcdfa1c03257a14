"""PullMessage, UpdateOffset, GetOffset, QueryOffset, which RocketMQ's proxy leaves out.

The protocol defines the messages, this project their meaning. A pull's reply has a status, messages
and always the next offset. OK without a message means that nothing new matches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from rocketmq_broker.servers.public_grpc.caller import Caller, ok_reply
from rocketmq_broker.servers.public_grpc.lookup import LIMITS
from rocketmq_broker.servers.public_grpc.receiving import sendable_body, subscription_of
from rocketmq_broker.servers.public_grpc.routing import group_named, require_topic, topic_named
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import ProgressNotFoundError, PublicRefusal
from rocketmq_wire.grpc.public.messages import Delivery, incoming_of, milliseconds
from rocketmq_wire.grpc.public.status import make_status
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import PullMessages, PullStatus
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    SearchOffset,
)
from rocketmq_wire.stubs import public

_BEGINNING, _END, _TIMESTAMP = 0, 1, 2
"""`QueryOffsetPolicy` in the protocol."""
_MARGIN_MS: Final = 200


async def pull(caller: Caller, request: Any) -> AsyncGenerator[Any, None]:
    """The frames of the reply: a status, messages, the next offset."""
    queue, group = _queue_of(caller, request.message_queue), group_named(request.group)
    wait_ms = milliseconds(request.long_polling_timeout)
    wait_ms = min(max(wait_ms, 0), LIMITS.poll_ms_max)
    if caller.seconds_left is not None:
        wait_ms = min(wait_ms, max(int(caller.seconds_left * 1_000) - _MARGIN_MS, 0))
    reply = await caller.ask(
        PullMessages(
            group,
            queue,
            request.offset,
            min(max(request.batch_size, 1), LIMITS.pull_count_max),
            bytes_max=LIMITS.pull_bytes_max,
            subscription=subscription_of(request.filter_expression),
            suspend_ms=wait_ms or None,
        )
    )
    frame = public.message_class("PullMessageResponse")
    if reply.status is PullStatus.OFFSET_ILLEGAL:
        text = f"offset {request.offset} is outside [{reply.start}, {reply.end})"
        yield frame(status=make_status(PublicCode.ILLEGAL_OFFSET, text))
        yield frame(next_offset=reply.next_begin)
        return
    yield frame(status=make_status(PublicCode.OK))
    content = memoryview(b"".join(reply.records))
    position = 0
    while position < len(content):
        stored, position = decode_record(content, position, check_crc=False)
        yield frame(message=incoming_of(stored, Delivery(queue.topic, body_of=sendable_body)))
    yield frame(next_offset=reply.next_begin)


async def update(caller: Caller, request: Any) -> Any:
    """Commit a group's offset."""
    queue, group = _queue_of(caller, request.message_queue), group_named(request.group)
    await caller.ask(CommitOffset(group, queue, request.offset))
    return ok_reply("UpdateOffset")


async def get(caller: Caller, request: Any) -> Any:
    """A group's committed offset."""
    queue, group = _queue_of(caller, request.message_queue), group_named(request.group)
    try:
        found = await caller.ask(GetCommittedOffset(group, queue))
    except ProgressNotFoundError as error:
        raise PublicRefusal(PublicCode.OFFSET_NOT_FOUND, error.remark) from error
    return ok_reply("GetOffset", offset=found.value)


async def query(caller: Caller, request: Any) -> Any:
    """A queue's start offset, its end offset, or the offset of a time."""
    queue = _queue_of(caller, request.message_queue)
    end = (await caller.ask(GetMaxOffset(queue))).value
    if request.query_offset_policy == _END:
        offset = end
    elif request.query_offset_policy == _BEGINNING:
        offset = (await caller.ask(GetMinOffset(queue))).value
    elif request.query_offset_policy == _TIMESTAMP and request.HasField("timestamp"):
        search = SearchOffset(queue, milliseconds(request.timestamp))
        offset = min((await caller.ask(search)).value, end)
    else:
        raise PublicRefusal(PublicCode.BAD_REQUEST, "a query by timestamp needs one")
    return ok_reply("QueryOffset", offset=offset)


def _queue_of(caller: Caller, queue: Any) -> QueueId:
    name = topic_named(queue.topic)
    config = require_topic(caller, name)
    if not 0 <= queue.id < config.read_queue_count:
        raise PublicRefusal(
            PublicCode.BAD_REQUEST,
            f"topic {name} has {config.read_queue_count} queues, not {queue.id}",
        )
    return QueueId(name, caller.service.lookup.broker_name, queue.id)
