"""Requests of administrators' tools: settings, counters, groups, clients, resets, messages."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.core.activity import Activity, Rate
from rocketmq_wire.model import ConsumerInfo, Subscription, TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.brokers import (
    AddWritePermission,
    ChangeBrokerSettings,
    CleanConsumeQueues,
    DeleteNameServerEntry,
    GetBrokerSettings,
    GetNameServerSettings,
    GetRuntimeInfo,
    GetStatistic,
    Statistic,
    WipeWritePermission,
)
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import (
    Connection,
    ConsumersReply,
    DeleteGroup,
    GetConsumers,
    GetProducers,
    Heartbeat,
    ListTopicGroups,
    PutGroup,
)
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    QueryMessages,
    SendMessage,
    ViewMessage,
)
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetAllCommittedOffsets,
    GetCommittedOffset,
    GetConsumeStats,
    ResetClientOffsets,
)
from rocketmq_wire.requests.topics import CreateTopic, GetRoute
from support.engines import NOW_MS, queue_of

ORDERS_0, ORDERS_1 = queue_of("orders"), queue_of("orders", 1)


def send(broker, queue=ORDERS_0, **properties):
    return broker.ask(SendMessage("p", queue, NOW_MS, b"x", encode_properties(properties)))


class TestSettings:
    def test_settings_are_shown_under_rocketmqs_names(self, broker):
        shown = broker.ask(GetBrokerSettings()).settings
        assert shown["brokerName"] == "broker-a"
        assert shown["enablePropertyFilter"] == "false"
        assert shown["maxTransferCountOnMessageInMemory"] == "100000"
        assert broker.ask(GetNameServerSettings()).settings["listenPort"] == "10911"

    def test_changes_count_at_once(self, broker):
        for _ in range(3):
            send(broker)
        change = {"maxTransferCountOnMessageInMemory": "2", "enablePropertyFilter": "true"}
        assert broker.ask(ChangeBrokerSettings(change)) == Done()
        shown = broker.ask(GetBrokerSettings()).settings
        assert {name: shown[name] for name in change} == change
        assert broker.ask(PullMessages("g", ORDERS_0, 0, 32)).next_begin == 2
        sql = Subscription("a IS NULL", "SQL92")
        assert broker.ask(PullMessages("g", ORDERS_0, 0, 32, subscription=sql)).next_begin == 2

    def test_creation_on_first_use_can_be_switched_off(self, broker):
        change = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
        broker.ask(ChangeBrokerSettings(change))
        assert broker.refusal(SendMessage("p", queue_of("new"), NOW_MS, b"x")).code == 17
        assert broker.refusal(PullMessages("new", ORDERS_0, 0, 32)).code == 26

    def test_unknown_names_are_ignored_as_in_rocketmq(self, broker):
        before = broker.ask(GetBrokerSettings()).settings
        assert broker.ask(ChangeBrokerSettings({"nonsense": "1"})) == Done()
        assert broker.ask(GetBrokerSettings()).settings == before

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("fileReservedTime", "1"),
            ("enablePropertyFilter", "yes"),
            ("maxTransferCountOnMessageInMemory", "0"),
            ("maxTransferBytesOnMessageInMemory", "99999999"),
            ("maxTransferBytesOnMessageInMemory", "-1"),
        ],
    )
    def test_a_refused_change_leaves_everything_as_it_was(self, broker, name, text):
        before = broker.ask(GetBrokerSettings()).settings
        change = {"longPollingEnable": "false", "autoCreateTopicEnable": "false", name: text}
        assert broker.refusal(ChangeBrokerSettings(change)).code == 1
        assert broker.ask(GetBrokerSettings()).settings == before


class TestCounters:
    def test_stored_and_pulled_messages_raise_the_counters(self, broker):
        send(broker)
        send(broker)
        broker.ask(PullMessages("g", ORDERS_0, 0, 32))
        table = broker.ask(GetRuntimeInfo()).settings
        assert table["msgPutTotalTodayNow"] == "2"
        assert table["msgGetTotalTodayNow"] == "2"
        assert table["putMessageSizeTotal"] == str(broker.store.appended_end)
        assert table["putTps"].split()[0] == "0.2"
        assert table["earliestMessageTimeStamp"] == str(NOW_MS)
        assert table["brokerVersionDesc"] == "V5_3_3"

    def test_a_group_s_pulls_and_a_topic_s_sends_are_statistics(self, broker):
        start = broker.now_ms
        send(broker)
        send(broker, ORDERS_1)
        for queue in (ORDERS_0, ORDERS_1):
            broker.ask(PullMessages("g", queue, 0, 32))
        broker.ask(PullMessages("g", ORDERS_0, 1, 32))
        end = broker.store.appended_end

        def statistic(name, key):
            reply = broker.ask(GetStatistic(name, key))
            return reply.minute, reply.hour.total, reply.day.total

        sizes = Statistic(end, end / 60, end / 2), end, end
        counts = Statistic(2, 2 / 60, 1.0), 2, 2
        assert statistic("TOPIC_PUT_NUMS", "orders") == counts
        assert statistic("TOPIC_PUT_SIZE", "orders") == sizes
        assert statistic("GROUP_GET_NUMS", "orders@g") == counts
        assert statistic("GROUP_GET_SIZE", "orders@g") == sizes
        assert broker.ask(GetConsumeStats("g", "orders")).tps == 2 / 60
        broker.now_ms = start + 60_000
        assert statistic("GROUP_GET_NUMS", "orders@g") == (Statistic(0, 0.0, 0.0), 2, 2)
        broker.now_ms = start + 86_400_000
        assert statistic("GROUP_GET_NUMS", "orders@g") == (Statistic(0, 0.0, 0.0), 0, 0)

    @pytest.mark.parametrize(
        ("name", "key"),
        [("GROUP_GET_NUMS", "orders@g"), ("TOPIC_PUT_NUMS", "x"), ("X", "orders"), ("", "")],
    )
    def test_a_statistic_without_a_count_is_refused(self, broker, name, key):
        send(broker)
        refusal = broker.refusal(GetStatistic(name, key))
        assert (refusal.code, refusal.remark) == (1, f"The stats <{name}> <{key}> not exist")

    def test_an_empty_broker_has_no_oldest_message(self, broker):
        assert broker.ask(GetRuntimeInfo()).settings["earliestMessageTimeStamp"] == "-1"

    def test_rates_forget_counts_older_than_their_window(self):
        rate = Rate()
        rate.add(600, 0)
        assert rate.text(5_000) == "60.0 10.0 1.0"
        assert rate.text(20_000) == "0.0 10.0 1.0"
        rate.add(1, 700_000)
        assert rate.text(700_000) == f"0.1 {1 / 60} {1 / 600}"

    def test_totals_of_yesterday_are_those_at_its_start_and_end(self):
        activity = Activity()
        day = 86_400_000
        activity.stored.add(5, 0, day)
        activity.stored.add(3, 0, 2 * day)
        table = activity.table(3 * day)
        assert table["msgPutTotalTodayNow"] == "8"
        assert table["msgPutTotalTodayMorning"] == "8"
        assert table["msgPutTotalYesterdayMorning"] == "5"


class TestGroups:
    def test_groups_are_made_changed_and_deleted(self, broker):
        broker.ask(PutGroup({"groupName": "g", "retryMaxTimes": 3, "unknown": None}))
        assert broker.store.configs.load("subscriptionGroup.json")["subscriptionGroupTable"]["g"][
            "retryMaxTimes"
        ] == 3  # fmt: skip
        broker.ask(CommitOffset("g", ORDERS_0, 1))
        broker.ask(DeleteGroup("g"))
        assert "g" not in broker.engine.tables.groups
        assert broker.engine.tables.committed.get("g", ORDERS_0) == 1
        assert broker.ask(DeleteGroup("g", forgets_offsets=True)) == Done()
        assert broker.engine.tables.committed.get("g", ORDERS_0) is None

    @pytest.mark.parametrize(
        ("settings", "code"),
        [
            ({}, 29),
            ({"groupName": "a b"}, 26),
            ({"groupName": "g", "retryMaxTimes": "3"}, 29),
            ({"groupName": "g", "consumeEnable": 1}, 29),
            ({"groupName": "g", "brokerId": True}, 29),
        ],
    )
    def test_groups_that_cannot_be_are_refused(self, broker, settings, code):
        assert broker.refusal(PutGroup(settings)).code == code

    def test_groups_of_a_topic_are_found_online_and_by_committed_offsets(self, broker):
        subscriptions = (("orders", "A", "TAG", 5),)
        info = ConsumerInfo("online", "CONSUME_PASSIVELY", "CLUSTERING", "FIRST", subscriptions)
        heartbeat = Heartbeat("c1", ("p",), (info,), language="JAVA", version=479)
        broker.ask(heartbeat)
        broker.ask(PullMessages("stored", ORDERS_0, 0, 32, commit=0))
        assert broker.ask(ListTopicGroups("orders")).groups == ("online", "stored")
        connection = Connection("c1", "10.0.0.9:5555", "JAVA", 479)
        assert broker.ask(GetConsumers("online")) == ConsumersReply(
            (connection,),
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "FIRST",
            {"orders": (Subscription("A"), 5)},
        )
        assert broker.ask(GetProducers("p")).connections == (connection,)
        assert broker.refusal(GetConsumers("stored")).code == 206
        assert broker.refusal(GetProducers("absent")).code == 1

    def test_committed_offsets_of_every_group_come_in_one_reply(self, broker):
        send(broker)
        broker.ask(PullMessages("g", ORDERS_0, 0, 32, commit=0))
        broker.ask(PutGroup({"groupName": "idle"}))
        reply = broker.ask(GetAllCommittedOffsets())
        assert reply.groups["idle"] == ()
        (stats,) = reply.groups["g"]
        assert stats.queues == broker.ask(GetConsumeStats("g")).queues
        queues = stats.queues.values()
        assert sum(one.broker_offset - one.consumer_offset for one in queues) == 1
        assert sum(one.pull_offset - one.consumer_offset for one in queues) == 1
        assert broker.ask(GetAllCommittedOffsets(only_ordered=True)).groups["g"] == ()


class TestResets:
    @pytest.fixture
    def consumed(self, broker):
        for _ in range(4):
            send(broker)
            broker.now_ms += 1_000
        broker.ask(PullMessages("g", ORDERS_0, 0, 32, commit=3))
        return broker

    @pytest.mark.parametrize(
        ("timestamp_ms", "offset"), [(-1, 4), (NOW_MS + 2_000, 2), (0, 0), (NOW_MS + 99_000, 4)]
    )
    def test_committed_offsets_are_reset_to_a_time(self, consumed, timestamp_ms, offset):
        reply = consumed.ask(ResetClientOffsets("g", "orders", timestamp_ms))
        assert reply.offsets == {ORDERS_0: offset, ORDERS_1: 0}
        assert consumed.ask(GetCommittedOffset("g", ORDERS_0)).value == offset

    def test_the_next_pull_is_sent_there_once_and_commits_wait_for_it(self, consumed):
        consumed.ask(ResetClientOffsets("g", "orders", -1, queue_index=0, offset=1))
        ignored = consumed.ask(CommitOffset("g", ORDERS_0, 3))
        assert ignored.remark == "Offset has been previously reset"
        moved = consumed.ask(PullMessages("g", ORDERS_0, 3, 32, commit=3))
        assert (moved.status, moved.next_begin) == (PullStatus.OFFSET_ILLEGAL, 1)
        assert consumed.ask(GetCommittedOffset("g", ORDERS_0)).value == 1
        assert consumed.ask(PullMessages("g", ORDERS_0, 1, 32)).next_begin == 4
        consumed.ask(CommitOffset("g", ORDERS_0, 4))
        assert consumed.ask(GetCommittedOffset("g", ORDERS_0)).value == 4

    def test_other_groups_pulls_are_not_moved(self, consumed):
        consumed.ask(ResetClientOffsets("g", "orders", -1))
        assert consumed.ask(PullMessages("h", ORDERS_0, 0, 32)).status is PullStatus.FOUND

    def test_resets_that_cannot_be_are_refused(self, consumed):
        assert consumed.refusal(ResetClientOffsets("g", "absent", -1)).code == 17
        assert consumed.refusal(ResetClientOffsets("absent", "orders", -1)).code == 26
        beyond = ResetClientOffsets("g", "orders", -1, queue_index=0, offset=6)
        assert consumed.refusal(beyond).code == 1


class TestWritePermission:
    def permission(self, broker):
        (queues,) = broker.ask(GetRoute("orders")).route.queue_sets
        return queues.permission

    def test_it_is_wiped_and_added_in_routes_until_topics_change(self, broker):
        assert broker.ask(WipeWritePermission("broker-a")).count == 2
        assert self.permission(broker) == 4
        assert send(broker).start == 0
        broker.ask(AddWritePermission("broker-a"))
        assert self.permission(broker) == 6
        broker.ask(WipeWritePermission("broker-a"))
        broker.ask(CreateTopic(TopicConfig("another")))
        assert self.permission(broker) == 6

    def test_of_a_broker_that_is_not_there_no_topic_changes(self, broker):
        assert broker.ask(WipeWritePermission("broker-b")).count == 0
        assert self.permission(broker) == 6


class TestMessages:
    def test_a_message_is_found_by_its_byte_position(self, broker):
        send(broker)
        end = broker.store.appended_end
        send(broker, KEYS="k")
        (record,) = broker.ask(ViewMessage(end)).records
        assert decode_record(record)[0].properties["KEYS"] == "k"
        assert broker.refusal(ViewMessage(end + 1)).code == 1
        assert broker.refusal(ViewMessage(-1)).code == 1

    def test_messages_are_found_by_key_and_by_their_own_id(self, broker):
        for number in range(3):
            send(broker, KEYS=f"k{number} all", UNIQ_KEY=f"id{number}")
        while broker.store.index_step():
            pass

        def found(key, **more):
            query = QueryMessages("orders", key, 32, 0, NOW_MS + 1, **more)
            records = broker.ask(query).records
            return [decode_record(record)[0].queue_offset for record in records]

        assert found("k1") == [1]
        assert found("all") == [0, 1, 2]
        assert found("id2", is_unique_key=True) == [2]
        assert broker.refusal(QueryMessages("orders", "no", 32, 0, NOW_MS + 1)).code == 22
        assert broker.refusal(QueryMessages("other", "all", 32, 0, NOW_MS + 1)).code == 22


def test_housekeeping_of_queues_and_of_entries_succeeds(broker):
    assert broker.ask(CleanConsumeQueues()) == Done()
    assert broker.ask(DeleteNameServerEntry("ORDER_TOPIC_CONFIG", "orders")) == Done()
