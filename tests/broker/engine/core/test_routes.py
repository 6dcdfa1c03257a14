"""Topics and their routes, as an engine answers them."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.engine.core.routes import Identity, record_host
from rocketmq_wire.model import (
    Host,
    TopicConfig,
)
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicConfig,
    ListTopicConfigs,
    ListTopics,
)
from support.engines import BROKER, queue_of


class TestTopicsAndRoutes:
    def test_topics_are_listed_with_the_template(self, broker):
        assert broker.ask(ListTopics()).topics == ("TBW102", "orders")
        assert [config.name for config in broker.ask(ListTopicConfigs()).configs] == [
            "TBW102",
            "orders",
        ]

    @pytest.mark.parametrize("topic", ["DefaultCluster", BROKER, "BenchmarkTest"])
    def test_a_built_in_topic_has_a_route_and_is_listed_once_it_has_messages(self, broker, topic):
        (queues,) = broker.ask(GetRoute(topic)).route.queue_sets
        assert queues.write_queue_count >= 1
        assert broker.refusal(CreateTopic(TopicConfig(topic, 4, 4))).code == 29
        assert topic not in broker.ask(ListTopics()).topics
        broker.ask(SendMessage("p", queue_of(topic), 0, b"body"))
        assert topic in broker.ask(ListTopics()).topics

    @pytest.mark.parametrize("topic", ["SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX"])
    def test_nobody_sends_to_the_brokers_own_topics(self, broker, topic):
        assert broker.ask(GetRoute(topic))
        assert broker.refusal(SendMessage("p", queue_of(topic), 0, b"body")).code == 16

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
