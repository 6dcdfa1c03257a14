"""Requests about queue offsets and committed offsets <-> header fields and JSON bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.fastjson import Json, as_object, member_list, member_objects
from rocketmq_wire.model import CommittedOffset
from rocketmq_wire.remoting.codecs import body, header
from rocketmq_wire.remoting.codecs.layouts import DONE, Codec, Field, Fields, answer, field, layout
from rocketmq_wire.requests import offsets


def _boundary_of(fields: Fields) -> offsets.Boundary:
    is_upper = fields.text("boundaryType", "").lower() == "upper"
    return offsets.Boundary.UPPER if is_upper else offsets.Boundary.LOWER


def _offset_or_none(fields: Fields) -> int | None:
    offset = fields.int64("offset", -1)
    return None if offset == -1 else offset


_COMMITTED: Final = body.Object(
    CommittedOffset,
    body.integer("brokerOffset", "broker_offset"),
    body.integer("consumerOffset", "consumer_offset"),
    body.integer("lastTimestamp", "updated_ms", 0),
    body.integer("pullOffset", "pull_offset", 0),
)
_STATS_MEMBERS: Final = (
    body.by_queue("offsetTable", "queues", _COMMITTED),
    body.number("consumeTps", "tps"),
)
_STATS: Final = body.Object(offsets.ConsumeStatsReply, *_STATS_MEMBERS)


def _groups_of(
    owner: body.JsonObject, name: str
) -> dict[str, tuple[offsets.ConsumeStatsReply, ...]]:
    return {
        group: tuple(
            [_STATS.read(as_object(topic, "consumeStats")) for topic in member_list(entry, group)]
        )
        for entry in member_objects(owner, name)
        for group in entry
    }


def _write_totals(target: dict[str, Json], reply: offsets.AllCommittedOffsetsReply) -> None:
    """The messages of all queues that are not consumed yet, and that are only pulled."""
    stats = [topic for topics in reply.groups.values() for topic in topics]
    queues = [queue for topic in stats for queue in topic.queues.values()]
    target["totalDiff"] = sum(queue.broker_offset - queue.consumer_offset for queue in queues)
    target["totalInflightDiff"] = sum(
        max(0, queue.pull_offset - queue.consumer_offset) for queue in queues
    )


_ALL_COMMITTED: Final = body.members(
    body.member("consumeStatsList", "groups", _groups_of,
                lambda groups: [{group: [_STATS.write(topic) for topic in topics]}
                                for group, topics in groups.items()]),
    body.text("brokerAddr", "address", ""),
    Field("", None, _write_totals),
)  # fmt: skip
_GROUP: Final = header.text("consumerGroup", "group")
_OFFSET: Final = answer(offsets.OffsetReply, header.int64("offset", "value"))

CODECS: Final = (
    Codec(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
          layout(offsets.SearchOffset, header.QUEUE, header.int64("timestamp", "timestamp_ms"),
                 field("boundaryType", "boundary", _boundary_of, lambda boundary: boundary.name)),
          _OFFSET),
    Codec(RequestCode.GET_MAX_OFFSET, layout(offsets.GetMaxOffset, header.QUEUE), _OFFSET),
    Codec(RequestCode.GET_MIN_OFFSET, layout(offsets.GetMinOffset, header.QUEUE), _OFFSET),
    Codec(RequestCode.GET_EARLIEST_MSG_STORETIME,
          layout(offsets.GetEarliestStoreTime, header.QUEUE),
          answer(offsets.OffsetReply, header.int64("timestamp", "value"))),
    # Clients of 4.9 do not know the last field: they may read an absent committed offset as zero.
    Codec(RequestCode.QUERY_CONSUMER_OFFSET,
          layout(offsets.GetCommittedOffset, header.QUEUE, _GROUP,
                 header.boolean("setZeroIfNotFound", "zero_if_absent", default=True)),
          _OFFSET),
    Codec(RequestCode.UPDATE_CONSUMER_OFFSET,
          layout(offsets.CommitOffset, header.QUEUE, _GROUP,
                 header.int64("commitOffset", "offset")),
          DONE),
    Codec(RequestCode.GET_CONSUME_STATS,
          layout(offsets.GetConsumeStats, _GROUP, header.nullable("topic")),
          answer(offsets.ConsumeStatsReply, body=body.members(*_STATS_MEMBERS))),
    Codec(RequestCode.GET_BROKER_CONSUME_STATS,
          layout(offsets.GetAllCommittedOffsets, header.boolean("isOrder", "only_ordered")),
          answer(offsets.AllCommittedOffsetsReply, body=_ALL_COMMITTED)),
    Codec(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
          layout(offsets.ResetClientOffsets, header.text("group"), header.text("topic"),
                 header.int64("timestamp", "timestamp_ms"), header.boolean("isForce", "is_forced"),
                 header.int32("queueId", "queue_index", -1),
                 field("offset", "offset", _offset_or_none,
                       lambda offset: None if offset is None else str(offset))),
          answer(offsets.OffsetsReply, body=body.members(body.offsets("offsetTable", "offsets")))),
)  # fmt: skip
