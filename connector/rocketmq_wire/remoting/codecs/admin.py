"""The requests of administrators' tools <-> header fields, JSON bodies and `key=value` lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketmq_wire import fastjson
from rocketmq_wire.fastjson import (
    ObjectKeyed,
    as_object,
    json_object,
    member_int,
    member_list,
    member_object,
    member_objects,
    member_text,
    member_texts,
)
from rocketmq_wire.model import Buffer
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
from rocketmq_wire.remoting.codecs.groups import queue_key, queue_of_key, stats_json, stats_of
from rocketmq_wire.requests.brokers import (
    AddWritePermission,
    ChangeBrokerSettings,
    CleanConsumeQueues,
    CountReply,
    DeleteNameServerEntry,
    GetBrokerSettings,
    GetNameServerSettings,
    GetRuntimeInfo,
    SettingsReply,
    WipeWritePermission,
)
from rocketmq_wire.requests.groups import DeleteGroup, GroupsReply, ListTopicGroups, PutGroup
from rocketmq_wire.requests.messages import QueryMessages, RecordsReply, ViewMessage
from rocketmq_wire.requests.offsets import (
    AllCommittedOffsetsReply,
    GetAllCommittedOffsets,
    QueueOffsetsReply,
    ResetClientOffsets,
)

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]


def _nothing(request: object) -> Encoded:
    del request
    return {}, ()


# --- settings -------------------------------------------------------------------------------


def _lines_of(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in settings.items()).encode()


def _settings_of(body: Buffer) -> dict[str, str]:
    """The settings in lines `name=value`; blank lines and comments are skipped."""
    settings = {}
    for line in str(body, "utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if separator and name.strip() and not name.lstrip().startswith(("#", "!")):
            settings[name.strip()] = value.strip()
    return settings


def _encode_settings(request: object, reply: SettingsReply) -> EncodedReply:
    del request
    # Tools of some versions read this without asking whether it is there.
    version = fastjson.dumps({"counter": 0, "stateVersion": 0, "timestamp": 0})
    return success({"version": version})._replace(body=(_lines_of(reply.settings),))


def _decode_settings(request: object, reply: EncodedReply) -> SettingsReply:
    del request
    return SettingsReply(_settings_of(reply.body[0] if reply.body else b""))


def _encode_table(request: GetRuntimeInfo, reply: SettingsReply) -> EncodedReply:
    del request
    return success(body={"table": dict(reply.settings)})


def _decode_table(request: GetRuntimeInfo, reply: EncodedReply) -> SettingsReply:
    del request
    table = member_object(json_body(reply), "table")
    return SettingsReply({name: member_text(table, name) for name in table})


def _encode_broker(request: WipeWritePermission | AddWritePermission) -> Encoded:
    return {"brokerName": request.broker}, ()


def _encode_wiped(request: WipeWritePermission, reply: CountReply) -> EncodedReply:
    del request
    return success({"wipeTopicCount": str(reply.count)})


def _encode_added(request: AddWritePermission, reply: CountReply) -> EncodedReply:
    del request
    return success({"addTopicCount": str(reply.count)})


# --- groups ---------------------------------------------------------------------------------


def _encode_put(request: PutGroup) -> Encoded:
    return {}, (fastjson.dumps(dict(request.settings)).encode("utf-8", "replace"),)


def _encode_delete(request: DeleteGroup) -> Encoded:
    forgets = "true" if request.forgets_offsets else "false"
    return {"groupName": request.group, "cleanOffset": forgets}, ()


def _decode_delete(fields: Fields, body: Buffer) -> DeleteGroup:
    del body
    return DeleteGroup(fields.text("groupName"), fields.boolean("cleanOffset", False))


def _encode_group_list(request: ListTopicGroups, reply: GroupsReply) -> EncodedReply:
    del request
    return success(body={"groupList": list(reply.groups)})


def _decode_group_list(request: ListTopicGroups, reply: EncodedReply) -> GroupsReply:
    del request
    return GroupsReply(tuple(sorted(member_texts(json_body(reply), "groupList"))))


def _encode_reset(request: ResetClientOffsets) -> Encoded:
    fields = {
        "group": request.group,
        "topic": request.topic,
        "timestamp": str(request.timestamp_ms),
        "isForce": "true" if request.is_forced else "false",
        "queueId": str(request.queue_index),
    }
    if request.offset is not None:
        fields["offset"] = str(request.offset)
    return fields, ()


def _decode_reset(fields: Fields, body: Buffer) -> ResetClientOffsets:
    del body
    offset = fields.int64("offset", -1)
    return ResetClientOffsets(
        group=fields.text("group"),
        topic=fields.text("topic"),
        timestamp_ms=fields.int64("timestamp"),
        is_forced=fields.boolean("isForce", False),
        queue_index=fields.int32("queueId", -1),
        offset=None if offset == -1 else offset,
    )


def _encode_offsets(request: ResetClientOffsets, reply: QueueOffsetsReply) -> EncodedReply:
    del request
    table = ObjectKeyed({queue_key(queue): offset for queue, offset in reply.offsets.items()})
    return success(body={"offsetTable": table})


def _decode_offsets(request: ResetClientOffsets, reply: EncodedReply) -> QueueOffsetsReply:
    del request
    table = member_object(json_body(reply), "offsetTable")
    return QueueOffsetsReply({queue_of_key(key): member_int(table, key) for key in table})


def _decode_broker_progress(fields: Fields, body: Buffer) -> GetAllCommittedOffsets:
    del body
    return GetAllCommittedOffsets(fields.boolean("isOrder", False))


def _encode_all_progress(
    request: GetAllCommittedOffsets, reply: AllCommittedOffsetsReply
) -> EncodedReply:
    del request
    groups = [
        {group: [stats_json(topic) for topic in topics]} for group, topics in reply.groups.items()
    ]
    return success(
        body={
            "brokerAddr": reply.address,
            "consumeStatsList": groups,
            "totalDiff": reply.total_of("diff"),
            "totalInflightDiff": reply.total_of("inflight"),
        }
    )


def _decode_all_progress(
    request: GetAllCommittedOffsets, reply: EncodedReply
) -> AllCommittedOffsetsReply:
    del request
    body = json_body(reply)
    groups = {
        group: tuple(
            stats_of(as_object(topic, "consumeStats")) for topic in member_list(entry, group)
        )
        for entry in member_objects(body, "consumeStatsList")
        for group in entry
    }
    return AllCommittedOffsetsReply(groups, member_text(body, "brokerAddr", ""))


# --- messages -------------------------------------------------------------------------------


def _encode_view(request: ViewMessage) -> Encoded:
    fields = {"offset": str(request.physical_offset)}
    if request.topic:
        fields["topic"] = request.topic
    return fields, ()


def _decode_view(fields: Fields, body: Buffer) -> ViewMessage:
    del body
    return ViewMessage(fields.int64("offset"), fields.text("topic", ""))


def _encode_query(request: QueryMessages) -> Encoded:
    fields = {
        "topic": request.topic,
        "key": request.key,
        "maxNum": str(request.count_max),
        "beginTimestamp": str(request.begin_ms),
        "endTimestamp": str(request.end_ms),
        "_UNIQUE_KEY_QUERY": "true" if request.is_unique_key else "false",
    }
    return fields, ()


def _decode_query(fields: Fields, body: Buffer) -> QueryMessages:
    del body
    return QueryMessages(
        topic=fields.text("topic"),
        key=fields.text("key"),
        count_max=fields.int32("maxNum"),
        begin_ms=fields.int64("beginTimestamp"),
        end_ms=fields.int64("endTimestamp"),
        is_unique_key=fields.boolean("_UNIQUE_KEY_QUERY", False),
    )


def _encode_record(request: ViewMessage, reply: RecordsReply) -> EncodedReply:
    del request
    return success()._replace(body=reply.records)


def _encode_records(request: QueryMessages, reply: RecordsReply) -> EncodedReply:
    del request
    fields = {
        "indexLastUpdateTimestamp": str(reply.index_end_ms),
        "indexLastUpdatePhyoffset": str(reply.index_end),
    }
    return success(fields)._replace(body=reply.records)


def _decode_records(request: object, reply: EncodedReply) -> RecordsReply:
    del request
    fields = Fields(reply.ext_fields)
    return RecordsReply(
        reply.body,
        fields.int64("indexLastUpdateTimestamp", 0),
        fields.int64("indexLastUpdatePhyoffset", 0),
    )


CODE = RequestCode
ADMIN_CODECS: Final = (
    Codec(CODE.UPDATE_BROKER_CONFIG, ChangeBrokerSettings,
          lambda request: ({}, (_lines_of(request.settings),)),
          lambda _, body: ChangeBrokerSettings(_settings_of(body)), encode_done, decode_done),
    Codec(CODE.GET_BROKER_CONFIG, GetBrokerSettings, _nothing, lambda _, __: GetBrokerSettings(),
          _encode_settings, _decode_settings),
    Codec(CODE.GET_NAMESRV_CONFIG, GetNameServerSettings, _nothing,
          lambda _, __: GetNameServerSettings(), _encode_settings, _decode_settings),
    Codec(CODE.GET_BROKER_RUNTIME_INFO, GetRuntimeInfo, _nothing, lambda _, __: GetRuntimeInfo(),
          _encode_table, _decode_table),
    Codec(CODE.CLEAN_EXPIRED_CONSUMEQUEUE, CleanConsumeQueues, _nothing,
          lambda _, __: CleanConsumeQueues(), encode_done, decode_done),
    Codec(CODE.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermission, _encode_broker,
          lambda fields, _: WipeWritePermission(fields.text("brokerName")), _encode_wiped,
          lambda _, reply: CountReply(Fields(reply.ext_fields).int32("wipeTopicCount"))),
    Codec(CODE.ADD_WRITE_PERM_OF_BROKER, AddWritePermission, _encode_broker,
          lambda fields, _: AddWritePermission(fields.text("brokerName")), _encode_added,
          lambda _, reply: CountReply(Fields(reply.ext_fields).int32("addTopicCount"))),
    Codec(CODE.DELETE_KV_CONFIG, DeleteNameServerEntry,
          lambda request: ({"namespace": request.namespace, "key": request.key}, ()),
          lambda fields, _: DeleteNameServerEntry(fields.text("namespace"), fields.text("key")),
          encode_done, decode_done),
    Codec(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, PutGroup, _encode_put,
          lambda _, body: PutGroup(json_object(body)), encode_done, decode_done),
    Codec(CODE.DELETE_SUBSCRIPTIONGROUP, DeleteGroup, _encode_delete, _decode_delete, encode_done,
          decode_done),
    Codec(CODE.QUERY_TOPIC_CONSUME_BY_WHO, ListTopicGroups,
          lambda request: ({"topic": request.topic}, ()),
          lambda fields, _: ListTopicGroups(fields.text("topic")), _encode_group_list,
          _decode_group_list),
    Codec(CODE.INVOKE_BROKER_TO_RESET_OFFSET, ResetClientOffsets, _encode_reset, _decode_reset,
          _encode_offsets, _decode_offsets),
    Codec(CODE.GET_BROKER_CONSUME_STATS, GetAllCommittedOffsets,
          lambda request: ({"isOrder": "true" if request.only_ordered else "false"}, ()),
          _decode_broker_progress, _encode_all_progress, _decode_all_progress),
    Codec(CODE.VIEW_MESSAGE_BY_ID, ViewMessage, _encode_view, _decode_view, _encode_record,
          _decode_records),
    Codec(CODE.QUERY_MESSAGE, QueryMessages, _encode_query, _decode_query, _encode_records,
          _decode_records),
)  # fmt: skip
