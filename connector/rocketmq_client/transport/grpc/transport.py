"""The bulk gRPC service as a transport: calls and streams over channels of grpcio.

One thread uses a transport. The events of grpcio's threads arrive in its inbox, and the transport
takes them only while its thread waits inside.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.channels import Channels
from rocketmq_client.transport.grpc.connection import (
    RECEIVE_WINDOW,
    SILENCE_MS_MAX,
    CallEnded,
    Event,
    GrpcConnection,
    Inbox,
    MessageReceived,
    next_event,
)
from rocketmq_client.transport.grpc.download import Download
from rocketmq_client.transport.grpc.errors import DEADLINE_EXCEEDED, UNAVAILABLE
from rocketmq_client.transport.grpc.sending import STREAMED_SIZE_MAX, SendStream
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    RemoteProtocolError,
    RocketMQError,
)
from rocketmq_wire.grpc.bulk.mapping import calls_of
from rocketmq_wire.grpc.bulk.methods import Method
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import SendRecords

R = TypeVar("R", bound=Reply)

AnyRequest = Request[Any]
Result = Reply | RocketMQError
OnDone = Callable[[int, Result], None]
"""Called once for the index of each request, with its result."""

_TURN_MS_MAX: Final = 1_000


@dataclass(slots=True)
class _Pending:
    method: Method
    requests: Sequence[AnyRequest]
    indexes: Sequence[int]
    on_done: OnDone
    started_at: float
    message: memoryview | None = None

    def finish(self, result: Result) -> None:
        for index in self.indexes:
            self.on_done(index, result)


class GrpcTransport:
    """One thread's connections to a broker, made at first use."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Raises ValueError for endpoints that are no addresses."""
        self._settings = settings
        self._channels = Channels(settings)
        self._process_id = os.getpid()
        self._clock = ActiveClock()
        self._connection: GrpcConnection | None = None
        self._unreachable: tuple[float, ConnectError] | None = None
        """Why no connection could be made, and until when requests fail with it at once."""
        self._pending: dict[int, _Pending] = {}
        self._sends = SendStream()
        self._done: list[tuple[int, Result]] = []
        self._ticket = 0
        self._inbox: Inbox = SimpleQueue()
        self._is_woken = False

    # --- the contract -------------------------------------------------------------------------

    def call(self, request: Request[R], *, broker: str | None = None, timeout_ms: int) -> R:
        """See `Transport.call`. The endpoint answers for every broker and the name server."""
        (reply,) = self.call_many([(broker, request)], timeout_ms=timeout_ms)
        if isinstance(reply, RocketMQError):
            raise reply
        return reply

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[R | RocketMQError]:
        """See `Transport.call_many`. Requests about many queues share a call."""
        self._check_process()
        self._unreachable = None
        wanted = [request for _, request in requests]
        results: dict[int, Result] = {}
        with self._clock.inside():
            self._start_all(wanted, results.__setitem__, timeout_ms)
            while len(results) < len(wanted):
                self._turn(_TURN_MS_MAX)
        return [cast("R | RocketMQError", results[index]) for index in range(len(wanted))]

    def submit(self, request: Request[R], *, broker: str | None, timeout_ms: int) -> int:
        """See `Transport.submit`."""
        (ticket,) = self.submit_many([(broker, request)], timeout_ms=timeout_ms)
        return ticket

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        """See `Transport.submit_many`. Requests about many queues share a call."""
        self._check_process()
        first = self._ticket + 1
        self._ticket += len(requests)
        # The endpoint answers for every broker.
        wanted = [request for _, request in requests]
        with self._clock.inside():
            self._start_all(
                wanted, lambda index, result: self._done.append((first + index, result)), timeout_ms
            )
        return list(range(first, first + len(requests)))

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Result]]:
        """See `Transport.completed`."""
        self._check_process()
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            while not self._done and not self._is_woken:
                left_ms = end_ms - self._clock.now_ms()
                self._turn(max(0, left_ms))
                if left_ms <= 0:
                    break
        self._is_woken = False
        done, self._done = self._done, []
        return done

    def broker_addresses(self) -> dict[str, str]:
        """See `Transport.broker_addresses`: the endpoint answers for every broker."""
        return {}

    def hint(self, addresses: Mapping[str, str]) -> None:
        """See `Transport.hint`: the endpoint answers for every broker."""

    def wake(self) -> None:
        """See `Transport.wake`."""
        # The mark comes first: `completed` checks it before it waits.
        self._is_woken = True
        self._inbox.put(None)

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """See `Transport.read_ranges`."""
        self._check_process()
        return Download(self, self._settings, self._channels, self._clock, ranges, spec).chunks()

    def close(self) -> None:
        """Close every connection and forget all requests; a later one connects again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._channels.close()
        self._pending.clear()
        self._sends.forget()
        self._done.clear()
        self._inbox = SimpleQueue()

    # --- inside -------------------------------------------------------------------------------

    def _start_all(self, wanted: Sequence[AnyRequest], on_done: OnDone, timeout_ms: int) -> None:
        try:
            calls = calls_of(wanted)
        except RocketMQError as error:
            for index in range(len(wanted)):
                on_done(index, error)
            return
        for method, indexes in calls:
            requests = [wanted[index] for index in indexes]
            try:
                self._start(method, requests, indexes, on_done, timeout_ms)
            except RocketMQError as error:
                for index in indexes:
                    on_done(index, error)

    def _start(
        self,
        method: Method,
        requests: Sequence[AnyRequest],
        indexes: Sequence[int],
        on_done: OnDone,
        timeout_ms: int,
    ) -> None:
        message = method.encode(requests)
        connection = self._connected()
        if _is_streamed(requests[0]):
            on_answer, now_ms = partial(on_done, indexes[0]), self._clock.now_ms()
            self._sends.send(connection, message, on_answer, now_ms=now_ms, timeout_ms=timeout_ms)
            return
        started_at = time.monotonic()
        number = connection.start(method.path, message, timeout_ms=timeout_ms)
        self._pending[number] = _Pending(method, requests, indexes, on_done, started_at)

    def _connected(self) -> GrpcConnection:
        # The broker may have ended the stream of sends, or answered a send that was given up.
        self._take_events()
        if self._connection is not None and not self._is_busy and self._connection.is_stale:
            self._drop()
        if self._connection is None:
            self._connection = self._connect_once()
        return self._connection

    def _connect_once(self) -> GrpcConnection:
        """Connect; a failure also ends the requests of the next moments, as long as it took.

        A machine that is down costs a whole time-out, but not for every request.
        """
        # The transport's own clock stands still while the caller is outside.
        began = time.monotonic()
        if self._unreachable is not None:
            until, error = self._unreachable
            if began < until:
                raise ConnectError(error.address, error.reason)
        try:
            connection = self._channels.connect(self._inbox, RECEIVE_WINDOW)
        except ConnectError as error:
            now = time.monotonic()
            self._unreachable = (now + (now - began), error)
            raise
        self._unreachable = None
        return connection

    @property
    def _is_busy(self) -> bool:
        return bool(self._pending) or not self._sends.is_idle

    def _turn(self, timeout_ms: int) -> None:
        """Wait up to `timeout_ms` for an answer, an expiry or a wake, and take it in."""
        deadline_ms = self._sends.deadline_ms
        if deadline_ms is not None:
            timeout_ms = min(timeout_ms, max(0, deadline_ms - self._clock.now_ms()))
        event = next_event(self._inbox, timeout_ms)
        if event is not None:
            self._on_event(event)
        self._take_events()
        self._expire_sends()

    def _take_events(self) -> None:
        while not self._inbox.empty():
            event = next_event(self._inbox, 0)
            if event is not None:
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        connection = self._connection
        if connection is None:
            return
        if event.call == self._sends.call:
            self._on_send_event(connection, event)
        elif isinstance(event, MessageReceived):
            call = self._pending.get(event.call)
            if call is not None:
                call.message = event.message
        else:
            call = self._pending.pop(event.call, None)
            if call is not None:
                self._on_end(connection, call, event)

    def _on_send_event(self, connection: GrpcConnection, event: Event) -> None:
        if isinstance(event, CallEnded):
            self._sends.on_end(connection, event)
            if event.status == UNAVAILABLE:
                self._lose(ConnectionLostError(connection.address, event.text))
            connection.is_ending = True
            return
        connection.taken(event)
        try:
            self._sends.on_message(event.message)
        except RemoteProtocolError as error:
            self._lose(error)

    def _on_end(self, connection: GrpcConnection, call: _Pending, ended: CallEnded) -> None:
        error = connection.error_of(ended)
        if error is None and call.message is None:
            error = RemoteProtocolError(f"{connection.address} ended a call without an answer")
        if error is not None:
            call.finish(error)
            self._check_connection(connection, call, ended, error)
            return
        assert call.message is not None
        try:
            outcomes = call.method.decode_outcomes(call.requests, call.message)
        except RocketMQError as refusal:
            call.finish(refusal)
            return
        for index, outcome in zip(call.indexes, outcomes, strict=True):
            call.on_done(index, outcome)

    def _check_connection(
        self, connection: GrpcConnection, call: _Pending, ended: CallEnded, error: RocketMQError
    ) -> None:
        """Give the connection up if the end of this call shows that it is broken."""
        if ended.status == UNAVAILABLE:
            if isinstance(error, ConnectError):
                # This call was not sent; earlier ones may have been.
                error = ConnectionLostError(connection.address, error.reason)
            self._lose(error)
        elif ended.status == DEADLINE_EXCEEDED and not connection.heard_since(call.started_at):
            waited_ms = (time.monotonic() - call.started_at) * 1_000
            if waited_ms < SILENCE_MS_MAX:
                # No ping can have failed yet: the connection is suspect, not this call.
                self._lose(ConnectionLostError(connection.address, "nothing was heard of it"))

    def _expire_sends(self) -> None:
        connection = self._connection
        if connection is not None and self._sends.expire(connection, self._clock.now_ms()):
            self._lose(ConnectionLostError(connection.address, "nothing was heard of it"))

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._sends.forget()
        if connection is not None:
            connection.close()

    def _lose(self, error: RocketMQError) -> None:
        """Give the connection up; every request that waits ends with the error."""
        connection, self._connection = self._connection, None
        pending, self._pending = self._pending, {}
        for call in pending.values():
            call.finish(error)
        self._sends.fail(error)
        if connection is not None:
            connection.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            # Forked: the channels belong to the parent.
            self._process_id = os.getpid()
            self.close()


def _is_streamed(request: AnyRequest) -> bool:
    """True for batches that share the stream of sends."""
    return isinstance(request, SendRecords) and len(request.records) <= STREAMED_SIZE_MAX
