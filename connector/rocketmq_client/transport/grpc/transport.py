"""The bulk gRPC service as a transport: calls and streams over channels of grpcio.

One thread uses a transport. The events of grpcio's threads arrive in its inbox, and the transport
takes them only while its thread waits inside.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport
from rocketmq_client.transport.grpc.connection import (
    SILENCE_MS_MAX,
    Call,
    Channels,
    Event,
    GrpcConnection,
    Inbox,
    next_event,
)
from rocketmq_client.transport.grpc.download import Download
from rocketmq_client.transport.grpc.errors import DEADLINE_EXCEEDED, UNAVAILABLE
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RemoteProtocolError,
    RocketMQError,
    UnsupportedRequestError,
    WrongSettingsError,
)
from rocketmq_wire.grpc.bulk.mapping import SEND_RECORDS_STREAM_PATH, calls_of
from rocketmq_wire.grpc.bulk.methods import Method
from rocketmq_wire.grpc.bulk.records import decode_send_outcome
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import SendRecords

R = TypeVar("R", bound=Reply)

AnyRequest = Request[Any]
Result = Reply | RocketMQError
Results = dict[int, Result]
"""Results by ticket."""

# A message over the broker's limit would end the stream for all: large ones get their own calls.
STREAMED_SIZE_MAX: Final = 4 * 1024 * 1024
_TURN_MS_MAX: Final = 1_000


@dataclass(slots=True)
class _Pending:
    """The requests of a call in flight."""

    method: Method
    requests: Sequence[AnyRequest]
    tickets: Sequence[int]
    results: Results

    def finish(self, result: Result) -> None:
        self.results.update(dict.fromkeys(self.tickets, result))


@dataclass(slots=True)
class _Sent:
    """A batch of the stream of sends."""

    ticket: int
    results: Results | None
    """None once the send was given up; its answer still comes in order."""
    started_at: float
    deadline_ms: int

    def finish(self, result: Result) -> None:
        if self.results is not None:
            self.results[self.ticket] = result
            self.results = None


class GrpcTransport(Transport):
    """One thread's connections to a broker, made at first use.

    Batches of records share one stream, which costs the broker half of a call's work for each. If
    the stream ends, batches without an answer may have been stored.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        """Raises ValueError for endpoints that are no addresses."""
        self._settings = settings
        self._channels = Channels(settings)
        self._process_id = os.getpid()
        self._clock = ActiveClock()
        self._connection: GrpcConnection | None = None
        self._unreachable: tuple[float, ConnectError] | None = None
        """Why no connection could be made, and until when requests fail with it at once."""
        self._pending: dict[Call, _Pending] = {}
        self._sends: Call | None = None
        """The stream of sends, if one is open."""
        self._sent: deque[_Sent] = deque()
        """Its batches without an answer; answers come in their order."""
        self._done: Results = {}
        self._ticket = 0
        self._inbox: Inbox = SimpleQueue()
        self._is_woken = False

    # --- the contract -------------------------------------------------------------------------

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[R | RocketMQError]:
        """See `Transport.call_many`. Requests about many queues share a call."""
        self._check_process()
        self._unreachable = None
        results: Results = {}
        with self._clock.inside():
            tickets = self._start_all(requests, results, timeout_ms)
            while len(results) < len(tickets):
                self._turn(_TURN_MS_MAX)
        return [cast("R | RocketMQError", results[ticket]) for ticket in tickets]

    def submit_many(
        self, requests: Sequence[tuple[str | None, Request[R]]], *, timeout_ms: int
    ) -> list[int]:
        """See `Transport.submit_many`. Requests about many queues share a call."""
        self._check_process()
        with self._clock.inside():
            return list(self._start_all(requests, self._done, timeout_ms))

    def completed(self, *, timeout_ms: int) -> list[tuple[int, Result]]:
        self._check_process()
        with self._clock.inside():
            end_ms = self._clock.now_ms() + timeout_ms
            while not self._done and not self._is_woken:
                left_ms = end_ms - self._clock.now_ms()
                self._turn(max(0, left_ms))
                if left_ms <= 0:
                    break
        self._is_woken = False
        done = list(self._done.items())
        self._done.clear()
        return done

    def broker_addresses(self) -> dict[str, str]:
        """See `Transport.broker_addresses`: the endpoint answers for every broker."""
        return {}

    def hint(self, addresses: Mapping[str, str]) -> None:
        """See `Transport.hint`: the endpoint answers for every broker."""

    def wake(self) -> None:
        # The mark comes first: `completed` checks it before it waits.
        self._is_woken = True
        self._inbox.put(None)

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        self._check_process()
        return Download(self, self._settings, self._channels, self._clock, ranges, spec).chunks()

    def close(self) -> None:
        """Close every connection and forget all requests; a later one connects again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._channels.close()
        self._pending.clear()
        self._forget_sends()
        self._done.clear()
        self._inbox = SimpleQueue()

    # --- starting -----------------------------------------------------------------------------

    def _start_all(
        self, requests: Sequence[tuple[str | None, Request[R]]], results: Results, timeout_ms: int
    ) -> range:
        """Start requests to the endpoint, which answers for every broker; their tickets."""
        first = self._ticket + 1
        self._ticket += len(requests)
        tickets = range(first, first + len(requests))
        wanted: list[AnyRequest] = [request for _, request in requests]
        try:
            calls = calls_of(wanted)
        except RocketMQError as error:
            results.update(dict.fromkeys(tickets, error))
            return tickets
        for method, indexes in calls:
            carried = [wanted[index] for index in indexes]
            pending = _Pending(method, carried, [tickets[index] for index in indexes], results)
            try:
                self._start(pending, timeout_ms)
            except RocketMQError as error:
                pending.finish(error)
        return tickets

    def _start(self, pending: _Pending, timeout_ms: int) -> None:
        message = pending.method.encode(pending.requests)
        connection = self._connected()
        if not _is_streamed(pending.requests[0]):
            call = connection.start(pending.method.path, message, timeout_ms=timeout_ms)
            self._pending[call] = pending
            return
        deadline_ms = self._clock.now_ms() + timeout_ms
        sent = _Sent(pending.tickets[0], pending.results, time.monotonic(), deadline_ms)
        if self._sends is None:
            self._sends = connection.exchange(SEND_RECORDS_STREAM_PATH, message)
        else:
            self._sends.send(message)
        self._sent.append(sent)

    def _connected(self) -> GrpcConnection:
        # The broker may have ended the stream of sends, or answered a send that was given up.
        self._take_events()
        connection = self._connection
        is_busy = bool(self._pending) or any(sent.results is not None for sent in self._sent)
        if connection is not None and not is_busy and connection.is_stale:
            self._connection = None
            self._forget_sends()
            connection.close()
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
            connection = self._channels.connect(self._inbox)
        except ConnectError as error:
            now = time.monotonic()
            self._unreachable = (now + (now - began), error)
            raise
        self._unreachable = None
        return connection

    # --- events -------------------------------------------------------------------------------

    def _turn(self, timeout_ms: int) -> None:
        """Wait up to `timeout_ms` for an answer, an expiry or a wake, and take it in."""
        deadlines = (sent.deadline_ms for sent in self._sent if sent.results is not None)
        deadline_ms = min(deadlines, default=None)
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
        if event.call is self._sends:
            if event.message is not None:
                event.call.taken()
                self._on_sent(event.message)
            else:
                self._on_sends_end(event.call)
            return
        pending = self._pending.pop(event.call, None)
        if pending is not None:
            self._on_answer(event.call, pending, event.message)

    def _on_answer(self, call: Call, pending: _Pending, message: memoryview | None) -> None:
        error = call.error()
        if error is None and message is None:
            address = call.connection.address
            error = RemoteProtocolError(f"{address} ended a call without an answer")
        if error is not None or message is None:
            assert error is not None
            pending.finish(error)
            self._check_connection(call, error)
            return
        try:
            outcomes = pending.method.decode_outcomes(pending.requests, message)
        except RocketMQError as refusal:
            pending.finish(refusal)
            return
        pending.results.update(zip(pending.tickets, outcomes, strict=True))

    def _check_connection(self, call: Call, error: RocketMQError) -> None:
        """Give the connection up if the end of this call shows that it is broken."""
        if call.status == UNAVAILABLE:
            if isinstance(error, ConnectError):
                # This call was not sent; earlier ones may have been.
                error = ConnectionLostError(call.connection.address, error.reason)
            self._lose(error)
        elif call.status == DEADLINE_EXCEEDED and call.is_silent:
            waited_ms = (time.monotonic() - call.started_at) * 1_000
            if waited_ms < SILENCE_MS_MAX:
                # No ping can have failed yet: the connection is suspect, not this call.
                self._lose(ConnectionLostError(call.connection.address, "nothing was heard of it"))

    # --- the stream of sends ------------------------------------------------------------------

    def _on_sent(self, message: memoryview) -> None:
        try:
            outcome = decode_send_outcome(message)
        except RemoteProtocolError as error:
            self._lose(error)
            return
        if self._sent:
            self._sent.popleft().finish(outcome)
        else:
            self._lose(RemoteProtocolError("a batch was answered that was not sent"))

    def _on_sends_end(self, call: Call) -> None:
        """End every batch that waits, since the broker ended the stream."""
        connection, error = call.connection, call.error()
        # Any other error would claim to be about every batch that waits.
        if not isinstance(error, (ConnectError, UnsupportedRequestError, WrongSettingsError)):
            error = ConnectionLostError(connection.address, f"the stream of sends ended: {error}")
        self._fail_sends(error)
        if call.status == UNAVAILABLE:
            self._lose(ConnectionLostError(connection.address, call.text))
        connection.is_ending = True

    def _expire_sends(self) -> None:
        """Give up batches that took too long; they may have been stored."""
        connection = self._connection
        if connection is None:
            return
        now_ms = self._clock.now_ms()
        is_silent = False
        for sent in self._sent:
            if sent.results is not None and now_ms >= sent.deadline_ms:
                waited_ms = (time.monotonic() - sent.started_at) * 1_000
                is_silent = is_silent or connection.heard_at <= sent.started_at
                late = DeadlineExceededError(connection.address, f"waited {waited_ms:.0f} ms")
                sent.finish(late)
        if is_silent:
            self._lose(ConnectionLostError(connection.address, "nothing was heard of it"))

    def _fail_sends(self, error: RocketMQError) -> None:
        for sent in self._sent:
            sent.finish(error)
        self._forget_sends()

    def _forget_sends(self) -> None:
        self._sends = None
        self._sent.clear()

    # --- the connection -----------------------------------------------------------------------

    def _lose(self, error: RocketMQError) -> None:
        """Give the connection up; every request that waits ends with the error."""
        connection, self._connection = self._connection, None
        for pending in self._pending.values():
            pending.finish(error)
        self._pending.clear()
        self._fail_sends(error)
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
