"""Assignment of queues to the members of pulling and popping groups."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.pop.assignment import (
    allocate_averagely,
    allocate_by_circle,
    share_queues,
)
from rocketmq_wire.model import ConsumerInfo, TopicConfig
from rocketmq_wire.requests.brokers import ChangeBrokerSettings
from rocketmq_wire.requests.groups import ConsumeMode, Heartbeat, QueryAssignment, SetConsumeMode
from rocketmq_wire.requests.pop import ANY_QUEUE
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import EngineUnderTest, queue_of
from support.pops import GROUP, TOPIC

QUEUES = [queue_of(TOPIC, index) for index in range(8)]


def indices(queues):
    return [queue.index for queue in queues]


class TestSharedQueues:
    @pytest.mark.parametrize("shared", [-1, 0, 3, 4, 99])
    def test_every_member_pops_every_queue_if_all_share_or_no_number_is_set(self, shared):
        for index in range(4):
            assert set(indices(share_queues(QUEUES, index, 4, shared, allocate_averagely))) == {
                ANY_QUEUE
            }

    @pytest.mark.parametrize(
        ("allocate", "shared", "expected"),
        [
            (allocate_averagely, 1, [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 0, 1]]),
            (
                allocate_averagely,
                2,
                [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1], [6, 7, 0, 1, 2, 3]],
            ),
            (allocate_by_circle, 1, [[0, 4, 1, 5], [1, 5, 2, 6], [2, 6, 3, 7], [3, 7, 0, 4]]),
        ],
    )
    def test_a_member_pops_its_own_queues_and_those_of_the_members_behind_it(
        self, allocate, shared, expected
    ):
        found = [indices(share_queues(QUEUES, index, 4, shared, allocate)) for index in range(4)]
        assert found == expected

    def test_more_members_than_queues_pop_one_each(self):
        found = [indices(share_queues(QUEUES[:3], i, 7, 2, allocate_averagely)) for i in range(7)]
        assert found == [[0], [1], [2], [0], [1], [2], [0]]
        assert share_queues([], 1, 7, 2, allocate_averagely) == []

    def test_every_queue_is_assigned_for_every_number_of_shares(self):
        for count in range(1, 12):
            for members in range(1, 8):
                for shared in range(-1, members + 1):
                    queues = [queue_of(TOPIC, index) for index in range(count)]
                    found = set()
                    for index in range(members):
                        found.update(
                            indices(
                                share_queues(queues, index, members, shared, allocate_by_circle)
                            )
                        )
                    assert found == {ANY_QUEUE} or found == set(range(count))

    def test_the_broker_shares_as_the_group_is_set(self):
        broker = EngineUnderTest()
        broker.ask(CreateTopic(TopicConfig(TOPIC, 8, 8)))
        info = ConsumerInfo(GROUP, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST")
        for number in range(4):
            broker.ask(Heartbeat(f"c@{number}", (), (info,)))

        def assigned(number):
            reply = broker.ask(QueryAssignment(GROUP, TOPIC, f"c@{number}"))
            assert reply.assignments is not None
            assert {one.mode for one in reply.assignments} == {ConsumeMode.POP}
            return [one.queue.index for one in reply.assignments]

        broker.ask(SetConsumeMode(GROUP, TOPIC, ConsumeMode.POP, 1))
        assert [assigned(number) for number in range(4)] == [
            [0, 1, 2, 3],
            [2, 3, 4, 5],
            [4, 5, 6, 7],
            [0, 1, 6, 7],
        ]
        broker.ask(SetConsumeMode(GROUP, TOPIC, ConsumeMode.POP, 3))
        assert [assigned(number) for number in range(4)] == [[ANY_QUEUE]] * 4


class TestWithoutAnAssignment:
    @pytest.fixture
    def broker(self):
        broker = EngineUnderTest()
        broker.ask(CreateTopic(TopicConfig(TOPIC, 2, 2)))
        info = ConsumerInfo(GROUP, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST")
        for number in range(2):
            broker.ask(Heartbeat(f"c@{number}", (), (info,)))
        return broker

    @pytest.mark.parametrize(
        ("request_", "assignments", "reason"),
        [
            (QueryAssignment(GROUP, "absent", "c@0"), None, "the topic is missing"),
            (QueryAssignment(GROUP, "%RETRY%absent", "c@0"), None, None),
            (QueryAssignment("other", TOPIC, "c@0"), None, "the group has no member"),
            (QueryAssignment(GROUP, TOPIC, "c@0", "BEST"), None, "'BEST' is unknown"),
            (QueryAssignment(GROUP, TOPIC, "c@9"), (), "its heartbeat has not come"),
        ],
    )
    def test_a_warning_says_why(self, broker, caplog, request_, assignments, reason):
        assert broker.ask(request_).assignments == assignments
        assert [reason in line for line in caplog.messages] == ([] if reason is None else [True])

    def test_a_stranger_pops_where_all_members_pop_all_queues(self, broker):
        broker.ask(SetConsumeMode(GROUP, TOPIC, ConsumeMode.POP, 0))
        (one,) = broker.ask(QueryAssignment(GROUP, TOPIC, "c@9")).assignments
        assert (one.mode, one.queue.index) == (ConsumeMode.POP, ANY_QUEUE)

    def test_without_the_load_balancer_each_member_gets_all_queues(self, broker):
        broker.ask(ChangeBrokerSettings({"serverLoadBalancerEnable": "false"}))
        for name in ("c@0", "c@1", "c@9"):
            found = broker.ask(QueryAssignment(GROUP, TOPIC, name)).assignments
            assert [(one.mode, one.queue.index) for one in found] == [
                (ConsumeMode.PULL, 0),
                (ConsumeMode.PULL, 1),
            ]
