"""What one connection still has to be sent."""

from __future__ import annotations

import pytest

from rocketmq_broker_sim.servers.output import Output

MIB = 1024 * 1024


class FullTransport:
    """Takes writes until `room` is used up, then calls for a pause as asyncio's transports do."""

    def __init__(self, room):
        self.room, self.sent, self.output, self.high = room, bytearray(), None, None

    def set_write_buffer_limits(self, high):
        self.high = high

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


def test_buffers_are_let_go_when_nobody_reads():
    transport = FullTransport(room=0)
    output = output_over(transport)
    body = bytearray(2 * MIB)
    output.write([body])
    output.clear()
    assert output.size == 0
    body.extend(b"resizable again: no view is left")
