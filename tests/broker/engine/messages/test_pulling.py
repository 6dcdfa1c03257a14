"""Pulls: statuses, corrections, limits, filters, and waiting."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import ConsumerInfo, Subscription, TopicConfig
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import NOW_MS, EngineUnderTest, offsets_of, pull_reply, queue_of
from support.storage_blocks import bodies_of

ORDERS_0 = queue_of("orders")
FOUND, NO_NEW = PullStatus.FOUND, PullStatus.NO_NEW_MESSAGE
NO_MATCHED, ILLEGAL = PullStatus.NO_MATCHED_MESSAGE, PullStatus.OFFSET_ILLEGAL


def pull(start=0, count_max=32, **more):
    return PullMessages("g", more.pop("queue", ORDERS_0), start, count_max, **more)


def filled(broker, count, **more):
    broker.store_messages(ORDERS_0, *(b"%d" % number for number in range(count)), **more)


@pytest.mark.parametrize(
    ("start", "status", "next_begin", "remark"),
    [
        (0, NO_NEW, 0, "NO_MESSAGE_IN_QUEUE"),
        (1, ILLEGAL, 0, "NO_MESSAGE_IN_QUEUE"),
        (-1, ILLEGAL, 0, "NO_MESSAGE_IN_QUEUE"),
    ],
)
def test_empty_queue(broker, start, status, next_begin, remark):
    assert broker.ask(pull(start)) == PullReply(status, next_begin, 0, 0, remark=remark)


@pytest.mark.parametrize(
    ("start", "status", "next_begin", "remark"),
    [
        (3, NO_NEW, 3, "OFFSET_OVERFLOW_ONE"),
        (4, ILLEGAL, 3, "OFFSET_OVERFLOW_BADLY"),
        (-1, ILLEGAL, 0, "OFFSET_TOO_SMALL"),
    ],
)
def test_start_outside_the_queue_is_corrected(broker, start, status, next_begin, remark):
    filled(broker, 3)
    assert broker.ask(pull(start)) == PullReply(status, next_begin, 0, 3, remark=remark)


def test_found_messages_are_whole_records_and_the_next_offset_follows_them(broker):
    filled(broker, 5)
    reply = broker.ask(pull(1, 3))
    assert (reply.status, reply.next_begin, reply.start, reply.end) == (FOUND, 4, 0, 5)
    assert bodies_of(reply.records) == [b"1", b"2", b"3"]
    assert struct.unpack("<3i", reply.sizes) == tuple(
        len(b"".join(reply.records)) // 3 for _ in range(3)
    )


def test_caps_of_a_real_broker_cut_a_pull():
    broker = EngineUnderTest(transfer_count_max=32, transfer_bytes_max=262_144)
    broker.ask(CreateTopic(TopicConfig("orders")))
    filled(broker, 100)
    assert broker.ask(pull(0, 1_000)).next_begin == 32


def test_the_first_message_comes_even_over_the_size_limit(broker):
    filled(broker, 3)
    assert broker.ask(pull(0, 10, bytes_max=1)).next_begin == 1


def test_bytes_asked_for_cut_a_pull_but_never_widen_it(broker):
    filled(broker, 100)
    size = len(b"".join(broker.ask(pull(0, 1)).records))
    assert broker.ask(pull(0, 100, bytes_max=10 * size)).next_begin == 10
    assert broker.ask(pull(0, 100, bytes_max=0)).next_begin == 100


@pytest.mark.parametrize("count_max", [0, -5])
def test_pull_for_nothing_gets_one_message(broker, count_max):
    filled(broker, 3)
    assert broker.ask(pull(0, count_max)).next_begin == 1


def test_a_pull_ends_with_its_index_file_only_if_configured():
    for stops, expected in ((True, 16), (False, 20)):
        broker = EngineUnderTest(consume_queue_file_entries=16, pull_stops_at_queue_file_end=stops)
        broker.ask(CreateTopic(TopicConfig("orders")))
        filled(broker, 20)
        assert broker.ask(pull(4, 100)).next_begin == expected


class TestFilters:
    def test_only_matching_tags_come_and_the_next_offset_is_behind_the_examined_ones(self, broker):
        filled(broker, 3, tags="A")
        filled(broker, 3, tags="B")
        filled(broker, 3, tags="C")
        reply = broker.ask(pull(0, subscription=Subscription("A || C")))
        assert (reply.status, offsets_of(reply), reply.next_begin) == (FOUND, [0, 1, 2, 6, 7, 8], 9)

    def test_nothing_matching_moves_on(self, broker):
        filled(broker, 3, tags="A")
        reply = broker.ask(pull(0, subscription=Subscription("B")))
        assert (reply.status, reply.next_begin, reply.records) == (NO_MATCHED, 3, ())

    def test_filtered_pull_examines_as_many_entries_as_it_asks_for_but_at_least_800(self, broker):
        filled(broker, 2_000, tags="A")
        rare = Subscription("B")
        assert broker.ask(pull(0, 32, subscription=rare)).next_begin == 800
        assert broker.ask(pull(0, 1_500, subscription=rare)).next_begin == 1_500

    @pytest.mark.parametrize(
        ("subscription", "code"),
        [
            (Subscription("||"), 23),
            (Subscription("a > 1", "SQL92"), 1),
            (Subscription("", "SQL92"), 23),
            (Subscription("*", "OTHER"), 1),
        ],
    )
    def test_filter_that_cannot_be_used_is_refused(self, broker, subscription, code):
        assert broker.refusal(pull(subscription=subscription)).code == code

    def test_registered_subscription_filters(self, broker):
        filled(broker, 2, tags="A")
        filled(broker, 2, tags="B")
        request = pull(uses_registered_subscription=True, subscription_version=5)
        assert broker.refusal(request).code == 24
        heartbeat = Heartbeat(
            "c1", (), (ConsumerInfo("g", "", "", "", (("orders", "B", "TAG", 5),)),)
        )
        broker.ask(heartbeat)
        assert offsets_of(broker.ask(request)) == [2, 3]
        assert broker.refusal(replace(request, subscription_version=6)).code == 25


class TestRefusals:
    def test_unknown_topic(self, broker):
        assert broker.refusal(pull(queue=queue_of("absent"))).code == 17

    def test_queue_out_of_range(self, broker):
        assert broker.refusal(pull(queue=queue_of("orders", 2))).code == 29

    def test_topic_that_may_not_be_read(self, broker):
        broker.ask(CreateTopic(TopicConfig("orders", 2, 2, permission=2)))
        assert broker.refusal(pull()).code == 16

    def test_illegal_group(self, broker):
        assert broker.refusal(replace(pull(), group="")).code == 26

    def test_unknown_group_when_groups_are_not_made(self):
        broker = EngineUnderTest(auto_create_group=False)
        broker.ask(CreateTopic(TopicConfig("orders")))
        assert broker.refusal(pull()).code == 26


class TestCommitOnTheWay:
    def test_a_pull_commits_the_offset_that_it_carries(self, broker):
        broker.ask(pull(0, commit=7))
        assert broker.ask(GetCommittedOffset("g", ORDERS_0)).value == 7

    def test_refused_pull_stores_nothing(self, broker):
        assert broker.refusal(pull(0, commit=7, subscription=Subscription("||"))).code == 23
        assert broker.refusal(GetCommittedOffset("g", ORDERS_0)).code == 22

    def test_held_pull_stores_it_only_once(self, broker):
        hold = broker.held(pull(0, commit=7, suspend_ms=1_000))
        broker.ask(CommitOffset("g", ORDERS_0, 9))
        broker.resumed(hold, is_final=True)
        assert broker.ask(GetCommittedOffset("g", ORDERS_0)).value == 9


class TestWaiting:
    @pytest.mark.parametrize("count", [0, 3])
    def test_pull_at_the_end_waits(self, broker, count):
        if count:
            filled(broker, count)
        hold = broker.held(pull(count, suspend_ms=1_000))
        assert (hold.queue, hold.start, hold.expires_at_ms) == (ORDERS_0, count, NOW_MS + 1_000)

    @pytest.mark.parametrize("start", [-1, 4])
    def test_pull_outside_the_queue_does_not_wait(self, broker, start):
        filled(broker, 3)
        assert broker.ask(pull(start, suspend_ms=1_000)).status is ILLEGAL

    @pytest.mark.parametrize("suspend_ms", [None, 0, -1])
    def test_pull_without_time_to_wait_is_answered(self, broker, suspend_ms):
        assert broker.ask(pull(suspend_ms=suspend_ms)).status is NO_NEW

    def test_waiting_is_bounded_and_can_be_forbidden(self):
        bounded = EngineUnderTest(suspend_ms_max=500)
        bounded.ask(CreateTopic(TopicConfig("orders")))
        assert bounded.held(pull(suspend_ms=60_000)).expires_at_ms == NOW_MS + 500
        without = EngineUnderTest(long_polling=False)
        without.ask(CreateTopic(TopicConfig("orders")))
        assert without.ask(pull(suspend_ms=60_000)).status is NO_NEW

    def test_arrival_answers_it(self, broker):
        hold = broker.held(pull(suspend_ms=1_000))
        filled(broker, 2)
        reply = pull_reply(broker.resumed(hold))
        assert (reply.status, offsets_of(reply)) == (FOUND, [0, 1])

    def test_wake_up_for_nothing_keeps_the_deadline(self, broker):
        hold = broker.held(pull(suspend_ms=1_000))
        broker.now_ms += 400
        assert broker.resumed(hold) == hold

    def test_arrival_that_does_not_match_is_not_examined_again(self, broker):
        hold = broker.held(pull(suspend_ms=1_000, subscription=Subscription("A")))
        filled(broker, 3, tags="B")
        broker.now_ms += 400
        moved = broker.resumed(hold)
        assert (moved.start, moved.request.start, moved.expires_at_ms) == (3, 3, NOW_MS + 1_000)
        filled(broker, 1, tags="A")
        assert offsets_of(pull_reply(broker.resumed(moved))) == [3]

    def test_the_reply_after_the_wait_is_behind_the_examined_messages(self, broker):
        hold = broker.held(pull(suspend_ms=1_000, subscription=Subscription("A")))
        filled(broker, 3, tags="B")
        reply = pull_reply(broker.resumed(broker.resumed(hold), is_final=True))
        assert (reply.status, reply.next_begin) == (NO_NEW, 3)

    def test_pull_that_waits_in_a_deleted_topic_is_refused(self, broker):
        hold = broker.held(pull(suspend_ms=1_000))
        broker.engine.tables.topics.forget("orders")
        with pytest.raises(BrokerError) as caught:
            broker.resumed(hold)
        assert caught.value.code == 17
