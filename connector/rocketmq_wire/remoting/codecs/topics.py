"""Requests about topics and their routes <-> header fields and JSON bodies.

Name servers do not quote numeric map keys, unless the client asks for strict JSON or its version
needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketmq_wire.codes import CLIENT_VERSION, RequestCode, ResponseCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import as_object, json_object, member_int, member_object, member_text
from rocketmq_wire.model import DEFAULT_TOPIC, Buffer, QueueSet, QueueStats, Route, TopicConfig
from rocketmq_wire.remoting.codecs import body, header
from rocketmq_wire.remoting.codecs.brokers import BROKER
from rocketmq_wire.remoting.codecs.layouts import (
    DONE,
    Answer,
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    Layout,
    answer,
    constant,
    field,
    layout,
    read_only,
)
from rocketmq_wire.requests import topics

# --- routes ----------------------------------------------------------------------------------


def _reads_standard_json(fields: Fields) -> bool:
    is_asked = fields.boolean("acceptStandardJsonOnly", False)
    return is_asked or fields.version >= CLIENT_VERSION


_QUEUE_SET: Final = body.Object(
    QueueSet,
    body.text("brokerName", "broker"),
    body.integer("readQueueNums", "read_queue_count"),
    body.integer("writeQueueNums", "write_queue_count"),
    body.integer("perm", "permission"),
    # Misspelt by name servers up to 4.8.
    body.member("topicSysFlag", "topic_sys_flag", lambda owner, name: member_int(
        owner, name, member_int(owner, "topicSynFlag", 0))),
)  # fmt: skip
_ROUTE: Final = body.Object(
    Route,
    body.objects("queueDatas", "queue_sets", _QUEUE_SET),
    body.objects("brokerDatas", "brokers", BROKER),
    body.member("orderTopicConf", "order_conf",
                lambda owner, name: member_text(owner, name, "") or None),
    constant("filterServerTable", {}),
)  # fmt: skip


def _encode_route(request: topics.GetRoute, reply: topics.RouteReply) -> EncodedReply:
    route = _ROUTE.write(reply.route)
    text = body.json_bytes(route, quotes_integer_keys=request.standard_json)
    return EncodedReply(ResponseCode.SUCCESS, None, {}, (text,))


def _decode_route(request: topics.GetRoute, reply: EncodedReply) -> topics.RouteReply:
    route = json_object(reply.body[0])
    if member_object(route, "topicQueueMappingByBroker"):
        raise RemoteProtocolError(f"topic {request.topic} is a static one, which is not supported")
    return topics.RouteReply(_ROUTE.read(route))


# --- topics ----------------------------------------------------------------------------------


_CONFIG_FIELDS: Final = layout(
    TopicConfig,
    header.text("topic", "name"),
    header.int32("readQueueNums", "read_queue_count"),
    header.int32("writeQueueNums", "write_queue_count"),
    header.int32("perm", "permission"),
    header.text("topicFilterType", "filter_kind", "SINGLE_TAG"),
    header.int32("topicSysFlag", "sys_flag", 0),
    header.boolean("order", "is_ordered"),
    field(
        "attributes",
        "attributes",
        lambda fields: _added_attributes(fields.text("attributes", "")),
        lambda found: ",".join(f"+{name}={value}" for name, value in found.items()) or None,
    ),
)


def _added_attributes(text: str) -> dict[str, str]:
    """`+name=value` adds an attribute; `-name` removes one, which a new topic does not have."""
    added = {}
    for item in text.split(","):
        name, separator, value = item.strip().partition("=")
        if name.startswith("+") and separator:
            added[name[1:]] = value
    return added


def _encode_create(request: topics.CreateTopic) -> Encoded:
    fields, _ = _CONFIG_FIELDS.encode(request.config)
    return {"topic": request.config.name, "defaultTopic": request.default_topic, **fields}, ()


def _decode_create(fields: Fields, content: Buffer) -> topics.CreateTopic:
    config = _CONFIG_FIELDS.decode(fields, content)
    return topics.CreateTopic(config, fields.text("defaultTopic", DEFAULT_TOPIC))


_CONFIG: Final = body.Object(
    TopicConfig,
    body.texts_by_name("attributes", "attributes"),
    body.text("topicName", "name"),
    body.integer("readQueueNums", "read_queue_count"),
    body.integer("writeQueueNums", "write_queue_count"),
    body.integer("perm", "permission"),
    body.text("topicFilterType", "filter_kind", "SINGLE_TAG"),
    body.integer("topicSysFlag", "sys_flag", 0),
    body.boolean("order", "is_ordered"),
)


def _config_of(config: body.JsonObject, name: str) -> TopicConfig:
    """The configuration of a topic whose name it may leave out."""
    is_named = config.get("topicName") is not None
    return _CONFIG.read(config if is_named else {**config, "topicName": name})


CONFIG_TABLE: Final = "topicConfigTable"
"""The member that holds a broker's topics, by name."""


def configs_from_json(owner: body.JsonObject, name: str = CONFIG_TABLE) -> tuple[TopicConfig, ...]:
    table = member_object(owner, name)
    return tuple([_config_of(as_object(table[topic], name), topic) for topic in sorted(table)])


def configs_json(configs: Iterable[TopicConfig]) -> body.JsonObject:
    return {config.name: _CONFIG.write(config) for config in configs}


def _encode_config(_: topics.GetTopicConfig, reply: topics.TopicConfigsReply) -> EncodedReply:
    (config,) = reply.configs
    content = body.json_bytes(_CONFIG.write(config))
    return EncodedReply(ResponseCode.SUCCESS, None, {}, (content,))


def _decode_config(request: topics.GetTopicConfig, reply: EncodedReply) -> topics.TopicConfigsReply:
    return topics.TopicConfigsReply((_config_of(json_object(reply.body[0]), request.topic),))


_CONFIGS: Final = body.members(
    constant("dataVersion", body.NO_VERSION),
    body.member(CONFIG_TABLE, "configs", configs_from_json, configs_json),
)
_STATS: Final = body.Object(
    QueueStats,
    body.integer("minOffset", "start"),
    body.integer("maxOffset", "end"),
    body.integer("lastUpdateTimestamp", "updated_ms", 0),
)

CODECS: Final = (
    Codec(RequestCode.GET_ROUTEINFO_BY_TOPIC,
          layout(topics.GetRoute, header.text("topic"),
                 read_only("standard_json", _reads_standard_json)),
          Answer(_encode_route, _decode_route)),
    Codec(RequestCode.GET_ALL_TOPIC_LIST, layout(topics.ListTopics),
          answer(topics.TopicsReply, body=body.members(body.texts("topicList", "topics")))),
    Codec(RequestCode.DELETE_TOPIC_IN_NAMESRV,
          layout(topics.DeleteTopicFromNameServer, header.text("topic")), DONE),
    Codec(RequestCode.REGISTER_TOPIC_IN_NAMESRV,
          layout(topics.RegisterTopic, header.text("topic"),
                 body=body.members(body.objects("queueDatas", "queue_sets", _QUEUE_SET))), DONE),
    Codec(RequestCode.UPDATE_AND_CREATE_TOPIC,
          Layout(topics.CreateTopic, _encode_create, _decode_create), DONE),
    Codec(RequestCode.DELETE_TOPIC_IN_BROKER, layout(topics.DeleteTopic, header.text("topic")),
          DONE),
    Codec(RequestCode.GET_ALL_TOPIC_CONFIG, layout(topics.ListTopicConfigs),
          answer(topics.TopicConfigsReply, body=_CONFIGS)),
    Codec(RequestCode.GET_TOPIC_CONFIG, layout(topics.GetTopicConfig, header.text("topic")),
          Answer(_encode_config, _decode_config)),
    Codec(RequestCode.GET_TOPIC_STATS_INFO, layout(topics.GetTopicStats, header.text("topic")),
          answer(topics.TopicStatsReply, body=body.members(
              body.by_queue("offsetTable", "queues", _STATS), constant("topicPutTps", 0.0)))),
)  # fmt: skip
