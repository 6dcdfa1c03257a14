"""The contract of both transports, and which one the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import MissingPackageError, RocketMQError
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply, Request

R = TypeVar("R", bound=Reply)

# Each is imported by name when it is chosen: a process needs the libraries of its own one alone.
_TCP: Final = ("rocketmq_client.transport.tcp.transport", "TcpTransport")
_GRPC: Final = ("rocketmq_client.transport.grpc.transport", "GrpcTransport")


class Transport(Protocol):
    """A client's connections to a cluster. Not thread-safe: one owner at a time."""

    def call(self, request: Request[R], *, broker: str | None = None, timeout_ms: int) -> R:
        """Send a request and wait. `broker` is a broker's name; None is the name server."""
        (reply,) = self.call_many([(broker, request)], timeout_ms=timeout_ms)
        if isinstance(reply, RocketMQError):
            raise reply
        return reply

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[R | RocketMQError]:
        """Send many requests at once and wait; a failure is returned instead of its reply."""
        ...

    def submit(self, request: Request[R], *, broker: str | None, timeout_ms: int) -> int:
        """Start a request and return its ticket in `completed`. Raises nothing."""
        (ticket,) = self.submit_many([(broker, request)], timeout_ms=timeout_ms)
        return ticket

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        """Start many requests, which may travel together; return their tickets."""
        ...

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Reply | RocketMQError]]:
        """Return results of submitted requests; wait up to `timeout_ms` for the first one.

        Many requests may be in flight, and they end in any order: long polls, pipelined sends.
        """
        ...

    def wake(self) -> None:
        """Make `completed` return, now or at its next call. The one thread-safe method."""
        ...

    def broker_addresses(self) -> dict[str, str]:
        """The addresses of brokers that it knows by name."""
        ...

    def hint(self, addresses: Mapping[str, str]) -> None:
        """Use these addresses of brokers if no name server answers."""
        ...

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """Download ranges in the order given; each range's chunks are in offset order.

        While the caller holds the generator suspended, no time-out runs.
        """
        ...

    def close(self) -> None:
        """Close every connection; a later request connects again."""
        ...


def open_transport(settings: ConnectionSettings) -> Transport:
    """Name servers speak TCP remoting, endpoints speak gRPC. Connects nothing yet.

    Raises MissingPackageError.
    """
    module, name = _GRPC if settings.endpoints else _TCP
    if settings.endpoints and find_spec("grpc") is None:
        raise MissingPackageError("grpcio", "the option endpoints")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if not settings.endpoints:
            raise
        raise MissingPackageError(str(error.name), "the option endpoints") from None
    make = cast("Callable[[ConnectionSettings], Transport]", getattr(found, name))
    return make(settings)
