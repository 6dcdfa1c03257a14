"""Pop consumption at the broker: pops, acknowledgements, revival, and restarts."""

from __future__ import annotations

import struct

import pytest

from rocketmq_broker.engine.core.outcomes import Answer, HoldPop
from rocketmq_broker.engine.pop.pop import _offsets_in
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import Host, QueueId, StoredMessage, Subscription, TopicConfig
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.records.pop_checkpoints import REVIVE_GROUP
from rocketmq_wire.requests.brokers import GetRuntimeInfo, GetStatistic
from rocketmq_wire.requests.groups import PutGroup
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
    GetConsumeStats,
    ResetClientOffsets,
)
from rocketmq_wire.requests.permissions import CONSUME, Resources
from rocketmq_wire.requests.pop import (
    AckMessages,
    AwaitMessages,
    AwaitMessagesReply,
    InitMode,
    PopMessages,
    PopReply,
    PopStatus,
    ack_of,
    ack_spans,
    change_of,
)
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.engines import BROKER, EngineUnderTest, queue_of
from support.pops import (
    GROUP,
    TOPIC,
    ack,
    bodies_of,
    change,
    committed,
    fill,
    held_pop,
    messages_of,
    peek,
    pop,
    restarted,
    turn,
)
from support.records import lay_out

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
RETRY_TOPIC = "%RETRY%g_orders"


def revive_records(broker: EngineUnderTest) -> int:
    return sum(broker.store.bounds(REVIVE_TOPIC, index).end for index in range(8))


def test_a_message_in_flight_is_not_popped_again(broker: EngineUnderTest) -> None:
    bodies = fill(broker, 50)
    assert bodies_of(pop(broker)) == bodies[:32]
    assert bodies_of(pop(broker)) == bodies[32:]
    assert pop(broker) == []


def test_committed_offsets_follow_acknowledgements_in_order(broker: EngineUnderTest) -> None:
    fill(broker, 6)
    first, second = pop(broker, 3), pop(broker, 3)
    ack(broker, *second)
    assert committed(broker) == 0
    ack(broker, *first[:2])
    assert committed(broker) == 0
    ack(broker, first[2])
    assert committed(broker) == 6


def test_acknowledged_in_time_nothing_is_written(broker: EngineUnderTest) -> None:
    fill(broker, 32)
    ack(broker, *pop(broker))
    turn(broker, after_ms=120_000)
    assert revive_records(broker) == 0
    assert pop(broker) == []


def test_an_unfinished_pop_is_written_after_three_seconds(broker: EngineUnderTest) -> None:
    fill(broker, 4)
    popped = pop(broker)
    ack(broker, popped[0])
    turn(broker, after_ms=2_999)
    assert (revive_records(broker), committed(broker)) == (0, 0)
    turn(broker, after_ms=1)
    assert (revive_records(broker), committed(broker)) == (1, 4)
    ack(broker, popped[1], popped[2])
    turn(broker, after_ms=3_000)
    assert revive_records(broker) == 2
    turn(broker, after_ms=60_000)
    assert bodies_of(pop(broker)) == [b"3"]


@pytest.mark.parametrize("invisible_ms", [0, 1_000, 10_000])
def test_an_unacknowledged_message_comes_again(broker: EngineUnderTest, invisible_ms: int) -> None:
    fill(broker, 3)
    (one, two, three) = pop(broker, invisible_ms=invisible_ms)
    ack(broker, two)
    turn(broker, after_ms=max(invisible_ms - 1, 0))
    if invisible_ms:
        assert pop(broker) == []
    turn(broker, after_ms=1)
    again = pop(broker)
    assert bodies_of(again) == [one.body, three.body]
    assert [found.message.reconsume_times for found in again] == [1, 1]
    assert {found.message.topic for found in again} == {TOPIC}
    assert again[0].message.properties["1ST_POP_TIME"] == str(one.handle.pop_ms)
    ack(broker, *again)
    turn(broker, after_ms=120_000)
    assert pop(broker) == []
    assert committed(broker, queue_of(RETRY_TOPIC)) == 2


def test_a_late_acknowledgement_is_no_matter(broker: EngineUnderTest) -> None:
    fill(broker, 1)
    (late,) = pop(broker, invisible_ms=1_000)
    turn(broker, after_ms=1_000)
    ack(broker, late)
    assert len(pop(broker)) == 1


def test_attempts_end_among_the_dead_letters(broker: EngineUnderTest) -> None:
    broker.ask(PutGroup({"groupName": GROUP, "retryMaxTimes": 3}))
    fill(broker, 1)
    seen = []
    for _ in range(5):
        seen += [one.message.reconsume_times for one in pop(broker, invisible_ms=1_000)]
        turn(broker, after_ms=1_000)
    assert seen == [0, 1, 2]
    assert broker.store.bounds("%DLQ%g", 0).end == 1
    (dead,) = pop(broker, topic="%DLQ%g", group="reader")
    assert dead.message.properties["RETRY_TOPIC"] == TOPIC
    assert dead.message.properties["ORIGIN_MESSAGE_ID"]


def test_one_pop_in_five_reads_the_retries_first(broker: EngineUnderTest) -> None:
    fill(broker, 10)
    pop(broker, invisible_ms=1_000)
    turn(broker, after_ms=1_000)
    fill(broker, 20, start=100)
    first_kinds = [pop(broker, 1)[0].handle.retry.value for _ in range(10)]
    assert (first_kinds.count("1"), first_kinds.count("0")) == (2, 8)


def test_retries_fill_the_rest_of_a_pop(broker: EngineUnderTest) -> None:
    fill(broker, 3)
    pop(broker, invisible_ms=1_000)
    turn(broker, after_ms=1_000)
    fill(broker, 2, queue=1, start=100)
    assert sorted(bodies_of(pop(broker))) == [b"0", b"1", b"100", b"101", b"2"]


def test_the_newer_names_of_retry_topics_drain_the_older_ones() -> None:
    files = MemoryFiles()
    old = EngineUnderTest(files, flush="sync")
    old.ask(CreateTopic(TopicConfig(TOPIC, 2, 2)))
    fill(old, 1)
    pop(old, invisible_ms=1_000)
    turn(old, after_ms=1_000)
    new = EngineUnderTest(restarted(old), flush="sync", pop_retry_topic_v2=True)
    new.now_ms = old.now_ms
    fill(new, 1, start=1)
    found = [one for _ in range(4) for one in pop(new, invisible_ms=1_000)]
    assert sorted((one.body, one.handle.retry.value) for one in found) == [(b"0", "1"), (b"1", "0")]
    turn(new, after_ms=1_000)
    assert new.store.bounds("%RETRY%g+orders", 0).end == 1
    assert sorted((one.body, one.handle.retry.value) for _ in range(4) for one in pop(new)) == [
        (b"0", "1"),
        (b"1", "2"),
    ]


def test_a_queue_named_is_the_only_one(broker: EngineUnderTest) -> None:
    fill(broker, 2)
    fill(broker, 2, queue=1, start=10)
    assert bodies_of(pop(broker, queue=1)) == [b"10", b"11"]
    assert bodies_of(pop(broker)) == [b"0", b"1"]


def test_pops_of_any_queue_begin_with_the_next_one(broker: EngineUnderTest) -> None:
    fill(broker, 4)
    fill(broker, 4, queue=1, start=10)
    queues = [pop(broker, 1)[0].handle.queue_index for _ in range(4)]
    assert sorted(queues) == [0, 0, 1, 1]


def test_a_reply_has_the_number_of_remaining_messages(broker: EngineUnderTest) -> None:
    fill(broker, 10)
    fill(broker, 5, queue=1)
    request = PopMessages(GROUP, QueueId(TOPIC, BROKER, -1), 4, 60_000)
    assert broker.ask(request).rest_count == 11


def test_a_queue_that_an_orderly_pop_blocks_counts_among_the_remaining(
    broker: EngineUnderTest,
) -> None:
    fill(broker, 10)
    assert len(pop(broker, 2, is_orderly=True, queue=0)) == 2
    request = PopMessages(GROUP, queue_of(TOPIC), 4, 60_000, is_orderly=True)
    reply = broker.ask(request)
    assert (reply.spans, reply.rest_count) == ((), 10)


def test_pops_of_retry_queues_begin_with_the_next_one() -> None:
    broker = EngineUnderTest()
    retries = RetryKind.V1.topic_of(TOPIC, GROUP)
    for name, count in ((TOPIC, 1), (retries, 4)):
        broker.ask(CreateTopic(TopicConfig(name, count, count)))
    for index in range(4):
        broker.store_messages(queue_of(retries, index), *[b"x"] * 5)
    first = [pop(broker, 1)[0].handle.queue_index for _ in range(20)]
    assert {index: first.count(index) for index in range(4)} == dict.fromkeys(range(4), 5)


def test_popped_messages_raise_the_counter_of_pulled_ones(broker: EngineUnderTest) -> None:
    fill(broker, 40)
    assert len(pop(broker)) == 32
    table = broker.ask(GetRuntimeInfo()).settings
    assert table["msgGetTotalTodayNow"] == "32"
    rates = [float(rate) for rate in table["getTransferredTps"].split()]
    assert rates[0] == 3.2
    assert float(table["getFoundTps"].split()[0]) == 0.1
    minute = broker.ask(GetStatistic("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")).minute
    assert (minute.total, minute.average) == (32, 32.0)
    size = broker.ask(GetStatistic("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}")).minute.total
    assert 32 < size < broker.store.appended_end
    assert broker.ask(GetConsumeStats(GROUP, TOPIC)).tps == 32 / 60


def test_a_filter_skips_messages_and_the_committed_offset_advances(broker: EngineUnderTest) -> None:
    for tag in ("a", "b", "a", "b"):
        broker.store_messages(queue_of(TOPIC), tag.encode(), tags=tag)
    assert pop(broker, tags="c") == []
    assert committed(broker) == 4
    for tag in ("a", "b", "a", "b"):
        broker.store_messages(queue_of(TOPIC), tag.encode(), tags=tag)
    popped = pop(broker, tags="a")
    assert [one.handle.offset for one in popped] == [4, 6]
    assert pop(broker, tags="c") == []
    assert committed(broker) == 4
    ack(broker, *popped)
    assert committed(broker) == 8


def test_an_expression_filters_where_that_is_allowed() -> None:
    broker = EngineUnderTest(property_filter=True)
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    for tag in ("a", "b", "a"):
        broker.store_messages(queue_of(TOPIC), tag.encode(), tags=tag)
    request = PopMessages(
        *(GROUP, queue_of(TOPIC, -1), 32, 60_000),
        subscription=Subscription("TAGS = 'a'", "SQL92"),
    )
    popped = messages_of(broker.ask(request))
    assert [one.handle.offset for one in popped] == [0, 2]


def test_where_a_new_group_begins(broker: EngineUnderTest) -> None:
    fill(broker, 5)
    assert len(pop(broker, init_mode=InitMode.MAX)) == 5


@pytest.mark.parametrize("wrong", [99, 7])
def test_a_committed_offset_out_of_bounds_is_corrected(broker: EngineUnderTest, wrong: int) -> None:
    fill(broker, 5)
    pop(broker, 1)
    broker.ask(CommitOffset(GROUP, queue_of(TOPIC), wrong))
    assert pop(broker) == []
    fill(broker, 1, start=5)
    assert bodies_of(pop(broker)) == [b"5"]


def test_after_a_reset_messages_are_popped_again(broker: EngineUnderTest) -> None:
    fill(broker, 5)
    popped = pop(broker)
    broker.now_ms += 1
    broker.ask(ResetClientOffsets(GROUP, TOPIC, 0))
    ack(broker, popped[0])
    assert len(pop(broker)) == 5


def test_a_changed_time_counts_from_now(broker: EngineUnderTest) -> None:
    fill(broker, 2)
    one, two = pop(broker, invisible_ms=10_000)
    turn(broker, after_ms=5_000)
    renewed = change(broker, one, 10_000)
    turn(broker, after_ms=5_000)
    assert bodies_of(pop(broker)) == [two.body]
    with pytest.raises(BrokerError, match="void"):
        change(broker, one, 10_000)
    ack(broker, one)
    turn(broker, after_ms=5_000)
    assert bodies_of(pop(broker)) == [one.body]
    ack(broker, renewed)


def test_a_handle_of_a_pop_in_the_future_is_void(broker: EngineUnderTest) -> None:
    fill(broker, 1)
    (one,) = pop(broker)
    for pop_ms in (broker.now_ms + 1, 1 << 62):
        with pytest.raises(BrokerError, match="void"):
            change(broker, one._replace(handle=one.handle._replace(pop_ms=pop_ms)), 10_000)


def test_a_clock_that_steps_back_renews_at_once(broker: EngineUnderTest) -> None:
    fill(broker, 1)
    (one,) = pop(broker)
    # Counting up through the years would take hours.
    broker.now_ms //= 2
    renewed = change(broker, one, 10_000)
    assert renewed.handle.pop_ms == one.handle.pop_ms + 1
    ack(broker, renewed)
    assert committed(broker) == 1


def test_a_renewed_handle_acknowledges(broker: EngineUnderTest) -> None:
    fill(broker, 1)
    (one,) = pop(broker)
    ack(broker, change(broker, change(broker, one, 1_000), 1_000))
    turn(broker, after_ms=120_000)
    assert pop(broker) == []
    assert committed(broker) == 1


def test_looking_changes_nothing(broker: EngineUnderTest) -> None:
    fill(broker, 3)
    assert len(peek(broker)) == 3
    assert len(pop(broker)) == 3
    assert peek(broker) == []


def test_a_pop_waits_and_is_asked_again(broker: EngineUnderTest) -> None:
    request = PopMessages(GROUP, queue_of(TOPIC, -1), 32, 60_000, poll_ms=15_000)
    hold = held_pop(broker, request)
    assert hold.expires_at_ms == broker.now_ms + 15_000
    popping = broker.engine.pops.popping
    assert isinstance(popping.resume(hold, broker.now_ms, is_final=False), HoldPop)
    fill(broker, 1)
    outcome = popping.resume(hold, broker.now_ms, is_final=False)
    assert isinstance(outcome, Answer)
    assert isinstance(outcome.reply, PopReply)
    assert outcome.reply.status is PopStatus.FOUND
    last = popping.resume(hold, broker.now_ms, is_final=True)
    assert isinstance(last, Answer)
    assert last.reply.status is PopStatus.POLLING_TIMEOUT  # type: ignore[attr-defined]


def test_a_pop_that_comes_too_late_finds_nothing(broker: EngineUnderTest) -> None:
    fill(broker, 1)
    late = broker.now_ms - 2_000
    request = PopMessages(GROUP, queue_of(TOPIC), 32, 60_000, poll_ms=1_000, born_ms=late)
    assert broker.ask(request).status is PopStatus.POLLING_TIMEOUT


def test_waiting_for_an_arrival_borrows_nothing(broker: EngineUnderTest) -> None:
    request = AwaitMessages(GROUP, queue_of(TOPIC, -1), poll_ms=1_000)
    assert isinstance(broker.outcome(request), HoldPop)
    fill(broker, 1)
    assert broker.ask(request) == AwaitMessagesReply(True)
    assert len(pop(broker)) == 1


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda: PopMessages(GROUP, queue_of(TOPIC), 33, 1), 29),
        (lambda: PopMessages(GROUP, queue_of(TOPIC, 2), 1, 1), 29),
        (lambda: PopMessages(GROUP, queue_of("gone"), 1, 1), 17),
        (
            lambda: PopMessages(
                GROUP, queue_of(TOPIC), 1, 1, subscription=Subscription("a >", "SQL92")
            ),
            1,
        ),
        (lambda: ack_of(GROUP, TOPIC, "0 1 1 0 0 broker-a 0 9"), 208),
        (lambda: ack_of(GROUP, TOPIC, "0 1 1 0 0 broker-a 7 0"), 13),
        (lambda: ack_of(GROUP, "gone", "0 1 1 0 0 broker-a 0 0"), 17),
        (lambda: change_of(GROUP, TOPIC, "0 1 1 0 0 broker-a 0 0", 1), 208),
        (lambda: AckMessages(BROKER, ()), 208),
    ],
)
def test_illegal_requests_are_refused(broker: EngineUnderTest, request_of, code: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BrokerError) as refused:
        broker.ask(request_of())
    assert refused.value.code == code


def test_a_deleted_topic_loses_its_in_flight_pops_and_retries(broker: EngineUnderTest) -> None:
    fill(broker, 3)
    pop(broker, 1, invisible_ms=1_000)
    turn(broker, after_ms=1_000)
    assert broker.engine.tables.topics.get(RETRY_TOPIC) is not None
    pop(broker, 1, invisible_ms=1_000)
    broker.ask(DeleteTopic(TOPIC))
    assert broker.engine.tables.topics.get(RETRY_TOPIC) is None
    broker.ask(CreateTopic(TopicConfig(TOPIC, 2, 2)))
    turn(broker, after_ms=2_000)
    fill(broker, 1, start=9)
    assert bodies_of(pop(broker)) == [b"9"]


# --- starts ------------------------------------------------------------------------------------


def test_a_message_that_left_its_pop_cannot_be_renewed() -> None:
    broker = EngineUnderTest(flush="sync")
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    fill(broker, 2)
    first, _ = pop(broker)
    ack(broker, first)
    with pytest.raises(BrokerError, match="void"):
        change(broker, first, 1_000)


def test_a_stop_repeats_nothing_that_came_behind_a_pop_in_flight() -> None:
    broker = EngineUnderTest(flush="sync")
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    bodies = fill(broker, 9)
    pop(broker, 1, invisible_ms=600_000)
    for _ in bodies[1:]:
        # The last one shares its revive queue with the first one.
        pop(broker, 1, invisible_ms=4_000)
    for _ in range(2):
        turn(broker, after_ms=3_500)
    again = EngineUnderTest(restarted(broker), flush="sync")
    again.now_ms = broker.now_ms
    turn(again)
    assert sorted(bodies_of(pop(again))) == bodies[1:]


def test_a_stop_loses_and_repeats_nothing() -> None:
    broker = EngineUnderTest(flush="sync")
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    fill(broker, 40)
    first, second = pop(broker), pop(broker)
    ack(broker, *first[:20])
    again = EngineUnderTest(restarted(broker), flush="sync")
    assert pop(again) == []
    ack(again, *first[20:30], *second)
    turn(again, after_ms=60_000)
    assert sorted(bodies_of(pop(again))) == [b"30", b"31"]
    turn(again, after_ms=3_000)
    queue = QueueId(REVIVE_TOPIC, BROKER, 0)
    last = again.store.bounds(REVIVE_TOPIC, 0).end - 1
    assert again.ask(GetCommittedOffset(REVIVE_GROUP, queue)).value == last


def test_the_mark_stops_at_the_first_unfinished_pop() -> None:
    broker = EngineUnderTest(flush="sync")
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    fill(broker, 9)
    # Pops go round eight revive queues: the first and the ninth share one.
    popped = [pop(broker, 1)[0] for _ in range(9)]
    turn(broker, after_ms=3_000)
    queue = QueueId(REVIVE_TOPIC, BROKER, popped[0].handle.revive_queue)
    assert popped[8].handle.revive_queue == queue.index
    ack(broker, popped[8])
    turn(broker, after_ms=3_000)
    with pytest.raises(BrokerError):
        broker.ask(GetCommittedOffset(REVIVE_GROUP, queue))
    ack(broker, popped[0])
    turn(broker, after_ms=3_000)
    assert broker.ask(GetCommittedOffset(REVIVE_GROUP, queue)).value >= 2


def test_a_right_to_topic_and_group_is_one_to_the_retries_of_both() -> None:
    handle = "0 1 1 0 1 broker-a 0 0"
    acks = AckMessages(BROKER, ack_spans(GROUP, [(TOPIC, ReceiptHandle.parse(handle))]))
    for request in (ack_of(GROUP, TOPIC, handle), change_of(GROUP, TOPIC, handle, 1), acks):
        assert request.permissions() == CONSUME.on(Resources((TOPIC,), (GROUP,)))


def record_at(offset: int) -> bytes:
    host = Host(bytes(4), 1)
    return lay_out(
        StoredMessage(TOPIC, b"body", {}, 0, 0, offset, 0, 0, 0, host, 0, host, 0, 0, 0, 0)
    )


def test_a_damaged_size_hides_no_offset_behind_it() -> None:
    records = [bytearray(record_at(offset)) for offset in (7, 9, 12)]
    sizes = struct.pack("<3i", *map(len, records))
    records[0][:4] = struct.pack(">I", 0x7FFF_FFFF)
    assert _offsets_in([bytes(one) for one in records], sizes) == (7, 9, 12)


def test_a_message_with_the_largest_reconsume_times_stops_no_revival(
    broker: EngineUnderTest,
) -> None:
    request = SendMessage("p", queue_of(TOPIC), broker.now_ms, b"odd", reconsume_times=2**31 - 1)
    broker.ask(request)
    fill(broker, 1)
    assert len(pop(broker, invisible_ms=1_000)) == 2
    turn(broker, after_ms=2_000)
    assert bodies_of(pop(broker)) == [b"0"]
    (dead,) = broker.messages(QueueId("%DLQ%g", "", 0))
    assert (dead.body, dead.reconsume_times) == (b"odd", 2**31 - 1)


@pytest.mark.parametrize("ahead_ms", [1, 10 * 365 * 86_400_000])
def test_a_time_in_the_future_holds_no_request_for_longer(
    broker: EngineUnderTest, ahead_ms: int
) -> None:
    born_ms = broker.now_ms + ahead_ms
    request = PopMessages(GROUP, queue_of(TOPIC), 32, 60_000, poll_ms=1_000, born_ms=born_ms)
    waiting = AwaitMessages(GROUP, queue_of(TOPIC, -1), poll_ms=1_000, born_ms=born_ms)
    for held in (broker.outcome(request), broker.outcome(waiting)):
        assert isinstance(held, HoldPop)
        assert held.expires_at_ms == broker.now_ms + 1_000
