"""The TCP transport against a scripted broker on real sockets."""

from __future__ import annotations

import os
import random
import socket
import threading
import time

import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.loss import LossPolicy, LossReason, RangeLostError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport import ReadLimits, ReadSpec
from rocketmq_client.transport.tcp_socket import TcpTransport
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RocketMQError,
    TopicNotFoundError,
    broker_error,
)
from rocketmq_wire.model import (
    Bounds,
    BrokerAddresses,
    OffsetRange,
    QueueId,
    QueueSet,
    Route,
    Subscription,
)
from rocketmq_wire.requests import (
    GetMaxOffset,
    GetRoute,
    ListGroupClients,
    OffsetReply,
    PullMessages,
    RouteReply,
)
from support.scripted_broker import ScriptedBroker
from support.simulated_broker import SimulatedQueue, offsets_in

QUEUES = [QueueId("orders", "broker-a", index) for index in range(4)]
SPEC = ReadSpec("readers")


@pytest.fixture
def broker():
    queues = {queue: SimulatedQueue(0, 5_000, count_cap=1_000) for queue in QUEUES}
    with ScriptedBroker(queues) as broker:
        yield broker


def settings_for(*brokers, **options):
    return ConnectionSettings(tuple(broker.address for broker in brokers), **options)


@pytest.fixture
def transport(broker):
    transport = TcpTransport(settings_for(broker))
    yield transport
    transport.close()


def read(transport, ranges, spec=SPEC):
    """Offsets by queue, and the chunks."""
    chunks = list(transport.read_ranges(ranges, spec))
    found = {wanted.queue: [] for wanted in ranges}
    for chunk in chunks:
        found[chunk.queue] += [o for o in offsets_in(chunk.body) if chunk.start <= o < chunk.end]
    return found, chunks


def ranges_of(start, end):
    return [OffsetRange(queue, start, end) for queue in QUEUES]


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- calls ----------------------------------------------------------------------------------


def test_a_call_finds_its_broker_by_the_route_of_its_topic(broker, transport):
    reply = transport.call(GetMaxOffset(QUEUES[1]), broker="broker-a", timeout_ms=5_000)
    assert reply == OffsetReply(5_000)
    assert isinstance(broker.requests[0], GetRoute)


def test_many_calls_share_one_lookup_and_one_connection(broker, transport):
    requests = [("broker-a", GetMaxOffset(queue)) for queue in QUEUES * 20]
    replies = transport.call_many(requests, timeout_ms=5_000)
    assert replies == [OffsetReply(5_000)] * 80
    assert sum(isinstance(request, GetRoute) for request in broker.requests) == 1


def test_a_refusal_is_raised_as_the_error_of_its_code(transport):
    with pytest.raises(TopicNotFoundError):
        transport.call(GetRoute("nothing"), timeout_ms=5_000)


def test_an_unknown_broker_is_an_error_that_names_it(transport):
    queue = QueueId("orders", "broker-x", 0)
    with pytest.raises(ConnectError, match="broker-x"):
        transport.call(GetMaxOffset(queue), broker="broker-x", timeout_ms=5_000)


def test_an_unreachable_name_server_says_where_it_was_looked_for():
    port = unused_port()
    transport = TcpTransport(ConnectionSettings((f"127.0.0.1:{port}",)))
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}"):
        transport.call(GetRoute("orders"), timeout_ms=5_000)
    transport.close()


def test_the_next_name_server_is_asked_when_one_is_down(broker):
    settings = ConnectionSettings((f"127.0.0.1:{unused_port()}", broker.address))
    transport = TcpTransport(settings)
    assert transport.call(GetRoute("orders"), timeout_ms=5_000)
    transport.close()


def test_a_name_that_leads_to_several_places_is_tried_at_each(broker):
    transport = TcpTransport(ConnectionSettings((f"localhost:{broker.port}",)))
    assert transport.call(GetRoute("orders"), timeout_ms=5_000)
    transport.close()


def test_a_request_without_an_answer_ends_at_its_deadline(broker, transport):
    broker.script = lambda r: broker.SILENCE if isinstance(r, GetMaxOffset) else None
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError):
        transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=200)
    assert time.monotonic() - started < 2


@pytest.fixture
def deaf_address():
    """A place where connection attempts are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):  # With its queue of connections full, Linux ignores new ones.
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for filler in fillers:
            filler.close()


def test_a_connection_attempt_that_nobody_answers_ends_at_its_own_time_out(deaf_address):
    transport = TcpTransport(ConnectionSettings((deaf_address,), connect_timeout_ms=200))
    started = time.monotonic()
    with pytest.raises(ConnectError, match="timed out"):
        transport.call(GetRoute("orders"), timeout_ms=10_000)
    assert time.monotonic() - started < 3
    transport.close()


def test_a_request_that_never_left_is_told_apart_from_one_without_an_answer(deaf_address):
    transport = TcpTransport(ConnectionSettings((deaf_address,), connect_timeout_ms=10_000))
    with pytest.raises(ConnectError, match="no connection after"):
        transport.call(GetRoute("orders"), timeout_ms=200)
    transport.close()


def test_the_next_name_server_is_asked_when_one_does_not_answer(broker, deaf_address):
    settings = ConnectionSettings((deaf_address, broker.address), connect_timeout_ms=1_500)
    transport = TcpTransport(settings)
    assert transport.call(GetRoute("orders"), timeout_ms=5_000)
    started = time.monotonic()
    assert transport.call(GetRoute("orders"), timeout_ms=5_000)
    assert time.monotonic() - started < 1.4, "the one that answered is asked first from then on"
    transport.close()


def test_one_unreachable_broker_does_not_stop_the_calls_to_others(broker, transport):
    far = QueueId("orders", "broker-b", 0)
    address = f"127.0.0.1:{unused_port()}"
    broker.queues[far] = SimulatedQueue(0, 9)
    broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: address}),)
    replies = transport.call_many(
        [("broker-a", GetMaxOffset(QUEUES[0])), ("broker-b", GetMaxOffset(far))], timeout_ms=5_000
    )
    assert replies[0] == OffsetReply(5_000)
    assert isinstance(replies[1], ConnectError)


def test_a_connection_that_was_closed_while_idle_is_replaced_before_it_is_used(broker, transport):
    transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=5_000)
    broker.stop()
    broker.start()
    assert transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=5_000)


def test_published_addresses_are_mapped(broker):
    broker.published = "10.1.2.3:10911"
    settings = settings_for(broker, address_map={"10.1.2.3:10911": broker.address})
    transport = TcpTransport(settings)
    assert transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=5_000)
    transport.close()


def test_the_port_of_another_protocol_is_named_as_such():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        transport = TcpTransport(ConnectionSettings((f"127.0.0.1:{listener.getsockname()[1]}",)))
        ticket = transport.submit(GetRoute("orders"), broker=None, timeout_ms=5_000)
        with listener.accept()[0] as peer:
            transport.completed(timeout_ms=50)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            ((done, error),) = transport.completed(timeout_ms=5_000)
        assert done == ticket
        assert isinstance(error, RocketMQError)
        assert "16777216" in str(error) or "protocol" in str(error)
        transport.close()


def test_submitted_requests_complete_in_any_order_by_their_tickets(transport):
    tickets = {
        transport.submit(GetMaxOffset(queue), broker="broker-a", timeout_ms=5_000): queue
        for queue in QUEUES
    }
    done = {}
    while len(done) < len(tickets):
        done.update(transport.completed(timeout_ms=5_000))
    assert done == dict.fromkeys(tickets, OffsetReply(5_000))
    assert transport.completed(timeout_ms=0) == []


def test_another_thread_can_end_the_wait_for_answers(transport):
    transport.completed(timeout_ms=0)
    waker = threading.Timer(0.05, transport.wake)
    waker.start()
    assert transport.completed(timeout_ms=60_000) == []
    waker.join()
    transport.wake()
    assert transport.completed(timeout_ms=60_000) == []


def test_a_forked_process_connects_afresh_and_leaves_its_parents_connection_alone(
    broker, transport
):
    transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=5_000)
    before = len(broker._connections)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reply = transport.call(GetMaxOffset(QUEUES[1]), broker="broker-a", timeout_ms=5_000)
            status = 0 if reply == OffsetReply(5_000) else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert transport.call(GetMaxOffset(QUEUES[2]), broker="broker-a", timeout_ms=5_000)
    assert before == 1


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


def test_a_download_survives_a_broker_that_restarts(broker, transport):
    limits = ReadLimits(messages_max=400, count_per_pull=50)
    generator = transport.read_ranges(ranges_of(0, 5_000), ReadSpec("readers", limits=limits))
    offsets = {queue: [] for queue in QUEUES}
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


def test_a_broker_that_stays_away_is_given_up_after_the_outage_limit(broker, transport):
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
    error = caught.value
    assert (error.start, error.end, error.reason) == (1_000, 3_000, LossReason.EXPIRED)
    assert error.bounds == Bounds(3_000, 5_000)


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
    assert caught.value.reason is LossReason.DELETED


def test_a_queue_that_is_gone_from_the_topic_is_reported_as_shrunk(broker, transport):
    del broker.queues[QUEUES[3]]
    with pytest.raises(RangeLostError) as caught:
        read(transport, [OffsetRange(QUEUES[3], 0, 5_000)])
    assert caught.value.reason is LossReason.SHRUNK


def test_an_abandoned_download_leaves_the_transport_usable(transport):
    generator = transport.read_ranges(ranges_of(0, 5_000), SPEC)
    next(generator)
    generator.close()
    assert transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=5_000)
    found, _ = read(transport, ranges_of(0, 100))
    assert found == {queue: list(range(100)) for queue in QUEUES}


def test_a_download_goes_on_after_its_transport_was_closed(transport):
    limits = ReadLimits(messages_max=100, count_per_pull=10)
    generator = transport.read_ranges(ranges_of(0, 300), ReadSpec("readers", limits=limits))
    offsets = {queue: [] for queue in QUEUES}
    for number, chunk in enumerate(generator):
        offsets[chunk.queue] += offsets_in(chunk.body)
        if number % 5 == 0:
            transport.close()
    assert offsets == {queue: list(range(300)) for queue in QUEUES}


def test_waiting_for_a_broker_that_is_away_costs_next_to_nothing(broker, transport):
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
    offsets = {queue: [] for queue in QUEUES}
    for chunk in generator:
        offsets[chunk.queue] += offsets_in(chunk.body)
        reply = transport.call(GetMaxOffset(chunk.queue), broker="broker-a", timeout_ms=5_000)
        assert reply == OffsetReply(5_000)
    assert offsets == {queue: list(range(300)) for queue in QUEUES}


# --- the cluster ----------------------------------------------------------------------------


def test_a_cluster_retries_what_may_be_repeated(broker):
    failures = [0]

    def script(request):
        if isinstance(request, GetMaxOffset) and failures[0] < 2:
            failures[0] += 1
            return broker_error(2, "busy")
        return None

    broker.script = script
    with open_cluster(settings_for(broker, retry_delay_ms=1)) as cluster:
        assert cluster.bounds(QUEUES[:1]) == {QUEUES[0]: Bounds(0, 5_000)}


def test_bounds_report_an_unreachable_broker_in_its_place(broker):
    far = QueueId("orders", "broker-b", 0)
    address = f"127.0.0.1:{unused_port()}"
    broker.queues[far] = SimulatedQueue(0, 9)
    broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: address}),)
    with open_cluster(settings_for(broker, retry_delay_ms=1)) as cluster:
        bounds = cluster.bounds([QUEUES[0], far])
    assert bounds[QUEUES[0]] == Bounds(0, 5_000)
    assert isinstance(bounds[far], ConnectError)


def test_progress_that_was_never_committed_is_none(broker):
    with open_cluster(settings_for(broker)) as cluster:
        assert cluster.commit("readers", {QUEUES[0]: 42}) == {QUEUES[0]: None}
        assert cluster.progress("readers", QUEUES[:2]) == {QUEUES[0]: 42, QUEUES[1]: None}


def test_a_proxys_failure_over_an_empty_group_means_no_members(broker):
    remark = 'Cannot invoke "x.ConsumerGroupInfo.get()" because "consumerGroupInfo" is null'
    refusals = [broker_error(1, remark), broker_error(1, "something else")]
    broker.script = lambda r: refusals[0] if isinstance(r, ListGroupClients) else None
    with open_cluster(settings_for(broker)) as cluster:
        assert cluster.members("readers", "orders") == ()
        del refusals[0]
        with pytest.raises(BrokerError, match="something else"):
            cluster.members("readers", "orders")


# --- replicas -------------------------------------------------------------------------------


def test_bounds_say_when_a_replica_gave_them(broker):
    def route(**addresses):
        brokers = BrokerAddresses("broker-a", "c", {int(n[1:]): a for n, a in addresses.items()})
        return RouteReply(Route((QueueSet("broker-a", 4, 4, 6),), (brokers,)))

    routes = [route(b1=broker.address), route(b0=broker.address)]
    broker.script = lambda r: routes[0] if isinstance(r, GetRoute) else None
    with open_cluster(settings_for(broker)) as cluster:
        assert not cluster.bounds(QUEUES[:1])[QUEUES[0]].is_current
        del routes[0]
        cluster.queues("orders")
        assert cluster.bounds(QUEUES[:1])[QUEUES[0]].is_current


def test_a_lagging_replica_cuts_no_running_read_short(broker):
    replica = BrokerAddresses("broker-a", "c", {1: broker.address})
    away = RouteReply(Route((QueueSet("broker-a", 4, 4, 6),), (replica,)))
    broker.queues[QUEUES[0]].end = 1_000
    doubts = []

    def script(request):
        if isinstance(request, GetMaxOffset):
            doubts.append(request)
        if len(doubts) > 2:
            broker.queues[QUEUES[0]].end = 5_000
        return away if isinstance(request, GetRoute) else None

    broker.script = script
    transport = TcpTransport(settings_for(broker))
    found, chunks = read(transport, [OffsetRange(QUEUES[0], 2_000, 3_000)])
    transport.close()
    assert found[QUEUES[0]] == list(range(2_000, 3_000))
    assert len(doubts) > 2
    assert all(chunk.loss is None for chunk in chunks)
