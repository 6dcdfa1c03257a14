"""The bulk gRPC service as a transport: calls and streams over HTTP/2 connections of our own.

The protocol is gRPC's, spoken by `rocketmq_wire.grpc_session` rather than by grpcio. Measured for
records of 350 bytes, grpcio's client costs 235 to 320 ns a record, because it copies every message
three times on its way to Python, and 160 ms to import in each of Spark's workers, with threads that
do not survive a fork. This one costs 110 ns, lands every chunk once, and needs no thread.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.settings import ConnectionSettings, split_addresses
from rocketmq_client.transport.grpc.connection import GrpcConnection, connect_to_first
from rocketmq_client.transport.grpc.errors import error_of
from rocketmq_client.transport.grpc.reading import Reading
from rocketmq_client.transport.grpc.sending import STREAMED_SIZE_MAX, SendStream
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.net.poll import wait_for
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RemoteProtocolError,
    RocketMQError,
    WrongSettingsError,
)
from rocketmq_wire.grpc.bulk.mapping import calls_of
from rocketmq_wire.grpc.bulk.methods import Method
from rocketmq_wire.grpc_headers import OK
from rocketmq_wire.grpc_session import CallEnded, MessageReceived
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import SendRecords

R = TypeVar("R", bound=Reply)

AnyRequest = Request[Any]
Result = Reply | RocketMQError
OnDone = Callable[[int, Result], None]
"""Called once with every place of a call, and what became of the request there."""

_TURN_MS_MAX: Final = 1_000


@dataclass(slots=True)
class _Pending:
    method: Method
    requests: Sequence[AnyRequest]
    places: Sequence[int]
    on_done: OnDone
    started_ms: int
    deadline_ms: int
    message: memoryview | None = None

    def settle(self, result: Result) -> None:
        for place in self.places:
            self.on_done(place, result)


class GrpcTransport:
    """One thread's way to a broker; connects when first used, and afresh in a forked process."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Raises ValueError for endpoints that are no addresses."""
        self.settings = settings
        self._addresses = split_addresses(settings.endpoints or "")
        if not self._addresses:
            raise ValueError(f"endpoints names no address: {settings.endpoints!r}")
        self._process_id = os.getpid()
        self._clock = ActiveClock()
        self._connection: GrpcConnection | None = None
        self._unreachable: tuple[float, ConnectError] | None = None
        """Why no connection could be made, and until when this answers what is submitted."""
        self._idle_reader: GrpcConnection | None = None
        self._pending: dict[int, _Pending] = {}
        self._sends = SendStream()
        self._done: list[tuple[int, Result]] = []
        self._ticket = 0
        self._wakers: tuple[socket.socket, socket.socket] | None = None
        self._is_woken = False
        self._closings = 0

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
        """See `Transport.call_many`. Questions about many queues share a call."""
        self._check_process()
        self._unreachable = None
        wanted = [request for _, request in requests]
        results: dict[int, Result] = {}
        with self._clock.inside():
            self._start_all(wanted, results.__setitem__, timeout_ms)
            while len(results) < len(wanted):
                self._turn(_TURN_MS_MAX)
        return [cast("R | RocketMQError", results[place]) for place in range(len(wanted))]

    def submit(self, request: Request[R], *, broker: str | None, timeout_ms: int) -> int:
        """See `Transport.submit`."""
        (ticket,) = self.submit_many([(broker, request)], timeout_ms=timeout_ms)
        return ticket

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        """See `Transport.submit_many`. Questions about many queues share a call."""
        self._check_process()
        first = self._ticket + 1
        self._ticket += len(requests)
        # The endpoint answers for every broker.
        wanted = [request for _, request in requests]
        with self._clock.inside():
            self._start_all(
                wanted, lambda place, result: self._done.append((first + place, result)), timeout_ms
            )
        return list(range(first, first + len(requests)))

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Result]]:
        """See `Transport.completed`."""
        self._check_process()
        waker = self._listen_for_wakes()
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            while not self._done and not self._is_woken:
                left_ms = end_ms - self._clock.now_ms()
                self._turn(max(0, left_ms), also=waker.fileno())
                if left_ms <= 0:
                    break
        if self._is_woken:
            self._is_woken = False
            with contextlib.suppress(BlockingIOError):
                waker.recv(4_096)
        done, self._done = self._done, []
        return done

    def places(self) -> dict[str, str]:
        """See `Transport.places`: it asks one address for everything."""
        return {}

    def hint(self, places: Mapping[str, str]) -> None:
        """See `Transport.hint`: of no use here."""

    def wake(self) -> None:
        """See `Transport.wake`."""
        # The mark first: who begins to listen in between looks at it before waiting.
        self._is_woken = True
        wakers = self._wakers
        if wakers is not None:
            # Full: thousands of wakes wait already. Closed meanwhile: nobody waits.
            with contextlib.suppress(OSError):
                wakers[1].send(b"w")

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        """See `Transport.read_ranges`."""
        self._check_process()
        return Reading(self, ranges, spec).chunks()

    def close(self) -> None:
        """Close every connection. What is under way is forgotten; a later call connects again."""
        for connection in (self._connection, self._idle_reader):
            if connection is not None:
                connection.close()
        self._connection = self._idle_reader = None
        self._closings += 1
        self._pending.clear()
        self._sends.forget()
        self._done.clear()
        wakers, self._wakers = self._wakers, None
        for waker in wakers or ():
            waker.close()

    # --- what a download uses -----------------------------------------------------------------

    @property
    def clock(self) -> ActiveClock:
        """Runs only inside the transport."""
        return self._clock

    def take_reader(self) -> GrpcConnection:
        """A connection for one stream: its window must not be shared with calls."""
        reader, self._idle_reader = self._idle_reader, None
        if reader is not None:
            if not reader.is_stale:
                return reader
            reader.close()
        return self._connect()

    @property
    def closings(self) -> int:
        """How often the transport was closed: what was taken before is not given back after."""
        return self._closings

    def give_back(self, reader: GrpcConnection, closings: int) -> None:
        """A stream ended and left its connection as it was; the next one may use it."""
        is_same = closings == self._closings and self._process_id == os.getpid()
        if is_same and self._idle_reader is None:
            self._idle_reader = reader
        else:
            reader.close()

    # --- inside -------------------------------------------------------------------------------

    def _start_all(self, wanted: Sequence[AnyRequest], on_done: OnDone, timeout_ms: int) -> None:
        try:
            calls = calls_of(wanted)
        except RocketMQError as error:
            for place in range(len(wanted)):
                on_done(place, error)
            return
        for method, places in calls:
            requests = [wanted[place] for place in places]
            try:
                self._start(method, requests, places, on_done, timeout_ms)
            except RocketMQError as error:
                for place in places:
                    on_done(place, error)

    def _start(
        self,
        method: Method,
        requests: Sequence[AnyRequest],
        places: Sequence[int],
        on_done: OnDone,
        timeout_ms: int,
    ) -> None:
        message = method.encode(requests)
        connection = self._connected()
        now_ms = self._clock.now_ms()
        try:
            if _is_streamed(requests[0]):
                on_answer = partial(on_done, places[0])
                self._sends.send(
                    connection, message, on_answer, now_ms=now_ms, timeout_ms=timeout_ms
                )
                return
            number = connection.start(method.path, message, timeout_ms=timeout_ms)
        except (ConnectionLostError, WrongSettingsError) as error:
            self._lose(error)
            raise
        self._pending[number] = _Pending(
            method, requests, places, on_done, now_ms, now_ms + timeout_ms
        )

    def _connected(self) -> GrpcConnection:
        connection = self._connection
        # What was closed while it was idle would lose the call; what is busy will be noticed.
        if connection is not None and not self._is_busy and not self._is_usable(connection):
            connection.close()
            self._sends.forget()
            connection = None
        if connection is None:
            connection = self._connection = self._connect_once()
        return connection

    def _connect_once(self) -> GrpcConnection:
        """Connect; a failure serves all that is asked for as long again as it took.

        A machine that is away costs a whole time-out, and may not cost it for every request.
        """
        # Not the transport's own clock, which stands still while nobody waits in here.
        began = time.monotonic()
        if self._unreachable is not None:
            until, error = self._unreachable
            if began < until:
                raise ConnectError(error.address, error.reason)
        try:
            connection = self._connect()
        except ConnectError as error:
            now = time.monotonic()
            self._unreachable = (now + (now - began), error)
            raise
        self._unreachable = None
        return connection

    def _is_usable(self, connection: GrpcConnection) -> bool:
        if connection.is_stale:
            return False
        try:
            # The broker may have ended the stream of sends, or answered one that was given up.
            self._take_events(connection)
        except RemoteProtocolError:
            return False
        return True

    @property
    def _is_busy(self) -> bool:
        return bool(self._pending) or not self._sends.is_idle

    def _connect(self) -> GrpcConnection:
        connect = partial(
            GrpcConnection,
            clock=self._clock,
            connect_timeout_ms=self.settings.connect_timeout_ms,
            security=self.settings.security,
        )
        connection, self._addresses = connect_to_first(self._addresses, connect)
        return connection

    def _turn(self, timeout_ms: int, *, also: int | None = None) -> None:
        """Let something happen: bytes, an answer, an expiry, or `timeout_ms` passing by."""
        connection = self._connection
        now_ms = self._clock.now_ms()
        deadlines = [call.deadline_ms for call in self._pending.values()]
        if self._sends.deadline_ms is not None:
            deadlines.append(self._sends.deadline_ms)
        if deadlines:
            timeout_ms = min(timeout_ms, max(0, min(deadlines) - now_ms))
        if connection is None or not deadlines:
            # Nothing is under way: only a wake can happen.
            wait_for(None, is_writing=False, also=also, timeout_ms=timeout_ms)
            return
        try:
            connection.turn(timeout_ms, also=also)
            self._take_events(connection)
        except (ConnectionLostError, RemoteProtocolError, WrongSettingsError) as error:
            self._lose(error)
            return
        self._expire(connection)

    def _take_events(self, connection: GrpcConnection) -> None:
        while (event := connection.next_event()) is not None:
            self._on_event(connection, event)

    def _on_event(self, connection: GrpcConnection, event: MessageReceived | CallEnded) -> None:
        is_of_sends = event.call == self._sends.call
        if isinstance(event, MessageReceived):
            connection.taken(event)
            if is_of_sends:
                self._sends.on_message(event.message)
                return
            call = self._pending.get(event.call)
            if call is not None:
                call.message = event.message
            return
        if is_of_sends:
            self._sends.on_end(connection, event)
            return
        call = self._pending.pop(event.call, None)
        if call is None:
            return
        if event.status != OK or call.message is None:
            call.settle(error_of(connection.address, event))
            return
        try:
            outcomes = call.method.decode_outcomes(call.requests, call.message)
        except RocketMQError as error:
            call.settle(error)
            return
        for place, outcome in zip(call.places, outcomes, strict=True):
            call.on_done(place, outcome)

    def _expire(self, connection: GrpcConnection) -> None:
        now_ms = self._clock.now_ms()
        is_silent = self._sends.expire(connection, now_ms)
        for number, call in list(self._pending.items()):
            if now_ms < call.deadline_ms:
                continue
            del self._pending[number]
            connection.cancel(number)
            is_silent = is_silent or not connection.heard_since(call.started_ms)
            waited_ms = now_ms - call.started_ms
            call.settle(DeadlineExceededError(connection.address, f"waited {waited_ms} ms"))
        if is_silent:
            # Not even a frame of HTTP/2 came: the way itself is suspect, not this call.
            self._lose(ConnectionLostError(connection.address, "nothing was heard of it"))

    def _lose(self, error: ConnectionLostError | RemoteProtocolError | WrongSettingsError) -> None:
        """The connection is over: tell everybody who waits."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        pending, self._pending = self._pending, {}
        for call in pending.values():
            call.settle(error)
        self._sends.fail(error)

    def _listen_for_wakes(self) -> socket.socket:
        if self._wakers is None:
            self._wakers = socket.socketpair()
            for end in self._wakers:
                end.setblocking(False)
        return self._wakers[0]

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            # Forked: the sockets belong to the parent. Closing our copies does not disturb them.
            self._process_id = os.getpid()
            self.close()


def _is_streamed(request: AnyRequest) -> bool:
    """True for batches that share the stream of sends."""
    return isinstance(request, SendRecords) and len(request.records) <= STREAMED_SIZE_MAX
