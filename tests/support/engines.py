"""An engine over a store in memory, asked in one line."""

from __future__ import annotations

import struct
from typing import Any, TypeVar, cast

import pytest

from rocketmq_broker.config import config_from
from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Hold, Outcome, Peer
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.storage.disk.files import Files, MemoryFiles
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import Host, QueueId, StoredMessage
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullReply
from support.storage_blocks import block_of

R = TypeVar("R", bound=Reply)

BROKER = "broker-a"
PEER = Peer(1, "10.0.0.9", 5555, "10.0.0.1")
STORE_HOST = Host(bytes((127, 0, 0, 1)), 10911)
NOW_MS = 1_700_000_000_000
_BYTES_READ_MAX = 4 << 20


def queue_of(topic: str, index: int = 0) -> QueueId:
    return QueueId(topic, BROKER, index)


class EngineUnderTest:
    """The engine, its store, and a clock that the test advances."""

    def __init__(
        self,
        files: Files | None = None,
        *,
        store_config: StoreConfig | None = None,
        **settings: object,
    ) -> None:
        self.config = config_from({"flush": "memory", **settings})
        self.files: Files = files or MemoryFiles()
        self.store = Store.open(
            self.files,
            store_config
            or StoreConfig(
                FlushMode(self.config.flush),
                STORE_HOST,
                segment_size=min(1 << 20, self.config.commit_log_file_bytes),
                queue_file_entries=self.config.consume_queue_file_entries,
            ),
            NOW_MS,
        )
        self.identity = Identity(BROKER, "DefaultCluster", "127.0.0.1", 10911, STORE_HOST)
        self.engine = Engine(self.config, self.store, self.identity)
        self.now_ms = NOW_MS

    def outcome(self, request: Request[Reply], peer: Peer = PEER) -> Outcome:
        return self.engine.handle(request, peer, self.now_ms)

    def ask(self, request: Request[R], peer: Peer = PEER) -> R:
        """The reply, with its records durable and visible."""
        outcome = self.outcome(request, peer)
        assert isinstance(outcome, (Answer, AfterSync)), "the broker holds the request"
        if isinstance(outcome, AfterSync):
            assert self.store.sync() >= outcome.position
        self.store.publish()
        return cast(R, outcome.reply)

    def save_files(self) -> None:
        """Save the configuration files that changed, as the broker does from time to time."""
        for file in self.engine.config_files:
            content = file.unsaved()
            if content is not None:
                self.store.configs.save(file.name, content)
                file.note_saved(content)

    def take_changes(self, name: str) -> dict[str, Any] | None:
        """The new content of a configuration file; None if nothing changed."""
        (file,) = (file for file in self.engine.config_files if file.name == name)
        return file.take_changes()

    def refusal(self, request: Request[Reply]) -> BrokerError:
        """The error of a request that the engine refuses."""
        with pytest.raises(BrokerError) as caught:
            self.outcome(request)
        return caught.value

    def advance(self, ms: int) -> None:
        """Let time pass, deliver due messages, and make them visible."""
        self.now_ms += ms
        while self.engine.deliver_delayed(self.now_ms):
            pass
        self.make_visible()

    def make_visible(self) -> None:
        """Make stored messages durable and visible."""
        self.store.sync()
        self.store.publish()

    def held(self, request: Request[Reply]) -> Hold:
        outcome = self.outcome(request)
        assert isinstance(outcome, Hold)
        return outcome

    def resumed(self, hold: Hold, *, is_final: bool = False) -> Outcome:
        return self.engine.resume(hold, self.now_ms, is_final=is_final)

    def store_messages(self, queue: QueueId, *bodies: bytes, tags: str = "") -> None:
        """Store messages in a queue, bypassing the rules of sends."""
        block = block_of(queue.topic, *bodies, tags=tags)
        self.store.append(queue.topic, queue.index, block, self.now_ms)
        self.make_visible()

    def messages(self, queue: QueueId, start: int = 0) -> list[StoredMessage]:
        """The visible messages of a queue, some thousands at most."""
        found = self.store.read(
            queue.topic, queue.index, start, count_max=10_000, bytes_max=_BYTES_READ_MAX
        )
        data, at, decoded = b"".join(found.parts), 0, []
        while at < len(data):
            message, at = decode_record(data, at)
            decoded.append(message)
        return decoded

    def bodies(self, queue: QueueId) -> list[bytes]:
        return [message.body for message in self.messages(queue)]


def offsets_of(reply: PullReply) -> list[int]:
    """The queue offsets of the records in a reply, whose sizes must match."""
    data, offsets, position = b"".join(map(bytes, reply.records)), [], 0
    while position < len(data):
        offsets.append(struct.unpack_from(">q", data, position + 20)[0])
        position += struct.unpack_from(">i", data, position)[0]
    if reply.sizes is not None:
        assert sum(struct.unpack(f"<{len(offsets)}i", reply.sizes)) == len(data)
    return offsets


def pull_reply(outcome: Outcome) -> PullReply:
    assert isinstance(outcome, Answer)
    assert isinstance(outcome.reply, PullReply)
    return outcome.reply
