"""Typed requests and replies <-> the protobuf messages of the bulk service, as bytes.

`METHODS` has one entry per unary call of the service. Some calls carry several requests (offsets
and committed offsets of many queues), so every entry maps lists; an outcome is a reply or a
BrokerError. If a call with one request fails, a gRPC status answers it; `error_to_metadata` makes
its trailing metadata.

The streams of the service, PullRecords and SendRecordsStream, use the same messages: see `records`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from rocketmq_wire.errors import BrokerError, NotOverGrpcError, RemoteProtocolError, broker_error
from rocketmq_wire.grpc.bulk import records, values
from rocketmq_wire.grpc.bulk.methods import (
    AnyRequest,
    Method,
    Outcome,
    alone,
    limited,
    shared,
    simple,
    small,
)
from rocketmq_wire.grpc.bulk.shapes import TUPLE, Converter, Pair, Shape, or_else, repeated
from rocketmq_wire.limits import (
    CALL_ITEMS_MAX,
    HEARTBEAT_GROUPS_MAX,
    HEARTBEAT_SUBSCRIPTIONS_MAX,
)
from rocketmq_wire.model import DEFAULT_TOPIC
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.requests import brokers, groups, offsets, topics
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.stubs import SERVICE, message_class

CODE_KEY: Final = "rocketmq-code"
# gRPC carries only printable ASCII in metadata, but anything under names that end in -bin.
REMARK_KEY: Final = "rocketmq-remark-bin"
# HTTP/2 peers refuse long headers (8 KiB is the usual limit), and only people read a remark.
REMARK_SIZE_MAX: Final = 2_048
PULL_RECORDS_PATH: Final = f"/{SERVICE}/PullRecords"
SEND_RECORDS_STREAM_PATH: Final = f"/{SERVICE}/SendRecordsStream"


def method_of(request: AnyRequest) -> Method:
    """The call that carries a request. Raises NotOverGrpcError if the service has none."""
    method = _METHODS_BY_REQUEST.get(type(request))
    if method is None:
        raise NotOverGrpcError(type(request).__name__)
    return method


def calls_of(requests: Sequence[AnyRequest]) -> list[tuple[Method, list[int]]]:
    """The fewest calls that carry all requests: each with the indexes of its requests."""
    shared: dict[Hashable, list[int]] = {}
    calls: list[tuple[Method, list[int]]] = []
    for index, request in enumerate(requests):
        method = method_of(request)
        if method.sharing_key is None:
            calls.append((method, [index]))
            continue
        key = (method.name, method.sharing_key(request))
        indexes = shared.get(key)
        if indexes is None or len(indexes) == CALL_ITEMS_MAX:
            indexes = shared[key] = []
            calls.append((method, indexes))
        indexes.append(index)
    return calls


def error_to_metadata(error: BrokerError) -> tuple[tuple[str, str | bytes], ...]:
    """The trailing metadata that carries a broker's refusal."""
    remark = error.remark.encode("utf-8", "replace")[:REMARK_SIZE_MAX]
    return ((CODE_KEY, str(error.code)), (REMARK_KEY, remark))


def error_from_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> BrokerError | None:
    """The broker's refusal in trailing metadata; None if there is none."""
    found = dict(metadata)
    code, remark = found.get(CODE_KEY), found.get(REMARK_KEY, b"")
    number = whole_number(code) if isinstance(code, str) else None
    if number is None or not isinstance(remark, bytes):
        return None
    return broker_error(number, remark.decode("utf-8", "replace"))


_KIND_BY_TIMESTAMP: Final = 3
_KINDS: Final[dict[type[AnyRequest], int]] = {
    offsets.GetMinOffset: 1,
    offsets.GetMaxOffset: 2,
    offsets.GetEarliestStoreTime: 4,
}
_REQUESTS_OF_KIND: Final[dict[int, Any]] = {kind: found for found, kind in _KINDS.items()}
_BOUNDARY_NUMBERS: Final = {offsets.Boundary.LOWER: 1, offsets.Boundary.UPPER: 2}
_UPPER: Final = _BOUNDARY_NUMBERS[offsets.Boundary.UPPER]


def _query_of(request: Any) -> Any:
    query, queue = message_class("OffsetQuery"), values.queue_to_message(request.queue)
    if isinstance(request, offsets.SearchOffset):
        return query(
            queue=queue,
            kind=_KIND_BY_TIMESTAMP,
            timestamp_ms=request.timestamp_ms,
            boundary=_BOUNDARY_NUMBERS[request.boundary],
        )
    return query(queue=queue, kind=_KINDS[type(request)])


def _request_of_query(query: Any) -> AnyRequest:
    queue = values.queue_from_message(query.queue)
    if query.kind == _KIND_BY_TIMESTAMP:
        # An absent boundary means LOWER.
        boundary = offsets.Boundary.UPPER if query.boundary == _UPPER else offsets.Boundary.LOWER
        return offsets.SearchOffset(queue, query.timestamp_ms, boundary)
    request_type = _REQUESTS_OF_KIND.get(query.kind)
    if request_type is None:
        raise RemoteProtocolError(f"there is no offset of kind {query.kind}")
    found: AnyRequest = request_type(queue)
    return found


def _offset_result(outcome: Any) -> Any:
    result = message_class("OffsetResult")
    if isinstance(outcome, BrokerError):
        return result(status=values.status_to_message(outcome))
    return result(value=outcome.value)


def _outcome_of_result(result: Any) -> Outcome:
    return values.error_from_status(result.status) or offsets.OffsetReply(result.value)


_OFFSET_RESULT: Final = Pair(_offset_result, _outcome_of_result)
_COMMIT_RESULT: Final = Pair(
    lambda outcome: (
        values.status_to_message(outcome)
        if isinstance(outcome, BrokerError)
        else message_class("Status")()
    ),
    lambda status: values.error_from_status(status) or Done(),
)


def _holding(reply_class: type[Any], attribute: str, shape: Shape[Any]) -> Converter:
    """A reply whose only attribute is the message's value."""
    return Pair(
        lambda reply: shape.to_message(getattr(reply, attribute)),
        lambda message: reply_class(shape.from_message(message)),
    )


def _delete_topic(message: Any) -> AnyRequest:
    if message.routes_only:
        return topics.DeleteTopicFromNameServer(message.topic)
    return topics.DeleteTopic(message.topic)


_DELETE_TOPIC: Final = Pair(
    lambda request: message_class("DeleteTopicRequest")(
        topic=request.topic, routes_only=isinstance(request, topics.DeleteTopicFromNameServer)
    ),
    _delete_topic,
)


def _consumers(messages: Any) -> Any:
    for consumer in limited(messages, HEARTBEAT_GROUPS_MAX):
        limited(consumer.subscriptions, HEARTBEAT_SUBSCRIPTIONS_MAX)
    return _ALL_CONSUMERS.from_message(messages)


_ALL_CONSUMERS: Final = repeated(values.CONSUMER)
_CONSUMERS: Final = Pair(_ALL_CONSUMERS.to_message, _consumers)


def _send(name: str, shape: Shape[Any]) -> Method:
    return alone(
        name,
        (shape.value_class,),
        shape.encode,
        shape.decode,
        lambda _, reply: records.encode_send_outcome(reply),
        records.decode_send_outcome,
    )


METHODS: Final[tuple[Method, ...]] = (
    shared(
        "GetOffsets",
        (*_KINDS, offsets.SearchOffset),
        lambda requests: {"queries": [_query_of(request) for request in requests]},
        lambda message: tuple(_request_of_query(query) for query in limited(message.queries)),
        _OFFSET_RESULT,
        sharing_key=lambda _: None,
    ),
    shared(
        "GetCommittedOffset",
        (offsets.GetCommittedOffset,),
        lambda requests: {
            "group": requests[0].group,
            "queues": [values.queue_to_message(request.queue) for request in requests],
            "zero_if_absent": requests[0].zero_if_absent,
        },
        lambda message: tuple(
            offsets.GetCommittedOffset(
                message.group, values.queue_from_message(queue), message.zero_if_absent
            )
            for queue in limited(message.queues)
        ),
        _OFFSET_RESULT,
        sharing_key=lambda request: (request.group, request.zero_if_absent),
    ),
    shared(
        "CommitOffset",
        (offsets.CommitOffset,),
        lambda requests: {
            "group": requests[0].group,
            "offsets": [
                message_class("QueueOffset")(
                    queue=values.queue_to_message(request.queue), offset=request.offset
                )
                for request in requests
            ],
        },
        lambda message: tuple(
            offsets.CommitOffset(
                message.group, values.queue_from_message(entry.queue), entry.offset
            )
            for entry in limited(message.offsets)
        ),
        _COMMIT_RESULT,
        sharing_key=lambda request: request.group,
    ),
    small(
        "GetRoute",
        (topics.GetRoute,),
        Shape("GetRouteRequest", topics.GetRoute),
        _holding(topics.RouteReply, "route", values.ROUTE),
    ),
    small(
        "GetCluster",
        (brokers.GetCluster,),
        Shape("GetClusterRequest", brokers.GetCluster),
        _holding(brokers.ClusterReply, "cluster", values.CLUSTER),
    ),
    simple("ListTopics", topics.ListTopics, topics.TopicsReply, topics=TUPLE),
    simple(
        "DescribeTopics",
        topics.ListTopicConfigs,
        topics.TopicConfigsReply,
        renamed={"topics": "configs"},
        topics=repeated(values.TOPIC),
    ),
    simple(
        "CreateTopic",
        topics.CreateTopic,
        renamed={"topic": "config"},
        topic=values.TOPIC,
        default_topic=or_else(DEFAULT_TOPIC),
    ),
    small(
        "DeleteTopic",
        (topics.DeleteTopic, topics.DeleteTopicFromNameServer),
        _DELETE_TOPIC,
        Shape("DeleteTopicResponse", Done),
    ),
    simple(
        "GetTopicStats", topics.GetTopicStats, topics.TopicStatsReply, queues=values.QUEUE_STATS
    ),
    simple("ListGroups", groups.ListGroups, groups.GroupsReply, groups=TUPLE),
    simple("ListGroupClients", groups.ListGroupClients, groups.ClientsReply, client_ids=TUPLE),
    simple(
        "GetGroupStats",
        offsets.GetConsumeStats,
        offsets.ConsumeStatsReply,
        queues=values.COMMITTED_OFFSETS,
    ),
    simple("Heartbeat", groups.Heartbeat, producer_groups=TUPLE, consumers=_CONSUMERS),
    simple("UnregisterClient", groups.UnregisterClient),
    alone(
        "PullMessages",
        (PullMessages,),
        records.PULL_MESSAGES.encode,
        records.PULL_MESSAGES.decode,
        lambda request, reply: records.encode_chunk(
            records.chunk_of_reply(reply, start=request.start)
        ),
        lambda content: records.reply_of_chunk(records.decode_chunk(content)),
    ),
    _send("SendMessage", records.SEND_MESSAGE),
    _send("SendBatch", records.SEND_BATCH),
    _send("SendRecords", records.SEND_RECORDS),
)
_METHODS_BY_REQUEST: Final[dict[type[AnyRequest], Method]] = {
    request_type: method for method in METHODS for request_type in method.request_types
}
