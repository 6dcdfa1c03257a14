"""A server that stops closes every connection, also one that was just accepted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import pytest

from rocketmq_broker.servers.sockets.descriptors import Room
from rocketmq_broker.servers.sockets.listener import GrpcFront


@pytest.fixture
def _no_collection():
    gc.disable()
    yield
    gc.enable()


async def _connect_and_stop(loop_turns: int) -> socket.socket:
    front = GrpcFront("127.0.0.1", 0, Room(10))
    front.begin(plain_port=1, tls_port=1)
    # The kernel accepts it; the loop has not seen it yet.
    client = socket.create_connection(("127.0.0.1", front.port), timeout=10)
    for _ in range(loop_turns):
        await asyncio.sleep(0)
    await front.close()
    return client


# The garbage collector would close a forgotten connection, which hides the mistake.
@pytest.mark.usefixtures("_no_collection")
@pytest.mark.parametrize("loop_turns", range(8))
def test_a_connection_that_was_just_accepted_is_closed(loop_turns: int) -> None:
    client = asyncio.run(_connect_and_stop(loop_turns))
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
