"""The TCP transport against a scripted broker on real sockets."""

from __future__ import annotations

import os
import select
import socket
import threading
import time

import pytest

from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.buffers import BufferPool
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.tcp.connection import Call, Connection
from rocketmq_client.transport.tcp.exchange import Exchange
from rocketmq_client.transport.tcp.transport import TcpTransport
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RocketMQError,
    TopicNotFoundError,
    broker_error,
    raise_first,
)
from rocketmq_wire.model import (
    Bounds,
    BrokerAddresses,
    OffsetRange,
    QueueId,
    QueueSet,
    Route,
)
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.groups import ListGroupClients
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from rocketmq_wire.requests.topics import GetRoute, RouteReply
from support.simulated_queue import SimulatedQueue
from support.tcp_downloads import (
    QUEUES,
    read,
    scripted_broker,
    settings_for,
    unused_port,
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
    refused = rf"^\[ROCKETMQ_CONNECTION\.REFUSED\] cannot connect to 127\.0\.0\.1:{port}: "
    with pytest.raises(ConnectError, match=refused):
        transport.call(GetRoute("orders"), timeout_ms=5_000)
    transport.close()


def test_the_next_name_server_is_asked_when_one_is_down(broker):
    settings = ConnectionSettings((f"127.0.0.1:{unused_port()}", broker.address))
    transport = TcpTransport(settings)
    assert transport.call(GetRoute("orders"), timeout_ms=5_000)
    transport.close()


def test_every_target_of_a_host_name_is_tried(broker):
    transport = TcpTransport(ConnectionSettings((f"localhost:{broker.port}",)))
    assert transport.call(GetRoute("orders"), timeout_ms=5_000)
    transport.close()


def test_a_request_without_an_answer_ends_at_its_deadline(broker, transport):
    broker.script = lambda r: broker.SILENCE if isinstance(r, GetMaxOffset) else None
    started = time.monotonic()
    text = (
        r"^\[ROCKETMQ_CONNECTION\.TIMEOUT\] .* Raise requestTimeoutMs \(pullTimeoutMs for reads\)"
    )
    with pytest.raises(DeadlineExceededError, match=text):
        transport.call(GetMaxOffset(QUEUES[0]), broker="broker-a", timeout_ms=200)
    assert time.monotonic() - started < 2


@pytest.fixture
def deaf_address():
    """An address where connection attempts are neither accepted nor refused."""
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


@pytest.mark.parametrize(("silent_ms", "is_dead"), [(1_000, False), (30_000, True)])
def test_an_answer_that_stops_in_its_middle_ends_its_connection(silent_ms, is_dead):
    done: list[Call] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        address = f"{host}:{port}"
        settings = ConnectionSettings((address,), connect_timeout_ms=10_000)
        connection = Connection(address, BufferPool(), done, settings=settings, now_ms=0)
        peer, _ = listener.accept()
        with peer:
            select.select([], [connection.fileno()], [], 10)
            connection.on_ready(0, readable=False, writable=True)
            for timeout_ms in (40_000, 90_000):
                call = Call("broker-a", GetMaxOffset(QUEUES[0]), [], timeout_ms, timeout_ms)
                connection.submit(call, now_ms=0, timeout_ms=timeout_ms)
            peer.sendall(b"\x00\x00\x01\x00\x00\x00\x00\x64{")
            select.select([connection.fileno()], [], [], 10)
            connection.on_ready(40_000 - silent_ms, readable=True, writable=False)
            connection.expire(40_000)
            assert connection.is_dead is is_dead
            kinds = [type(call.result) for call in done]
            assert kinds == [DeadlineExceededError, ConnectionLostError][: 1 + is_dead]
            connection.close()


def test_a_connection_attempt_without_an_answer_ends_at_its_own_time_out(deaf_address):
    transport = TcpTransport(ConnectionSettings((deaf_address,), connect_timeout_ms=200))
    started = time.monotonic()
    with pytest.raises(ConnectError, match="timed out"):
        transport.call(GetRoute("orders"), timeout_ms=10_000)
    assert time.monotonic() - started < 3
    transport.close()


def test_a_request_that_never_left_differs_from_one_without_an_answer(deaf_address):
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


def test_a_connection_that_broke_before_a_wait_does_not_hinder_it(broker):
    """The socket to wake by gets the number of the broken connection's descriptor."""
    exchange = Exchange(ConnectionSettings((broker.address,)), ActiveClock())
    call = Call(None, GetRoute("orders"), [], 5_000, 5_000)
    with exchange.clock.inside():
        exchange.submit(broker.address, call, timeout_ms=5_000)
        exchange.step(0)
        exchange.cut([call])
        exchange.listen_for_wakes()
    exchange.close()
    assert exchange.take_done() == []


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
    done: dict[int, Reply | RocketMQError] = {}
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


def test_bounds_name_the_error_of_an_unreachable_broker(broker):
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
        assert cluster.committed_offsets("readers", QUEUES[:2]) == {QUEUES[0]: 42, QUEUES[1]: None}


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
        assert not raise_first(cluster.bounds(QUEUES[:1]))[QUEUES[0]].is_current
        del routes[0]
        cluster.queues("orders")
        assert raise_first(cluster.bounds(QUEUES[:1]))[QUEUES[0]].is_current


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
