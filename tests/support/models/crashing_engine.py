"""An engine on a disk that can lose power, with the topics and groups of the models."""

from __future__ import annotations

import random

from rocketmq_broker.engine.core.outcomes import AfterSync
from rocketmq_wire.model import ConsumerInfo, StoredMessage, TopicConfig
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.topics import CreateTopic
from support.crash_files import CrashFiles, Disk
from support.engines import EngineUnderTest
from support.models.log_model import GROUP, Queue


class CrashingEngine:
    """The engine on a disk that can lose power."""

    def __init__(self) -> None:
        self.files = CrashFiles()
        self.broker = self._opened()
        self.broker.ask(CreateTopic(TopicConfig("orders", 2, 2)))
        self.broker.ask(CreateTopic(TopicConfig("jobs", 1, 1)))
        self.broker.ask(CreateTopic(TopicConfig("later", 1, 1)))
        self.broker.ask(CreateTopic(TopicConfig("turns", 1, 1)))
        for group in (GROUP, "workers", "in-turn"):
            info = ConsumerInfo(group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST")
            self.broker.ask(Heartbeat("c@1", (), (info,)))
        self.seen: dict[Queue, list[StoredMessage]] = {}

    def _opened(self) -> EngineUnderTest:
        return EngineUnderTest(
            self.files,
            flush="sync",
            commit_log_file_bytes=64 * 1024,
            consume_queue_file_entries=256,
        )

    def tell(self, request: Request[Reply]) -> None:
        """Send a request without a sync: a crash may lose its records."""
        assert isinstance(self.broker.outcome(request), AfterSync)

    def sync(self) -> None:
        self.broker.make_visible()

    def pass_time(self, ms: int) -> None:
        self.broker.now_ms += ms
        self.broker.engine.deliver_delayed(self.broker.now_ms)

    def save(self) -> None:
        self.broker.save_files()

    def crash(self, chance: random.Random) -> None:
        """Lose power: none, all, or any part of the writes since the last sync reached the disk."""
        disk = Disk(self.files.base)
        for operation in self.files.journal:
            disk.step(operation)
        share = chance.choice((0.0, 0.5, 1.0))
        kept = [change for change in disk.pending if chance.random() < share]
        now_ms = self.broker.now_ms
        self.files = CrashFiles.of(disk.state_with(kept))
        self.broker, self.seen = self._opened(), {}
        self.broker.now_ms = now_ms
        self.sync()

    def end(self, queue: Queue) -> int:
        return self.broker.store.bounds(*queue).end

    def messages(self, queue: Queue) -> list[StoredMessage]:
        """A queue's messages; each is read once."""
        seen, end = self.seen.setdefault(queue, []), self.end(queue)
        while len(seen) < end:
            found = self.broker.store.read(*queue, len(seen), count_max=1_000, bytes_max=1 << 20)
            data, at = b"".join(map(bytes, found.parts)), 0
            while at < len(data):
                message, at = decode_record(data, at, check_crc=False)
                seen.append(message)
        return seen
