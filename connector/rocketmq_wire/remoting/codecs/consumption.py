"""The requests of push consumers (36, 41, 42) <-> header fields and JSON bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.fastjson import Json, json_object, member_int, member_objects, member_text
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    EncodedReply,
    Fields,
    RequestCode,
    decode_done,
    encode_done,
    json_body,
    success,
)
from rocketmq_wire.requests.groups import LockQueues, QueuesReply, UnlockQueues
from rocketmq_wire.requests.messages import SendBack

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]

# Clients before 3.4.9 send an attempt limit that does not mean what it says.
_ATTEMPTS_VERSION_MIN: Final = 121


def _encode_send_back(request: SendBack) -> Encoded:
    fields = {
        "offset": str(request.physical_offset),
        "group": request.group,
        "delayLevel": str(request.delay_level),
        "unitMode": "false",
    }
    if request.message_id:
        fields["originMsgId"] = request.message_id
    if request.topic:
        fields["originTopic"] = request.topic
    if request.attempts_max is not None:
        fields["maxReconsumeTimes"] = str(request.attempts_max)
    return fields, ()


def _decode_send_back(fields: Fields, body: Buffer) -> SendBack:
    del body
    says_attempts = fields.has("maxReconsumeTimes") and fields.version >= _ATTEMPTS_VERSION_MIN
    return SendBack(
        group=fields.text("group"),
        physical_offset=fields.int64("offset"),
        delay_level=fields.int32("delayLevel"),
        message_id=fields.text("originMsgId", ""),
        topic=fields.text("originTopic", ""),
        attempts_max=fields.int32("maxReconsumeTimes") if says_attempts else None,
    )


def _queues_json(queues: Iterable[QueueId]) -> list[Json]:
    return [
        {"brokerName": queue.broker, "queueId": queue.index, "topic": queue.topic}
        for queue in queues
    ]


def _queues_of(owner: dict[str, Json], name: str) -> tuple[QueueId, ...]:
    return tuple(
        sorted(
            QueueId(
                member_text(queue, "topic"),
                member_text(queue, "brokerName"),
                member_int(queue, "queueId"),
            )
            for queue in member_objects(owner, name)
        )
    )


def _encode_lock(request: LockQueues | UnlockQueues) -> Encoded:
    body = {
        "clientId": request.client_id,
        "consumerGroup": request.group,
        "mqSet": _queues_json(request.queues),
        "onlyThisBroker": False,
    }
    return {}, (fastjson.dumps(body).encode("utf-8", "replace"),)


def _lock_of(body: Buffer) -> tuple[str, str, tuple[QueueId, ...]]:
    lock = json_object(body)
    group, client_id = member_text(lock, "consumerGroup"), member_text(lock, "clientId")
    return group, client_id, _queues_of(lock, "mqSet")


def _encode_locked(request: LockQueues, reply: QueuesReply) -> EncodedReply:
    del request
    return success(body={"lockOKMQSet": _queues_json(reply.queues)})


def _decode_locked(request: LockQueues, reply: EncodedReply) -> QueuesReply:
    del request
    return QueuesReply(_queues_of(json_body(reply), "lockOKMQSet"))


CONSUMPTION_CODECS: Final = (
    Codec(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        SendBack,
        _encode_send_back,
        _decode_send_back,
        encode_done,
        decode_done,
    ),
    Codec(
        RequestCode.LOCK_BATCH_MQ,
        LockQueues,
        _encode_lock,
        lambda _, body: LockQueues(*_lock_of(body)),
        _encode_locked,
        _decode_locked,
    ),
    Codec(
        RequestCode.UNLOCK_BATCH_MQ,
        UnlockQueues,
        _encode_lock,
        lambda _, body: UnlockQueues(*_lock_of(body)),
        encode_done,
        decode_done,
    ),
)
