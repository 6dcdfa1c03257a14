"""Requests about queue assignment <-> JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, member_object, member_objects, member_text
from rocketmq_wire.remoting.codecs import body
from rocketmq_wire.remoting.codecs.layouts import DONE, Codec, answer, layout
from rocketmq_wire.requests.assignment import (
    Assignment,
    AssignmentReply,
    ConsumeMode,
    QueryAssignment,
    SetConsumeMode,
)


def _mode_of(owner: body.JsonObject, name: str) -> ConsumeMode:
    text = member_text(owner, name, "PULL")
    try:
        return ConsumeMode(text)
    except ValueError as error:
        raise RemoteProtocolError(f"no consume mode: {text[:20]!r}") from error


_MODE: Final = body.member("mode", "mode", _mode_of, lambda mode: mode.value)
_ASSIGNMENT: Final = body.Object(
    Assignment,
    body.member("messageQueue", "queue",
                lambda owner, name: body.QUEUE.read(member_object(owner, name)), body.QUEUE.write),
    _MODE,
)  # fmt: skip


def _assignments_of(owner: body.JsonObject, name: str) -> tuple[Assignment, ...] | None:
    if owner.get(name) is None:
        return None
    found = map(_ASSIGNMENT.read, member_objects(owner, name))
    return tuple(sorted(found, key=lambda one: one.queue))


def _assignments_json(assignments: tuple[Assignment, ...] | None) -> Json:
    return None if assignments is None else [_ASSIGNMENT.write(one) for one in assignments]


CODECS: Final = (
    Codec(RequestCode.QUERY_ASSIGNMENT,
          layout(QueryAssignment, body=body.members(
              body.text("consumerGroup", "group"), body.text("topic"),
              body.text("clientId", "client_id"), body.text("strategyName", "strategy", "AVG"),
              body.text("messageModel", "message_model", "CLUSTERING"))),
          answer(AssignmentReply, body=body.members(
              body.member("messageQueueAssignments", "assignments", _assignments_of,
                          _assignments_json)))),
    Codec(RequestCode.SET_MESSAGE_REQUEST_MODE,
          layout(SetConsumeMode, body=body.members(
              body.text("consumerGroup", "group"), body.text("topic"), _MODE,
              body.integer("popShareQueueNum", "share_queue_count", 0))),
          DONE),
)  # fmt: skip
