"""Every typed request and reply survives the way through its protobuf message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    LocalProtocolError,
    ProgressNotFoundError,
    RemoteProtocolError,
    TopicNotFoundError,
    broker_error,
)
from rocketmq_wire.grpc.bulk.mapping import (
    METHODS,
    REMARK_SIZE_MAX,
    calls_of,
    error_from_metadata,
    error_to_metadata,
    method_of,
)
from rocketmq_wire.limits import CALL_ITEMS_MAX
from rocketmq_wire.model import (
    BrokerAddresses,
    ClusterInfo,
    CommittedOffset,
    ConsumerInfo,
    QueueId,
    QueueSet,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.contract import Done, Request
from rocketmq_wire.requests.groups import (
    ClientsReply,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    UnregisterClient,
)
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
    SendStatus,
)
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    ConsumeStatsReply,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
)
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
from rocketmq_wire.stubs import message_class

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
INT32 = st.integers(-(2**31), 2**31 - 1)
QUEUE_COUNTS = st.integers(-(2**31), 65_536)
INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.binary(max_size=200)
QUEUES = st.builds(QueueId, NAMES, NAMES, INT32)
# An empty expression and kind mean the usual ones, so they do not come back as they were.
SUBSCRIPTIONS = st.builds(Subscription, NAMES.filter(bool), st.sampled_from(["TAG", "SQL92"]))
TOPICS = st.builds(
    TopicConfig,
    NAMES,
    *(INT32, INT32, INT32),
    NAMES.filter(bool),
    INT32,
    st.booleans(),
    st.dictionaries(NAMES, NAMES, max_size=3),
)
BROKERS = st.builds(
    BrokerAddresses, NAMES, NAMES, st.dictionaries(st.integers(0, 9), NAMES, max_size=3)
)
CONSUMERS = st.builds(
    ConsumerInfo,
    *(NAMES, NAMES, NAMES, NAMES),
    st.lists(st.tuples(NAMES, NAMES, NAMES, INT64), max_size=3).map(tuple),
    st.booleans(),
)
ROUTES = st.builds(
    Route,
    st.lists(st.builds(QueueSet, NAMES, QUEUE_COUNTS, QUEUE_COUNTS, INT32, INT32), max_size=3).map(
        tuple
    ),
    st.lists(BROKERS, max_size=3).map(tuple),
    st.none() | NAMES,
)
CLUSTERS = st.builds(
    ClusterInfo,
    st.lists(BROKERS, max_size=3).map(tuple),
    st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple), max_size=3),
)
TUPLES = st.lists(NAMES, max_size=4).map(tuple)
DONE = st.builds(Done, NAMES)
OFFSETS = st.builds(OffsetReply, INT64)
SENT = st.builds(
    SendReply, st.sampled_from(SendStatus), NAMES, INT32, INT64, st.none() | NAMES, INT32
)
PULLED = st.builds(
    PullReply,
    st.sampled_from(PullStatus),
    *(INT64, INT64, INT64),
    st.just(()) | st.binary(min_size=1, max_size=200).map(lambda body: (body,)),
    st.none() | st.binary(min_size=4, max_size=4),
    INT32,
    NAMES,
)
PULLS = st.builds(
    PullMessages,
    *(NAMES, QUEUES, INT64, INT32),
    bytes_max=st.none() | INT64,
    subscription=SUBSCRIPTIONS,
    subscription_version=INT64,
    uses_registered_subscription=st.booleans(),
    commit=st.none() | INT64,
    suspend_ms=st.none() | INT64,
)
QUEUE_COUNTS = st.integers(1, 100)
EXCHANGES: dict[type[Any], tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    GetRoute: (st.builds(GetRoute, NAMES), st.builds(RouteReply, ROUTES)),
    GetCluster: (st.builds(GetCluster), st.builds(ClusterReply, CLUSTERS)),
    ListTopics: (st.builds(ListTopics), st.builds(TopicsReply, TUPLES)),
    DeleteTopicFromNameServer: (st.builds(DeleteTopicFromNameServer, NAMES), DONE),
    Heartbeat: (
        st.builds(Heartbeat, NAMES, TUPLES, st.lists(CONSUMERS, max_size=2).map(tuple)),
        DONE,
    ),
    UnregisterClient: (
        st.builds(UnregisterClient, NAMES, st.none() | NAMES, st.none() | NAMES),
        DONE,
    ),
    ListGroupClients: (st.builds(ListGroupClients, NAMES), st.builds(ClientsReply, TUPLES)),
    GetCommittedOffset: (st.builds(GetCommittedOffset, NAMES, QUEUES, st.booleans()), OFFSETS),
    CommitOffset: (st.builds(CommitOffset, NAMES, QUEUES, INT64), st.just(Done())),
    SearchOffset: (
        st.builds(SearchOffset, QUEUES, INT64, st.sampled_from(Boundary)),
        OFFSETS,
    ),
    GetMaxOffset: (st.builds(GetMaxOffset, QUEUES), OFFSETS),
    GetMinOffset: (st.builds(GetMinOffset, QUEUES), OFFSETS),
    GetEarliestStoreTime: (st.builds(GetEarliestStoreTime, QUEUES), OFFSETS),
    PullMessages: (PULLS, PULLED),
    SendMessage: (
        st.builds(
            SendMessage,
            *(NAMES, QUEUES, INT64, BYTES, BYTES, INT32, INT32, INT32),
            st.none() | INT32,
            QUEUE_COUNTS,
        ),
        SENT,
    ),
    SendBatch: (
        st.builds(SendBatch, NAMES, QUEUES, INT64, BYTES, BYTES, INT32, INT32, QUEUE_COUNTS),
        SENT,
    ),
    SendRecords: (
        st.builds(SendRecords, NAMES, QUEUES, BYTES, st.none() | st.binary(min_size=4)),
        SENT,
    ),
    CreateTopic: (st.builds(CreateTopic, TOPICS, NAMES.filter(bool)), DONE),
    DeleteTopic: (st.builds(DeleteTopic, NAMES), DONE),
    ListTopicConfigs: (
        st.builds(ListTopicConfigs),
        st.builds(TopicConfigsReply, st.lists(TOPICS, max_size=2).map(tuple)),
    ),
    GetTopicStats: (
        st.builds(GetTopicStats, NAMES),
        st.builds(
            TopicStatsReply,
            st.dictionaries(QUEUES, st.builds(QueueStats, INT64, INT64, INT64), max_size=3),
        ),
    ),
    GetConsumeStats: (
        st.builds(GetConsumeStats, NAMES, st.none() | NAMES),
        st.builds(
            ConsumeStatsReply,
            st.dictionaries(QUEUES, st.builds(CommittedOffset, INT64, INT64, INT64, INT64)),
            st.floats(allow_nan=False),
        ),
    ),
    ListGroups: (st.builds(ListGroups), st.builds(GroupsReply, TUPLES)),
}
SHARED = {"GetOffsets", "GetCommittedOffset", "CommitOffset"}


def test_every_request_of_the_service_has_an_exchange_here() -> None:
    assert {found for method in METHODS for found in method.request_types} == set(EXCHANGES)


@pytest.mark.parametrize("request_type", EXCHANGES, ids=lambda found: found.__name__)
@given(data=st.data())
def test_a_request_and_its_reply_come_back_as_they_were(
    request_type: type[Any], data: st.DataObject
) -> None:
    requests, replies = EXCHANGES[request_type]
    request, reply = data.draw(requests), data.draw(replies)
    method = method_of(request)
    assert method.decode_requests(method.encode([request])) == (request,)
    content = method.encode_outcomes([request], [reply])
    assert method.decode_outcomes([request], content) == [reply]


@given(st.lists(st.one_of(*(wanted for wanted, _ in EXCHANGES.values())), max_size=20))
def test_the_fewest_calls_carry_every_request_once(wanted: list[Any]) -> None:
    calls = calls_of(wanted)
    assert sorted(index for _, indexes in calls for index in indexes) == list(range(len(wanted)))
    for method, indexes in calls:
        carried = tuple(wanted[index] for index in indexes)
        assert method.decode_requests(method.encode(carried)) == carried
        assert len(carried) == 1 or method.name in SHARED


def test_offsets_of_every_kind_share_a_call_and_committed_offsets_share_one_per_group() -> None:
    queue = QueueId("orders", "broker-a", 1)
    wanted = [
        GetMinOffset(queue),
        GetCommittedOffset("a", queue),
        SearchOffset(queue, 5),
        GetCommittedOffset("b", queue),
        GetCommittedOffset("a", QueueId("orders", "broker-a", 2)),
        GetMaxOffset(queue),
    ]
    assert [(method.name, indexes) for method, indexes in calls_of(wanted)] == [
        ("GetOffsets", [0, 2, 5]),
        ("GetCommittedOffset", [1, 4]),
        ("GetCommittedOffset", [3]),
    ]


def test_a_call_with_too_many_requests_is_split_by_the_client_and_refused_by_the_broker() -> None:
    queues = [GetMaxOffset(QueueId("orders", "broker-a", i)) for i in range(CALL_ITEMS_MAX + 1)]
    (method, _), (_, rest) = calls_of(queues)
    assert rest == [CALL_ITEMS_MAX]
    with pytest.raises(RemoteProtocolError, match=f"over {CALL_ITEMS_MAX}"):
        method.decode_requests(method.encode(queues))


def test_one_refused_queue_does_not_hide_the_answers_of_the_others() -> None:
    queue = QueueId("orders", "broker-a", 0)
    refusal = ProgressNotFoundError(22, "no committed offset")
    for request, answer in [
        (GetCommittedOffset("g", queue), OffsetReply(0)),
        (GetMaxOffset(queue), OffsetReply(7)),
        (CommitOffset("g", queue, 7), Done()),
    ]:
        method = method_of(request)
        content = method.encode_outcomes([request, request, request], [answer, refusal, answer])
        first, second, third = method.decode_outcomes([request, request, request], content)
        assert first == third == answer
        assert type(second) is ProgressNotFoundError
        assert (second.code, second.remark) == (22, "no committed offset")


def test_a_refused_call_of_its_own_raises_the_refusal() -> None:
    refusal = TopicNotFoundError(17, "no such topic")
    for request in (GetRoute("orders"), PullMessages("g", QueueId("o", "b", 0), 0, 32)):
        with pytest.raises(TopicNotFoundError):
            method_of(request).encode_outcomes([request], [refusal])


@given(st.integers(0, 10_000), st.text(st.characters(codec="utf-8"), max_size=100))
def test_a_refusal_travels_in_trailing_metadata_and_keeps_its_class(code: int, remark: str) -> None:
    error = broker_error(code, remark)
    found = error_from_metadata(error_to_metadata(error))
    assert type(found) is type(error)
    assert isinstance(found, BrokerError)
    assert (found.code, found.remark) == (code, remark)


def test_a_long_or_broken_remark_is_cut_to_what_a_header_may_hold() -> None:
    metadata = dict(error_to_metadata(BrokerBusyError(2, "ä" * 5_000 + "\ud800")))
    assert len(metadata["rocketmq-remark-bin"]) == REMARK_SIZE_MAX


@pytest.mark.parametrize(
    "metadata",
    [(), (("rocketmq-code", b"17"),), (("rocketmq-code", "x"),), (("grpc-status", "5"),)],
)
def test_metadata_without_a_code_is_no_refusal(metadata: tuple[tuple[str, str], ...]) -> None:
    assert error_from_metadata(metadata) is None


def test_a_remark_that_is_missing_or_of_the_wrong_kind_is_met() -> None:
    found = error_from_metadata((("rocketmq-code", "17"),))
    assert isinstance(found, TopicNotFoundError)
    assert found.remark == ""
    assert error_from_metadata((("rocketmq-code", "17"), ("rocketmq-remark-bin", "x"))) is None


def test_values_that_protobuf_cannot_carry_are_our_own_mistake() -> None:
    for request in (
        GetRoute("\ud800"),
        CommitOffset("g", QueueId("orders", "broker-a", 0), 2**63),
        GetMaxOffset(QueueId("orders", "broker-a", 2**31)),
    ):
        with pytest.raises(LocalProtocolError, match=type(request).__name__):
            method_of(request).encode([request])


def test_a_request_without_a_call_is_our_own_mistake() -> None:
    class Another(Request[Done]):
        """Not known to the service."""

    with pytest.raises(LocalProtocolError, match="Another cannot be asked over gRPC"):
        method_of(Another())


def test_answers_that_do_not_match_the_requests_are_refused() -> None:
    request = GetMaxOffset(QueueId("orders", "broker-a", 0))
    method = method_of(request)
    two = method.encode_outcomes([request, request], [OffsetReply(1), OffsetReply(2)])
    with pytest.raises(RemoteProtocolError, match="1 requests got 2 answers"):
        method.decode_outcomes([request], two)


def test_an_offset_of_no_kind_is_refused() -> None:
    message = message_class("GetOffsetsRequest")(queries=[message_class("OffsetQuery")()])
    with pytest.raises(RemoteProtocolError, match="no offset of kind 0"):
        method_of(GetMaxOffset(QueueId("o", "b", 0))).decode_requests(message.SerializeToString())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@given(content=st.binary(max_size=80))
def test_arbitrary_bytes_are_a_request_or_a_protocol_error(method: Any, content: bytes) -> None:
    try:
        found = method.decode_requests(content)
    except RemoteProtocolError:
        return
    assert all(type(request) in method.request_types for request in found)
