"""Batches of records over the shared stream of sends, against a real server over a fake shell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.transport import STREAMED_SIZE_MAX, GrpcTransport
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RocketMQError,
)
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import SendRecords, SendReply
from rocketmq_wire.requests.offsets import GetMaxOffset
from support.fake_shell import FakeQueue, FakeShell, queue, record
from support.grpc_serving import Serving, serving

TIMEOUT_MS = 20_000


@pytest.fixture
def server() -> Iterator[Serving]:
    with serving(FakeShell({queue(0): FakeQueue(), queue(1): FakeQueue()})) as server:
        yield server


@pytest.fixture
def transport(server: Serving) -> Iterator[GrpcTransport]:
    opened = GrpcTransport(ConnectionSettings(endpoints=server.endpoints))
    yield opened
    opened.close()


def batch(index: int, count: int, size: int = 100) -> SendRecords:
    records = b"".join(record(n, size) for n in range(count))
    return SendRecords("g", queue(index), records, size.to_bytes(4, "little") * count)


def submit(transport: GrpcTransport, request: SendRecords, timeout_ms: int = TIMEOUT_MS) -> int:
    return transport.submit(request, broker="broker-a", timeout_ms=timeout_ms)


def take(transport: GrpcTransport, count: int) -> dict[int, Reply | RocketMQError]:
    """The next `count` answers by ticket."""
    answers: dict[int, Reply | RocketMQError] = {}
    deadline = time.monotonic() + 20
    while len(answers) < count:
        assert time.monotonic() < deadline
        answers.update(transport.completed(timeout_ms=1_000))
    return answers


def until(claim: Callable[[], bool]) -> None:
    """Wait for another thread."""
    deadline = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_many_batches_are_in_flight_and_each_gets_its_own_answer(
    server: Serving, transport: GrpcTransport
) -> None:
    tickets = [submit(transport, batch(n % 2, 3)) for n in range(200)]
    answers = take(transport, 200)
    starts = [(n % 2, 3 * (n // 2)) for n in range(200)]
    found = [answers[ticket] for ticket in tickets]
    assert [(a.queue_index, a.start) for a in found if isinstance(a, SendReply)] == starts
    assert len({peer.key for peer in server.shell.peers}) == 1


def test_a_refused_batch_does_not_spoil_those_behind_it(
    server: Serving, transport: GrpcTransport
) -> None:
    server.shell.refusal = BrokerBusyError(2, "busy")
    ticket = submit(transport, batch(0, 1))
    refused = take(transport, 1)[ticket]
    server.shell.refusal = None
    assert isinstance(refused, BrokerBusyError)
    reply = transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS)
    assert (reply.start, reply.count) == (0, 1)


def test_a_late_answer_is_dropped_in_its_order(server: Serving, transport: GrpcTransport) -> None:
    gate = server.shell.gate = asyncio.Event()
    ticket = submit(transport, batch(0, 1), timeout_ms=50)
    late = take(transport, 1)[ticket]
    assert isinstance(late, DeadlineExceededError)
    second = submit(transport, batch(0, 5))
    until(lambda: len(server.shell.sent) == 2)
    server.loop.call_soon_threadsafe(gate.set)
    reply = take(transport, 1)[second]
    assert isinstance(reply, SendReply)
    assert (reply.start, reply.count) == (1, 5)


def test_a_late_answer_among_others_in_time_speaks_against_no_connection(
    server: Serving, transport: GrpcTransport
) -> None:
    gate = server.shell.gate = asyncio.Event()
    ticket = submit(transport, batch(0, 1), timeout_ms=300)
    transport.call(GetMaxOffset(queue(0)), timeout_ms=TIMEOUT_MS)
    assert isinstance(take(transport, 1)[ticket], DeadlineExceededError)
    server.loop.call_soon_threadsafe(gate.set)
    assert transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS).start == 1
    assert len({peer.key for peer in server.shell.peers}) == 1


def test_batches_in_flight_when_the_broker_dies_have_an_unknown_outcome(
    server: Serving, transport: GrpcTransport
) -> None:
    server.shell.gate = asyncio.Event()
    tickets = {submit(transport, batch(0, 1)) for _ in range(5)}
    until(lambda: len(server.shell.sent) == 5)
    server.stop()
    answers = take(transport, 5)
    assert set(answers) == tickets
    assert all(isinstance(error, ConnectionLostError) for error in answers.values())
    assert all("[ROCKETMQ_CONNECTION.LOST] " in str(error) for error in answers.values())
    with pytest.raises(ConnectError):
        transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS)
    server.shell.gate = None
    server.start()
    assert transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS).start == 5


def test_an_idle_stream_neither_delays_a_stop_nor_costs_the_next_batch(
    server: Serving, transport: GrpcTransport, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS).count == 1
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5
        server.start()
    assert transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS).start == 2
    assert not caplog.records


def test_a_batch_too_large_for_the_stream_has_a_call_of_its_own(
    transport: GrpcTransport,
) -> None:
    large = batch(0, STREAMED_SIZE_MAX // 1_000 + 1, size=1_000)
    small = submit(transport, batch(0, 1))
    reply = transport.call(large, timeout_ms=TIMEOUT_MS)
    assert reply.count == STREAMED_SIZE_MAX // 1_000 + 1
    assert isinstance(take(transport, 1)[small], SendReply)


def test_a_batch_over_the_brokers_limit_is_refused_alone(
    server: Serving, transport: GrpcTransport
) -> None:
    with pytest.raises(BrokerError, match="larger than"):
        transport.call(batch(0, 17, size=1_000_000), timeout_ms=TIMEOUT_MS)
    assert transport.call(batch(0, 1), timeout_ms=TIMEOUT_MS).count == 1
    assert len(server.shell.sent) == 1
