"""The one contract of both transports: ask something, or download ranges of queues in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply, Request

R = TypeVar("R", bound=Reply)


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

    def broker_addresses(self) -> dict[str, str]:
        """The addresses of brokers that it knows by name."""
        ...

    def hint(self, addresses: Mapping[str, str]) -> None:
        """Where another found brokers, for when nobody else can be asked."""
        ...

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """Download ranges, in the order given; each range's chunks are in offset order.

        Time for which the caller holds the generator suspended counts towards no time-out.
        """
        ...

    def close(self) -> None: ...
