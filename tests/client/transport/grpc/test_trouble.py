"""The gRPC transport and brokers that are away, or say what they should not."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from concurrent import futures
from types import SimpleNamespace

import grpc
import pytest

from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.connection import MESSAGE_SIZE_MAX
from rocketmq_client.transport.grpc.transport import GrpcTransport
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_wire.errors import BrokerBusyError, ConnectError, RemoteProtocolError
from rocketmq_wire.grpc.bulk.mapping import PULL_RECORDS_PATH
from rocketmq_wire.grpc.bulk.records import (
    PullRecords,
    RecordChunk,
    decode_pull_records,
    encode_chunk,
)
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from rocketmq_wire.requests.topics import GetRoute, ListTopics
from rocketmq_wire.stubs import SERVICE
from support.fake_shell import FakeQueue, FakeShell, queue, record
from support.fault_proxy import unreachable_address
from support.grpc_serving import serving

TIMEOUT_MS = 20_000


class Slept(Exception):
    """Raised in place of sleeping."""


def transport_to(endpoints: str, connect_timeout_ms: int = 3_000) -> GrpcTransport:
    settings = ConnectionSettings(endpoints=endpoints, connect_timeout_ms=connect_timeout_ms)
    return GrpcTransport(settings)


def test_a_machine_that_is_down_costs_one_timeout_and_not_one_for_every_request() -> None:
    with unreachable_address() as address:
        transport = transport_to(address, connect_timeout_ms=300)
        began = time.monotonic()
        tickets = {
            transport.submit(GetMaxOffset(queue(0)), broker=None, timeout_ms=TIMEOUT_MS)
            for _ in range(20)
        }
        answers = dict(transport.completed(timeout_ms=TIMEOUT_MS))
        wanted: list[Request[Reply]] = [GetRoute("a"), GetMaxOffset(queue(0))] * 5
        errors = transport.call_many([(None, one) for one in wanted], timeout_ms=TIMEOUT_MS)
        # One for each request would take thirty times as long.
        assert time.monotonic() - began < 10 * 0.3
        assert answers.keys() == tickets
        assert all(isinstance(one, ConnectError) for one in [*answers.values(), *errors])
        transport.close()


def test_a_refused_connection_is_tried_again_at_once() -> None:
    with serving(FakeShell({queue(0): FakeQueue(0, 9)})) as server:
        transport = transport_to(server.endpoints)
        server.stop()
        transport.submit(GetMaxOffset(queue(0)), broker=None, timeout_ms=TIMEOUT_MS)
        ((_, error),) = transport.completed(timeout_ms=TIMEOUT_MS)
        assert isinstance(error, ConnectError)
        server.start()
        transport.submit(GetMaxOffset(queue(0)), broker=None, timeout_ms=TIMEOUT_MS)
        ((_, reply),) = transport.completed(timeout_ms=TIMEOUT_MS)
        assert reply == OffsetReply(9)
        transport.close()


def test_what_a_broker_sends_behind_a_refusal_is_not_read() -> None:
    """It would come out of turn, if the process stood still for the length of the delay."""
    streams: list[PullRecords] = []

    def pull(content: bytes, _: object) -> Iterator[bytes]:
        streams.append(decode_pull_records(content))
        if len(streams) == 1:
            yield encode_chunk(RecordChunk(0, 0, status=None, error=BrokerBusyError(2, "busy")))
            yield encode_chunk(RecordChunk(0, 1, records=(record(0),), range_index=1))
            return
        for index in range(2):
            yield encode_chunk(RecordChunk(0, 1, records=(record(0),), range_index=index))

    other = grpc.server(futures.ThreadPoolExecutor(1))
    service, _, name = PULL_RECORDS_PATH.strip("/").partition("/")
    handlers = {name: grpc.unary_stream_rpc_method_handler(pull)}
    other.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    transport = transport_to(f"127.0.0.1:{port}")
    # Each reading of this clock comes after any delay.
    transport._clock = ActiveClock(itertools.count(0, 200_000_000).__next__)
    wanted = [OffsetRange(queue(0), 0, 1), OffsetRange(queue(1), 0, 1)]
    spec = ReadSpec("group", limits=ReadLimits(outage_ms=10**9, pull_timeout_ms=10**9))
    assert [chunk.queue for chunk in transport.read_ranges(wanted, spec)] == [queue(0), queue(1)]
    assert len(streams) == 2
    transport.close()
    other.stop(None).wait()


def test_an_answer_over_the_limit_breaks_the_protocol() -> None:
    other = grpc.server(
        futures.ThreadPoolExecutor(1), options=[("grpc.max_send_message_length", -1)]
    )
    handlers = {
        "ListTopics": grpc.unary_unary_rpc_method_handler(lambda *_: bytes(MESSAGE_SIZE_MAX + 1))
    }
    other.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    transport = transport_to(f"127.0.0.1:{port}")
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        transport.call(ListTopics(), timeout_ms=TIMEOUT_MS)
    transport.close()
    other.stop(None).wait()


def test_a_call_that_ends_well_without_an_answer_breaks_the_protocol() -> None:
    other = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {"ListTopics": grpc.stream_stream_rpc_method_handler(lambda *_: iter(()))}
    other.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    transport = transport_to(f"127.0.0.1:{port}")
    transport.submit(ListTopics(), broker=None, timeout_ms=TIMEOUT_MS)
    ((_, error),) = transport.completed(timeout_ms=TIMEOUT_MS)
    assert isinstance(error, RemoteProtocolError)
    transport.close()
    other.stop(None).wait()


def test_downloads_wait_as_configured_and_with_jitter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sleep(seconds: float) -> None:
        raise Slept(seconds)

    own = SimpleNamespace(**{**vars(time), "sleep": sleep})
    monkeypatch.setattr("rocketmq_client.transport.grpc.download.time", own)
    delays = set()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoints = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = ConnectionSettings(
            endpoints=endpoints, retry_delay_ms=800, retry_delay_ms_max=900
        )
        for _ in range(8):
            transport = GrpcTransport(settings)
            with pytest.raises(Slept) as slept:
                list(transport.read_ranges([OffsetRange(queue(0), 0, 1)], ReadSpec("group")))
            delays.add(slept.value.args[0])
    assert all(0.5 < delay <= 0.8 for delay in delays)
    assert max(delays) - min(delays) > 0.005
