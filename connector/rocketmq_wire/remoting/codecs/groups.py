"""Requests about queues' offsets, clients and consumer groups <-> header fields and JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError, broker_error
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
    member_texts,
)
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import Buffer, CommittedOffset, ConsumerInfo, QueueId, Subscription
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    EncodedReply,
    Fields,
    RequestCode,
    ResponseCode,
    decode_done,
    decode_offset,
    encode_done,
    encode_offset,
    json_body,
    queue_fields,
    queue_of,
    success,
)
from rocketmq_wire.remoting.codecs.heartbeat import (
    consume_from,
    consume_type,
    message_model,
    subscription_version,
)
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    ClientsReply,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    NotifyMembersChanged,
    UnregisterClient,
)
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    ConsumeStatsReply,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
)

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]


# --- offsets --------------------------------------------------------------------------------


def _encode_get_progress(request: GetCommittedOffset) -> Encoded:
    fields = queue_fields(request.queue)
    fields["consumerGroup"] = request.group
    fields["setZeroIfNotFound"] = "true" if request.zero_if_absent else "false"
    return fields, ()


def _decode_get_progress(fields: Fields, body: Buffer) -> GetCommittedOffset:
    del body
    # Clients of 4.9 do not know the field: for them absent progress may read as zero.
    zero_if_absent = fields.boolean("setZeroIfNotFound", True)
    return GetCommittedOffset(fields.text("consumerGroup"), queue_of(fields), zero_if_absent)


def _encode_commit(request: CommitOffset) -> Encoded:
    fields = queue_fields(request.queue)
    fields["consumerGroup"] = request.group
    fields["commitOffset"] = str(request.offset)
    return fields, ()


def _decode_commit(fields: Fields, body: Buffer) -> CommitOffset:
    del body
    return CommitOffset(
        fields.text("consumerGroup"), queue_of(fields), fields.int64("commitOffset")
    )


def _encode_search(request: SearchOffset) -> Encoded:
    fields = queue_fields(request.queue)
    fields["timestamp"] = str(request.timestamp_ms)
    fields["boundaryType"] = request.boundary.name
    return fields, ()


def _decode_search(fields: Fields, body: Buffer) -> SearchOffset:
    del body
    is_upper = fields.text("boundaryType", "").lower() == "upper"
    boundary = Boundary.UPPER if is_upper else Boundary.LOWER
    return SearchOffset(queue_of(fields), fields.int64("timestamp"), boundary)


def _encode_queue(request: GetMaxOffset | GetMinOffset | GetEarliestStoreTime) -> Encoded:
    return queue_fields(request.queue), ()


def _encode_store_time(request: GetEarliestStoreTime, reply: OffsetReply) -> EncodedReply:
    del request
    return success({"timestamp": str(reply.value)})


def _decode_store_time(request: GetEarliestStoreTime, reply: EncodedReply) -> OffsetReply:
    del request
    return OffsetReply(Fields(reply.ext_fields).int64("timestamp"))


# --- clients --------------------------------------------------------------------------------


def _encode_heartbeat(request: Heartbeat) -> Encoded:
    body = {
        "clientID": request.client_id,
        "consumerDataSet": [_consumer_json(consumer) for consumer in request.consumers],
        "producerDataSet": [{"groupName": group} for group in request.producer_groups],
    }
    return {}, (fastjson.dumps(body).encode("utf-8", "replace"),)


def _consumer_json(consumer: ConsumerInfo) -> Json:
    return {
        "consumeFromWhere": consumer.consume_from,
        "consumeType": consumer.consume_type,
        "groupName": consumer.group,
        "messageModel": consumer.message_model,
        "subscriptionDataSet": [
            subscription_json(*subscription) for subscription in consumer.subscriptions
        ],
        "unitMode": consumer.unit_mode,
    }


def subscription_json(topic: str, expression: str, kind: str, version: int) -> Json:
    """A subscription as heartbeats and states carry it."""
    """A subscription as heartbeats carry it."""
    tags = TagExpression.parse(expression) if kind == "TAG" else TagExpression()
    return {
        "classFilterMode": False,
        "codeSet": list(tags.hashes),
        "expressionType": kind,
        "subString": expression,
        "subVersion": version,
        "tagsSet": sorted(tags.tags),
        "topic": topic,
    }


def _decode_heartbeat(fields: Fields, body: Buffer) -> Heartbeat:
    heartbeat = json_object(body)
    return Heartbeat(
        version=fields.version,
        language=fields.language,
        client_id=member_text(heartbeat, "clientID"),
        producer_groups=tuple(
            member_text(producer, "groupName")
            for producer in member_objects(heartbeat, "producerDataSet")
        ),
        consumers=tuple(
            _consumer_of(consumer) for consumer in member_objects(heartbeat, "consumerDataSet")
        ),
    )


def _consumer_of(consumer: dict[str, Json]) -> ConsumerInfo:
    return ConsumerInfo(
        group=member_text(consumer, "groupName"),
        consume_type=consume_type(consumer),
        message_model=message_model(consumer),
        consume_from=consume_from(consumer),
        subscriptions=tuple(
            (
                member_text(subscription, "topic"),
                member_text(subscription, "subString", "*"),
                member_text(subscription, "expressionType", "TAG"),
                subscription_version(subscription),
            )
            for subscription in member_objects(consumer, "subscriptionDataSet")
        ),
        unit_mode=member_bool(consumer, "unitMode", False),
    )


def _encode_unregister(request: UnregisterClient) -> Encoded:
    fields = {"clientID": request.client_id}
    if request.producer_group is not None:
        fields["producerGroup"] = request.producer_group
    if request.consumer_group is not None:
        fields["consumerGroup"] = request.consumer_group
    return fields, ()


def _decode_unregister(fields: Fields, body: Buffer) -> UnregisterClient:
    del body
    return UnregisterClient(
        fields.text("clientID"),
        fields.optional_text("producerGroup"),
        fields.optional_text("consumerGroup"),
    )


def _encode_check(request: CheckSubscription) -> Encoded:
    subscription = request.subscription
    body = {
        "clientId": request.client_id,
        "group": request.group,
        "subscriptionData": subscription_json(
            request.topic, subscription.expression, subscription.kind, 0
        ),
    }
    return {}, (fastjson.dumps(body).encode("utf-8", "replace"),)


def _decode_check(fields: Fields, body: Buffer) -> CheckSubscription:
    del fields
    check = json_object(body)
    subscription = member_object(check, "subscriptionData")
    return CheckSubscription(
        client_id=member_text(check, "clientId", ""),
        group=member_text(check, "group", ""),
        topic=member_text(subscription, "topic"),
        subscription=Subscription(
            member_text(subscription, "subString", "*"),
            member_text(subscription, "expressionType", "TAG"),
        ),
    )


_NOBODY_ONLINE: Final = "no consumer for this group"


def _encode_clients(request: ListGroupClients, reply: ClientsReply) -> EncodedReply:
    if not reply.client_ids:
        remark = f"{_NOBODY_ONLINE}, {request.group}"
        return EncodedReply(ResponseCode.SYSTEM_ERROR, remark, {})
    return success(body={"consumerIdList": list(reply.client_ids)})


def _decode_clients(request: ListGroupClients, reply: EncodedReply) -> ClientsReply:
    del request
    if reply.code == ResponseCode.SYSTEM_ERROR:
        # The catch-all code: only this remark means that nobody is online.
        if (reply.remark or "").startswith(_NOBODY_ONLINE):
            return ClientsReply(())
        raise broker_error(reply.code, reply.remark or "")
    return ClientsReply(member_texts(json_body(reply), "consumerIdList"))


# --- groups ---------------------------------------------------------------------------------


def queue_key(queue: QueueId) -> str:
    """A queue as the key of a JSON map."""
    return fastjson.canonical(
        {"brokerName": queue.broker, "queueId": queue.index, "topic": queue.topic}
    )


def queue_of_key(key: str) -> QueueId:
    """The queue that is the key of a JSON map: an object, or text that holds one."""
    queue = as_object(fastjson.loads(key), "a queue")
    return QueueId(
        member_text(queue, "topic"), member_text(queue, "brokerName"), member_int(queue, "queueId")
    )


def _encode_get_stats(request: GetConsumeStats) -> Encoded:
    fields = {"consumerGroup": request.group}
    if request.topic is not None:
        fields["topic"] = request.topic
    return fields, ()


def _decode_get_stats(fields: Fields, body: Buffer) -> GetConsumeStats:
    del body
    return GetConsumeStats(fields.text("consumerGroup"), fields.optional_text("topic"))


def _encode_stats(request: GetConsumeStats, reply: ConsumeStatsReply) -> EncodedReply:
    del request
    return success(body=stats_json(reply))


def stats_json(stats: ConsumeStatsReply) -> Json:
    """A group's place in some queues, as a map keyed by queues."""
    table = ObjectKeyed(
        {
            queue_key(queue): {
                "brokerOffset": progress.broker_offset,
                "consumerOffset": progress.consumer_offset,
                "lastTimestamp": progress.updated_ms,
                "pullOffset": progress.pull_offset,
            }
            for queue, progress in stats.queues.items()
        }
    )
    return {"consumeTps": float(stats.tps), "offsetTable": table}


def _decode_stats(request: GetConsumeStats, reply: EncodedReply) -> ConsumeStatsReply:
    del request
    return stats_of(json_body(reply))


def stats_of(stats: dict[str, Json]) -> ConsumeStatsReply:
    """What `stats_json` wrote."""
    queues = {}
    for key, value in member_object(stats, "offsetTable").items():
        progress = as_object(value, "offsetTable")
        queues[queue_of_key(key)] = CommittedOffset(
            broker_offset=member_int(progress, "brokerOffset"),
            consumer_offset=member_int(progress, "consumerOffset"),
            updated_ms=member_int(progress, "lastTimestamp", 0),
            pull_offset=member_int(progress, "pullOffset", 0),
        )
    tps = stats.get("consumeTps")
    if tps is not None and not isinstance(tps, (int, float)):
        raise RemoteProtocolError(f"consumeTps is {str(tps)[:40]!r}, no number")
    return ConsumeStatsReply(queues, float(tps or 0))


def _encode_groups(request: ListGroups, reply: GroupsReply) -> EncodedReply:
    del request
    table: dict[str, Json] = {
        group: {
            "attributes": {},
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "groupName": group,
            "retryMaxTimes": 16,
            "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        for group in reply.groups
    }
    version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    return success(body={"dataVersion": version, "subscriptionGroupTable": table})


def _decode_groups(request: ListGroups, reply: EncodedReply) -> GroupsReply:
    del request
    return GroupsReply(tuple(sorted(member_object(json_body(reply), "subscriptionGroupTable"))))


CODE = RequestCode
GROUP_CODECS: Final = (
    Codec(
        CODE.QUERY_CONSUMER_OFFSET,
        GetCommittedOffset,
        _encode_get_progress,
        _decode_get_progress,
        encode_offset,
        decode_offset,
    ),
    Codec(
        CODE.UPDATE_CONSUMER_OFFSET,
        CommitOffset,
        _encode_commit,
        _decode_commit,
        encode_done,
        decode_done,
    ),
    Codec(
        CODE.SEARCH_OFFSET_BY_TIMESTAMP,
        SearchOffset,
        _encode_search,
        _decode_search,
        encode_offset,
        decode_offset,
    ),
    Codec(
        CODE.GET_MAX_OFFSET,
        GetMaxOffset,
        _encode_queue,
        lambda fields, _: GetMaxOffset(queue_of(fields)),
        encode_offset,
        decode_offset,
    ),
    Codec(
        CODE.GET_MIN_OFFSET,
        GetMinOffset,
        _encode_queue,
        lambda fields, _: GetMinOffset(queue_of(fields)),
        encode_offset,
        decode_offset,
    ),
    Codec(
        CODE.GET_EARLIEST_MSG_STORETIME,
        GetEarliestStoreTime,
        _encode_queue,
        lambda fields, _: GetEarliestStoreTime(queue_of(fields)),
        _encode_store_time,
        _decode_store_time,
    ),
    Codec(
        CODE.HEART_BEAT,
        Heartbeat,
        _encode_heartbeat,
        _decode_heartbeat,
        encode_done,
        decode_done,
    ),
    Codec(
        CODE.UNREGISTER_CLIENT,
        UnregisterClient,
        _encode_unregister,
        _decode_unregister,
        encode_done,
        decode_done,
    ),
    Codec(
        CODE.GET_CONSUMER_LIST_BY_GROUP,
        ListGroupClients,
        lambda request: ({"consumerGroup": request.group}, ()),
        lambda fields, _: ListGroupClients(fields.text("consumerGroup")),
        _encode_clients,
        _decode_clients,
        frozenset({ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}),
    ),
    Codec(
        CODE.NOTIFY_CONSUMER_IDS_CHANGED,
        NotifyMembersChanged,
        lambda request: ({"consumerGroup": request.group}, ()),
        lambda fields, _: NotifyMembersChanged(fields.text("consumerGroup")),
        encode_done,
        decode_done,
    ),
    Codec(
        CODE.CHECK_CLIENT_CONFIG,
        CheckSubscription,
        _encode_check,
        _decode_check,
        encode_done,
        decode_done,
    ),
    Codec(
        CODE.GET_CONSUME_STATS,
        GetConsumeStats,
        _encode_get_stats,
        _decode_get_stats,
        _encode_stats,
        _decode_stats,
    ),
    Codec(
        CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        ListGroups,
        lambda _: ({}, ()),
        lambda _, __: ListGroups(),
        _encode_groups,
        _decode_groups,
    ),
)
