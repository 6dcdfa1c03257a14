"""A popped topic, its broker, its clock, and a driver over them: no threads, no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.stream.pop.driver import PopDriver, PopPorts
from pyspark_rocketmq.stream.pop.leases import Leases
from rocketmq_client.consumer.pop import PoppedRecords
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.requests.pop import PopReply, PopStatus
from support.records import STORE_HOST
from support.storage_blocks import block_of

BASE = {"nameServer": "h:1", "subscribe": "orders", "group": "g", "consumeMode": "pop"}
INVISIBLE_MS = 60_000


def popped(*offsets: int, pop_ms: int = 1_000, index: int = 0, retry: str = "0") -> PoppedRecords:
    """A pop's answer of one queue; each body is its offset."""
    records = b""
    for offset in offsets:
        block = block_of("orders", b"%d" % offset)
        block.patch(index, offset, 0, 5, STORE_HOST)
        records += block.buffer.tobytes()
    handles = tuple(
        ReceiptHandle(
            offsets[0], pop_ms, INVISIBLE_MS, 3, RetryKind(retry), "broker-a", index, offset
        )
        for offset in offsets
    )
    return PoppedRecords("orders", "broker-a", records, handles, PopReply(PopStatus.FOUND))


@dataclass
class PopWorld:
    """A topic with scripted answers, a broker that records what it is asked, and a clock."""

    answers: list[PoppedRecords | RocketMQError] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    renewed: list[int] = field(default_factory=list)
    handed_back: list[int] = field(default_factory=list)
    errors: list[RocketMQError] = field(default_factory=list)
    now_ms: int = 0

    def receive_records(self, count_max: int = 32, *, wait_ms: int = 0) -> PoppedRecords | None:
        del wait_ms
        if not self.answers:
            return None
        answer = self.answers.pop(0)
        if isinstance(answer, RocketMQError):
            raise answer
        assert len(answer.handles) <= count_max
        return answer

    def ack_handles(self, handles: Iterable[ReceiptHandle]) -> list[RocketMQError]:
        if self.errors:
            return [self.errors.pop()]
        self.acked += [handle.offset for handle in handles]
        return []

    def change_handles(
        self, handles: Sequence[ReceiptHandle], invisible_ms: int
    ) -> list[ReceiptHandle | RocketMQError]:
        if invisible_ms == 0:
            self.handed_back += [handle.offset for handle in handles]
            return [self.errors.pop() if self.errors else handle for handle in handles]
        assert invisible_ms == INVISIBLE_MS
        self.renewed += [handle.offset for handle in handles]
        return [
            self.errors.pop() if self.errors else handle._replace(pop_ms=self.now_ms)
            for handle in handles
        ]


def driver_of(world: PopWorld, *, backlog: int = 0, run: str = "now", **options: str) -> PopDriver:
    parsed = read_options({**BASE, **options}, Use.STREAM)
    leases = Leases(lambda _: world, invisible_ms=INVISIBLE_MS, now_ms=lambda: world.now_ms)
    # Tests renew by hand.
    leases._thread = _NoThread()  # type: ignore[assignment]
    ports = PopPorts({"orders": world}, leases, lambda: backlog, lambda: world.now_ms, lambda: None)
    return PopDriver(parsed, ports, run)


class _NoThread:
    def join(self, _seconds: float) -> None:
        """Nothing to wait for."""

    def is_alive(self) -> bool:
        return False
