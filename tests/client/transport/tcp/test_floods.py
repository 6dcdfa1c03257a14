"""Peers that send what nobody asked for: a call's time limit and the memory hold."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import open_transport
from rocketmq_client.transport.tcp import connection
from rocketmq_wire.errors import DeadlineExceededError, RemoteProtocolError, RocketMQError
from rocketmq_wire.remoting.frames import Frame
from rocketmq_wire.remoting.headers import FLAG_REPLY, Header
from rocketmq_wire.requests.brokers import GetCluster
from support.remoting_sessions import encode_frame

STRAY = encode_frame(Frame(Header(0, opaque=2**31 - 7, flag=FLAG_REPLY)))
QUESTION = encode_frame(Frame(Header(220, opaque=5)))


@contextlib.contextmanager
def flooding(send: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """The address of a server that sends and reads nothing."""
    ended = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            peer, _ = listener.accept()
            with peer:
                send(peer, ended)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        thread.join(20)


def dribble(peer: socket.socket, ended: threading.Event) -> None:
    while not ended.wait(0.02):
        peer.sendall(STRAY)


def flood(peer: socket.socket, ended: threading.Event) -> None:
    while not ended.is_set():
        peer.sendall(QUESTION * 1_000)


def failure_of(address: str, *, timeout_ms: int, slow_ms: int) -> RocketMQError:
    settings = ConnectionSettings((address,), connect_timeout_ms=5_000)
    done: list[connection.Call] = []
    with (
        contextlib.closing(open_transport(settings)) as transport,
        transport._clock.inside(),  # type: ignore[attr-defined]
    ):
        ask = transport._requests.ask  # type: ignore[attr-defined]
        ask(None, GetCluster(), done, timeout_ms=timeout_ms, slow_ms=slow_ms)
        end_at = time.monotonic() + 30
        while not done and time.monotonic() < end_at:
            transport._requests.step(100)  # type: ignore[attr-defined]
    (call,) = done
    assert isinstance(call.result, RocketMQError)
    return call.result


def test_answers_to_nobody_do_not_extend_a_call() -> None:
    began = time.monotonic()
    with flooding(dribble) as address:
        error = failure_of(address, timeout_ms=300, slow_ms=600_000)
    assert isinstance(error, DeadlineExceededError)
    assert time.monotonic() - began < 10


def test_a_peer_that_asks_and_reads_no_answers_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_UNREAD_ANSWERS_MAX", 200_000)
    with flooding(flood) as address:
        error = failure_of(address, timeout_ms=20_000, slow_ms=20_000)
    assert isinstance(error, RemoteProtocolError)
    assert "does not read the answers" in str(error)
