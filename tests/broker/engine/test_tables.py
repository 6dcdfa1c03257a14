"""The broker's tables: topics, groups, committed offsets, and clients online."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.clients import Clients, Registration
from rocketmq_broker.engine.groups.committed_offsets import CommittedOffsets
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription, TopicConfig
from rocketmq_wire.requests.groups import Connection, UnregisterClient

ORDERS_0 = QueueId("orders", "broker-a", 0)


class SavedFiles(dict[str, Any]):
    """The last content saved under each name, passed through JSON as on the disk."""

    def save(self, name, content):
        self[name] = json.loads(json.dumps(content))


def topics_over(files, *, auto_create=True, queues=8):
    return Topics(
        files.get("topics.json", {}), files.save, auto_create=auto_create, auto_create_queues=queues
    )


@pytest.fixture
def files():
    return SavedFiles()


@pytest.fixture
def topics(files):
    return topics_over(files)


def code_of(call, *args, **kwargs):
    with pytest.raises(BrokerError) as caught:
        call(*args, **kwargs)
    return caught.value.code


class TestTopics:
    def test_topic_survives_a_restart(self, topics, files):
        config = TopicConfig(
            "orders", 3, 5, 4, is_ordered=True, attributes={"message.type": "FIFO"}
        )
        topics.put(config)
        assert topics_over(files).get("orders") == config

    def test_topic_that_could_not_be_saved_is_not_served(self):
        def fail(*_):
            raise OSError("disk full")

        topics = Topics({}, fail, auto_create=True, auto_create_queues=8)
        with pytest.raises(OSError, match="disk full"):
            topics.put(TopicConfig("orders"))
        assert topics.get("orders") is None

    @pytest.mark.parametrize(
        "name", ["", " ", "a b", "a@b", "é", "x" * 128, "TBW102", "rmq_sys_x", "SELF_TEST_TOPIC"]
    )
    def test_illegal_and_system_names_are_refused(self, topics, name):
        assert code_of(topics.put, TopicConfig(name)) == 29

    @pytest.mark.parametrize("name", ["x" * 127, "%RETRY%" + "g" * 120, "a|b%c_d-1"])
    def test_names_up_to_the_limit_are_taken(self, topics, name):
        topics.put(TopicConfig(name))
        assert topics.get(name) is not None

    @pytest.mark.parametrize("counts", [(-1, 1), (1, -1), (65_537, 1)])
    def test_impossible_queue_counts_are_refused(self, topics, counts):
        assert code_of(topics.put, TopicConfig("orders", *counts)) == 29

    def test_impossible_permission_is_refused(self, topics):
        assert code_of(topics.put, TopicConfig("orders", permission=16)) == 29

    def test_change_keeps_attributes_that_it_does_not_name(self, topics):
        topics.put(TopicConfig("orders", attributes={"a": "1", "b": "2"}))
        topics.put(TopicConfig("orders", 9, 9, attributes={"b": "3"}))
        assert topics.get("orders") == TopicConfig("orders", 9, 9, attributes={"a": "1", "b": "3"})

    def test_send_makes_a_topic_with_the_smaller_queue_count(self, topics):
        made = topics.require_writable(ORDERS_0, 4)
        assert (made.read_queue_count, made.write_queue_count, made.permission) == (4, 4, 6)
        many = topics.require_writable(QueueId("many", "broker-a", 0), 16)
        assert many.write_queue_count == 8

    def test_send_to_an_unknown_topic_is_refused_when_topics_are_not_made(self, files):
        topics = topics_over(files, auto_create=False)
        assert code_of(topics.require_writable, ORDERS_0, default_queue_count=4) == 17
        assert topics.get("TBW102") is None

    def test_send_makes_no_system_topic(self, topics):
        queue = QueueId("SCHEDULE_TOPIC_XXXX", "broker-a", 0)
        assert code_of(topics.require_writable, queue, default_queue_count=4) == 17

    def test_template_topic_takes_no_message(self, topics):
        queue = QueueId("TBW102", "broker-a", 0)
        assert code_of(topics.require_writable, queue, default_queue_count=4) == 29

    def test_permissions_and_queue_counts_are_enforced(self, topics):
        topics.put(TopicConfig("orders", 2, 4, 6))
        assert topics.require_readable(QueueId("orders", "broker-a", 1))
        assert code_of(topics.require_readable, QueueId("orders", "broker-a", 2)) == 29
        assert code_of(topics.require_readable, QueueId("orders", "broker-a", -1)) == 29
        assert topics.require_writable(QueueId("orders", "b", 3), 4)
        assert (
            code_of(topics.require_writable, QueueId("orders", "b", 4), default_queue_count=4) == 29
        )
        topics.put(TopicConfig("orders", 2, 4, 2))
        assert code_of(topics.require_readable, QueueId("orders", "broker-a", 1)) == 16
        topics.put(TopicConfig("orders", 2, 4, 4))
        assert code_of(topics.require_writable, ORDERS_0, default_queue_count=4) == 16

    def test_deleted_topic_is_forgotten(self, topics):
        topics.put(TopicConfig("orders"))
        version = topics.version
        topics.forget("orders")
        assert topics.get("orders") is None
        assert topics.version > version

    def test_system_topics_cannot_be_deleted(self, topics):
        assert code_of(topics.check_deletable, "TBW102") == 29
        assert code_of(topics.check_deletable, " ") == 29
        topics.check_deletable("%RETRY%g")

    def test_file_of_a_real_broker_is_read(self):
        stored = {
            "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 1},
            "topicConfigTable": {
                "T": {
                    "attributes": {},
                    "order": False,
                    "perm": 6,
                    "readQueueNums": 8,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": "T",
                    "topicSysFlag": 0,
                    "writeQueueNums": 4,
                }
            },
        }
        topics = Topics(stored, SavedFiles().save, auto_create=False, auto_create_queues=8)
        assert topics.all() == (TopicConfig("T", 8, 4, 6),)


class TestGroups:
    def test_new_group_is_saved_once(self, files):
        groups = Groups({}, files.save, auto_create=True)
        groups.ensure("g1")
        saved = files.pop("subscriptionGroup.json")
        groups.ensure("g1")
        assert not files
        assert saved["subscriptionGroupTable"]["g1"]["groupName"] == "g1"
        assert Groups(saved, files.save, auto_create=False).names() == ("g1",)

    @pytest.mark.parametrize("name", ["", " ", "a b", "a@b", "g" * 121])
    def test_illegal_name_is_refused(self, files, name):
        assert code_of(Groups({}, files.save, auto_create=True).ensure, name) == 26

    def test_unknown_group_is_refused_when_groups_are_not_made(self, files):
        assert code_of(Groups({}, files.save, auto_create=False).ensure, "g1") == 26


class TestCommittedOffsets:
    def test_commit_overwrites_also_backwards(self):
        committed = CommittedOffsets({})
        committed.commit("g", ORDERS_0, 9)
        committed.commit("g", ORDERS_0, 4)
        assert committed.get("g", ORDERS_0) == 4

    def test_negative_offset_reads_as_absent(self):
        committed = CommittedOffsets({})
        committed.commit("g", ORDERS_0, -1)
        assert committed.get("g", ORDERS_0) is None
        assert committed.get("other", ORDERS_0) is None

    def test_changes_are_taken_once_and_read_back(self):
        committed = CommittedOffsets({})
        assert committed.take_changes() is None
        committed.commit("g", ORDERS_0, 9)
        content = json.loads(json.dumps(committed.take_changes()))
        assert content["offsetTable"] == {"orders@g": {"0": 9}}
        assert committed.take_changes() is None
        assert CommittedOffsets(content).get("g", ORDERS_0) == 9

    def test_a_deleted_topic_loses_its_committed_offsets(self):
        committed = CommittedOffsets({})
        committed.commit("g", ORDERS_0, 9)
        committed.commit("g", QueueId("orders2", "broker-a", 0), 7)
        committed.delete_topic("orders")
        assert committed.topics("g") == ("orders2",)
        assert committed.groups() == {"g"}


def consumer(group, *subscriptions):
    return ConsumerInfo(group, "CONSUME_PASSIVELY", "CLUSTERING", "x", tuple(subscriptions))


class TestClients:
    @pytest.fixture
    def clients(self):
        return Clients(expiry_ms=120_000)

    def register(self, clients, client_id, *subscriptions, peer_key=1, now_ms=0):
        connection = Connection(client_id, "10.0.0.9:5555", "JAVA", 453)
        clients.register_consumer(
            consumer("g", *subscriptions), Registration(connection, peer_key, now_ms)
        )

    def test_members_are_listed_in_one_order(self, clients):
        self.register(clients, "b")
        self.register(clients, "a")
        assert clients.consumer_ids("g") == ("a", "b")
        assert clients.consumer_ids("other") == ()

    def test_changes_name_the_connections_of_those_who_are_left(self, clients):
        self.register(clients, "a", peer_key=1)
        assert set(clients.changes()) == {("g", 1)}
        self.register(clients, "a", peer_key=1)
        assert set(clients.changes()) == set()
        self.register(clients, "b", peer_key=2)
        assert set(clients.changes()) == {("g", 1), ("g", 2)}
        self.register(clients, "a", ("orders", "*", "TAG", 1), peer_key=1)
        assert set(clients.changes()) == {("g", 1), ("g", 2)}
        clients.unregister(UnregisterClient("a", None, "g"))
        assert set(clients.changes()) == {("g", 2)}
        clients.forget_peer(2)
        assert set(clients.changes()) == set()

    def test_silent_client_is_forgotten_after_the_expiry(self, clients):
        self.register(clients, "a", now_ms=1_000)
        clients.expire(121_000)
        assert clients.consumer_ids("g") == ("a",)
        clients.expire(121_001)
        assert clients.consumer_ids("g") == ()

    def test_a_clock_that_steps_an_hour_forward_expires_nobody(self, clients):
        self.register(clients, "a", now_ms=1_000)
        clients.expire(10_000)
        hour_ms = 3_600_000
        for now_ms in range(hour_ms, hour_ms + 120_001, 10_000):
            clients.expire(now_ms)
            assert clients.consumer_ids("g") == ("a",)
        clients.expire(hour_ms + 120_001)
        assert clients.consumer_ids("g") == ()

    def test_clients_go_with_their_connection(self, clients):
        self.register(clients, "a", peer_key=1)
        self.register(clients, "b", peer_key=2)
        clients.forget_peer(1)
        assert clients.consumer_ids("g") == ("b",)

    def test_client_that_moved_to_a_new_connection_outlives_the_old_one(self, clients):
        self.register(clients, "a", peer_key=1)
        self.register(clients, "a", peer_key=2)
        clients.forget_peer(1)
        assert clients.consumer_ids("g") == ("a",)

    def test_clients_are_refused_before_they_take_too_much_memory(self, clients):
        topics = [(f"{number:0500}", "*", "TAG", 1) for number in range(1_000)]
        for number in range(66):
            self.register(clients, f"c{number}", *topics, peer_key=1)
        with pytest.raises(BrokerError, match="too much memory"):
            self.register(clients, "another", *topics)
        self.register(clients, "c1", *topics, peer_key=2)
        clients.forget_peer(1)
        self.register(clients, "new", *topics)
        assert clients.consumer_ids("g") == ("c1", "new")

    def test_client_leaves_only_the_groups_it_names(self, clients):
        self.register(clients, "a")
        clients.register_producer("p", Registration(Connection("a", "", "", 0), 1, 0))
        clients.unregister(UnregisterClient("a", "p", None))
        assert clients.consumer_ids("g") == ("a",)
        clients.unregister(UnregisterClient("a", None, "g"))
        clients.unregister(UnregisterClient("a", "unknown", "g"))
        assert clients.consumer_groups() == ()

    def test_newest_subscription_of_the_group_wins_per_topic(self, clients):
        self.register(clients, "a", ("orders", "A", "TAG", 5), ("other", "*", "TAG", 5))
        self.register(clients, "b", ("orders", "B", "TAG", 4))
        assert clients.subscription("g", "orders").subscription == Subscription("A")
        assert clients.subscription("g", "other") is None
        self.register(clients, "b", ("orders", "B", "TAG", 6))
        found = clients.subscription("g", "orders")
        assert (found.subscription, found.version) == (Subscription("B"), 6)
