"""One suite for every transport: cluster, downloads, arrivals and producer on our broker."""

from __future__ import annotations

import itertools
import threading
import time

import pyarrow as pa
import pytest

from rocketmq_broker_sim.broker import Broker
from rocketmq_broker_sim.config import config_from
from rocketmq_client.arrivals import ArrivalWatch
from rocketmq_client.cluster import open_cluster
from rocketmq_client.column_sends import MessageColumns
from rocketmq_client.loss import LossPolicy, LossReason, RangeLostError
from rocketmq_client.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport import ReadLimits, ReadSpec
from rocketmq_wire.errors import BrokerError, TopicNotFoundError
from rocketmq_wire.model import (
    Bounds,
    Message,
    OffsetRange,
    QueueId,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.record import decode_record
from rocketmq_wire.requests import (
    Boundary,
    GetMaxOffset,
    GetRoute,
    PullMessages,
    PullStatus,
    SendReply,
    SendStatus,
)

TRANSPORTS = ("tcp", "grpc")
SPEC = ReadSpec("readers")
_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker():
    with Broker(config_from({"flush": "memory"})) as broker:
        yield broker


@pytest.fixture(params=TRANSPORTS)
def settings(request, broker):
    # Generous, for the first batch may make a library load itself on a busy machine.
    if request.param == "tcp":
        return ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
    return ConnectionSettings(endpoints=broker.endpoints, request_timeout_ms=30_000)


@pytest.fixture
def cluster(settings):
    with open_cluster(settings) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster):
    name = next(_names)
    cluster.create_topic(TopicConfig(name, 4, 4))
    return name


def queue_of(topic, index=0):
    return QueueId(topic, "broker-a", index)


def fill(cluster, queue, count, *, start=0, tags=None, size=0):
    """Store messages whose bodies are their numbers."""
    with Producer(cluster) as producer:
        numbers = range(start, start + count)
        messages = [
            Message(
                queue.topic,
                str(n).encode().ljust(size, b"."),
                tags=tags(n) if tags else None,
            )
            for n in numbers
        ]
        batches = [messages[i : i + 500] for i in range(0, count, 500)]
        requests = [producer.batch_request(queue, batch) for batch in batches]
        for sent in producer.send_many(requests):
            assert isinstance(sent.result, SendReply)
            end = sent.result.start + sent.result.count
            await_end(cluster, queue, end)


def await_end(cluster, queue, end):
    """Java's broker acknowledges a message a moment before its queue lists it."""
    deadline = time.monotonic() + 10
    while cluster.bounds([queue])[queue].end < end:
        assert time.monotonic() < deadline


def messages_in(chunk):
    """The wanted messages of a chunk."""
    position, found = 0, []
    while position < len(chunk.body):
        message, position = decode_record(chunk.body, position)
        if chunk.start <= message.queue_offset < chunk.end:
            found.append(message)
    return found


def read(cluster, ranges, spec=SPEC):
    """Messages by queue; checks that chunks follow each other and hold what they claim."""
    cursors = {wanted.queue: wanted.start for wanted in ranges}
    found = {wanted.queue: [] for wanted in ranges}
    for chunk in cluster.read_ranges(ranges, spec):
        assert chunk.start == cursors[chunk.queue] < chunk.end
        cursors[chunk.queue] = chunk.end
        messages = messages_in(chunk)
        if chunk.expected_count is not None:
            assert len(messages) == chunk.expected_count
        found[chunk.queue] += messages
    assert cursors == {wanted.queue: wanted.end for wanted in ranges}
    return found


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


# --- downloads ------------------------------------------------------------------------------


def test_a_range_arrives_whole_and_in_order(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 5_000)
    messages = read(cluster, [OffsetRange(queue, 123, 4_567)])[queue]
    assert [m.queue_offset for m in messages] == list(range(123, 4_567))
    assert [m.body for m in messages] == [str(n).encode() for n in range(123, 4_567)]


def test_many_ranges_arrive_in_the_order_given(cluster, topic):
    for index in range(4):
        fill(cluster, queue_of(topic, index), 1_000)
    ranges = [OffsetRange(queue_of(topic, index), 10 * index, 1_000) for index in (2, 0, 3, 1)]
    found = read(cluster, ranges)
    assert list(found) == [wanted.queue for wanted in ranges]
    assert [len(messages) for messages in found.values()] == [980, 1_000, 970, 990]


def test_two_ranges_of_one_queue_are_two_ranges(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    ranges = [OffsetRange(queue, 10, 20), OffsetRange(queue, 50, 60)]
    offsets = [
        message.queue_offset
        for chunk in cluster.read_ranges(ranges, SPEC)
        for message in messages_in(chunk)
    ]
    assert offsets == [*range(10, 20), *range(50, 60)]


def test_small_limits_change_nothing_about_what_arrives(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 1_000, size=2_000)
    limits = ReadLimits(
        messages_max=50, bytes_max=64 * 1024, span_max=40, count_per_pull=16, pulls_in_flight=3
    )
    messages = read(cluster, [OffsetRange(queue, 0, 1_000)], ReadSpec("r", limits=limits))[queue]
    assert [m.queue_offset for m in messages] == list(range(1_000))


def test_a_tag_filter_selects_at_the_broker(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 3_000, tags=lambda n: "rare" if n % 500 == 0 else "common")
    spec = ReadSpec("readers", Subscription("rare || absent"))
    messages = read(cluster, [OffsetRange(queue, 0, 3_000)], spec)[queue]
    assert [m.queue_offset for m in messages] == [0, 500, 1_000, 1_500, 2_000, 2_500]


def test_a_filter_that_matches_nothing_still_covers_the_range(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 2_500)
    spec = ReadSpec("readers", Subscription("absent"))
    assert read(cluster, [OffsetRange(queue, 0, 2_500)], spec)[queue] == []


def test_an_end_that_does_not_exist_is_truncated_after_the_outage_limit(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    spec = ReadSpec("readers", limits=ReadLimits(outage_ms=300))
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 50, 150)], spec)
    error = caught.value
    assert (error.start, error.end, error.reason) == (100, 150, LossReason.TRUNCATED)
    assert error.bounds == Bounds(0, 100)


def test_a_start_behind_the_end_is_truncated_at_once(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 500, 600)])
    error = caught.value
    assert (error.start, error.end, error.reason) == (500, 600, LossReason.TRUNCATED)


def test_what_is_truncated_can_be_skipped(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    spec = ReadSpec("r", limits=ReadLimits(outage_ms=300), loss_policy=LossPolicy.SKIP)
    chunks = list(cluster.read_ranges([OffsetRange(queue, 50, 150)], spec))
    assert sum(len(messages_in(chunk)) for chunk in chunks) == 50
    losses = [chunk.loss for chunk in chunks if chunk.loss is not None]
    assert [(loss.start, loss.end) for loss in losses] == [(100, 150)]


def test_a_deleted_topic_is_told_apart(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 100)
    cluster.delete_topic(topic)
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 0, 100)])
    assert caught.value.reason is LossReason.DELETED


def test_a_removed_queue_is_told_apart(cluster, topic):
    queue = queue_of(topic, 3)
    fill(cluster, queue, 100)
    cluster.create_topic(TopicConfig(topic, 2, 2))
    with pytest.raises(RangeLostError) as caught:
        read(cluster, [OffsetRange(queue, 0, 100)])
    assert caught.value.reason is LossReason.SHRUNK


def test_an_abandoned_download_leaves_the_cluster_usable(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 5_000, size=500)
    generator = cluster.read_ranges([OffsetRange(queue, 0, 5_000)], SPEC)
    next(generator)
    generator.close()
    assert cluster.bounds([queue]) == {queue: Bounds(0, 5_000)}
    assert len(read(cluster, [OffsetRange(queue, 0, 5_000)])[queue]) == 5_000


def test_calls_work_while_a_download_is_held(cluster, topic):
    queue = queue_of(topic)
    fill(cluster, queue, 2_000, size=1_000)
    limits = ReadLimits(messages_max=200, count_per_pull=100)
    count = 0
    spec = ReadSpec("r", limits=limits)
    for chunk in cluster.read_ranges([OffsetRange(queue, 0, 2_000)], spec):
        count += len(messages_in(chunk))
        assert cluster.bounds([queue]) == {queue: Bounds(0, 2_000)}
    assert count == 2_000


# --- groups ---------------------------------------------------------------------------------


def test_progress_is_none_until_it_is_committed_and_may_go_back(cluster, topic):
    queue = queue_of(topic, 1)
    group = f"group-{topic}"
    fill(cluster, queue, 9)
    cluster.pull(queue, 0, 1, group=group)
    # Some brokers answer a young topic's first offset here, and the client sees through it.
    assert cluster.progress(group, [queue]) == {queue: None}
    for offset in (0, 7, 3):
        assert cluster.commit(group, {queue: offset}) == {queue: None}
        assert cluster.progress(group, [queue]) == {queue: offset}
    stats = cluster.group_stats(group, topic)[queue]
    assert (stats.broker_offset, stats.consumer_offset) == (9, 3)
    assert group in cluster.groups()


def test_a_commit_by_a_group_that_the_broker_never_saw_makes_the_group(cluster, topic):
    queue, group = queue_of(topic), f"fresh-{topic}"
    fill(cluster, queue, 9)
    assert cluster.commit(group, {queue: 4}) == {queue: None}
    assert cluster.progress(group, [queue]) == {queue: 4}


def test_a_group_with_nobody_online_has_no_members(cluster, topic):
    assert cluster.members("nobody-here", topic) == ()


# --- arrivals -------------------------------------------------------------------------------


def test_the_watch_knows_ends_and_notices_arrivals(cluster, settings, topic):
    queues = [queue_of(topic, index) for index in range(4)]
    fill(cluster, queues[0], 5)
    watch = ArrivalWatch(settings, queues)
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
    topic = next(_names)
    cluster.create_topic(TopicConfig(topic, 70, 70))
    queues = cluster.queues(topic)
    watch = ArrivalWatch(settings, queues)
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
    watch = ArrivalWatch(settings, [queue_of(topic, 0)])
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
        replies = [sent.result for sent in producer.send_many(requests)]
    assert [reply.start for reply in replies] == [0, count]
    messages = read(cluster, [OffsetRange(queue, 0, 2 * count)])[queue]
    assert [m.body for m in messages] == [b"%d" % n for n in range(count)] * 2
    properties = messages[7].properties
    assert {"KEYS": "key-7", "n": "7"}.items() <= properties.items()
    assert "TAGS" not in properties
    assert messages[8].properties["TAGS"] == "even"
    assert len({m.properties["UNIQ_KEY"] for m in messages}) == 2 * count


def test_queues_take_turns(cluster, topic):
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
    assert reply.status is PullStatus.FOUND


def test_questions_asked_together_are_answered_each_for_itself(cluster, topic):
    queues = [queue_of(topic, index) for index in range(4)]
    fill(cluster, queues[2], 3)
    questions = [(queue.broker, GetMaxOffset(queue)) for queue in queues]
    tickets = cluster.transport.submit_many(
        [*questions, (None, GetRoute("nowhere-to-be-found"))], timeout_ms=5_000
    )
    answers = {}
    while len(answers) < len(tickets):
        done = dict(cluster.transport.completed(timeout_ms=5_000))
        assert done, "nothing more is answered"
        answers |= done
    assert [answers[ticket].value for ticket in tickets[:4]] == [0, 0, 3, 0]
    assert isinstance(answers[tickets[4]], TopicNotFoundError)
