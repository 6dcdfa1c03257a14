"""The one contract of both transports: ask something, or download ranges of queues in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rocketmq_client.loss import Loss, LossPolicy
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Buffer, OffsetRange, QueueId, Subscription
from rocketmq_wire.requests.core import Reply, Request

R = TypeVar("R", bound=Reply)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of one download. The first three limit what is requested or received and not taken."""

    messages_max: int = 32_768
    bytes_max: int = 100 * 1024 * 1024
    span_max: int | None = None
    count_per_pull: int = 10_000
    """Asked of the broker in one pull; a real broker gives at most 32."""
    pulls_in_flight: int = 64
    """Per queue and connection."""
    pull_timeout_ms: int = 30_000
    """How long a broker may be silent; a pull takes longer while bytes arrive."""
    slow_pull_ms: int = 1_800_000
    """What a pull takes at most: at 18 KiB/s all that a download asks for ahead has come."""
    outage_ms: int = 60_000
    """A broker may be away this long, counted from its last answer."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What a download is for: the group named in its pulls, and what it filters by."""

    group: str
    subscription: Subscription = field(default_factory=Subscription)
    limits: ReadLimits = field(default_factory=ReadLimits)
    loss_policy: LossPolicy = LossPolicy.RAISE
    """Where offsets are gone: RangeLostError, or (SKIP) a chunk with `loss` set in their place."""


@dataclass(frozen=True, slots=True)
class RangeChunk:
    """Whole records covering the offsets `[start, end)` of a queue.

    Records outside `[start, end)` may be in `body`; the decoder drops them by their offset. Chunks
    of one queue follow each other without a gap: together they cover the whole range. The body is
    empty where nothing matched a filter, and where offsets are lost.
    """

    queue: QueueId
    start: int
    end: int
    body: Buffer
    sizes: Buffer | None = None
    expected_count: int | None = None
    """Records with an offset in `[start, end)`; fewer in `body` are data loss. None: filtered."""
    loss: Loss | None = None
    """Set under `LossPolicy.SKIP` when these offsets are gone."""


class Transport(Protocol):
    """A way to a cluster. Not thread-safe: one owner at a time."""

    def call(self, request: Request[R], *, broker: str | None = None, timeout_ms: int) -> R:
        """Ask one thing. `broker` is a broker's name; None asks the name server."""
        ...

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[R | RocketMQError]:
        """Ask many things at once; a failure of one is its place's value, not raised."""
        ...

    def submit(self, request: Request[R], *, broker: str | None, timeout_ms: int) -> int:
        """Start asking and return a ticket; `completed` hands the answer on. Raises nothing."""
        ...

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        """`submit` for many requests, which may travel together; their tickets."""
        ...

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Reply | RocketMQError]]:
        """Answers to submitted requests by ticket; waits up to `timeout_ms` for the first one.

        Held pulls and pipelined sends are made of this: many may be under way, in any order.
        """
        ...

    def wake(self) -> None:
        """Make `completed` return, now or at its next call. The one thread-safe method."""
        ...

    def places(self) -> dict[str, str]:
        """The addresses of brokers that it knows by name."""
        ...

    def hint(self, places: Mapping[str, str]) -> None:
        """Where another found brokers, for when nobody else can be asked."""
        ...

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """Download ranges, in the order given; each range's chunks are in offset order.

        Time for which the caller holds the generator suspended counts towards no time-out.
        """
        ...

    def close(self) -> None: ...
