"""Downloads over the TCP transport: restarts, outages, losses, and consumers that take time."""

from __future__ import annotations

import random
import time

import pytest

from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason
from rocketmq_client.transport.tcp.transport import TcpTransport
from rocketmq_wire.errors import (
    BrokerBusyError,
    ConnectError,
    ConnectionLostError,
    FilterWordsError,
    broker_error,
)
from rocketmq_wire.model import (
    Bounds,
    OffsetRange,
    QueueId,
    Subscription,
)
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import GetMaxOffset, GetMinOffset, OffsetReply
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue, offsets_in
from support.tcp_downloads import (
    QUEUES,
    SPEC,
    ranges_of,
    read,
    scripted_broker,
    settings_for,
)


@pytest.fixture
def broker():
    with scripted_broker() as broker:
        yield broker


@pytest.fixture
def transport(broker):
    transport = TcpTransport(settings_for(broker))
    yield transport
    transport.close()


# --- downloads ------------------------------------------------------------------------------


def test_ranges_arrive_in_the_order_given_and_whole(transport):
    found, chunks = read(transport, ranges_of(10, 4_990))
    assert found == {queue: list(range(10, 4_990)) for queue in QUEUES}
    assert list(dict.fromkeys(chunk.queue for chunk in chunks)) == QUEUES


def test_the_first_pulls_of_all_ranges_are_sent_at_once(broker, transport):
    generator = transport.read_ranges(ranges_of(0, 5_000), SPEC)
    next(generator)
    assert {pull.queue for pull in broker.pulls()} == set(QUEUES)
    generator.close()


def test_bodies_are_handed_on_as_they_were_received(broker, transport):
    broker.queues[QUEUES[0]] = SimulatedQueue(
        0, 4_000, count_cap=2_000, bytes_cap=1 << 24, size_of=lambda _: 1_000
    )
    chunks = list(transport.read_ranges([OffsetRange(QUEUES[0], 0, 4_000)], SPEC))
    assert [len(chunk.body) for chunk in chunks] == [2_000_000, 2_000_000]
    assert all(isinstance(chunk.body, memoryview) for chunk in chunks)


def test_an_empty_list_of_ranges_yields_nothing(transport):
    assert list(transport.read_ranges([], SPEC)) == []


def test_pulls_name_the_group_and_the_filter(broker, transport):
    queue = broker.queues[QUEUES[0]]
    queue.is_filtered, queue.matches = True, lambda offset: offset % 10 == 0
    spec = ReadSpec("analysts", Subscription("TagA || TagB"))
    found, chunks = read(transport, [OffsetRange(QUEUES[0], 0, 100)], spec)
    assert found[QUEUES[0]] == list(range(0, 100, 10))
    assert chunks[0].expected_count is None
    pull = broker.pulls()[0]
    assert (pull.group, pull.subscription.expression) == ("analysts", "TagA || TagB")
    assert (pull.commit, pull.suspend_ms) == (None, None)


def test_words_that_a_broker_is_too_old_for_are_refused_before_any_row(broker, transport):
    sql = Subscription("region CONTAINS 'north' AND n > 1", "SQL92")
    ranges = [OffsetRange(QUEUES[0], 0, 100)]
    broker.version = 407
    text = (
        r"^\[ROCKETMQ_UNSUPPORTED\.SQL92_WORDS\] broker=broker-a: CONTAINS .*5\.1\.3 or later"
        r".* RocketMQ 4\.9\.7"
    )
    with pytest.raises(FilterWordsError, match=text):
        next(transport.read_ranges(ranges, ReadSpec("readers", sql)))
    known = Subscription("region = 'CONTAINS' AND n > 1", "SQL92")
    assert read(transport, ranges, ReadSpec("readers", known))
    transport.close()
    broker.version = 479
    assert read(transport, ranges, ReadSpec("readers", sql))


def test_a_download_survives_a_broker_that_restarts(broker, transport):
    limits = ReadLimits(messages_max=400, count_per_pull=50)
    generator = transport.read_ranges(ranges_of(0, 5_000), ReadSpec("readers", limits=limits))
    offsets: dict[QueueId, list[int]] = {queue: [] for queue in QUEUES}
    for number, chunk in enumerate(generator):
        offsets[chunk.queue] += offsets_in(chunk.body)
        if number in (3, 20):
            broker.stop()
            broker.start()
    assert offsets == {queue: list(range(5_000)) for queue in QUEUES}


def test_a_download_follows_a_broker_that_moves(broker):
    with ScriptedBroker(broker.queues) as second:
        limits = ReadLimits(messages_max=400, count_per_pull=50)
        spec = ReadSpec("readers", limits=limits)
        name_server = ScriptedBroker(broker.queues)
        name_server.published = broker.address
        with name_server:
            moving = TcpTransport(settings_for(name_server))
            generator = moving.read_ranges([OffsetRange(QUEUES[0], 0, 5_000)], spec)
            offsets = []
            for number, chunk in enumerate(generator):
                offsets += offsets_in(chunk.body)
                if number == 3:
                    name_server.published = second.address
                    broker.stop()
            moving.close()
    assert offsets == list(range(5_000))


def test_a_broker_that_stays_down_is_given_up_after_the_outage_limit(broker, transport):
    limits = ReadLimits(messages_max=400, count_per_pull=50, outage_ms=400)
    generator = transport.read_ranges(ranges_of(0, 5_000), ReadSpec("readers", limits=limits))
    next(generator)
    broker.stop()
    started = time.monotonic()
    with pytest.raises((ConnectError, ConnectionLostError)):
        list(generator)
    assert time.monotonic() - started < 5


def test_time_in_which_the_consumer_holds_the_generator_is_no_outage(broker, transport):
    limits = ReadLimits(messages_max=400, count_per_pull=50, outage_ms=150, pull_timeout_ms=100)
    generator = transport.read_ranges(
        [OffsetRange(QUEUES[0], 0, 2_000)], ReadSpec("readers", limits=limits)
    )
    offsets = []
    for number, chunk in enumerate(generator):
        offsets += offsets_in(chunk.body)
        if number == 1:
            broker.stop()
            time.sleep(0.5)  # The one thing that this test is about: real time passes here.
            broker.start()
    assert offsets == list(range(2_000))


def test_a_busy_broker_is_asked_again(broker, transport):
    dice = random.Random(7)

    def script(request):
        if isinstance(request, PullMessages) and dice.random() < 0.3:
            return broker_error(dice.choice([2, 215]), "slow down")
        return None

    broker.script = script
    found, _ = read(transport, ranges_of(0, 2_000))
    assert found == {queue: list(range(2_000)) for queue in QUEUES}


def test_a_busy_broker_that_stays_so_is_given_up(broker, transport):
    broker.script = lambda r: broker_error(2, "busy") if isinstance(r, PullMessages) else None
    spec = ReadSpec("readers", limits=ReadLimits(outage_ms=300))
    with pytest.raises(BrokerBusyError):
        read(transport, ranges_of(0, 10), spec)


def test_pulls_without_an_answer_are_repeated(broker, transport):
    dice = random.Random(3)

    def script(request):
        lost = isinstance(request, PullMessages) and dice.random() < 0.1
        return broker.SILENCE if lost else None

    broker.script = script
    limits = ReadLimits(count_per_pull=100, pull_timeout_ms=150)
    found, _ = read(transport, ranges_of(0, 1_000), ReadSpec("readers", limits=limits))
    assert found == {queue: list(range(1_000)) for queue in QUEUES}


def test_expired_offsets_are_reported_with_fresh_bounds(broker, transport):
    broker.queues[QUEUES[0]] = SimulatedQueue(3_000, 5_000)
    with pytest.raises(RangeLostError) as caught:
        read(transport, [OffsetRange(QUEUES[0], 1_000, 5_000)])
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (1_000, 3_000, LossReason.EXPIRED)
    assert loss.bounds == Bounds(3_000, 5_000)


def test_expired_offsets_can_be_skipped(broker, transport):
    broker.queues[QUEUES[0]] = SimulatedQueue(3_000, 5_000)
    spec = ReadSpec("readers", loss_policy=LossPolicy.SKIP)
    found, chunks = read(transport, [OffsetRange(QUEUES[0], 1_000, 5_000)], spec)
    assert found[QUEUES[0]] == list(range(3_000, 5_000))
    assert [len(range(c.loss.start, c.loss.end)) for c in chunks if c.loss] == [2_000]


def test_a_deleted_topic_is_reported_as_deleted(broker, transport):
    generator = transport.read_ranges(
        [OffsetRange(QUEUES[0], 0, 5_000)],
        ReadSpec("readers", limits=ReadLimits(messages_max=100, count_per_pull=10)),
    )
    next(generator)
    broker.queues.clear()
    with pytest.raises(RangeLostError) as caught:
        list(generator)
    assert caught.value.loss.reason is LossReason.TOPIC_DELETED


def test_a_queue_that_is_gone_from_the_topic_is_reported_as_shrunk(broker, transport):
    del broker.queues[QUEUES[3]]
    with pytest.raises(RangeLostError) as caught:
        read(transport, [OffsetRange(QUEUES[3], 0, 5_000)])
    assert caught.value.loss.reason is LossReason.QUEUE_REMOVED


def test_an_abandoned_download_leaves_the_transport_usable(transport):
    generator = transport.read_ranges(ranges_of(0, 5_000), SPEC)
    next(generator)
    generator.close()
    assert transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=5_000)
    found, _ = read(transport, ranges_of(0, 100))
    assert found == {queue: list(range(100)) for queue in QUEUES}


def test_a_download_that_ends_during_a_doubt_keeps_its_connections(broker, transport):
    broker.queues[QUEUES[1]] = SimulatedQueue(3_000, 5_000)
    broker.script = lambda request: (
        broker.SILENCE if isinstance(request, GetMinOffset) else None  # The doubt stays open.
    )
    wanted = [OffsetRange(QUEUES[0], 0, 5_000), OffsetRange(QUEUES[1], 1_000, 2_000)]
    generator = transport.read_ranges(wanted, SPEC)
    for chunk in generator:
        transport.call(GetMaxOffset(QUEUES[2]), broker="broker-a", timeout_ms=5_000)
        if chunk.end == 5_000:
            break
    assert any(isinstance(request, GetMinOffset) for request in broker.requests)
    connection_count = broker.connection_count
    generator.close()
    transport.call(GetMaxOffset(QUEUES[2]), broker="broker-a", timeout_ms=5_000)
    assert broker.connection_count == connection_count


def test_a_download_resumes_after_its_transport_was_closed(transport):
    limits = ReadLimits(messages_max=100, count_per_pull=10)
    generator = transport.read_ranges(ranges_of(0, 300), ReadSpec("readers", limits=limits))
    offsets: dict[QueueId, list[int]] = {queue: [] for queue in QUEUES}
    for number, chunk in enumerate(generator):
        offsets[chunk.queue] += offsets_in(chunk.body)
        if number % 5 == 0:
            transport.close()
    assert offsets == {queue: list(range(300)) for queue in QUEUES}


def test_waiting_for_a_broker_that_is_down_costs_next_to_nothing(broker, transport):
    limits = ReadLimits(messages_max=100, count_per_pull=10, outage_ms=1_000)
    generator = transport.read_ranges(ranges_of(0, 300), ReadSpec("readers", limits=limits))
    next(generator)
    broker.stop()
    started_s = time.thread_time()
    with pytest.raises((ConnectError, ConnectionLostError)):
        list(generator)
    assert time.thread_time() - started_s < 0.2


def test_calls_work_while_a_download_is_held(transport):
    limits = ReadLimits(messages_max=100, count_per_pull=10)
    generator = transport.read_ranges(ranges_of(0, 300), ReadSpec("readers", limits=limits))
    offsets: dict[QueueId, list[int]] = {queue: [] for queue in QUEUES}
    for chunk in generator:
        offsets[chunk.queue] += offsets_in(chunk.body)
        reply = transport.call(GetMaxOffset(chunk.queue), broker="broker-a", timeout_ms=5_000)
        assert reply == OffsetReply(5_000)
    assert offsets == {queue: list(range(300)) for queue in QUEUES}
