"""Orderly pops: a queue is closed while one of its messages is in flight."""

from __future__ import annotations

import pytest

from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.pop import (
    PopMessages,
)
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.engines import EngineUnderTest, queue_of
from support.pops import (
    GROUP,
    TOPIC,
    ack,
    bodies_of,
    change,
    committed,
    fill,
    messages_of,
    pop,
    restarted,
)


def test_in_order_a_queue_is_closed_while_something_is_out(broker: EngineUnderTest) -> None:
    fill(broker, 4)
    first = pop(broker, 2, is_orderly=True)
    assert pop(broker, 2, is_orderly=True) == []
    ack(broker, first[0])
    assert pop(broker, 2, is_orderly=True) == []
    ack(broker, first[1])
    assert committed(broker) == 2
    assert bodies_of(pop(broker, 2, is_orderly=True)) == [b"2", b"3"]


def test_in_order_a_lost_answer_is_given_again(broker: EngineUnderTest) -> None:
    fill(broker, 2)
    first = pop(broker, is_orderly=True, attempt_id="a-1")
    assert bodies_of(pop(broker, is_orderly=True, attempt_id="a-1")) == bodies_of(first)
    assert pop(broker, is_orderly=True, attempt_id="a-2") == []


def test_in_order_a_visible_message_comes_again_with_its_count(broker: EngineUnderTest) -> None:
    fill(broker, 3)
    (first, second) = pop(broker, 2, is_orderly=True, invisible_ms=1_000)
    ack(broker, first)
    broker.now_ms += 1_000
    request = PopMessages(GROUP, queue_of(TOPIC), 32, 1_000, is_orderly=True)
    reply = broker.ask(request)
    assert bodies_of(messages_of(reply)) == [b"1", b"2"]
    assert reply.spans[0].attempts == (1, 0)
    ack(broker, second)
    assert committed(broker) == 1


def test_in_order_a_changed_time_opens_the_queue(broker: EngineUnderTest) -> None:
    fill(broker, 1)
    (one,) = pop(broker, is_orderly=True)
    change(broker, one, 1_000)
    broker.now_ms += 999
    assert pop(broker, is_orderly=True) == []
    broker.now_ms += 1
    assert [queue.topic for queue in broker.engine.pops.acks.take_freed(broker.now_ms)] == [TOPIC]
    assert len(pop(broker, is_orderly=True)) == 1


def test_in_order_a_late_acknowledgement_skips_nothing(broker: EngineUnderTest) -> None:
    fill(broker, 4)
    late = pop(broker, is_orderly=True, invisible_ms=1_000)
    broker.now_ms += 1_000
    ack(broker, *pop(broker, 1, is_orderly=True))
    ack(broker, late[2])
    # A pop is forgotten after a day.
    broker.now_ms += 25 * 3_600_000
    broker.engine.pops.acks.take_freed(broker.now_ms)
    ack(broker, late[2])
    assert committed(broker) == 1
    assert bodies_of(pop(broker, is_orderly=True)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("acked", [(0,), (2,), (0, 1, 2, 3)])
def test_in_order_without_the_file_messages_are_acknowledged_from_the_first_on(
    acked: tuple[int, ...],
) -> None:
    broker = EngineUnderTest(flush="sync")
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    fill(broker, 4)
    out = pop(broker, is_orderly=True)
    files = restarted(broker)
    files.unlink("config/consumerOrderInfo.json")
    again = EngineUnderTest(files, flush="sync")
    again.now_ms = broker.now_ms
    for offset in acked:
        ack(again, out[offset])
    expected = {0: 1, 2: 0}[acked[0]] if len(acked) == 1 else 4
    assert [int(body) for body in bodies_of(pop(again, is_orderly=True))] == [*range(expected, 4)]


def test_in_order_a_handle_of_a_deleted_topic_is_none_of_the_next_one(
    broker: EngineUnderTest,
) -> None:
    fill(broker, 2)
    old = pop(broker, is_orderly=True)
    broker.ask(DeleteTopic(TOPIC))
    broker.now_ms += 1
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    assert pop(broker, is_orderly=True) == []
    fill(broker, 2)
    ack(broker, old[0])
    ack(broker, old[1])
    assert bodies_of(pop(broker, is_orderly=True)) == [b"0", b"1"]


def test_in_order_survives_a_stop() -> None:
    broker = EngineUnderTest(flush="sync")
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    fill(broker, 3)
    first, _ = pop(broker, 2, is_orderly=True, invisible_ms=1_000)
    ack(broker, first)
    again = EngineUnderTest(restarted(broker), flush="sync")
    assert pop(again, is_orderly=True) == []
    again.now_ms += 1_000
    assert bodies_of(pop(again, is_orderly=True)) == [b"1", b"2"]
