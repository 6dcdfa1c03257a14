"""Requests that a broker sends or passes on to one member <-> header fields and JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    Json,
    ObjectKeyed,
    as_object,
    json_object,
    member_bool,
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
    bool_text,
    done_codec,
    json_body,
    success,
)
from rocketmq_wire.remoting.codecs.json_bodies import (
    offsets_from_json,
    offsets_json,
    queue_key,
    queue_of_key,
    subscription_json,
)
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeRates,
    ConsumeResult,
    GetClientOffsets,
    GetMembersOffsets,
    GetRunningInfo,
    MembersOffsetsReply,
    QueueInfo,
    ResetOffsets,
    RunningInfoReply,
)
from rocketmq_wire.requests.offsets import OffsetsReply

_MIB: Final = 1024 * 1024


def _encode_reset(request: ResetOffsets) -> Encoded:
    fields = {"topic": request.topic, "group": request.group, "timestamp": "0", "isForce": "true"}
    body = fastjson.dumps({"offsetTable": offsets_json(request.offsets)})
    return fields, (body.encode("utf-8", "replace"),)


def _decode_reset(fields: Fields, body: Buffer) -> ResetOffsets:
    offsets = offsets_from_json(json_object(body), "offsetTable")
    return ResetOffsets(fields.text("group"), fields.text("topic"), offsets)


def _encode_client_offsets(_: GetClientOffsets, reply: OffsetsReply) -> EncodedReply:
    table = offsets_json(reply.offsets)
    return success(body={"consumerTable": {}, "messageQueueTable": table})


def _decode_client_offsets(_: GetClientOffsets, reply: EncodedReply) -> OffsetsReply:
    return OffsetsReply(offsets_from_json(json_body(reply), "messageQueueTable"))


def _encode_members(request: GetMembersOffsets) -> Encoded:
    return {"topic": request.topic, "group": request.group, "clientAddr": request.client_id}, ()


def _encode_members_offsets(_: GetMembersOffsets, reply: MembersOffsetsReply) -> EncodedReply:
    members: dict[str, Json] = {
        client_id: offsets_json(offsets) for client_id, offsets in reply.members.items()
    }
    return success(body={"consumerTable": members, "messageQueueTable": {}})


def _decode_members_offsets(_: GetMembersOffsets, reply: EncodedReply) -> MembersOffsetsReply:
    table = member_object(json_body(reply), "consumerTable")
    return MembersOffsetsReply(
        {client_id: offsets_from_json(table, client_id) for client_id in table}
    )


def _encode_get_info(request: GetRunningInfo) -> Encoded:
    fields = {"consumerGroup": request.group, "clientId": request.client_id}
    return {**fields, "jstackEnable": bool_text(request.with_stacks)}, ()


def _decode_get_info(fields: Fields, _: Buffer) -> GetRunningInfo:
    with_stacks = fields.boolean("jstackEnable", False)
    return GetRunningInfo(fields.text("consumerGroup"), fields.text("clientId"), with_stacks)


def _encode_info(_: GetRunningInfo, reply: RunningInfoReply) -> EncodedReply:
    queues = {queue_key(queue): _queue_json(info) for queue, info in reply.queues.items()}
    rates: dict[str, Json] = {
        topic: {
            "consumeFailedMsgs": 0,
            "consumeFailedTPS": rate.failed,
            "consumeOKTPS": rate.succeeded,
            "consumeRT": rate.consume_ms,
            "pullRT": rate.pull_ms,
            "pullTPS": rate.pulled,
        }
        for topic, rate in reply.rates.items()
    }
    return success(
        body={
            "mqPopTable": {},
            "mqTable": ObjectKeyed(queues),
            "properties": dict(reply.properties),
            "statusTable": rates,
            "subscriptionSet": [subscription_json(*one) for one in reply.subscriptions],
        }
    )


def _queue_json(info: QueueInfo) -> Json:
    return {
        "cachedMsgCount": info.count,
        "cachedMsgMaxOffset": info.last,
        "cachedMsgMinOffset": info.first,
        "cachedMsgSizeInMiB": info.size // _MIB,
        "commitOffset": info.done,
        # RocketMQ's own spelling.
        "droped": info.is_dropped,
        "lastConsumeTimestamp": info.consume_ms,
        "lastLockTimestamp": info.lock_ms,
        "lastPullTimestamp": info.pull_ms,
        "locked": info.is_locked,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _decode_info(_: GetRunningInfo, reply: EncodedReply) -> RunningInfoReply:
    info = json_body(reply)
    queues = {
        queue_of_key(key): _queue_of(as_object(value, "mqTable"))
        for key, value in member_object(info, "mqTable").items()
    }
    rates = {
        topic: _rates_of(as_object(value, "statusTable"))
        for topic, value in member_object(info, "statusTable").items()
    }
    properties = member_object(info, "properties")
    subscriptions = tuple(
        (
            member_text(one, "topic"),
            member_text(one, "subString", "*"),
            member_text(one, "expressionType", "TAG"),
            member_int(one, "subVersion", 0),
        )
        for one in member_objects(info, "subscriptionSet")
    )
    named = {name: str(value) for name, value in properties.items()}
    return RunningInfoReply(named, queues, rates, subscriptions)


def _queue_of(info: dict[str, Json]) -> QueueInfo:
    return QueueInfo(
        done=member_int(info, "commitOffset"),
        count=member_int(info, "cachedMsgCount", 0),
        first=member_int(info, "cachedMsgMinOffset", 0),
        last=member_int(info, "cachedMsgMaxOffset", 0),
        size=member_int(info, "cachedMsgSizeInMiB", 0) * _MIB,
        is_locked=member_bool(info, "locked", False),
        lock_ms=member_int(info, "lastLockTimestamp", 0),
        is_dropped=member_bool(info, "droped", False),
        pull_ms=member_int(info, "lastPullTimestamp", 0),
        consume_ms=member_int(info, "lastConsumeTimestamp", 0),
    )


def _rates_of(rates: dict[str, Json]) -> ConsumeRates:
    names = ("pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS")
    return ConsumeRates(*(_number(rates, name) for name in names))


def _number(owner: dict[str, Json], name: str) -> float:
    value = owner.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RemoteProtocolError(f"{name} is {str(value)[:40]!r}, no number")
    return float(value)


_CONSUME_RESULTS: Final = {result.value: result for result in ConsumeResult}


def _encode_directly(request: ConsumeDirectly) -> Encoded:
    fields = {
        "consumerGroup": request.group,
        "clientId": request.client_id,
        "msgId": request.message_id,
        "brokerName": request.broker,
    }
    return fields, (request.record,)


def _decode_directly(fields: Fields, body: Buffer) -> ConsumeDirectly:
    return ConsumeDirectly(
        fields.text("consumerGroup"),
        fields.text("clientId", ""),
        fields.text("msgId", ""),
        fields.text("brokerName", ""),
        bytes(body),
    )


def _encode_consumed(_: ConsumeDirectly, reply: ConsumeDirectlyReply) -> EncodedReply:
    return success(
        body={
            "autoCommit": reply.auto_commit,
            "consumeResult": reply.result.value,
            "order": reply.is_orderly,
            "remark": reply.remark,
            "spentTimeMills": reply.spent_ms,
        }
    )


def _decode_consumed(_: ConsumeDirectly, reply: EncodedReply) -> ConsumeDirectlyReply:
    body = json_body(reply)
    name = member_text(body, "consumeResult")
    if name not in _CONSUME_RESULTS:
        raise RemoteProtocolError(f"consumeResult {name!r} is unknown")
    return ConsumeDirectlyReply(
        _CONSUME_RESULTS[name],
        member_int(body, "spentTimeMills", 0),
        member_bool(body, "order", False),
        member_bool(body, "autoCommit", True),
        member_text(body, "remark", ""),
    )


MEMBER_CODECS: Final = (
    done_codec(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsets, _encode_reset,
               _decode_reset),
    Codec(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetClientOffsets,
          lambda request: ({"topic": request.topic, "group": request.group}, ()),
          lambda fields, _: GetClientOffsets(fields.text("group"), fields.text("topic")),
          _encode_client_offsets, _decode_client_offsets),
    Codec(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetMembersOffsets, _encode_members,
          lambda fields, _: GetMembersOffsets(fields.text("group"), fields.text("topic"),
                                              fields.text("clientAddr", "")),
          _encode_members_offsets, _decode_members_offsets),
    Codec(RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo, _encode_get_info, _decode_get_info,
          _encode_info, _decode_info),
    Codec(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeDirectly, _encode_directly, _decode_directly,
          _encode_consumed, _decode_consumed),
)  # fmt: skip
