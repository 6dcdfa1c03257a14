"""One suite for every transport: cluster, downloads, arrivals and producer on our broker."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_client.producer.producer import MessageColumns, Producer
from rocketmq_wire.errors import BrokerError, RocketMQError, TopicNotFoundError, raise_first
from rocketmq_wire.model import (
    Bounds,
    Message,
    OffsetRange,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendReply,
    SendStatus,
)
from rocketmq_wire.requests.offsets import Boundary, GetMaxOffset, OffsetReply
from rocketmq_wire.requests.topics import GetRoute
from support.contracts import fill, queue_of, read, topic_names

# --- topics ---------------------------------------------------------------------------------


def test_a_created_topic_is_listed_with_its_queues_and_its_configuration(cluster, topic):
    assert topic in cluster.topics()
    assert cluster.queues(topic) == tuple(queue_of(topic, index) for index in range(4))
    assert cluster.topic_config(topic).read_queue_count == 4


def test_a_topic_can_be_changed(cluster, topic):
    cluster.create_topic(TopicConfig(topic, 6, 6))
    assert len(cluster.queues(topic)) == 6


def test_an_unknown_topic_is_not_found(cluster):
    with pytest.raises(TopicNotFoundError):
        cluster.queues("nothing-of-the-kind")


def test_a_deleted_topic_is_not_found(cluster, topic):
    cluster.delete_topic(topic)
    with pytest.raises(TopicNotFoundError):
        cluster.queues(topic)


# --- offsets --------------------------------------------------------------------------------


def test_bounds_follow_what_was_stored(cluster, topic):
    fill(cluster, queue_of(topic), 7)
    bounds = cluster.bounds([queue_of(topic), queue_of(topic, 1)])
    assert bounds == {queue_of(topic): Bounds(0, 7), queue_of(topic, 1): Bounds(0, 0)}


def test_topic_statistics_give_all_queues_in_one_call(cluster, topic):
    fill(cluster, queue_of(topic, 2), 5)
    stats = cluster.topic_stats(topic)
    assert {queue: (s.start, s.end) for queue, s in stats.items()} == {
        queue_of(topic, index): (0, 5 if index == 2 else 0) for index in range(4)
    }
    assert stats[queue_of(topic, 2)].updated_ms > 1_600_000_000_000


def test_offsets_are_found_by_store_time_and_clamped(cluster, topic):
    queue = queue_of(topic)
    store_times = []
    for number in range(6):
        fill(cluster, queue, 1, start=number)
        store_times.append(cluster.store_time_at(queue, number))
        time.sleep(0.003)  # Store times are the broker's clock in milliseconds.
    for number, store_ms in enumerate(store_times):
        assert cluster.search_offsets({queue: store_ms}) == {queue: number}
        assert cluster.search_offsets({queue: store_ms + 1}) == {queue: number + 1}
        assert cluster.search_offsets({queue: store_ms}, Boundary.UPPER) == {queue: number}
        before = max(0, number - 1)
        assert cluster.search_offsets({queue: store_ms - 1}, Boundary.UPPER) == {queue: before}
    assert cluster.search_offsets({queue: 0, queue_of(topic, 1): 5}) == {
        queue: 0,
        queue_of(topic, 1): 0,
    }
    assert cluster.earliest_store_times([queue, queue_of(topic, 1)]) == {
        queue: store_times[0],
        queue_of(topic, 1): None,
    }
    assert cluster.store_time_at(queue, 6) is None


def test_the_first_of_a_run_of_equal_store_times_is_found(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 300)
    store_ms = cluster.store_time_at(queue, 150)
    times = [cluster.store_time_at(queue, offset) for offset in (0, 299)]
    assert times == [store_ms, store_ms], "one batch has one store time"
    assert cluster.search_offsets({queue: store_ms}) == {queue: 0}


# --- groups ---------------------------------------------------------------------------------


def test_a_committed_offset_is_none_at_first_and_may_decrease(cluster, topic):
    queue = queue_of(topic, 1)
    group = f"group-{topic}"
    fill(cluster, queue, 9)
    cluster.pull(queue, 0, 1, group=group)
    # Some brokers answer a young topic's first offset here, and the client sees through it.
    assert cluster.committed_offsets(group, [queue]) == {queue: None}
    for offset in (0, 7, 3):
        assert cluster.commit(group, {queue: offset}) == {queue: None}
        assert cluster.committed_offsets(group, [queue]) == {queue: offset}
    stats = cluster.group_stats(group, topic)[queue]
    assert (stats.broker_offset, stats.consumer_offset) == (9, 3)
    assert group in cluster.groups()


def test_a_commit_by_a_group_that_the_broker_never_saw_makes_the_group(cluster, topic):
    queue, group = queue_of(topic), f"fresh-{topic}"
    fill(cluster, queue, 9)
    assert cluster.commit(group, {queue: 4}) == {queue: None}
    assert cluster.committed_offsets(group, [queue]) == {queue: 4}


def test_a_group_with_nobody_online_has_no_members(cluster, topic):
    assert cluster.members("nobody-here", topic) == ()


# --- arrivals -------------------------------------------------------------------------------


def test_the_watch_knows_end_offsets_and_notices_new_messages(cluster, settings, topic):
    queues = [queue_of(topic, index) for index in range(4)]
    fill(cluster, queues[0], 5)
    watch = EndOffsetWatcher(settings, queues)
    try:
        deadline = time.monotonic() + 10
        while len(watch.ends()) < 4 and time.monotonic() < deadline:
            pass
        assert watch.ends() == {queues[0]: 5, queues[1]: 0, queues[2]: 0, queues[3]: 0}
        assert not watch.wait(watch.ends(), 50)
        sender = threading.Timer(0.1, fill, (cluster, queues[2], 3))
        sender.start()
        started = time.monotonic()
        assert watch.wait(watch.ends(), 10_000)
        waited = time.monotonic() - started
        sender.join()
        assert waited < 5, "a wait ends with the arrival, not with its time"
        for count in (10, 11):
            fill(cluster, queues[1], 1)
            deadline = time.monotonic() + 10
            while watch.ends()[queues[1]] < count - 9 and time.monotonic() < deadline:
                pass
        assert watch.ends()[queues[1]] == 2
    finally:
        watch.close()


def test_many_queues_are_watched_by_statistics(cluster, settings):
    topic = next(topic_names)
    cluster.create_topic(TopicConfig(topic, 70, 70))
    queues = cluster.queues(topic)
    watch = EndOffsetWatcher(settings, queues)
    try:
        watch.wait({}, 500)
        assert len(watch.ends()) == 70
        fill(cluster, queues[69], 3)
        assert watch.wait(dict.fromkeys(queues, 0), 5_000)
        assert watch.ends()[queues[69]] == 3
    finally:
        watch.close()


def test_queues_can_be_exchanged_while_the_watch_runs(cluster, settings, topic):
    fill(cluster, queue_of(topic, 1), 4)
    watch = EndOffsetWatcher(settings, [queue_of(topic, 0)])
    try:
        watch.wait({}, 100)
        watch.set_queues([queue_of(topic, 1)])
        assert watch.wait({queue_of(topic, 1): 0}, 5_000)
        assert watch.ends() == {queue_of(topic, 1): 4}
    finally:
        watch.close()


# --- sends ----------------------------------------------------------------------------------


def test_a_sent_message_comes_back_as_it_was_sent(cluster, topic):
    with Producer(cluster) as producer:
        message = Message(topic, b"hello", "TagA", "k1 k2", {"colour": "blue"}, flag=7)
        reply = producer.send(message)
    assert reply.status is SendStatus.OK
    queue = queue_of(topic, reply.queue_index)
    (stored,) = read(cluster, [OffsetRange(queue, reply.start, reply.start + 1)])[queue]
    assert (stored.body, stored.flag, stored.topic) == (b"hello", 7, topic)
    expected = {"TAGS": "TagA", "KEYS": "k1 k2", "colour": "blue"}
    assert expected.items() <= stored.properties.items()
    assert len(stored.properties["UNIQ_KEY"]) == 32


def test_a_batch_is_stored_in_order_with_a_key_for_every_message(cluster, topic):
    queue = queue_of(topic, 2)
    with Producer(cluster) as producer:
        reply = producer.send_batch(queue, [Message(topic, b"%d" % n) for n in range(100)])
    assert (reply.queue_index, reply.start) == (2, 0)
    messages = read(cluster, [OffsetRange(queue, 0, 100)])[queue]
    assert [m.body for m in messages] == [b"%d" % n for n in range(100)]
    assert len({m.properties["UNIQ_KEY"] for m in messages}) == 100


def test_columns_are_sent_without_an_object_a_message(cluster, topic):
    queue, count = queue_of(topic, 3), 2_500
    columns = MessageColumns(
        bodies=pa.array([b"%d" % n for n in range(count)]),
        tags=pa.array(["even" if n % 2 == 0 else None for n in range(count)]),
        keys=pa.array([f"key-{n}" for n in range(count)]),
        properties=pa.array(
            [{"n": str(n)} for n in range(count)], pa.map_(pa.string(), pa.string())
        ),
    )
    with Producer(cluster) as producer:
        requests = [producer.column_request(queue, columns) for _ in range(2)]
        results = dict(enumerate(sent.result for sent in producer.send_many(requests)))
    assert [reply.start for reply in raise_first(results).values()] == [0, count]
    messages = read(cluster, [OffsetRange(queue, 0, 2 * count)])[queue]
    assert [m.body for m in messages] == [b"%d" % n for n in range(count)] * 2
    properties = messages[7].properties
    assert {"KEYS": "key-7", "n": "7"}.items() <= properties.items()
    assert "TAGS" not in properties
    assert messages[8].properties["TAGS"] == "even"
    assert len({m.properties["UNIQ_KEY"] for m in messages}) == 2 * count


def test_messages_are_spread_over_the_queues_in_order(cluster, topic):
    with Producer(cluster) as producer:
        indexes = [producer.send(Message(topic, b"x")).queue_index for _ in range(8)]
    assert sorted(indexes) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_pipelined_batches_keep_the_order_of_their_queue(cluster, topic):
    with Producer(cluster, in_flight_max=8) as producer:
        requests = (
            producer.batch_request(
                queue_of(topic, index),
                [Message(topic, b"%d" % (round_ * 10 + n)) for n in range(10)],
            )
            for round_ in range(20)
            for index in range(4)
        )
        outcomes = list(producer.send_many(requests))
    assert sorted(sent.index for sent in outcomes) == list(range(80))
    for index in range(4):
        queue = queue_of(topic, index)
        bodies = [m.body for m in read(cluster, [OffsetRange(queue, 0, 200)])[queue]]
        assert bodies == [b"%d" % n for n in range(200)]


def test_what_the_broker_refuses_is_the_outcome_of_its_request(cluster, topic):
    with Producer(cluster) as producer:
        wrong = producer.batch_request(queue_of(topic, 99), [Message(topic, b"x")])
        right = producer.batch_request(queue_of(topic, 1), [Message(topic, b"x")])
        outcomes = {sent.index: sent.result for sent in producer.send_many([wrong, right])}
    assert isinstance(outcomes[0], BrokerError)
    assert isinstance(outcomes[1], SendReply)


def test_a_send_to_an_unknown_topic_is_refused(cluster):
    with Producer(cluster) as producer, pytest.raises(TopicNotFoundError):
        producer.send(Message("nothing-of-the-kind", b"x"))


# --- plain pulls ----------------------------------------------------------------------------


def test_plain_pulls_tell_the_four_statuses_apart(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 10, tags=lambda _: "a")
    found = cluster.pull(queue, 4, 3)
    assert (found.status, found.next_begin, found.start, found.end) == (PullStatus.FOUND, 7, 0, 10)
    assert cluster.pull(queue, 10, 3).status is PullStatus.NO_NEW_MESSAGE
    unmatched = cluster.pull(queue, 0, 10, subscription=Subscription("b"))
    assert (unmatched.status, unmatched.next_begin) == (PullStatus.NO_MATCHED_MESSAGE, 10)
    assert cluster.pull(queue, 50, 3).status is PullStatus.OFFSET_ILLEGAL


def test_a_held_pull_is_answered_when_a_message_arrives(cluster, settings, topic):
    queue = queue_of(topic)
    with open_cluster(settings) as other:
        other.bounds([queue])
        ticket = other.transport.submit(
            PullMessages("readers", queue, 0, 1, suspend_ms=20_000),
            broker="broker-a",
            timeout_ms=30_000,
        )
        assert other.transport.completed(timeout_ms=100) == []
        fill(cluster, queue, 1)
        ((done, reply),) = other.transport.completed(timeout_ms=10_000)
    assert done == ticket
    assert isinstance(reply, PullReply)
    assert reply.status is PullStatus.FOUND


def test_questions_asked_together_are_answered_each_for_itself(cluster, topic):
    queues = [queue_of(topic, index) for index in range(4)]
    fill(cluster, queues[2], 3)
    questions = [(queue.broker, GetMaxOffset(queue)) for queue in queues]
    tickets = cluster.transport.submit_many(
        [*questions, (None, GetRoute("nowhere-to-be-found"))], timeout_ms=5_000
    )
    answers: dict[int, Reply | RocketMQError] = {}
    while len(answers) < len(tickets):
        done = dict(cluster.transport.completed(timeout_ms=5_000))
        assert done, "nothing more is answered"
        answers |= done
    ends = [answers[ticket] for ticket in tickets[:4]]
    assert ends == [OffsetReply(0), OffsetReply(0), OffsetReply(3), OffsetReply(0)]
    assert isinstance(answers[tickets[4]], TopicNotFoundError)
