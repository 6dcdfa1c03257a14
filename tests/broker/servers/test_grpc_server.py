"""The gRPC server of the broker outlives calls that end grpcio's server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_broker.servers.grpc_server import GrpcLimits, GrpcServer
from support.certificates import Authority

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _HEADERS, _ENDS = 4, 1, 5


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = struct.pack(">I", len(payload))[1:]
    return size + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _field(name: bytes, value: bytes) -> bytes:
    """A literal header field that is not indexed."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def send_broken_path(endpoints: str) -> None:
    """Call a method whose name is no UTF-8, and wait until the server answers or closes."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/x\xff\xfe",
        b":authority": b"a",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    header = b"".join(_field(name, value) for name, value in fields.items())
    host, _, port = endpoints.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(_PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_HEADERS, _ENDS, 1, header))
        peer.settimeout(1)
        try:
            while peer.recv(4_096):
                pass
        except TimeoutError:
            pass


def is_serving(channel: grpc.Channel) -> bool:
    request = health_pb2.HealthCheckRequest()
    stub = health_pb2_grpc.HealthStub(channel)
    reply = stub.Check(request, timeout=30, wait_for_ready=True)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_path_that_is_no_utf8_ends_no_other_call(
    has_tls: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(flush="memory")
    if has_tls:
        pair = Authority(tmp_path).issue()
        config = replace(
            config,
            tls_mode="permissive",
            tls_cert_file=pair.cert_file,
            tls_key_file=pair.key_file,
        )
    with Broker(config) as broker:
        address = broker.endpoints
        with grpc.insecure_channel(address) as before:
            changes = health_pb2_grpc.HealthStub(before).Watch(health_pb2.HealthCheckRequest())
            next(changes)
            for _ in range(2):
                send_broken_path(address)
                with grpc.insecure_channel(address) as channel:
                    assert is_serving(channel)
            assert changes.is_active()
            changes.cancel()
    assert sum("serves again" in record.message for record in caplog.records) == 2


def test_a_port_that_another_program_took_is_tried_again_every_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    def make() -> grpc.aio.Server:
        raise OSError("taken")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    ended: Any = SimpleNamespace(_server=SimpleNamespace(is_running=lambda: False))
    calls: Any = None
    server = GrpcServer(ended, make, (), None, calls, "127.0.0.1", 1, GrpcLimits())
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(server._keep_serving())
    assert pauses == [0.1, 1.0, 0.1, 1.0]
    assert [record.message for record in caplog.records] == [
        "gRPC ended and cannot serve again yet: taken"
    ] * 2


def test_connections_over_the_limit_are_closed() -> None:
    config = BrokerConfig(flush="memory", connections_max=3)
    with Broker(config) as broker, contextlib.ExitStack() as opened:
        host, _, port = broker.endpoints.rpartition(":")

        def hello() -> socket.socket:
            made = opened.enter_context(socket.create_connection((host, int(port)), timeout=20))
            made.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            return made

        def is_served(connection: socket.socket) -> bool:
            with contextlib.suppress(ConnectionResetError):
                return bool(connection.recv(100))
            return False

        kept = [hello() for _ in range(3)]
        assert all(map(is_served, kept))
        assert not is_served(hello())
        kept[0].close()
        while not is_served(hello()):
            pass
