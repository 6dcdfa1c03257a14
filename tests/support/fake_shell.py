"""A shell without a broker: queues of stand-in records under the rules of a pull.

A stand-in has the size and queue offset of a record at their positions, and nothing else. Tag `odd`
selects the odd offsets.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import (
    BrokerAddresses,
    Buffer,
    CommittedOffset,
    QueueId,
    QueueSet,
    QueueStats,
    Route,
)
from rocketmq_wire.requests.contract import Done, Request
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendRecords,
    SendReply,
    SendStatus,
)
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    ConsumeStatsReply,
    GetCommittedOffset,
    GetConsumeStats,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)
from rocketmq_wire.requests.topics import GetRoute, GetTopicStats, RouteReply, TopicStatsReply

TOPIC: Final = "orders"
BROKER: Final = "broker-a"
RECORD_SIZE: Final = 100
_HEAD: Final = struct.Struct(">i16xq")


def queue(index: int) -> QueueId:
    """A queue of the fake's one topic."""
    return QueueId(TOPIC, BROKER, index)


def record(offset: int, size: int = RECORD_SIZE) -> bytes:
    """A stand-in for the record at a queue offset."""
    return _HEAD.pack(size, offset).ljust(size, b".")


def offsets_of(body: Buffer) -> list[int]:
    """The queue offsets of the records in a body."""
    offsets, position = [], 0
    while position < len(body):
        size, offset = _HEAD.unpack_from(body, position)
        offsets.append(offset)
        position += size
    return offsets


@dataclass
class FakeQueue:
    """Offsets `[start, end)`, some of which may have lost their messages."""

    start: int = 0
    end: int = 0
    gone: range = range(0)
    """Offsets whose messages are lost; a pull skips them."""


@dataclass
class FakeShell:
    """Answers at once. A test may change everything while it serves."""

    queues: dict[QueueId, FakeQueue] = field(default_factory=dict)
    committed: dict[tuple[str, QueueId], int] = field(default_factory=dict)
    refusal: BrokerError | None = None
    """The reply to everything, if set."""
    gate: asyncio.Event | None = None
    """If set, sends wait for it before their replies, as for a disk."""
    asked: list[Request[Any]] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)
    sent: list[SendRecords] = field(default_factory=list)
    held: int = 0

    async def ask(self, request: Request[Any], peer: Any) -> Any:
        """The reply, as `EngineShell.ask` gives it."""
        self.asked.append(request)
        self.peers.append(peer)
        if self.refusal is not None:
            raise self.refusal
        if isinstance(request, PullMessages):
            return await self._pull(request)
        if isinstance(request, SendRecords):
            return await self._send(request)
        return self._answer(request)

    def ask_later(self, request: Request[Any], peer: Any) -> asyncio.Future[Any]:
        """The reply later, as `EngineShell.ask_later` gives it."""
        return asyncio.ensure_future(self.ask(request, peer))

    def arrive(self, wanted: QueueId, count: int = 1) -> None:
        """Let messages arrive; held pulls see them."""
        self.queues[wanted].end += count

    # --- one kind of request each -----------------------------------------------------------------

    def _answer(self, request: Any) -> Any:
        if isinstance(request, (GetMinOffset, GetMaxOffset)):
            found = self.queues.get(request.queue, FakeQueue())
            is_min = isinstance(request, GetMinOffset)
            return OffsetReply(found.start if is_min else found.end)
        if isinstance(request, GetCommittedOffset):
            offset = self.committed.get((request.group, request.queue))
            if offset is None:
                raise broker_error(22, f"no committed offset of {request.group}")
            return OffsetReply(offset)
        if isinstance(request, CommitOffset):
            self.committed[request.group, request.queue] = request.offset
            return Done()
        if isinstance(request, GetRoute):
            if not any(found.topic == request.topic for found in self.queues):
                raise broker_error(17, f"No topic route info for {request.topic}")
            count = sum(found.topic == request.topic for found in self.queues)
            return RouteReply(
                Route(
                    (QueueSet(BROKER, count, count, 6),),
                    (BrokerAddresses(BROKER, "DefaultCluster", {0: "127.0.0.1:10911"}),),
                )
            )
        if isinstance(request, GetTopicStats):
            return TopicStatsReply(
                {name: QueueStats(q.start, q.end, 1) for name, q in self.queues.items()}
            )
        if isinstance(request, GetConsumeStats):
            return ConsumeStatsReply(
                {
                    name: CommittedOffset(self.queues[name].end, offset, 1)
                    for (group, name), offset in self.committed.items()
                    if group == request.group
                }
            )
        raise broker_error(3, f"the fake does not know {type(request).__name__}")

    async def _pull(self, request: PullMessages) -> PullReply:
        found = self.queues.get(request.queue)
        if found is None:
            raise broker_error(17, f"topic[{request.queue.topic}] not exist")
        if request.start == found.end and request.suspend_ms:
            self.held += 1
            try:
                for _ in range(request.suspend_ms):
                    if found.end > request.start:
                        break
                    await asyncio.sleep(0.001)
            finally:
                self.held -= 1
        start, end = found.start, found.end
        if request.start < start or request.start > end:
            next_begin = start if request.start < start else end
            status = PullStatus.OFFSET_ILLEGAL
            return PullReply(status, next_begin, start, end, remark=status.name)
        if request.start == end:
            status = PullStatus.NO_NEW_MESSAGE
            return PullReply(status, end, start, end, remark=status.name)
        count_max = min(request.count_max, (request.bytes_max or 1 << 20) // RECORD_SIZE or 1)
        stop = min(end, request.start + count_max)
        offsets = [n for n in range(request.start, stop) if n not in found.gone]
        if request.subscription.expression == "odd":
            offsets = [n for n in offsets if n % 2]
        if request.subscription.expression == "none":
            offsets = []
        status = PullStatus.FOUND if offsets else PullStatus.NO_MATCHED_MESSAGE
        # In two parts, as from a log that continues in its next file.
        body = [record(offset) for offset in offsets]
        middle = len(body) // 2
        parts = tuple(part for part in (b"".join(body[:middle]), b"".join(body[middle:])) if part)
        sizes = struct.pack(f"<{len(body)}i", *map(len, body))
        return PullReply(status, stop, start, end, parts, sizes or None, 0, status.name)

    async def _send(self, request: SendRecords) -> SendReply:
        self.sent.append(request)
        count = len(request.sizes or b"") // 4
        target = self.queues[request.queue]
        start, target.end = target.end, target.end + count
        if self.gate is not None:
            await self.gate.wait()
        return SendReply(SendStatus.OK, "", request.queue.index, start, None, count)
