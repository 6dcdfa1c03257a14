"""Bounds, times, committed offsets, statistics, routes and groups of an engine."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.core.outcomes import Answer, Peer
from rocketmq_broker.engine.core.routes import Identity, record_host
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS
from rocketmq_wire.model import (
    CommittedOffset,
    ConsumerInfo,
    Host,
    QueueStats,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.contract import Done, Request
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    UnregisterClient,
)
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import (
    Boundary,
    CommitOffset,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    SearchOffset,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicConfig,
    GetTopicStats,
    ListTopicConfigs,
    ListTopics,
)
from support.engines import BROKER, NOW_MS, EngineUnderTest, queue_of

ORDERS_0, ORDERS_1, ABSENT = queue_of("orders"), queue_of("orders", 1), queue_of("absent")


@pytest.fixture
def broker():
    broker = EngineUnderTest()
    broker.ask(CreateTopic(TopicConfig("orders", 2, 2)))
    return broker


@pytest.fixture
def filled(broker):
    """Three messages a second apart, then two at once."""
    for _ in range(3):
        broker.store_messages(ORDERS_0, b"x")
        broker.now_ms += 1_000
    broker.store_messages(ORDERS_0, b"x", b"y")
    return broker


def value(broker, request):
    return broker.ask(request).value


class TestBoundsAndTimes:
    def test_bounds(self, filled):
        assert (value(filled, GetMinOffset(ORDERS_0)), value(filled, GetMaxOffset(ORDERS_0))) == (
            0,
            5,
        )

    @pytest.mark.parametrize("queue", [ORDERS_1, ABSENT, queue_of("orders", 99)])
    def test_queues_without_messages_read_as_empty(self, filled, queue):
        assert value(filled, GetMinOffset(queue)) == 0
        assert value(filled, GetMaxOffset(queue)) == 0
        assert value(filled, SearchOffset(queue, NOW_MS)) == 0
        assert value(filled, GetEarliestStoreTime(queue)) == -1

    def test_earliest_time_is_that_of_the_first_message(self, filled):
        assert value(filled, GetEarliestStoreTime(ORDERS_0)) == NOW_MS

    @pytest.mark.parametrize(
        ("timestamp_ms", "lower", "upper"),
        [
            (0, 0, 0),
            (-1, 0, 0),
            (NOW_MS, 0, 0),
            (NOW_MS + 1, 1, 0),
            (NOW_MS + 1_000, 1, 1),
            (NOW_MS + 3_000, 3, 4),
            (NOW_MS + 3_001, 5, 4),
        ],
    )
    def test_search_by_time(self, filled, timestamp_ms, lower, upper):
        assert value(filled, SearchOffset(ORDERS_0, timestamp_ms)) == lower
        assert value(filled, SearchOffset(ORDERS_0, timestamp_ms, Boundary.UPPER)) == upper


class TestCommittedOffsets:
    def test_group_that_pulled_may_commit(self, filled):
        filled.ask(PullMessages("g", ORDERS_0, 0, 32))
        assert filled.ask(CommitOffset("g", ORDERS_0, 4)) == Done()
        assert value(filled, GetCommittedOffset("g", ORDERS_0)) == 4

    def test_group_with_a_heartbeat_may_commit(self, filled):
        filled.ask(Heartbeat("c", (), (ConsumerInfo("g", "", "", ""),)))
        filled.ask(CommitOffset("g", ORDERS_0, 4))
        assert value(filled, GetCommittedOffset("g", ORDERS_0)) == 4

    def test_unknown_group_and_topic_are_refused(self, filled):
        assert filled.refusal(CommitOffset("g", ORDERS_0, 4)).code == 26
        assert filled.refusal(CommitOffset("g", ABSENT, 4)).code == 17

    def test_unknown_group_may_commit_where_that_is_allowed(self):
        broker = EngineUnderTest(commit_needs_group=False)
        broker.ask(CreateTopic(TopicConfig("orders")))
        broker.ask(CommitOffset("g", ORDERS_0, 4))
        assert value(broker, GetCommittedOffset("g", ORDERS_0)) == 4
        assert broker.refusal(CommitOffset("a b", ORDERS_0, 4)).code == 26

    def test_any_offset_is_taken(self, filled):
        filled.ask(PullMessages("g", ORDERS_0, 0, 32))
        filled.ask(CommitOffset("g", ORDERS_0, 10**12))
        assert value(filled, GetCommittedOffset("g", ORDERS_0)) == 10**12
        filled.ask(CommitOffset("g", ORDERS_0, -1))
        assert filled.refusal(GetCommittedOffset("g", ORDERS_0)).code == 22

    def test_new_group_begins_at_zero_only_in_a_young_queue_and_if_it_asks_so(self, filled):
        assert filled.refusal(GetCommittedOffset("g", ORDERS_0)).code == 22
        assert value(filled, GetCommittedOffset("g", ORDERS_0, zero_if_absent=True)) == 0
        assert filled.refusal(GetCommittedOffset("g", ORDERS_1, zero_if_absent=True)).code == 22

    def test_deleting_a_topic_deletes_its_committed_offsets(self, filled):
        filled.ask(PullMessages("g", ORDERS_0, 0, 32, commit=3))
        filled.ask(DeleteTopic("orders"))
        filled.ask(CreateTopic(TopicConfig("orders")))
        assert filled.refusal(GetCommittedOffset("g", ORDERS_0)).code == 22


class TestStatistics:
    def test_topic_statistics_name_every_queue(self, filled):
        assert filled.ask(GetTopicStats("orders")).queues == {
            ORDERS_0: QueueStats(0, 5, NOW_MS + 3_000),
            ORDERS_1: QueueStats(0, 0, 0),
        }
        assert filled.refusal(GetTopicStats("absent")).code == 17

    def test_statistics_include_read_only_and_write_only_queues(self, filled):
        filled.ask(CreateTopic(TopicConfig("orders", 1, 3)))
        assert len(filled.ask(GetTopicStats("orders")).queues) == 3
        filled.ask(CreateTopic(TopicConfig("orders", 3, 1)))
        assert len(filled.ask(GetTopicStats("orders")).queues) == 3

    def test_consume_statistics_show_the_lag(self, filled):
        filled.ask(PullMessages("g", ORDERS_0, 0, 32, commit=2))
        expected = {
            ORDERS_0: CommittedOffset(5, 2, NOW_MS + 1_000, 5),
            ORDERS_1: CommittedOffset(0, 0, 0, 0),
        }
        assert filled.ask(GetConsumeStats("g")).queues == expected
        assert filled.ask(GetConsumeStats("g", "orders")).queues == expected
        assert filled.ask(GetConsumeStats("other")).queues == {}


class TestTopicsAndRoutes:
    def test_topics_are_listed_with_the_template(self, broker):
        assert broker.ask(ListTopics()).topics == ("TBW102", "orders")
        assert [config.name for config in broker.ask(ListTopicConfigs()).configs] == [
            "TBW102",
            "orders",
        ]

    def test_one_topics_config_can_be_requested(self, broker):
        broker.ask(CreateTopic(TopicConfig("orders", 5, 3, permission=4)))
        (config,) = broker.ask(GetTopicConfig("orders")).configs
        assert config == TopicConfig("orders", 5, 3, permission=4)
        assert broker.refusal(GetTopicConfig("absent")).code == 17

    def test_route_follows_changes_of_the_topic(self, broker):
        broker.ask(CreateTopic(TopicConfig("orders", 5, 3, permission=4)))
        (queues,) = broker.ask(GetRoute("orders")).route.queue_sets
        assert (queues.broker, queues.read_queue_count, queues.write_queue_count) == (BROKER, 5, 3)
        assert queues.permission == 4

    def test_deleted_topic_has_no_route(self, broker):
        broker.ask(DeleteTopic("orders"))
        broker.ask(DeleteTopic("orders"))
        broker.ask(DeleteTopicFromNameServer("orders"))
        assert broker.refusal(GetRoute("orders")).code == 17

    def test_cluster_is_this_broker(self, broker):
        cluster = broker.ask(GetCluster()).cluster
        assert dict(cluster.clusters) == {"DefaultCluster": (BROKER,)}
        assert [dict(entry.addresses) for entry in cluster.brokers] == [{0: "127.0.0.1:10911"}]

    @pytest.mark.parametrize(
        ("host", "local_host", "address"),
        [
            ("10.0.0.1", "10.0.0.2", "10.0.0.1:9"),
            ("", "10.0.0.2", "10.0.0.2:9"),
            ("", "::1", "[::1]:9"),
            ("", "", "127.0.0.1:9"),
            ("", "0.0.0.0", "127.0.0.1:9"),
        ],
    )
    def test_advertised_address(self, host, local_host, address):
        identity = Identity(BROKER, "c", host, 9)
        assert identity.address(Peer(1, "10.0.0.3", 1, local_host)) == address

    def test_addresses_become_record_hosts(self):
        assert record_host("10.0.0.9", 5) == Host(bytes((10, 0, 0, 9)), 5)
        assert record_host("fe80::1%eth0", 5) == Host(bytes.fromhex("fe80" + "0" * 27 + "1"), 5)
        assert record_host("unknown", 5) == Host(bytes((127, 0, 0, 1)), 5)


class TestGroups:
    def test_heartbeat_makes_group_and_retry_topic_and_lists_the_client(self, broker):
        broker.ask(Heartbeat("c1", ("p",), (ConsumerInfo("g", "", "", ""),)))
        assert broker.ask(ListGroups()).groups == ("g",)
        assert "%RETRY%g" in broker.ask(ListTopics()).topics
        assert broker.ask(ListGroupClients("g")).client_ids == ("c1",)
        broker.ask(UnregisterClient("c1", consumer_group="g"))
        assert broker.ask(ListGroupClients("g")).client_ids == ()

    def test_silent_client_expires(self, broker):
        broker.ask(Heartbeat("c1", (), (ConsumerInfo("g", "", "", ""),)))
        broker.engine.expire_clients(NOW_MS + 120_001)
        assert broker.ask(ListGroupClients("g")).client_ids == ()

    def test_groups_are_listed_by_configuration_or_committed_offsets(self, broker):
        broker.ask(PullMessages("b", ORDERS_0, 0, 32))
        broker.engine.tables.committed.commit("a", ORDERS_0, 1)
        assert broker.ask(ListGroups()).groups == ("a", "b")

    @pytest.mark.parametrize(
        ("subscription", "code"),
        [
            (Subscription("A || B"), None),
            (Subscription("||"), 23),
            (Subscription("a > 1", "SQL92"), 1),
        ],
    )
    def test_subscriptions_can_be_checked_before_use(self, broker, subscription, code):
        request = CheckSubscription("c1", "g", "orders", subscription)
        if code is None:
            assert broker.ask(request) == Done()
        else:
            assert broker.refusal(request).code == code


def test_request_without_a_rule_is_refused_by_name(broker):
    class PopMessages(Request[Done]):
        pass

    assert broker.refusal(PopMessages()).code == 3


def test_files_of_an_engine_are_read_by_the_next_one(broker):
    broker.ask(PullMessages("g", ORDERS_0, 0, 32, commit=3))
    broker.save_files()
    assert broker.take_changes(CONSUMER_OFFSETS) is None
    broker.store.close()
    after = EngineUnderTest(broker.files)
    assert isinstance(after.outcome(GetRoute("orders")), Answer)
    assert after.ask(ListGroups()).groups == ("g",)
