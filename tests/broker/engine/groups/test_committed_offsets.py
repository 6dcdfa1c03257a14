"""Committed offsets, heartbeats and lists of groups."""

from __future__ import annotations

import pytest

from rocketmq_wire.model import (
    ConsumerInfo,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    UnregisterClient,
)
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    ListTopics,
)
from support.engines import NOW_MS, EngineUnderTest, queue_of

ORDERS_0, ORDERS_1, ABSENT = queue_of("orders"), queue_of("orders", 1), queue_of("absent")


def value(broker, request):
    return broker.ask(request).value


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
