"""Who is online in a group (203, 204) <-> header fields and JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.fastjson import (
    Json,
    as_object,
    member_int,
    member_object,
    member_objects,
    member_text,
)
from rocketmq_wire.model import Subscription
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    EncodedReply,
    RequestCode,
    json_body,
    success,
)
from rocketmq_wire.remoting.codecs.groups import subscription_json
from rocketmq_wire.requests.groups import (
    Connection,
    ConsumersReply,
    GetConsumers,
    GetProducers,
    ProducersReply,
)


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


def _encode_consumers(request: GetConsumers, reply: ConsumersReply) -> EncodedReply:
    del request
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


def _decode_consumers(request: GetConsumers, reply: EncodedReply) -> ConsumersReply:
    del request
    body = json_body(reply)
    subscriptions = {}
    for topic, value in member_object(body, "subscriptionTable").items():
        entry = as_object(value, "subscriptionTable")
        wanted = Subscription(
            member_text(entry, "subString", "*"), member_text(entry, "expressionType", "TAG")
        )
        subscriptions[topic] = (wanted, member_int(entry, "subVersion", 0))
    return ConsumersReply(
        _connections_of(body),
        member_text(body, "consumeType", ""),
        member_text(body, "messageModel", ""),
        member_text(body, "consumeFromWhere", ""),
        subscriptions,
    )


def _encode_producers(request: GetProducers, reply: ProducersReply) -> EncodedReply:
    del request
    return success(body={"connectionSet": _connections_json(reply.connections)})


CONNECTION_CODECS: Final = (
    Codec(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumers,
        lambda request: ({"consumerGroup": request.group}, ()),
        lambda fields, _: GetConsumers(fields.text("consumerGroup")),
        _encode_consumers,
        _decode_consumers,
    ),
    Codec(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        GetProducers,
        lambda request: ({"producerGroup": request.group}, ()),
        lambda fields, _: GetProducers(fields.text("producerGroup")),
        _encode_producers,
        lambda _, reply: ProducersReply(_connections_of(json_body(reply))),
    ),
)
