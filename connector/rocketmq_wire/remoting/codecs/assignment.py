"""Requests about queue assignment <-> JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    Json,
    json_object,
    member_int,
    member_object,
    member_objects,
    member_text,
)
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    done_codec,
    json_body,
    json_request,
    success,
)
from rocketmq_wire.remoting.codecs.json_bodies import queue_from_json, queue_json
from rocketmq_wire.requests.assignment import (
    Assignment,
    AssignmentReply,
    ConsumeMode,
    QueryAssignment,
    SetConsumeMode,
)


def _encode_query(request: QueryAssignment) -> Encoded:
    body = {
        "clientId": request.client_id,
        "consumerGroup": request.group,
        "messageModel": request.message_model,
        "strategyName": request.strategy,
        "topic": request.topic,
    }
    return json_request(body)


def _decode_query(_: Fields, body: Buffer) -> QueryAssignment:
    query = json_object(body)
    return QueryAssignment(
        group=member_text(query, "consumerGroup"),
        topic=member_text(query, "topic"),
        client_id=member_text(query, "clientId"),
        strategy=member_text(query, "strategyName", "AVG"),
        message_model=member_text(query, "messageModel", "CLUSTERING"),
    )


def _encode_assignments(_: QueryAssignment, reply: AssignmentReply) -> EncodedReply:
    if reply.assignments is None:
        return success(body={})
    rows: list[Json] = [
        {
            "messageQueue": queue_json(one.queue),
            "mode": one.mode.value,
        }
        for one in reply.assignments
    ]
    return success(body={"messageQueueAssignments": rows})


def _decode_assignments(_: QueryAssignment, reply: EncodedReply) -> AssignmentReply:
    body = json_body(reply)
    if body.get("messageQueueAssignments") is None:
        return AssignmentReply(None)
    found = []
    for row in member_objects(body, "messageQueueAssignments"):
        queue = queue_from_json(member_object(row, "messageQueue"))
        found.append(Assignment(_mode_of(member_text(row, "mode", "PULL")), queue))
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
    return json_request(body)


def _decode_mode(_: Fields, body: Buffer) -> SetConsumeMode:
    mode = json_object(body)
    return SetConsumeMode(
        group=member_text(mode, "consumerGroup"),
        topic=member_text(mode, "topic"),
        mode=_mode_of(member_text(mode, "mode", "PULL")),
        share_queue_count=member_int(mode, "popShareQueueNum", 0),
    )


ASSIGNMENT_CODECS: Final = (
    Codec(RequestCode.QUERY_ASSIGNMENT, QueryAssignment, _encode_query, _decode_query,
          _encode_assignments, _decode_assignments),
    done_codec(RequestCode.SET_MESSAGE_REQUEST_MODE, SetConsumeMode, _encode_mode, _decode_mode),
)  # fmt: skip
