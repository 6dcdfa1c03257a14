"""Room for frames that have arrived in part, and what becomes of those that do not end."""

from __future__ import annotations

import asyncio
import struct
from contextlib import ExitStack

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_broker.servers.remoting import server
from rocketmq_broker.servers.sockets import unfinished_frames
from rocketmq_broker.servers.sockets.unfinished_frames import UnfinishedFrames
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from support.remoting_peer import RemotingPeer

MIB = 1024 * 1024


class FakeReceiver:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def read_on(self) -> None:
        self.heard.append("read on")

    def abort(self) -> None:
        self.heard.append("abort")


def test_a_frame_waits_until_there_is_room() -> None:
    async def run() -> None:
        frames = UnfinishedFrames(10)
        first, second, third, fourth = (FakeReceiver() for _ in range(4))
        assert frames.take(first, 6)
        assert frames.take(second, 4)
        assert not frames.take(third, 5)
        # Behind one that waits, also what would fit.
        assert not frames.take(fourth, 1)
        frames.give_back(second)
        assert third.heard == []
        frames.give_back(first)
        assert (third.heard, fourth.heard) == (["read on"], ["read on"])

    asyncio.run(run())


def test_a_frame_over_the_limit_is_read_alone() -> None:
    async def run() -> None:
        frames = UnfinishedFrames(10)
        large, small = FakeReceiver(), FakeReceiver()
        assert frames.take(large, 50)
        assert not frames.take(small, 1)
        frames.give_back(large)
        assert small.heard == ["read on"]

    asyncio.run(run())


def test_a_connection_that_closes_while_it_waits_is_forgotten() -> None:
    async def run() -> None:
        frames = UnfinishedFrames(10)
        first, gone, third = (FakeReceiver() for _ in range(3))
        frames.take(first, 10)
        frames.take(gone, 10)
        frames.take(third, 10)
        frames.give_back(gone)
        frames.give_back(first)
        assert (gone.heard, third.heard) == ([], ["read on"])

    asyncio.run(run())


def test_frames_that_do_not_end_are_given_up_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_frames, "_SECONDS_MAX", 0.2)
    monkeypatch.setattr(server, "UNFINISHED_SIZE_MAX", 8 * MIB)
    settings = {"flush": "memory", "grpc": False}
    with Broker(config_from(settings)) as broker, ExitStack() as stack:
        hostile = [stack.enter_context(RemotingPeer(broker.name_server)) for _ in range(8)]
        for one in hostile:
            header = b'{"code":310}'
            one.socket.sendall(struct.pack(">iI", 4 + len(header) + 4 * MIB, len(header)) + header)
        with RemotingPeer(broker.name_server) as peer:
            peer.call(CreateTopic(TopicConfig("orders", 1, 1)))
            queue = QueueId("orders", "", 0)
            for number in range(3):
                sent = SendMessage("p", queue, 1, b"x" * 3 * MIB)
                assert peer.call(sent).start == number
        assert hostile[0].is_closed_by_broker()
