"""Requests about waiting and assignments (400, 401, 200054, 200055) <-> fields and bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    Json,
    json_object,
    member_int,
    member_object,
    member_objects,
    member_text,
)
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    EncodedReply,
    Fields,
    RequestCode,
    decode_done,
    encode_done,
    json_body,
    queue_fields,
    queue_of,
    success,
)
from rocketmq_wire.requests.assignment import (
    Assignment,
    AssignmentReply,
    ConsumeMode,
    QueryAssignment,
    SetConsumeMode,
)
from rocketmq_wire.requests.pop import (
    AwaitMessages,
    AwaitMessagesReply,
    GetPollingCount,
    PollingCountReply,
)

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]


# --- waiting --------------------------------------------------------------------------------


def _encode_await(request: AwaitMessages) -> Encoded:
    fields = {
        "consumerGroup": request.group,
        **queue_fields(request.queue),
        "pollTime": str(request.poll_ms),
        "bornTime": str(request.born_ms),
        "order": "true" if request.is_orderly else "false",
    }
    if request.attempt_id:
        fields["attemptId"] = request.attempt_id
    return fields, ()


def _decode_await(fields: Fields, body: Buffer) -> AwaitMessages:
    del body
    return AwaitMessages(
        group=fields.text("consumerGroup"),
        queue=queue_of(fields),
        poll_ms=fields.int64("pollTime"),
        born_ms=fields.int64("bornTime", 0),
        is_orderly=fields.boolean("order", False),
        attempt_id=fields.text("attemptId", ""),
    )


def _encode_arrival(request: AwaitMessages, reply: AwaitMessagesReply) -> EncodedReply:
    del request
    words = {True: "true", False: "false"}
    fields = {"hasMsg": words[reply.has_message], "pollingFull": words[reply.is_polling_full]}
    return success(fields)


def _decode_arrival(request: AwaitMessages, reply: EncodedReply) -> AwaitMessagesReply:
    del request
    fields = Fields(reply.ext_fields)
    return AwaitMessagesReply(fields.boolean("hasMsg", False), fields.boolean("pollingFull", False))


def _decode_polling_count(request: GetPollingCount, reply: EncodedReply) -> PollingCountReply:
    del request
    return PollingCountReply(Fields(reply.ext_fields).int32("pollingNum"))


# --- who consumes what ----------------------------------------------------------------------


def _encode_query(request: QueryAssignment) -> Encoded:
    body = {
        "clientId": request.client_id,
        "consumerGroup": request.group,
        "messageModel": request.message_model,
        "strategyName": request.strategy,
        "topic": request.topic,
    }
    return {}, (fastjson.dumps(body).encode("utf-8", "replace"),)


def _decode_query(fields: Fields, body: Buffer) -> QueryAssignment:
    del fields
    query = json_object(body)
    return QueryAssignment(
        group=member_text(query, "consumerGroup"),
        topic=member_text(query, "topic"),
        client_id=member_text(query, "clientId"),
        strategy=member_text(query, "strategyName", "AVG"),
        message_model=member_text(query, "messageModel", "CLUSTERING"),
    )


def _encode_assignments(request: QueryAssignment, reply: AssignmentReply) -> EncodedReply:
    del request
    if reply.assignments is None:
        return success(body={})
    rows: list[Json] = [
        {
            "messageQueue": {
                "brokerName": one.queue.broker,
                "queueId": one.queue.index,
                "topic": one.queue.topic,
            },
            "mode": one.mode.value,
        }
        for one in reply.assignments
    ]
    return success(body={"messageQueueAssignments": rows})


def _decode_assignments(request: QueryAssignment, reply: EncodedReply) -> AssignmentReply:
    del request
    body = json_body(reply)
    if body.get("messageQueueAssignments") is None:
        return AssignmentReply(None)
    found = []
    for row in member_objects(body, "messageQueueAssignments"):
        queue = member_object(row, "messageQueue")
        found.append(
            Assignment(
                _mode_of(member_text(row, "mode", "PULL")),
                QueueId(
                    member_text(queue, "topic"),
                    member_text(queue, "brokerName"),
                    member_int(queue, "queueId"),
                ),
            )
        )
    return AssignmentReply(tuple(sorted(found, key=lambda one: one.queue)))


def _mode_of(text: str) -> ConsumeMode:
    try:
        return ConsumeMode(text)
    except ValueError as error:
        raise RemoteProtocolError(f"no consume mode: {text[:20]!r}") from error


def _encode_mode(request: SetConsumeMode) -> Encoded:
    body = {
        "consumerGroup": request.group,
        "mode": request.mode.value,
        "popShareQueueNum": request.share_queue_count,
        "topic": request.topic,
    }
    return {}, (fastjson.dumps(body).encode("utf-8", "replace"),)


def _decode_mode(fields: Fields, body: Buffer) -> SetConsumeMode:
    del fields
    mode = json_object(body)
    return SetConsumeMode(
        group=member_text(mode, "consumerGroup"),
        topic=member_text(mode, "topic"),
        mode=_mode_of(member_text(mode, "mode", "PULL")),
        share_queue_count=member_int(mode, "popShareQueueNum", 0),
    )


MODE_CODECS: Final = (
    Codec(
        RequestCode.NOTIFICATION,
        AwaitMessages,
        _encode_await,
        _decode_await,
        _encode_arrival,
        _decode_arrival,
    ),
    Codec(
        RequestCode.POLLING_INFO,
        GetPollingCount,
        lambda request: ({"consumerGroup": request.group, **queue_fields(request.queue)}, ()),
        lambda fields, _: GetPollingCount(fields.text("consumerGroup"), queue_of(fields)),
        lambda _, reply: success({"pollingNum": str(reply.count)}),
        _decode_polling_count,
    ),
    Codec(
        RequestCode.QUERY_ASSIGNMENT,
        QueryAssignment,
        _encode_query,
        _decode_query,
        _encode_assignments,
        _decode_assignments,
    ),
    Codec(
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        SetConsumeMode,
        _encode_mode,
        _decode_mode,
        encode_done,
        decode_done,
    ),
)
