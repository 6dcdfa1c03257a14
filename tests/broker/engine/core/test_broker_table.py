"""The table of a name server, as an engine answers from it: brokers come, report and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketmq_broker.engine.core.broker_table import EXPIRY_MS
from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_wire import limits
from rocketmq_wire.errors import TopicNotFoundError
from rocketmq_wire.model import QueueId, QueueSet, TopicConfig
from rocketmq_wire.requests.brokers import AddWritePermission, GetCluster, WipeWritePermission
from rocketmq_wire.requests.groups import QueryAssignment
from rocketmq_wire.requests.registration import (
    BrokerNode,
    CompareVersion,
    DataVersion,
    RegisterBroker,
    RegisterReply,
    ReportBroker,
    UnregisterBroker,
    VersionReply,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    ListTopics,
    RegisterTopic,
)
from support.engines import BROKER, PEER, EngineUnderTest

B = BrokerNode("DefaultCluster", "broker-b", 0, "10.0.0.2:10911")
REPLICA = BrokerNode("DefaultCluster", "broker-b", 1, "10.0.0.3:10911")
V1, V2 = DataVersion(1, 5), DataVersion(2, 5)
ORDERS, PAYMENTS = TopicConfig("orders", 4, 4), TopicConfig("payments", 2, 2)


def registration(
    *configs: TopicConfig, node: BrokerNode = B, version: DataVersion = V1, **others: int
) -> RegisterBroker:
    return RegisterBroker(node, version, configs or (ORDERS, PAYMENTS), "10.0.0.2:10912", **others)


def queues_of(broker: EngineUnderTest, topic: str) -> dict[str, tuple[int, int]]:
    """The queues and the permission of a topic, by broker name; empty without a route."""
    try:
        route = broker.ask(GetRoute(topic)).route
    except TopicNotFoundError:
        return {}
    assert {entry.name for entry in route.brokers} == {each.broker for each in route.queue_sets}
    return {each.broker: (each.read_queue_count, each.permission) for each in route.queue_sets}


@pytest.fixture
def joined(broker: EngineUnderTest) -> EngineUnderTest:
    """A name server with its own broker, which has the topic orders, and broker-b."""
    assert broker.ask(registration()) == RegisterReply()
    return broker


def test_routes_lead_over_all_brokers(joined):
    assert queues_of(joined, "orders") == {BROKER: (2, 6), "broker-b": (4, 6)}
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}
    assert joined.ask(ListTopics()).topics == ("TBW102", "orders", "payments")
    cluster = joined.ask(GetCluster()).cluster
    assert dict(cluster.clusters) == {"DefaultCluster": (BROKER, "broker-b")}
    assert [dict(each.addresses) for each in cluster.brokers] == [
        {0: "127.0.0.1:10911"},
        {0: B.address},
    ]


def test_a_client_over_grpc_sees_the_broker_that_it_reaches(joined):
    over_grpc = Peer(-7, "10.0.0.9", 5555)
    (queues,) = joined.ask(GetRoute("orders"), over_grpc).route.queue_sets
    assert queues.broker == BROKER
    assert joined.ask(ListTopics(), over_grpc).topics == ("TBW102", "orders")
    assert [each.name for each in joined.ask(GetCluster(), over_grpc).cluster.brokers] == [BROKER]
    with pytest.raises(TopicNotFoundError):
        joined.ask(GetRoute("payments"), over_grpc)


def test_a_broker_assigns_the_queues_of_all_brokers(joined):
    asked = QueryAssignment("g", "orders", "c", "AVG", "BROADCASTING")
    queues = [each.queue for each in joined.ask(asked).assignments]
    assert queues == [
        *(QueueId("orders", BROKER, index) for index in range(2)),
        *(QueueId("orders", "broker-b", index) for index in range(4)),
    ]


def test_a_registration_adds_topics_and_replaces_those_of_another_version(joined):
    joined.ask(registration(TopicConfig("new", 3, 3), version=V2))
    assert queues_of(joined, "new") == {"broker-b": (3, 6)}
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}
    joined.ask(registration(TopicConfig("payments", 8, 8), version=V2))
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}, "the version is the same"
    joined.ask(registration(TopicConfig("payments", 8, 8), version=V1))
    assert queues_of(joined, "payments") == {"broker-b": (8, 6)}


def test_a_single_topic_is_added_to_a_registered_broker(joined):
    sets = (QueueSet("broker-b", 5, 5, 6), QueueSet("unknown", 5, 5, 6), QueueSet(BROKER, 9, 9, 6))
    joined.ask(RegisterTopic("new", sets))
    assert queues_of(joined, "new") == {"broker-b": (5, 6)}


def test_topics_leave_the_routes_by_a_tool_or_with_their_broker(joined):
    joined.ask(DeleteTopic("orders"))
    assert queues_of(joined, "orders") == {"broker-b": (4, 6)}
    joined.ask(DeleteTopicFromNameServer("orders"))
    assert queues_of(joined, "orders") == {}
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}


@pytest.mark.parametrize("how", ["unregisters", "hangs up", "is silent"])
def test_a_broker_that_leaves_takes_its_routes_along(joined, how):
    if how == "unregisters":
        joined.ask(UnregisterBroker(B))
    elif how == "hangs up":
        joined.engine.tables.brokers.forget_peer(PEER.key)
    else:
        joined.engine.expire_clients(joined.now_ms + EXPIRY_MS)
        assert queues_of(joined, "payments"), "only after this time"
        joined.engine.expire_clients(joined.now_ms + EXPIRY_MS + 1)
    assert queues_of(joined, "orders") == {BROKER: (2, 6)}
    assert queues_of(joined, "payments") == {}
    assert [each.name for each in joined.ask(GetCluster()).cluster.brokers] == [BROKER]


def test_another_connection_or_address_does_not_take_a_broker_out(joined):
    joined.engine.tables.brokers.forget_peer(PEER.key + 1)
    joined.ask(UnregisterBroker(replace(B, address="10.0.0.9:1")))
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}


@pytest.mark.parametrize(
    "report", [registration(), ReportBroker(B), CompareVersion(B, V1)], ids=lambda one: type(one)
)
def test_a_report_keeps_a_broker_in_the_table(joined, report):
    joined.now_ms += EXPIRY_MS
    joined.ask(report)
    joined.engine.expire_clients(joined.now_ms + EXPIRY_MS)
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}


def test_a_broker_may_name_its_own_expiry(joined):
    joined.ask(registration(expiry_ms=10_000))
    joined.engine.expire_clients(joined.now_ms + 10_001)
    assert queues_of(joined, "payments") == {}


def test_a_broker_compares_its_version(joined):
    assert joined.ask(CompareVersion(B, V1)) == VersionReply(False, V1)
    assert joined.ask(CompareVersion(B, V2)) == VersionReply(True, V1)
    stranger = replace(B, name="broker-c")
    assert joined.ask(CompareVersion(stranger, V1)) == VersionReply(True, None)
    joined.ask(ReportBroker(stranger))
    assert [each.name for each in joined.ask(GetCluster()).cluster.brokers] == [BROKER, "broker-b"]


def test_a_replica_learns_its_master_and_keeps_the_topics_when_it_has_gone(joined):
    reply = joined.ask(registration(TopicConfig("other", 1, 1), ORDERS, node=REPLICA))
    assert reply == RegisterReply("10.0.0.2:10912", B.address)
    assert queues_of(joined, "other") == {}, "the master names the topics"
    joined.ask(UnregisterBroker(B))
    route = joined.ask(GetRoute("payments")).route
    assert [dict(each.addresses) for each in route.brokers] == [{1: REPLICA.address}]
    assert route.writable_queues("payments") == ()


def test_a_replica_becomes_the_master_at_its_address(joined):
    joined.ask(registration(node=REPLICA))
    joined.ask(UnregisterBroker(B))
    joined.ask(registration(node=replace(REPLICA, id=0)))
    _, found = joined.ask(GetCluster()).cluster.brokers
    assert dict(found.addresses) == {0: REPLICA.address}


def test_write_permission_is_overridden_until_the_broker_changes_its_topics(joined):
    assert joined.ask(WipeWritePermission("broker-b")).count == 2
    joined.ask(registration())
    assert queues_of(joined, "payments") == {"broker-b": (2, 4)}
    assert joined.ask(AddWritePermission("broker-b")).count == 2
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}
    joined.ask(WipeWritePermission("broker-b"))
    joined.ask(registration(version=V2))
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}
    assert joined.ask(WipeWritePermission("unknown")).count == 0


def test_two_brokers_of_one_name_are_refused_while_both_live(joined):
    elsewhere = replace(B, address="10.0.0.9:1")
    for node in (elsewhere, replace(B, name=BROKER)):
        refusal = joined.refusal(registration(node=node))
        assert refusal.code == 1
        assert f"brokerName {node.name} belongs to" in refusal.remark
    joined.ask(registration(node=elsewhere, version=DataVersion(1, 5, state=1)))
    joined.ask(UnregisterBroker(elsewhere))
    joined.ask(registration())
    assert queues_of(joined, "payments") == {"broker-b": (2, 6)}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (registration(ORDERS), "must have all topics"),
        (registration(node=replace(B, name="")), "empty or too long"),
        (registration(node=replace(B, address="x" * 300)), "empty or too long"),
        (registration(TopicConfig("x" * 300), ORDERS), "empty or too long"),
        (registration(TopicConfig("t", -1), ORDERS), "queues"),
        (RegisterTopic("t", (QueueSet("b", 1, 1, 6),) * 257), "over 256 brokers"),
        (registration(TopicConfig("t", limits.ROUTE_QUEUES_MAX + 1), ORDERS), "queues"),
    ],
)
def test_a_registration_that_cannot_be_right_changes_nothing(broker, request_, reason):
    refusal = broker.refusal(request_)
    assert refusal.code == 1
    assert reason in refusal.remark
    assert [each.name for each in broker.ask(GetCluster()).cluster.brokers] == [BROKER]


def test_brokers_replicas_and_topics_have_limits(broker):
    table = broker.engine.tables.brokers
    for number in range(limits.REPLICAS_MAX):
        node = replace(B, id=number, address=f"10.0.0.2:{number}")
        table.register(registration(node=node), 1, 0)
    refusal = broker.refusal(registration(node=replace(B, id=99, address="10.0.0.2:99")))
    assert "replicas" in refusal.remark
    for number in range(limits.REGISTERED_BROKERS_MAX - 1):
        table.register(registration(node=replace(B, name=f"b{number}")), 1, 0)
    assert "brokers" in broker.refusal(registration(node=replace(B, name="one-more"))).remark
    count = limits.REGISTERED_TOPICS_MAX - 2 * limits.REGISTERED_BROKERS_MAX
    many = [TopicConfig(f"t{number}") for number in range(count + 1)]
    refusal = broker.refusal(registration(*many, node=replace(B, name="b0")))
    assert "topics of all brokers" in refusal.remark
    broker.ask(registration(*many[:-1], node=replace(B, name="b0")))
    assert "topics of all" in broker.refusal(RegisterTopic("t", (QueueSet("b1", 1, 1, 6),))).remark


def test_the_own_brokers_topics_are_its_routes(joined):
    joined.ask(CreateTopic(TopicConfig("payments", 1, 1)))
    assert queues_of(joined, "payments") == {BROKER: (1, 6), "broker-b": (2, 6)}
    assert joined.ask(WipeWritePermission(BROKER)).count == 3
    assert queues_of(joined, "payments") == {BROKER: (1, 4), "broker-b": (2, 6)}
