"""Requests about topics and their routes <-> header fields and JSON bodies.

Name servers do not quote numeric map keys, unless the client asks for strict JSON or its version
needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_wire.codes import CLIENT_VERSION, RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    Json,
    ObjectKeyed,
    as_object,
    member_bool,
    member_int,
    member_object,
    member_objects,
    member_text,
    member_texts,
)
from rocketmq_wire.model import DEFAULT_TOPIC, Buffer, QueueSet, QueueStats, Route, TopicConfig
from rocketmq_wire.remoting.codecs.brokers import broker_json, broker_of
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    bool_text,
    done_codec,
    json_body,
    json_bytes,
    no_fields,
    success,
)
from rocketmq_wire.remoting.codecs.json_bodies import queue_key, queue_of_key
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicConfig,
    GetTopicStats,
    ListTopicConfigs,
    ListTopics,
    RouteReply,
    TopicConfigsReply,
    TopicsReply,
    TopicStatsReply,
)

# --- routes ----------------------------------------------------------------------------------


def _encode_get_route(request: GetRoute) -> Encoded:
    return {"topic": request.topic}, ()


def _decode_get_route(fields: Fields, _: Buffer) -> GetRoute:
    is_asked = fields.boolean("acceptStandardJsonOnly", False)
    return GetRoute(fields.text("topic"), is_asked or fields.version >= CLIENT_VERSION)


def _encode_route(request: GetRoute, reply: RouteReply) -> EncodedReply:
    route = reply.route
    body: dict[str, Json] = {
        "brokerDatas": [broker_json(broker) for broker in route.brokers],
        "filterServerTable": {},
        "orderTopicConf": route.order_conf,
        "queueDatas": [
            {
                "brokerName": queues.broker,
                "perm": queues.permission,
                "readQueueNums": queues.read_queue_count,
                "topicSysFlag": queues.topic_sys_flag,
                "writeQueueNums": queues.write_queue_count,
            }
            for queues in route.queue_sets
        ],
    }
    text = json_bytes(body, quotes_integer_keys=request.standard_json)
    return success()._replace(body=(text,))


def _decode_route(request: GetRoute, reply: EncodedReply) -> RouteReply:
    route = json_body(reply)
    if member_object(route, "topicQueueMappingByBroker"):
        raise RemoteProtocolError(f"topic {request.topic} is a static one, which is not supported")
    queue_sets = tuple(
        QueueSet(
            broker=member_text(queues, "brokerName"),
            read_queue_count=member_int(queues, "readQueueNums"),
            write_queue_count=member_int(queues, "writeQueueNums"),
            permission=member_int(queues, "perm"),
            # Misspelt by name servers up to 4.8.
            topic_sys_flag=member_int(
                queues, "topicSysFlag", member_int(queues, "topicSynFlag", 0)
            ),
        )
        for queues in member_objects(route, "queueDatas")
    )
    brokers = tuple(broker_of(broker) for broker in member_objects(route, "brokerDatas"))
    order_conf = member_text(route, "orderTopicConf", "") or None
    return RouteReply(Route(queue_sets, brokers, order_conf))


# --- topics ----------------------------------------------------------------------------------


def _encode_topics(_: ListTopics, reply: TopicsReply) -> EncodedReply:
    return success(body={"topicList": list(reply.topics)})


def _decode_topics(_: ListTopics, reply: EncodedReply) -> TopicsReply:
    return TopicsReply(tuple(sorted(member_texts(json_body(reply), "topicList"))))


def _encode_create(request: CreateTopic) -> Encoded:
    config = request.config
    fields = {
        "topic": config.name,
        "defaultTopic": request.default_topic,
        "readQueueNums": str(config.read_queue_count),
        "writeQueueNums": str(config.write_queue_count),
        "perm": str(config.permission),
        "topicFilterType": config.filter_kind,
        "topicSysFlag": str(config.sys_flag),
        "order": bool_text(config.is_ordered),
    }
    if config.attributes:
        fields["attributes"] = ",".join(
            f"+{name}={value}" for name, value in config.attributes.items()
        )
    return fields, ()


def _decode_create(fields: Fields, _: Buffer) -> CreateTopic:
    config = TopicConfig(
        name=fields.text("topic"),
        read_queue_count=fields.int32("readQueueNums"),
        write_queue_count=fields.int32("writeQueueNums"),
        permission=fields.int32("perm"),
        filter_kind=fields.text("topicFilterType", "SINGLE_TAG"),
        sys_flag=fields.int32("topicSysFlag", 0),
        is_ordered=fields.boolean("order", False),
        attributes=_added_attributes(fields.text("attributes", "")),
    )
    return CreateTopic(config, fields.text("defaultTopic", DEFAULT_TOPIC))


def _added_attributes(text: str) -> dict[str, str]:
    """`+name=value` adds an attribute; `-name` removes one, which a new topic does not have."""
    added = {}
    for item in text.split(","):
        name, separator, value = item.strip().partition("=")
        if name.startswith("+") and separator:
            added[name[1:]] = value
    return added


def _config_json(config: TopicConfig) -> Json:
    return {
        "attributes": dict(config.attributes),
        "order": config.is_ordered,
        "perm": config.permission,
        "readQueueNums": config.read_queue_count,
        "topicFilterType": config.filter_kind,
        "topicName": config.name,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queue_count,
    }


def _config_of(config: Mapping[str, Json], name: str) -> TopicConfig:
    attributes = member_object(config, "attributes")
    return TopicConfig(
        name=member_text(config, "topicName", name),
        read_queue_count=member_int(config, "readQueueNums"),
        write_queue_count=member_int(config, "writeQueueNums"),
        permission=member_int(config, "perm"),
        filter_kind=member_text(config, "topicFilterType", "SINGLE_TAG"),
        sys_flag=member_int(config, "topicSysFlag", 0),
        is_ordered=member_bool(config, "order", False),
        attributes={key: member_text(attributes, key) for key in attributes},
    )


def _encode_configs(_: ListTopicConfigs, reply: TopicConfigsReply) -> EncodedReply:
    table: dict[str, Json] = {config.name: _config_json(config) for config in reply.configs}
    version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    return success(body={"dataVersion": version, "topicConfigTable": table})


def _decode_configs(_: ListTopicConfigs, reply: EncodedReply) -> TopicConfigsReply:
    table = member_object(json_body(reply), "topicConfigTable")
    configs = (
        _config_of(as_object(value, "topicConfigTable"), name)
        for name, value in sorted(table.items())
    )
    return TopicConfigsReply(tuple(configs))


def _encode_config(_: GetTopicConfig, reply: TopicConfigsReply) -> EncodedReply:
    (config,) = reply.configs
    return success(body=_config_json(config))


def _decode_config(request: GetTopicConfig, reply: EncodedReply) -> TopicConfigsReply:
    return TopicConfigsReply((_config_of(json_body(reply), request.topic),))


def _encode_topic_stats(_: GetTopicStats, reply: TopicStatsReply) -> EncodedReply:
    table = ObjectKeyed(
        {
            queue_key(queue): {
                "lastUpdateTimestamp": stats.updated_ms,
                "maxOffset": stats.end,
                "minOffset": stats.start,
            }
            for queue, stats in reply.queues.items()
        }
    )
    return success(body={"offsetTable": table, "topicPutTps": 0.0})


def _decode_topic_stats(_: GetTopicStats, reply: EncodedReply) -> TopicStatsReply:
    queues = {}
    for key, value in member_object(json_body(reply), "offsetTable").items():
        stats = as_object(value, "offsetTable")
        queues[queue_of_key(key)] = QueueStats(
            start=member_int(stats, "minOffset"),
            end=member_int(stats, "maxOffset"),
            updated_ms=member_int(stats, "lastUpdateTimestamp", 0),
        )
    return TopicStatsReply(queues)


TOPIC_CODECS: Final = (
    Codec(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute, _encode_get_route, _decode_get_route,
          _encode_route, _decode_route),
    Codec(RequestCode.GET_ALL_TOPIC_LIST, ListTopics, no_fields, lambda _, __: ListTopics(),
          _encode_topics, _decode_topics),
    done_codec(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNameServer,
               lambda request: ({"topic": request.topic}, ()),
               lambda fields, _: DeleteTopicFromNameServer(fields.text("topic"))),
    done_codec(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopic, _encode_create, _decode_create),
    done_codec(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic,
               lambda request: ({"topic": request.topic}, ()),
               lambda fields, _: DeleteTopic(fields.text("topic"))),
    Codec(RequestCode.GET_ALL_TOPIC_CONFIG, ListTopicConfigs, no_fields,
          lambda _, __: ListTopicConfigs(), _encode_configs, _decode_configs),
    Codec(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig,
          lambda request: ({"topic": request.topic}, ()),
          lambda fields, _: GetTopicConfig(fields.text("topic")), _encode_config, _decode_config),
    Codec(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats,
          lambda request: ({"topic": request.topic}, ()),
          lambda fields, _: GetTopicStats(fields.text("topic")), _encode_topic_stats,
          _decode_topic_stats),
)  # fmt: skip
