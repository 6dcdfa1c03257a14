"""The gRPC transport against a real server over a fake shell, and against peers that are none."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from queue import SimpleQueue

import grpc
import pytest

from rocketmq_client.download.contract import RangeChunk, ReadLimits, ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.connection import GrpcConnection, Inbox, next_event
from rocketmq_client.transport.grpc.transport import GrpcTransport
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    LocalProtocolError,
    ProgressNotFoundError,
    RemoteProtocolError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from rocketmq_wire.grpc.bulk.mapping import method_of
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus, SendRecords
from rocketmq_wire.requests.offsets import (
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)
from rocketmq_wire.requests.topics import GetRoute, ListTopics
from support.fake_shell import FakeQueue, FakeShell, offsets_of, queue, record
from support.fault_proxy import FaultProxy, Link
from support.grpc_serving import Serving, serving
from support.odd_peers import serving_bytes

TIMEOUT_MS = 20_000
LIMITS = ReadLimits(outage_ms=20_000)
SPEC = ReadSpec("group", limits=LIMITS)
SETTINGS = bytes.fromhex("000000 04 00 00000000")
"""The first frame of every server of HTTP/2."""


@pytest.fixture
def server() -> Iterator[Serving]:
    shell = FakeShell({queue(0): FakeQueue(0, 100_000), queue(1): FakeQueue(50, 1_000)})
    with serving(shell) as server:
        yield server


@pytest.fixture
def shell(server: Serving) -> FakeShell:
    return server.shell


@pytest.fixture
def transport(server: Serving) -> Iterator[GrpcTransport]:
    opened = transport_to(server.endpoints)
    yield opened
    opened.close()


def transport_to(endpoints: str, connect_timeout_ms: int = 3_000) -> GrpcTransport:
    settings = ConnectionSettings(endpoints=endpoints, connect_timeout_ms=connect_timeout_ms)
    return GrpcTransport(settings)


def until(claim: Callable[[], bool]) -> None:
    """Wait for another thread."""
    deadline = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def offsets_in(chunks: list[RangeChunk]) -> list[int]:
    return [n for chunk in chunks for n in offsets_of(chunk.body)]


# --- calls ----------------------------------------------------------------------------------


def test_a_call_is_answered(transport: GrpcTransport) -> None:
    reply = transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)
    assert reply == OffsetReply(100_000)


def test_a_refusal_is_raised_as_its_own_class(transport: GrpcTransport) -> None:
    with pytest.raises(TopicNotFoundError, match="No topic route info for nöthing"):
        transport.call(GetRoute("nöthing"), timeout_ms=TIMEOUT_MS)
    with pytest.raises(ProgressNotFoundError):
        transport.call(GetCommittedOffset("g", queue(0)), timeout_ms=TIMEOUT_MS)


def test_many_calls_return_answers_and_failures_in_order(transport: GrpcTransport) -> None:
    wanted = [
        GetMinOffset(queue(1)),
        GetRoute("nothing"),
        GetCommittedOffset("g", queue(0)),
        GetMaxOffset(queue(1)),
        GetMaxOffset(queue(2**40)),
    ]
    answers = transport.call_many([("broker-a", one) for one in wanted], timeout_ms=TIMEOUT_MS)
    assert isinstance(answers[4], LocalProtocolError)
    # What cannot be said to the broker spoils the call that it would have shared.
    assert isinstance(answers[0], LocalProtocolError)
    assert isinstance(answers[1], TopicNotFoundError)
    assert isinstance(answers[2], ProgressNotFoundError)
    answers = transport.call_many([("broker-a", one) for one in wanted[:4]], timeout_ms=TIMEOUT_MS)
    assert (answers[0], answers[3]) == (OffsetReply(50), OffsetReply(1_000))


def test_a_call_that_takes_too_long_is_given_up_and_the_connection_lives(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    pull = PullMessages("g", queue(0), 100_000, 32, suspend_ms=20_000)
    # Client and server both keep the deadline: whichever notices first words the reason.
    with pytest.raises(DeadlineExceededError, match="did not answer in time"):
        transport.call(pull, timeout_ms=50)
    until(lambda: shell.held == 0)
    transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)


def test_a_large_answer_and_a_large_request_pass(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    pull = PullMessages("g", queue(0), 0, 30_000, bytes_max=4_000_000)
    reply = transport.call(pull, timeout_ms=TIMEOUT_MS)
    assert offsets_of(reply.records[0]) == list(range(30_000))
    records = b"".join(record(n) for n in range(40_000))
    sizes = (100).to_bytes(4, "little") * 40_000
    sent = transport.call(SendRecords("g", queue(0), records, sizes), timeout_ms=TIMEOUT_MS)
    assert (sent.start, sent.count) == (100_000, 40_000)
    assert shell.sent[0].records == records


def test_a_connection_closed_while_idle_does_not_cost_a_call(
    server: Serving, transport: GrpcTransport
) -> None:
    for _ in range(2):
        transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)
        server.stop()
        server.start()
    transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)


def test_a_call_cut_off_by_a_stop_is_a_lost_connection(
    server: Serving, transport: GrpcTransport
) -> None:
    pull = PullMessages("g", queue(0), 100_000, 32, suspend_ms=20_000)
    transport.submit(pull, broker=None, timeout_ms=TIMEOUT_MS)
    until(lambda: server.shell.held == 1)
    server.stop()
    ((_, error),) = transport.completed(timeout_ms=TIMEOUT_MS)
    assert isinstance(error, ConnectionLostError)
    server.start()


# --- tickets --------------------------------------------------------------------------------


def test_submitted_requests_are_answered_by_their_tickets(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    held = PullMessages("g", queue(0), 100_000, 32, suspend_ms=20_000)
    first = transport.submit(held, broker=None, timeout_ms=TIMEOUT_MS)
    second = transport.submit(GetMaxOffset(queue(0)), broker=None, timeout_ms=TIMEOUT_MS)
    third = transport.submit(GetRoute("nothing"), broker=None, timeout_ms=TIMEOUT_MS)
    answers: dict[int, object] = {}
    while len(answers) < 2:
        answers.update(transport.completed(timeout_ms=TIMEOUT_MS))
    assert answers[second] == OffsetReply(100_000)
    assert isinstance(answers[third], TopicNotFoundError)
    until(lambda: shell.held == 1)
    shell.arrive(queue(0))
    ((ticket, reply),) = transport.completed(timeout_ms=TIMEOUT_MS)
    assert ticket == first
    assert isinstance(reply, PullReply)
    assert reply.status is PullStatus.FOUND


def test_nothing_to_wait_for_takes_as_long_as_it_may(transport: GrpcTransport) -> None:
    began = time.monotonic()
    assert transport.completed(timeout_ms=30) == []
    assert time.monotonic() - began >= 0.029


def test_a_wake_from_another_thread_ends_the_waiting(transport: GrpcTransport) -> None:
    held = PullMessages("g", queue(0), 100_000, 32, suspend_ms=20_000)
    for is_busy in (False, True):
        if is_busy:
            transport.submit(held, broker=None, timeout_ms=TIMEOUT_MS)
        waker = threading.Timer(0.05, transport.wake)
        waker.start()
        assert transport.completed(timeout_ms=60_000) == []
        waker.join()
    transport.wake()
    assert transport.completed(timeout_ms=60_000) == []


# --- peers that are none --------------------------------------------------------------------


def test_a_port_without_a_listener_is_a_connect_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = transport_to(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectError, match="refused"):
            transport.call(ListTopics(), timeout_ms=TIMEOUT_MS)


def test_the_first_endpoint_that_can_be_reached_is_used(server: Serving) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        transport = transport_to(f"127.0.0.1:{taken.getsockname()[1]};{server.endpoints}")
        reply = transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)
        assert reply == OffsetReply(100_000)
        transport.close()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.0\r\n", bytes(400)]
)
def test_a_port_of_another_protocol_is_named_as_such(answer: bytes) -> None:
    with serving_bytes(answer) as address:
        transport = transport_to(address)
        with pytest.raises(RemoteProtocolError, match="does not speak HTTP/2"):
            transport.call(ListTopics(), timeout_ms=TIMEOUT_MS)
        with pytest.raises(RemoteProtocolError, match="does not speak HTTP/2"):
            list(transport.read_ranges([OffsetRange(queue(0), 0, 1)], SPEC))
        transport.close()


def test_a_frame_over_the_limit_ends_the_connection_as_a_breach_of_the_protocol() -> None:
    with serving_bytes(SETTINGS + b"\xff" * 100) as address:
        transport = transport_to(address)
        with pytest.raises(RemoteProtocolError, match="Frame size 16777215 is larger"):
            transport.call(ListTopics(), timeout_ms=TIMEOUT_MS)
        transport.close()


def test_a_grpc_server_without_the_service_is_reported() -> None:
    other = grpc.server(futures.ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    transport = transport_to(f"127.0.0.1:{port}")
    text = r"^\[ROCKETMQ_UNSUPPORTED\] .*through nameServer"
    with pytest.raises(UnsupportedRequestError, match=text):
        transport.call(ListTopics(), timeout_ms=TIMEOUT_MS)
    with pytest.raises(UnsupportedRequestError, match=text):
        list(transport.read_ranges([OffsetRange(queue(0), 0, 1)], SPEC))
    transport.close()
    other.stop(None).wait()


@pytest.mark.parametrize("endpoints", ["nowhere", "host:0", "host:99999", ";"])
def test_endpoints_that_are_no_addresses_are_refused_at_once(endpoints: str) -> None:
    with pytest.raises(ValueError, match=r"endpoints|an address is|no such port"):
        transport_to(endpoints)


def test_a_peer_that_is_silent_during_a_call_is_pinged_and_given_up(server: Serving) -> None:
    inbox: Inbox = SimpleQueue()
    pull = PullMessages("g", queue(0), 100_000, 32, suspend_ms=40_000)
    method = method_of(pull)
    with FaultProxy(server.endpoints) as proxy:
        connection = GrpcConnection(
            proxy.address,
            inbox,
            settings=ConnectionSettings(endpoints=proxy.address),
            ping_after_ms=1_000,
            silence_ms_max=1_500,
        )
        call = connection.start(method.path, method.encode([pull]), timeout_ms=60_000)
        # Pings are answered while the call is not.
        assert next_event(inbox, 2_500) is None
        proxy.link = Link.BLACK_HOLE
        ended = next_event(inbox, 20_000)
        assert ended is not None
        assert ended.is_over
        assert isinstance(call.error(), ConnectionLostError)
        connection.close()


# --- downloads ------------------------------------------------------------------------------


def test_ranges_are_downloaded_in_order_over_one_connection(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    ranges = [OffsetRange(queue(1), 60, 900), OffsetRange(queue(0), 5, 90_000)]
    for _ in range(2):
        chunks = list(transport.read_ranges(ranges, SPEC))
        assert offsets_in(chunks) == [*range(60, 900), *range(5, 90_000)]
        assert [chunk.queue for chunk in chunks] == sorted(
            (chunk.queue for chunk in chunks), reverse=True
        )
    assert len({peer.key for peer in shell.peers}) == 1


def test_bodies_are_writable_views_that_no_later_chunk_changes(transport: GrpcTransport) -> None:
    wanted = [OffsetRange(queue(0), 0, 50_000)]
    chunks = list(transport.read_ranges(wanted, SPEC))
    assert len(chunks) > 3
    assert all(isinstance(chunk.body, memoryview) for chunk in chunks)
    assert offsets_in(chunks) == list(range(50_000))


def test_a_suspended_consumer_makes_the_broker_hold_little(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    shell.queues[queue(0)].end = 50_000_000
    wanted = [OffsetRange(queue(0), 0, 50_000_000)]
    limits = ReadLimits(bytes_max=400_000)
    chunks = transport.read_ranges(wanted, ReadSpec("g", limits=limits))
    next(chunks)
    for _ in range(50):
        before = len(shell.asked)
        time.sleep(0.02)
        if len(shell.asked) == before:
            break
    # Two chunks fit the window, one was taken; the server holds one, gRPC another.
    assert len(shell.asked) <= 6
    chunks.close()  # type: ignore[attr-defined]


def test_a_download_that_is_given_up_ends_at_the_broker(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    shell.queues[queue(0)].end = 50_000_000
    chunks = transport.read_ranges([OffsetRange(queue(0), 0, 50_000_000)], SPEC)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    asked = -1

    def is_quiet() -> bool:
        nonlocal asked
        asked, before = len(shell.asked), asked
        time.sleep(0.02)
        return asked == before

    until(is_quiet)
    assert asked < 100
    assert transport.call(GetMinOffset(queue(1)), timeout_ms=TIMEOUT_MS) == OffsetReply(50)


def test_time_in_which_the_consumer_works_counts_towards_no_outage(
    server: Serving, transport: GrpcTransport
) -> None:
    limits = ReadLimits(outage_ms=1_000, pull_timeout_ms=1_000, bytes_max=200_000)
    wanted = [OffsetRange(queue(0), 0, 100_000)]
    chunks = transport.read_ranges(wanted, ReadSpec("g", limits=limits))
    found = [next(chunks)]
    server.stop()
    time.sleep(1.2)
    server.start()
    found += chunks
    assert offsets_in(found) == list(range(100_000))


def test_a_broker_that_stays_down_ends_the_download_after_the_outage_limit(
    server: Serving, transport: GrpcTransport
) -> None:
    limits = ReadLimits(outage_ms=300, bytes_max=200_000)
    wanted = [OffsetRange(queue(0), 0, 100_000)]
    chunks = transport.read_ranges(wanted, ReadSpec("g", limits=limits))
    next(chunks)
    server.stop()
    with pytest.raises((ConnectError, ConnectionLostError)):
        list(chunks)
    server.start()


def test_a_broker_that_is_busy_for_a_while_is_waited_for(
    transport: GrpcTransport, shell: FakeShell
) -> None:
    shell.refusal = BrokerBusyError(2, "busy")
    timer = threading.Timer(0.2, lambda: setattr(shell, "refusal", None))
    timer.start()
    chunks = list(transport.read_ranges([OffsetRange(queue(0), 0, 10)], SPEC))
    assert offsets_in(chunks) == list(range(10))
    timer.join()


def test_expired_offsets_are_reported_or_skipped(
    transport: GrpcTransport,
) -> None:
    wanted = [OffsetRange(queue(1), 20, 100), OffsetRange(queue(0), 0, 5)]
    with pytest.raises(RangeLostError) as caught:
        list(transport.read_ranges(wanted, SPEC))
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (20, 50, LossReason.EXPIRED)
    skipping = ReadSpec("g", limits=LIMITS, loss_policy=LossPolicy.SKIP)
    lost, *rest = transport.read_ranges(wanted, skipping)
    assert (lost.start, lost.end, len(lost.body)) == (20, 50, 0)
    assert offsets_in(rest) == [*range(50, 100), *range(5)]


def test_a_deleted_topic_is_reported(transport: GrpcTransport, shell: FakeShell) -> None:
    shell.queues.clear()
    with pytest.raises(RangeLostError) as caught:
        list(transport.read_ranges([OffsetRange(queue(0), 0, 5)], SPEC))
    assert caught.value.loss.reason is LossReason.TOPIC_DELETED


def test_a_refusal_for_good_is_raised_at_once(transport: GrpcTransport, shell: FakeShell) -> None:
    shell.refusal = BrokerError(24, "no subscription")
    with pytest.raises(BrokerError, match="no subscription"):
        list(transport.read_ranges([OffsetRange(queue(0), 0, 5)], SPEC))


# --- closing --------------------------------------------------------------------------------


def test_closing_forgets_calls_in_flight_and_a_later_one_connects_again(
    transport: GrpcTransport,
) -> None:
    held = PullMessages("g", queue(0), 100_000, 32, suspend_ms=20_000)
    transport.submit(held, broker=None, timeout_ms=TIMEOUT_MS)
    transport.close()
    assert transport.completed(timeout_ms=0) == []
    transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)


def test_a_download_that_outlives_its_transports_closing_leaves_no_connection_behind(
    transport: GrpcTransport,
) -> None:
    chunks = transport.read_ranges([OffsetRange(queue(0), 0, 50_000)], SPEC)
    found = [next(chunks)]
    transport.close()
    found += chunks
    assert offsets_in(found) == list(range(50_000))
    # An unclosed socket would fail the test: warnings are errors.
    gc.collect()
