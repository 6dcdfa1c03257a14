"""The unsent output of one connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import cast

import pytest

from rocketmq_broker.servers.sockets.output import Output
from rocketmq_broker.servers.sockets.tls_layer import TlsLayer

MIB = 1024 * 1024


class FullTransport(TlsLayer):
    """Takes writes until `room` is used up, then calls for a pause as asyncio's transports do.

    Encrypted, so that everything has to pass through it.
    """

    def __init__(self, room):
        self.room = room
        self.sent = bytearray()
        self.output: Output
        self.high: int | None = None

    def set_write_buffer_limits(self, high=None, low=None):
        del low
        self.high = high

    def is_closing(self):
        return False

    def write(self, data):
        self.sent += data
        self.room -= len(data)
        if self.room < 0:
            self.output.pause()


def output_over(transport):
    transport.output = Output(transport)
    return transport.output


@pytest.mark.parametrize("body_size", [0, 1, 16 * 1024, 300_000, 3 * MIB + 1])
def test_parts_arrive_in_order_and_nothing_is_left(body_size):
    transport = FullTransport(room=100 * MIB)
    output = output_over(transport)
    body = bytes(range(256)) * (body_size // 256 + 1)
    output.write([b"head", memoryview(body)[:body_size], b"tail"])
    assert bytes(transport.sent) == b"head" + body[:body_size] + b"tail"
    assert (output.size, transport.high) == (0, 0)


def test_full_socket_keeps_the_rest_here_until_it_has_room():
    transport = FullTransport(room=MIB)
    output = output_over(transport)
    output.write([b"a" * (3 * MIB)])
    output.write([b"b"])
    # At most one piece more than there was room for.
    assert MIB < len(transport.sent) <= MIB + 256 * 1024
    assert output.size == 3 * MIB + 1 - len(transport.sent)
    transport.room = 100 * MIB
    output.resume()
    assert bytes(transport.sent) == b"a" * (3 * MIB) + b"b"
    assert output.size == 0


def test_buffers_are_released_when_the_connection_is_lost():
    transport = FullTransport(room=0)
    output = output_over(transport)
    body = bytearray(2 * MIB)
    output.write([body])
    output.clear()
    assert output.size == 0
    body.extend(b"resizable again: no view is left")


class SocketTransport:
    """A transport over a socket: keeps unsent bytes and calls for a pause, as asyncio's does."""

    def __init__(self):
        self.socket, self.reader = socket.socketpair()
        self.socket.setblocking(False)
        self.reader.setblocking(False)
        self.kept, self.largest, self.is_gone = bytearray(), 0, False
        self.output = Output(cast(asyncio.Transport, self))

    def get_extra_info(self, name):
        return getattr(self, name)

    def set_write_buffer_limits(self, high):
        assert high == 0

    def is_closing(self):
        return self.is_gone

    def write(self, data):
        self.largest = max(self.largest, len(data))
        assert not self.kept, "nothing may be written while something waits"
        self.kept += data
        self._flush()
        if self.kept:
            self.output.pause()

    def resume(self):
        """The socket has room."""
        was_waiting = bool(self.kept)
        self._flush()
        if was_waiting and not self.kept:
            self.output.resume()

    def _flush(self):
        with contextlib.suppress(BlockingIOError):
            del self.kept[: self.socket.send(self.kept)]

    def read(self):
        """The bytes that have arrived."""
        arrived = bytearray()
        with contextlib.suppress(BlockingIOError):
            while data := self.reader.recv(MIB):
                arrived += data
        return bytes(arrived)


@pytest.fixture
def over_socket():
    transport = SocketTransport()
    with transport.socket, transport.reader:
        yield transport


def test_large_buffers_pass_the_transport_by_and_stay_in_order(over_socket):
    body = bytes(range(256)) * (3 * MIB // 256)
    parts = [b"head", *(memoryview(body)[at : at + 50_001] for at in range(0, len(body), 50_001))]
    over_socket.output.write(parts)
    over_socket.output.write([b"a small answer behind it"])
    wanted = b"".join(map(bytes, parts)) + b"a small answer behind it"
    assert over_socket.output.size > 0
    arrived = b""
    while (more := over_socket.read()) or over_socket.kept:
        arrived += more
        assert over_socket.output.size <= len(wanted) - len(arrived)
        over_socket.resume()
    assert arrived == wanted
    assert over_socket.output.size == 0
    # Only a little is ever copied.
    assert over_socket.largest <= 16 * 1024


def test_broken_socket_is_left_to_the_transport(over_socket):
    over_socket.reader.close()
    written: list[bytes] = []
    over_socket.write = written.append
    over_socket.output.write([b"a" * MIB])
    assert b"".join(written) == b"a" * MIB
    assert over_socket.output.size == 0


@pytest.mark.parametrize("size", [1, MIB])
def test_nothing_is_written_to_a_broken_connection(over_socket, size):
    over_socket.is_gone = True
    written: list[bytes] = []
    over_socket.write = written.append
    over_socket.output.write([b"a" * size])
    over_socket.output.resume()
    assert (written, over_socket.output.size) == ([], 0)


def test_the_rest_of_an_output_is_dropped_when_a_write_breaks_the_connection(over_socket):
    over_socket.reader.close()
    written: list[bytes] = []

    def write(data):
        written.append(data)
        over_socket.is_gone = True

    over_socket.write = write
    over_socket.output.write([b"a" * MIB])
    assert len(written) == 1
    assert over_socket.output.size == 0


def test_a_closed_output_closes_its_transport_behind_its_last_byte(over_socket):
    closed_at: list[int] = []
    over_socket.close = lambda: closed_at.append(over_socket.output.size)
    over_socket.output.write([b"a" * (3 * MIB)])
    over_socket.output.close()
    arrived = 0
    while (more := over_socket.read()) or over_socket.kept:
        arrived += len(more)
        assert not closed_at or not over_socket.output.size
        over_socket.resume()
    assert (arrived, closed_at) == (3 * MIB, [0])


class CountingTransport(FullTransport):
    """Remembers each write."""

    def __init__(self):
        super().__init__(room=100 * MIB)
        self.writes = []

    def write(self, data):
        self.writes.append(bytes(data))
        super().write(data)


def test_small_answers_that_are_held_go_together_and_in_front_of_what_is_large():
    transport = CountingTransport()
    output = output_over(transport)
    output.hold()
    output.write([b"first ", b"answer, "])
    output.write([b"second, "])
    assert transport.writes == []
    output.release()
    assert transport.writes == [b"first answer, second, "]
    output.hold()
    output.write([b"third, "])
    output.write([b"L" * 20_000])
    output.write([b" fourth"])
    output.release()
    assert bytes(transport.sent) == b"first answer, second, third, " + b"L" * 20_000 + b" fourth"


def test_what_is_held_is_bounded():
    transport = CountingTransport()
    output = output_over(transport)
    output.hold()
    for _ in range(100):
        output.write([b"x" * 1_000])
    assert len(transport.sent) >= 80_000
    output.release()
    assert len(transport.sent) == 100_000


def test_held_answers_wait_behind_a_full_socket_as_all_others_do():
    transport = FullTransport(room=0)
    output = output_over(transport)
    output.write([b"a"])
    output.hold()
    output.write([b"b"])
    output.release()
    assert (bytes(transport.sent), output.size) == (b"a", 1)
    transport.room = MIB
    output.resume()
    assert (bytes(transport.sent), output.size) == (b"ab", 0)
