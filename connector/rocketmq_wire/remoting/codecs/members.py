"""Requests that a broker sends or passes on to one member <-> header fields and JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import member_int, member_object, member_text
from rocketmq_wire.model import QueueId
from rocketmq_wire.remoting.codecs import body, header
from rocketmq_wire.remoting.codecs.layouts import DONE, RECORD, Codec, answer, constant, layout
from rocketmq_wire.requests import members
from rocketmq_wire.requests.offsets import OffsetsReply

_MIB: Final = 1024 * 1024
_CONSUME_RESULTS: Final = {result.value: result for result in members.ConsumeResult}


def _members_of(owner: body.JsonObject, name: str) -> dict[str, dict[QueueId, int]]:
    table = member_object(owner, name)
    return {client_id: body.offsets_from_json(table, client_id) for client_id in table}


def _properties_of(owner: body.JsonObject, name: str) -> dict[str, str]:
    return {key: str(value) for key, value in member_object(owner, name).items()}


def _result_of(owner: body.JsonObject, name: str) -> members.ConsumeResult:
    text = member_text(owner, name)
    if text not in _CONSUME_RESULTS:
        raise RemoteProtocolError(f"{name} {text!r} is unknown")
    return _CONSUME_RESULTS[text]


_QUEUE_INFO: Final = body.Object(
    members.QueueInfo,
    body.integer("commitOffset", "done"),
    body.integer("cachedMsgCount", "count", 0),
    body.integer("cachedMsgMinOffset", "first", 0),
    body.integer("cachedMsgMaxOffset", "last", 0),
    body.member("cachedMsgSizeInMiB", "size",
                lambda owner, name: member_int(owner, name, 0) * _MIB, lambda size: size // _MIB),
    body.boolean("locked", "is_locked"),
    body.integer("lastLockTimestamp", "lock_ms", 0),
    # RocketMQ's own spelling.
    body.boolean("droped", "is_dropped"),
    body.integer("lastPullTimestamp", "pull_ms", 0),
    body.integer("lastConsumeTimestamp", "consume_ms", 0),
    constant("transactionMsgCount", 0),
    constant("transactionMsgMaxOffset", 0),
    constant("transactionMsgMinOffset", 0),
    constant("tryUnlockTimes", 0),
)  # fmt: skip
_RATES: Final = body.Object(
    members.ConsumeRates,
    body.number("pullRT", "pull_ms"),
    body.number("pullTPS", "pulled"),
    body.number("consumeRT", "consume_ms"),
    body.number("consumeOKTPS", "succeeded"),
    body.number("consumeFailedTPS", "failed"),
    body.integer("consumeFailedMsgs", "failed_in_hour", 0),
)
_RUNNING_INFO: Final = body.members(
    body.by_queue("mqTable", "queues", _QUEUE_INFO),
    body.table("statusTable", "rates", _RATES),
    body.subscriptions("subscriptionSet", "subscriptions"),
    body.member("properties", "properties", _properties_of, dict),
    constant("mqPopTable", {}),
)
_GROUP: Final = header.text("consumerGroup", "group")
_TOPIC_AND_GROUP: Final = (header.text("topic"), header.text("group"))

CODECS: Final = (
    Codec(RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
          layout(members.ResetOffsets, *_TOPIC_AND_GROUP, constant("timestamp", "0"),
                 constant("isForce", "true"),
                 body=body.members(body.offsets("offsetTable", "offsets"))),
          DONE),
    Codec(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
          layout(members.GetClientOffsets, *_TOPIC_AND_GROUP),
          answer(OffsetsReply, body=body.members(body.offsets("messageQueueTable", "offsets"),
                                                 constant("consumerTable", {})))),
    Codec(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
          layout(members.GetMembersOffsets, *_TOPIC_AND_GROUP,
                 header.text("clientAddr", "client_id", "")),
          answer(members.MembersOffsetsReply, body=body.members(
              body.member("consumerTable", "members", _members_of,
                          lambda found: {client_id: body.offsets_json(offsets)
                                         for client_id, offsets in found.items()}),
              constant("messageQueueTable", {})))),
    Codec(RequestCode.GET_CONSUMER_RUNNING_INFO,
          layout(members.GetRunningInfo, _GROUP, header.text("clientId", "client_id"),
                 header.boolean("jstackEnable", "with_stacks")),
          answer(members.RunningInfoReply, body=_RUNNING_INFO)),
    Codec(RequestCode.CONSUME_MESSAGE_DIRECTLY,
          layout(members.ConsumeDirectly, _GROUP, header.text("clientId", "client_id", ""),
                 header.text("msgId", "message_id", ""), header.text("brokerName", "broker", ""),
                 body=RECORD),
          answer(members.ConsumeDirectlyReply, body=body.members(
              body.member("consumeResult", "result", _result_of, lambda result: result.value),
              body.integer("spentTimeMills", "spent_ms", 0), body.boolean("order", "is_orderly"),
              body.boolean("autoCommit", "auto_commit", default=True),
              body.text("remark", default="")))),
)  # fmt: skip
