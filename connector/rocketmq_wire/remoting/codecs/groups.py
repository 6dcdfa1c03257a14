"""Requests about clients and consumer groups <-> header fields and JSON bodies.

RocketMQ reads enumerations in a heartbeat by name or by number, and numbers also from text. Clients
in Java write names, clients in C++ write numbers.
"""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode, ResponseCode
from rocketmq_wire.errors import broker_error
from rocketmq_wire.fastjson import (
    Json,
    as_object,
    json_object,
    member_bool,
    member_int,
    member_object,
    member_objects,
    member_text,
    member_texts,
)
from rocketmq_wire.model import Buffer, ConsumerInfo, QueueId
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    bool_text,
    done_codec,
    json_body,
    json_request,
    no_fields,
    success,
)
from rocketmq_wire.remoting.codecs.json_bodies import (
    queues_from_json,
    queues_json,
    subscription_from_json,
    subscription_json,
)
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    ClientsReply,
    Connection,
    ConsumersReply,
    DeleteGroup,
    GetConsumers,
    GetProducers,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    ListTopicGroups,
    LockQueues,
    NotifyMembersChanged,
    ProducersReply,
    PutGroup,
    QueuesReply,
    UnlockQueues,
    UnregisterClient,
)

# --- heartbeats ------------------------------------------------------------------------------


# In the order in which Java declares them.
_CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")


_MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")


_CONSUME_FROM: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


_NUMBER_DIGITS_MAX: Final = 18


def _encode_heartbeat(request: Heartbeat) -> Encoded:
    body = {
        "clientID": request.client_id,
        "consumerDataSet": [_consumer_json(consumer) for consumer in request.consumers],
        "producerDataSet": [{"groupName": group} for group in request.producer_groups],
    }
    return json_request(body)


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
        consume_type=_choice(consumer, "consumeType", _CONSUME_TYPES, "CONSUME_PASSIVELY"),
        message_model=_choice(consumer, "messageModel", _MESSAGE_MODELS, "CLUSTERING"),
        consume_from=_choice(
            consumer, "consumeFromWhere", _CONSUME_FROM, "CONSUME_FROM_LAST_OFFSET"
        ),
        subscriptions=tuple(
            (
                member_text(subscription, "topic"),
                member_text(subscription, "subString", "*"),
                member_text(subscription, "expressionType", "TAG"),
                _subscription_version(subscription),
            )
            for subscription in member_objects(consumer, "subscriptionDataSet")
        ),
        unit_mode=member_bool(consumer, "unitMode", False),
    )


def _subscription_version(subscription: dict[str, Json]) -> int:
    value = subscription.get("subVersion")
    if isinstance(value, str) and value.isdecimal() and len(value) <= _NUMBER_DIGITS_MAX:
        return int(value)
    return member_int(subscription, "subVersion", 0)


def _choice(owner: dict[str, Json], name: str, choices: tuple[str, ...], default: str) -> str:
    value = owner.get(name)
    if type(value) is int and 0 <= value < len(choices):
        return choices[value]
    return member_text(owner, name, default)


def _encode_unregister(request: UnregisterClient) -> Encoded:
    fields = {"clientID": request.client_id}
    if request.producer_group is not None:
        fields["producerGroup"] = request.producer_group
    if request.consumer_group is not None:
        fields["consumerGroup"] = request.consumer_group
    return fields, ()


def _decode_unregister(fields: Fields, _: Buffer) -> UnregisterClient:
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
    return json_request(body)


def _decode_check(_: Fields, body: Buffer) -> CheckSubscription:
    check = json_object(body)
    subscription = member_object(check, "subscriptionData")
    return CheckSubscription(
        client_id=member_text(check, "clientId", ""),
        group=member_text(check, "group", ""),
        topic=member_text(subscription, "topic"),
        subscription=subscription_from_json(subscription),
    )


# --- members ---------------------------------------------------------------------------------


_NO_MEMBER: Final = "no consumer for this group"


def _encode_clients(request: ListGroupClients, reply: ClientsReply) -> EncodedReply:
    if not reply.client_ids:
        remark = f"{_NO_MEMBER}, {request.group}"
        return EncodedReply(ResponseCode.SYSTEM_ERROR, remark, {})
    return success(body={"consumerIdList": list(reply.client_ids)})


def _decode_clients(_: ListGroupClients, reply: EncodedReply) -> ClientsReply:
    if reply.code == ResponseCode.SYSTEM_ERROR:
        # The code means any failure: only this remark means that no member is online.
        if (reply.remark or "").startswith(_NO_MEMBER):
            return ClientsReply(())
        raise broker_error(reply.code, reply.remark or "")
    return ClientsReply(member_texts(json_body(reply), "consumerIdList"))


def _connections_json(connections: tuple[Connection, ...]) -> list[Json]:
    return [
        {
            "clientAddr": connection.address,
            "clientId": connection.client_id,
            "language": connection.language,
            "version": connection.version,
        }
        for connection in connections
    ]


def _connections_of(body: dict[str, Json]) -> tuple[Connection, ...]:
    return tuple(
        Connection(
            member_text(connection, "clientId"),
            member_text(connection, "clientAddr", ""),
            member_text(connection, "language", ""),
            member_int(connection, "version", 0),
        )
        for connection in member_objects(body, "connectionSet")
    )


def _encode_consumers(_: GetConsumers, reply: ConsumersReply) -> EncodedReply:
    table: dict[str, Json] = {
        topic: subscription_json(topic, subscription.expression, subscription.kind, version)
        for topic, (subscription, version) in reply.subscriptions.items()
    }
    return success(
        body={
            "connectionSet": _connections_json(reply.connections),
            "consumeFromWhere": reply.consume_from,
            "consumeType": reply.consume_type,
            "messageModel": reply.message_model,
            "subscriptionTable": table,
        }
    )


def _decode_consumers(_: GetConsumers, reply: EncodedReply) -> ConsumersReply:
    body = json_body(reply)
    subscriptions = {}
    for topic, value in member_object(body, "subscriptionTable").items():
        entry = as_object(value, "subscriptionTable")
        version = member_int(entry, "subVersion", 0)
        subscriptions[topic] = (subscription_from_json(entry), version)
    return ConsumersReply(
        _connections_of(body),
        member_text(body, "consumeType", ""),
        member_text(body, "messageModel", ""),
        member_text(body, "consumeFromWhere", ""),
        subscriptions,
    )


def _encode_producers(_: GetProducers, reply: ProducersReply) -> EncodedReply:
    return success(body={"connectionSet": _connections_json(reply.connections)})


# --- configurations --------------------------------------------------------------------------


def _encode_groups(_: ListGroups, reply: GroupsReply) -> EncodedReply:
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


def _decode_groups(_: ListGroups, reply: EncodedReply) -> GroupsReply:
    return GroupsReply(tuple(sorted(member_object(json_body(reply), "subscriptionGroupTable"))))


def _encode_put(request: PutGroup) -> Encoded:
    return json_request(dict(request.settings))


def _encode_delete(request: DeleteGroup) -> Encoded:
    forgets = bool_text(request.forgets_offsets)
    return {"groupName": request.group, "cleanOffset": forgets}, ()


def _decode_delete(fields: Fields, _: Buffer) -> DeleteGroup:
    return DeleteGroup(fields.text("groupName"), fields.boolean("cleanOffset", False))


def _encode_group_list(_: ListTopicGroups, reply: GroupsReply) -> EncodedReply:
    return success(body={"groupList": list(reply.groups)})


def _decode_group_list(_: ListTopicGroups, reply: EncodedReply) -> GroupsReply:
    return GroupsReply(tuple(sorted(member_texts(json_body(reply), "groupList"))))


# --- queue locks -----------------------------------------------------------------------------


def _encode_lock(request: LockQueues | UnlockQueues) -> Encoded:
    body = {
        "clientId": request.client_id,
        "consumerGroup": request.group,
        "mqSet": queues_json(request.queues),
        "onlyThisBroker": False,
    }
    return json_request(body)


def _lock_of(body: Buffer) -> tuple[str, str, tuple[QueueId, ...]]:
    lock = json_object(body)
    group, client_id = member_text(lock, "consumerGroup"), member_text(lock, "clientId")
    return group, client_id, queues_from_json(lock, "mqSet")


def _encode_locked(_: LockQueues, reply: QueuesReply) -> EncodedReply:
    return success(body={"lockOKMQSet": queues_json(reply.queues)})


def _decode_locked(_: LockQueues, reply: EncodedReply) -> QueuesReply:
    return QueuesReply(queues_from_json(json_body(reply), "lockOKMQSet"))


GROUP_CODECS: Final = (
    done_codec(RequestCode.HEART_BEAT, Heartbeat, _encode_heartbeat, _decode_heartbeat),
    done_codec(RequestCode.UNREGISTER_CLIENT, UnregisterClient, _encode_unregister,
               _decode_unregister),
    done_codec(RequestCode.CHECK_CLIENT_CONFIG, CheckSubscription, _encode_check, _decode_check),
    done_codec(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyMembersChanged,
               lambda request: ({"consumerGroup": request.group}, ()),
               lambda fields, _: NotifyMembersChanged(fields.text("consumerGroup"))),
    Codec(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ListGroupClients,
          lambda request: ({"consumerGroup": request.group}, ()),
          lambda fields, _: ListGroupClients(fields.text("consumerGroup")), _encode_clients,
          _decode_clients, frozenset({ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR})),
    Codec(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumers,
          lambda request: ({"consumerGroup": request.group}, ()),
          lambda fields, _: GetConsumers(fields.text("consumerGroup")), _encode_consumers,
          _decode_consumers),
    Codec(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducers,
          lambda request: ({"producerGroup": request.group}, ()),
          lambda fields, _: GetProducers(fields.text("producerGroup")), _encode_producers,
          lambda _, reply: ProducersReply(_connections_of(json_body(reply)))),
    Codec(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ListGroups, no_fields,
          lambda _, __: ListGroups(), _encode_groups, _decode_groups),
    done_codec(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, PutGroup, _encode_put,
               lambda _, body: PutGroup(json_object(body))),
    done_codec(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroup, _encode_delete, _decode_delete),
    Codec(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ListTopicGroups,
          lambda request: ({"topic": request.topic}, ()),
          lambda fields, _: ListTopicGroups(fields.text("topic")), _encode_group_list,
          _decode_group_list),
    Codec(RequestCode.LOCK_BATCH_MQ, LockQueues, _encode_lock,
          lambda _, body: LockQueues(*_lock_of(body)), _encode_locked, _decode_locked),
    done_codec(RequestCode.UNLOCK_BATCH_MQ, UnlockQueues, _encode_lock,
               lambda _, body: UnlockQueues(*_lock_of(body))),
)  # fmt: skip
