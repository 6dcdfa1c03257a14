"""Requests about queue offsets and committed offsets <-> header fields and JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import (
    Json,
    ObjectKeyed,
    as_object,
    member_int,
    member_list,
    member_object,
    member_objects,
    member_text,
)
from rocketmq_wire.model import Buffer, CommittedOffset
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    bool_text,
    done_codec,
    json_body,
    queue_fields,
    queue_of,
    success,
)
from rocketmq_wire.remoting.codecs.json_bodies import (
    offsets_from_json,
    offsets_json,
    queue_key,
    queue_of_key,
)
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import (
    AllCommittedOffsetsReply,
    Boundary,
    CommitOffset,
    ConsumeStatsReply,
    GetAllCommittedOffsets,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    OffsetsReply,
    ResetClientOffsets,
    SearchOffset,
)

# --- offsets of queues -----------------------------------------------------------------------


def _encode_search(request: SearchOffset) -> Encoded:
    fields = queue_fields(request.queue)
    fields["timestamp"] = str(request.timestamp_ms)
    fields["boundaryType"] = request.boundary.name
    return fields, ()


def _decode_search(fields: Fields, _: Buffer) -> SearchOffset:
    is_upper = fields.text("boundaryType", "").lower() == "upper"
    boundary = Boundary.UPPER if is_upper else Boundary.LOWER
    return SearchOffset(queue_of(fields), fields.int64("timestamp"), boundary)


def _encode_queue(request: GetMaxOffset | GetMinOffset | GetEarliestStoreTime) -> Encoded:
    return queue_fields(request.queue), ()


def _encode_store_time(_: GetEarliestStoreTime, reply: OffsetReply) -> EncodedReply:
    return success({"timestamp": str(reply.value)})


def _decode_store_time(_: GetEarliestStoreTime, reply: EncodedReply) -> OffsetReply:
    return OffsetReply(Fields(reply.ext_fields).int64("timestamp"))


def _encode_offset(_: Request[Reply], reply: OffsetReply) -> EncodedReply:
    return success({"offset": str(reply.value)})


def _decode_offset(_: Request[Reply], reply: EncodedReply) -> OffsetReply:
    return OffsetReply(Fields(reply.ext_fields).int64("offset"))


# --- committed offsets -----------------------------------------------------------------------


def _encode_get_committed(request: GetCommittedOffset) -> Encoded:
    fields = queue_fields(request.queue)
    fields["consumerGroup"] = request.group
    fields["setZeroIfNotFound"] = bool_text(request.zero_if_absent)
    return fields, ()


def _decode_get_committed(fields: Fields, _: Buffer) -> GetCommittedOffset:
    # Clients of 4.9 do not know the field: they may read an absent committed offset as zero.
    zero_if_absent = fields.boolean("setZeroIfNotFound", True)
    return GetCommittedOffset(fields.text("consumerGroup"), queue_of(fields), zero_if_absent)


def _encode_commit(request: CommitOffset) -> Encoded:
    fields = queue_fields(request.queue)
    fields["consumerGroup"] = request.group
    fields["commitOffset"] = str(request.offset)
    return fields, ()


def _decode_commit(fields: Fields, _: Buffer) -> CommitOffset:
    return CommitOffset(
        fields.text("consumerGroup"), queue_of(fields), fields.int64("commitOffset")
    )


def _encode_get_stats(request: GetConsumeStats) -> Encoded:
    fields = {"consumerGroup": request.group}
    if request.topic is not None:
        fields["topic"] = request.topic
    return fields, ()


def _decode_get_stats(fields: Fields, _: Buffer) -> GetConsumeStats:
    return GetConsumeStats(fields.text("consumerGroup"), fields.optional_text("topic"))


def _encode_stats(_: GetConsumeStats, reply: ConsumeStatsReply) -> EncodedReply:
    return success(body=_stats_json(reply))


def _stats_json(stats: ConsumeStatsReply) -> Json:
    """A group's committed offsets as a map keyed by queues."""
    table = ObjectKeyed(
        {
            queue_key(queue): {
                "brokerOffset": committed.broker_offset,
                "consumerOffset": committed.consumer_offset,
                "lastTimestamp": committed.updated_ms,
                "pullOffset": committed.pull_offset,
            }
            for queue, committed in stats.queues.items()
        }
    )
    return {"consumeTps": float(stats.tps), "offsetTable": table}


def _decode_stats(_: GetConsumeStats, reply: EncodedReply) -> ConsumeStatsReply:
    return _stats_from_json(json_body(reply))


def _stats_from_json(stats: dict[str, Json]) -> ConsumeStatsReply:
    """The inverse of `_stats_json`."""
    queues = {}
    for key, value in member_object(stats, "offsetTable").items():
        committed = as_object(value, "offsetTable")
        queues[queue_of_key(key)] = CommittedOffset(
            broker_offset=member_int(committed, "brokerOffset"),
            consumer_offset=member_int(committed, "consumerOffset"),
            updated_ms=member_int(committed, "lastTimestamp", 0),
            pull_offset=member_int(committed, "pullOffset", 0),
        )
    tps = stats.get("consumeTps")
    if tps is not None and not isinstance(tps, (int, float)):
        raise RemoteProtocolError(f"consumeTps is {str(tps)[:40]!r}, no number")
    return ConsumeStatsReply(queues, float(tps or 0))


def _encode_all_committed(
    _: GetAllCommittedOffsets, reply: AllCommittedOffsetsReply
) -> EncodedReply:
    groups = [
        {group: [_stats_json(topic) for topic in topics]} for group, topics in reply.groups.items()
    ]
    return success(
        body={
            "brokerAddr": reply.address,
            "consumeStatsList": groups,
            "totalDiff": reply.total_of("diff"),
            "totalInflightDiff": reply.total_of("inflight"),
        }
    )


def _decode_all_committed(
    _: GetAllCommittedOffsets, reply: EncodedReply
) -> AllCommittedOffsetsReply:
    body = json_body(reply)
    groups = {
        group: tuple(
            _stats_from_json(as_object(topic, "consumeStats"))
            for topic in member_list(entry, group)
        )
        for entry in member_objects(body, "consumeStatsList")
        for group in entry
    }
    return AllCommittedOffsetsReply(groups, member_text(body, "brokerAddr", ""))


def _decode_get_all_committed(fields: Fields, _: Buffer) -> GetAllCommittedOffsets:
    return GetAllCommittedOffsets(fields.boolean("isOrder", False))


def _encode_reset(request: ResetClientOffsets) -> Encoded:
    fields = {
        "group": request.group,
        "topic": request.topic,
        "timestamp": str(request.timestamp_ms),
        "isForce": bool_text(request.is_forced),
        "queueId": str(request.queue_index),
    }
    if request.offset is not None:
        fields["offset"] = str(request.offset)
    return fields, ()


def _decode_reset(fields: Fields, _: Buffer) -> ResetClientOffsets:
    offset = fields.int64("offset", -1)
    return ResetClientOffsets(
        group=fields.text("group"),
        topic=fields.text("topic"),
        timestamp_ms=fields.int64("timestamp"),
        is_forced=fields.boolean("isForce", False),
        queue_index=fields.int32("queueId", -1),
        offset=None if offset == -1 else offset,
    )


def _encode_offsets(_: ResetClientOffsets, reply: OffsetsReply) -> EncodedReply:
    return success(body={"offsetTable": offsets_json(reply.offsets)})


def _decode_offsets(_: ResetClientOffsets, reply: EncodedReply) -> OffsetsReply:
    return OffsetsReply(offsets_from_json(json_body(reply), "offsetTable"))


OFFSET_CODECS: Final = (
    Codec(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffset, _encode_search, _decode_search,
          _encode_offset, _decode_offset),
    Codec(RequestCode.GET_MAX_OFFSET, GetMaxOffset, _encode_queue,
          lambda fields, _: GetMaxOffset(queue_of(fields)), _encode_offset, _decode_offset),
    Codec(RequestCode.GET_MIN_OFFSET, GetMinOffset, _encode_queue,
          lambda fields, _: GetMinOffset(queue_of(fields)), _encode_offset, _decode_offset),
    Codec(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestStoreTime, _encode_queue,
          lambda fields, _: GetEarliestStoreTime(queue_of(fields)), _encode_store_time,
          _decode_store_time),
    Codec(RequestCode.QUERY_CONSUMER_OFFSET, GetCommittedOffset, _encode_get_committed,
          _decode_get_committed, _encode_offset, _decode_offset),
    done_codec(RequestCode.UPDATE_CONSUMER_OFFSET, CommitOffset, _encode_commit, _decode_commit),
    Codec(RequestCode.GET_CONSUME_STATS, GetConsumeStats, _encode_get_stats, _decode_get_stats,
          _encode_stats, _decode_stats),
    Codec(RequestCode.GET_BROKER_CONSUME_STATS, GetAllCommittedOffsets,
          lambda request: ({"isOrder": bool_text(request.only_ordered)}, ()),
          _decode_get_all_committed, _encode_all_committed, _decode_all_committed),
    Codec(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetClientOffsets, _encode_reset,
          _decode_reset, _encode_offsets, _decode_offsets),
)  # fmt: skip
