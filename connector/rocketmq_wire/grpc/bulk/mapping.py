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

from rocketmq_wire.errors import BrokerError, NotOverGrpcError, broker_error
from rocketmq_wire.grpc.bulk import records, values
from rocketmq_wire.grpc.bulk.methods import AnyRequest, Method, alone, done, small
from rocketmq_wire.grpc.bulk.shared_calls import (
    COMMIT_OFFSET,
    GET_COMMITTED_OFFSET,
    GET_OFFSETS,
    ITEMS_MAX,
)
from rocketmq_wire.model import DEFAULT_TOPIC
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.groups import (
    ClientsReply,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    UnregisterClient,
)
from rocketmq_wire.requests.messages import PullMessages, SendBatch, SendMessage, SendRecords
from rocketmq_wire.requests.offsets import ConsumeStatsReply, GetConsumeStats
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicStats,
    ListTopicConfigs,
    ListTopics,
    RouteReply,
    TopicConfigsReply,
    TopicsReply,
    TopicStatsReply,
)
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
        if indexes is None or len(indexes) == ITEMS_MAX:
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
    if not isinstance(code, str) or not code.isdecimal() or not isinstance(remark, bytes):
        return None
    return broker_error(int(code), remark.decode("utf-8", "replace"))


def _consume_stats_to_message(reply: ConsumeStatsReply) -> Any:
    return message_class("GetGroupStatsResponse")(
        queues=[values.committed_to_message(*entry) for entry in reply.queues.items()],
        tps=reply.tps,
    )


def _delete_topic(message: Any) -> AnyRequest:
    if message.routes_only:
        return DeleteTopicFromNameServer(message.topic)
    return DeleteTopic(message.topic)


METHODS: Final[tuple[Method, ...]] = (
    GET_OFFSETS,
    GET_COMMITTED_OFFSET,
    COMMIT_OFFSET,
    small(
        "GetRoute",
        (GetRoute,),
        lambda request: {"topic": request.topic},
        lambda message: GetRoute(message.topic),
        lambda reply: values.route_to_message(reply.route),
        lambda message: RouteReply(values.route_from_message(message)),
    ),
    small(
        "GetCluster",
        (GetCluster,),
        lambda _: {},
        lambda _: GetCluster(),
        lambda reply: values.cluster_to_message(reply.cluster),
        lambda message: ClusterReply(values.cluster_from_message(message)),
    ),
    small(
        "ListTopics",
        (ListTopics,),
        lambda _: {},
        lambda _: ListTopics(),
        lambda reply: message_class("ListTopicsResponse")(topics=reply.topics),
        lambda message: TopicsReply(tuple(message.topics)),
    ),
    small(
        "DescribeTopics",
        (ListTopicConfigs,),
        lambda _: {},
        lambda _: ListTopicConfigs(),
        lambda reply: message_class("DescribeTopicsResponse")(
            topics=[values.topic_to_message(config) for config in reply.configs]
        ),
        lambda message: TopicConfigsReply(
            tuple(values.topic_from_message(topic) for topic in message.topics)
        ),
    ),
    done(
        "CreateTopic",
        (CreateTopic,),
        lambda request: {
            "topic": values.topic_to_message(request.config),
            "default_topic": request.default_topic,
        },
        lambda message: CreateTopic(
            values.topic_from_message(message.topic), message.default_topic or DEFAULT_TOPIC
        ),
    ),
    done(
        "DeleteTopic",
        (DeleteTopic, DeleteTopicFromNameServer),
        lambda request: {
            "topic": request.topic,
            "routes_only": isinstance(request, DeleteTopicFromNameServer),
        },
        _delete_topic,
    ),
    small(
        "GetTopicStats",
        (GetTopicStats,),
        lambda request: {"topic": request.topic},
        lambda message: GetTopicStats(message.topic),
        lambda reply: message_class("GetTopicStatsResponse")(
            queues=[values.stats_to_message(*entry) for entry in reply.queues.items()]
        ),
        lambda message: TopicStatsReply(
            dict(values.stats_from_message(entry) for entry in message.queues)
        ),
    ),
    small(
        "ListGroups",
        (ListGroups,),
        lambda _: {},
        lambda _: ListGroups(),
        lambda reply: message_class("ListGroupsResponse")(groups=reply.groups),
        lambda message: GroupsReply(tuple(message.groups)),
    ),
    small(
        "ListGroupClients",
        (ListGroupClients,),
        lambda request: {"group": request.group},
        lambda message: ListGroupClients(message.group),
        lambda reply: message_class("ListGroupClientsResponse")(client_ids=reply.client_ids),
        lambda message: ClientsReply(tuple(message.client_ids)),
    ),
    small(
        "GetGroupStats",
        (GetConsumeStats,),
        lambda request: {"group": request.group, "topic": request.topic},
        lambda message: GetConsumeStats(message.group, values.optional(message, "topic")),
        _consume_stats_to_message,
        lambda message: ConsumeStatsReply(
            dict(values.committed_from_message(entry) for entry in message.queues), message.tps
        ),
    ),
    done(
        "Heartbeat",
        (Heartbeat,),
        lambda request: {
            "client_id": request.client_id,
            "producer_groups": request.producer_groups,
            "consumers": [values.consumer_to_message(entry) for entry in request.consumers],
        },
        lambda message: Heartbeat(
            message.client_id,
            tuple(message.producer_groups),
            tuple(values.consumer_from_message(entry) for entry in message.consumers),
        ),
    ),
    done(
        "UnregisterClient",
        (UnregisterClient,),
        lambda request: {
            "client_id": request.client_id,
            "producer_group": request.producer_group,
            "consumer_group": request.consumer_group,
        },
        lambda message: UnregisterClient(
            message.client_id,
            values.optional(message, "producer_group"),
            values.optional(message, "consumer_group"),
        ),
    ),
    alone(
        "PullMessages",
        (PullMessages,),
        records.encode_pull,
        records.decode_pull,
        lambda request, reply: records.encode_chunk(
            records.chunk_of_reply(reply, start=request.start)
        ),
        lambda _, content: records.reply_of_chunk(records.decode_chunk(content)),
    ),
    alone(
        "SendMessage",
        (SendMessage,),
        records.encode_send_message,
        records.decode_send_message,
        lambda _, reply: records.encode_send_outcome(reply),
        lambda _, content: records.decode_send_outcome(content),
    ),
    alone(
        "SendBatch",
        (SendBatch,),
        records.encode_send_batch,
        records.decode_send_batch,
        lambda _, reply: records.encode_send_outcome(reply),
        lambda _, content: records.decode_send_outcome(content),
    ),
    alone(
        "SendRecords",
        (SendRecords,),
        records.encode_send_records,
        records.decode_send_records,
        lambda _, reply: records.encode_send_outcome(reply),
        lambda _, content: records.decode_send_outcome(content),
    ),
)
_METHODS_BY_REQUEST: Final[dict[type[AnyRequest], Method]] = {
    request_type: method for method in METHODS for request_type in method.request_types
}
