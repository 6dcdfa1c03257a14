"""Requests about clients and consumer groups <-> header fields and JSON bodies.

RocketMQ reads enumerations in a heartbeat by name or by number, and numbers also from text. Clients
in Java write names, clients in C++ write numbers.
"""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode, ResponseCode
from rocketmq_wire.errors import RemoteProtocolError, broker_error
from rocketmq_wire.fastjson import (
    Json,
    as_object,
    json_object,
    member_int,
    member_object,
    member_objects,
    member_text,
    member_texts,
)
from rocketmq_wire.model import ConsumerInfo, Subscription
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.remoting.codecs import body, header
from rocketmq_wire.remoting.codecs.layouts import (
    DONE,
    Answer,
    Codec,
    EncodedReply,
    Field,
    answer,
    constant,
    layout,
    read_only,
)
from rocketmq_wire.requests import groups

# --- heartbeats ------------------------------------------------------------------------------


def _producers_of(heartbeat: body.JsonObject, name: str) -> tuple[str, ...]:
    return tuple(
        [member_text(producer, "groupName") for producer in member_objects(heartbeat, name)]
    )


def _subscription_version(subscription: body.JsonObject) -> int:
    value = subscription.get("subVersion")
    if isinstance(value, str) and (number := whole_number(value)) is not None:
        return number
    return member_int(subscription, "subVersion", 0)


def _choice(name: str, attribute: str, default: str, *choices: str) -> body.Member:
    """An enumeration; the choices are in the order in which Java declares them."""

    def read(owner: body.JsonObject, name: str) -> str:
        value = owner.get(name)
        if type(value) is int and 0 <= value < len(choices):
            return choices[value]
        return member_text(owner, name, default)

    return body.member(name, attribute, read)


_CONSUMER: Final = body.Object(
    ConsumerInfo,
    body.text("groupName", "group"),
    _choice("consumeType", "consume_type", "CONSUME_PASSIVELY",
            "CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    _choice("messageModel", "message_model", "CLUSTERING", "BROADCASTING", "CLUSTERING"),
    _choice("consumeFromWhere", "consume_from", "CONSUME_FROM_LAST_OFFSET",
            "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
            "CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET",
            "CONSUME_FROM_TIMESTAMP"),
    body.subscriptions("subscriptionDataSet", "subscriptions", _subscription_version),
    body.boolean("unitMode", "unit_mode"),
)  # fmt: skip

_CHECKED: Final = body.members(
    body.text("clientId", "client_id", ""),
    body.text("group", default=""),
    read_only(
        "topic", lambda check: member_text(member_object(check, "subscriptionData"), "topic")
    ),
    Field(
        "subscription",
        lambda check: body.subscription_from_json(member_object(check, "subscriptionData")),
        lambda target, check: target.update(
            subscriptionData=_subscription_json(check.topic, check.subscription, 0)
        ),
    ),
)


def _subscription_json(topic: str, subscription: Subscription, version: int) -> Json:
    return body.subscription_json(topic, subscription.expression, subscription.kind, version)


# --- members ---------------------------------------------------------------------------------


_NO_MEMBER: Final = "no consumer for this group"


def _encode_clients(request: groups.ListGroupClients, reply: groups.ClientsReply) -> EncodedReply:
    if not reply.client_ids:
        remark = f"{_NO_MEMBER}, {request.group}"
        return EncodedReply(ResponseCode.SYSTEM_ERROR, remark, {})
    content = body.json_bytes({"consumerIdList": reply.client_ids})
    return EncodedReply(ResponseCode.SUCCESS, None, {}, (content,))


def _decode_clients(_: groups.ListGroupClients, reply: EncodedReply) -> groups.ClientsReply:
    if reply.code == ResponseCode.SYSTEM_ERROR:
        # The code means any failure: only this remark means that no member is online.
        if (reply.remark or "").startswith(_NO_MEMBER):
            return groups.ClientsReply(())
        raise broker_error(reply.code, reply.remark or "")
    return groups.ClientsReply(member_texts(json_object(reply.body[0]), "consumerIdList"))


_CLIENTS: Final = Answer(
    _encode_clients, _decode_clients, frozenset({ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR})
)


def _subscriptions_of(consumers: body.JsonObject, name: str) -> dict[str, tuple[Subscription, int]]:
    found = {}
    for topic, value in member_object(consumers, name).items():
        entry = as_object(value, name)
        version = member_int(entry, "subVersion", 0)
        found[topic] = (body.subscription_from_json(entry), version)
    return found


_CONNECTIONS: Final = body.objects(
    "connectionSet",
    "connections",
    body.Object(
        groups.Connection,
        body.text("clientId", "client_id"),
        body.text("clientAddr", "address", ""),
        body.text("language", default=""),
        body.integer("version", default=0),
    ),
)
_CONSUMERS: Final = body.members(
    body.member("subscriptionTable", "subscriptions", _subscriptions_of,
                lambda found: {topic: _subscription_json(topic, *entry)
                               for topic, entry in found.items()}),
    _CONNECTIONS,
    body.text("consumeType", "consume_type", ""),
    body.text("messageModel", "message_model", ""),
    body.text("consumeFromWhere", "consume_from", ""),
)  # fmt: skip

# --- configurations and queue locks ----------------------------------------------------------


def _group_json(group: str) -> Json:
    return {
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


_GROUPS: Final = body.members(
    constant("dataVersion", body.NO_VERSION),
    body.member("subscriptionGroupTable", "groups",
                lambda owner, name: tuple(sorted(member_object(owner, name))),
                lambda names: {group: _group_json(group) for group in names}),
)  # fmt: skip
_LOCK: Final = body.members(
    body.text("consumerGroup", "group"),
    body.text("clientId", "client_id"),
    body.queues("mqSet", "queues"),
    constant("onlyThisBroker", False),
)

# --- queue assignment ------------------------------------------------------------------------


def _mode_of(owner: body.JsonObject, name: str) -> groups.ConsumeMode:
    text = member_text(owner, name, "PULL")
    try:
        return groups.ConsumeMode(text)
    except ValueError as error:
        raise RemoteProtocolError(f"no consume mode: {text[:20]!r}") from error


_MODE: Final = body.member("mode", "mode", _mode_of, lambda mode: mode.value)
_ASSIGNMENT: Final = body.Object(
    groups.Assignment,
    body.member("messageQueue", "queue",
                lambda owner, name: body.QUEUE.read(member_object(owner, name)), body.QUEUE.write),
    _MODE,
)  # fmt: skip


def _assignments_of(owner: body.JsonObject, name: str) -> tuple[groups.Assignment, ...] | None:
    if owner.get(name) is None:
        return None
    found = map(_ASSIGNMENT.read, member_objects(owner, name))
    return tuple(sorted(found, key=lambda one: one.queue))


def _assignments_json(assignments: tuple[groups.Assignment, ...] | None) -> Json:
    return None if assignments is None else [_ASSIGNMENT.write(one) for one in assignments]


_GROUP: Final = header.text("consumerGroup", "group")

CODECS: Final = (
    Codec(RequestCode.HEART_BEAT,
          layout(groups.Heartbeat, read_only("version", lambda fields: fields.version),
                 read_only("language", lambda fields: fields.language),
                 body=body.members(
                     body.text("clientID", "client_id"),
                     body.member("producerDataSet", "producer_groups", _producers_of,
                                 lambda names: [{"groupName": name} for name in names]),
                     body.objects("consumerDataSet", "consumers", _CONSUMER))),
          DONE),
    Codec(RequestCode.UNREGISTER_CLIENT,
          layout(groups.UnregisterClient, header.text("clientID", "client_id"),
                 header.nullable("producerGroup", "producer_group"),
                 header.nullable("consumerGroup", "consumer_group")),
          DONE),
    Codec(RequestCode.CHECK_CLIENT_CONFIG, layout(groups.CheckSubscription, body=_CHECKED), DONE),
    Codec(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, layout(groups.NotifyMembersChanged, _GROUP),
          DONE),
    Codec(RequestCode.GET_CONSUMER_LIST_BY_GROUP, layout(groups.ListGroupClients, _GROUP),
          _CLIENTS),
    Codec(RequestCode.GET_CONSUMER_CONNECTION_LIST, layout(groups.GetConsumers, _GROUP),
          answer(groups.ConsumersReply, body=_CONSUMERS)),
    Codec(RequestCode.GET_PRODUCER_CONNECTION_LIST,
          layout(groups.GetProducers, header.text("producerGroup", "group")),
          answer(groups.ProducersReply, body=body.members(_CONNECTIONS))),
    Codec(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, layout(groups.ListGroups),
          answer(groups.GroupsReply, body=_GROUPS)),
    Codec(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
          layout(groups.PutGroup, body=body.whole("settings", dict, dict)), DONE),
    Codec(RequestCode.DELETE_SUBSCRIPTIONGROUP,
          layout(groups.DeleteGroup, header.text("groupName", "group"),
                 header.boolean("cleanOffset", "forgets_offsets")),
          DONE),
    Codec(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
          layout(groups.ListTopicGroups, header.text("topic")),
          answer(groups.GroupsReply, body=body.members(body.texts("groupList", "groups")))),
    Codec(RequestCode.LOCK_BATCH_MQ, layout(groups.LockQueues, body=_LOCK),
          answer(groups.QueuesReply, body=body.members(body.queues("lockOKMQSet", "queues")))),
    Codec(RequestCode.UNLOCK_BATCH_MQ, layout(groups.UnlockQueues, body=_LOCK), DONE),
    Codec(RequestCode.QUERY_ASSIGNMENT,
          layout(groups.QueryAssignment, body=body.members(
              body.text("consumerGroup", "group"), body.text("topic"),
              body.text("clientId", "client_id"), body.text("strategyName", "strategy", "AVG"),
              body.text("messageModel", "message_model", "CLUSTERING"))),
          answer(groups.AssignmentReply, body=body.members(
              body.member("messageQueueAssignments", "assignments", _assignments_of,
                          _assignments_json)))),
    Codec(RequestCode.SET_MESSAGE_REQUEST_MODE,
          layout(groups.SetConsumeMode, body=body.members(
              body.text("consumerGroup", "group"), body.text("topic"), _MODE,
              body.integer("popShareQueueNum", "share_queue_count", 0))),
          DONE),
)  # fmt: skip
