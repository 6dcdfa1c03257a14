"""One client of RocketMQ's public gRPC service: its connection, its settings, its calls.

The service knows a client by an id in every call's metadata and by the settings that a stream of
its own begins with; it forgets clients that are silent. One thread at a time may use a channel;
what comes between its calls waits in the inbox until the next one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.connection import (
    SILENCE_MS_MAX,
    Call,
    Endpoints,
    Event,
    GrpcConnection,
    Inbox,
    next_event,
)
from rocketmq_client.transport.grpc.errors import DEADLINE_EXCEEDED, UNAVAILABLE
from rocketmq_wire.addresses import split_address
from rocketmq_wire.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    RemoteProtocolError,
    RocketMQError,
)
from rocketmq_wire.grpc.public import pops

_STEP_MS_MAX: Final = 1_000
_HEARTBEAT_SECONDS: Final = 10.0
_STREAMED: Final = "ReceiveMessage"
_CALLS_MAX: Final = 64
"""The calls of one `call_many` in flight: a peer may allow a hundred streams."""


# A receive brings up to 32 messages of 4 MiB, and a status.
_ANSWER_SIZE_MAX: Final = 160 * 1024 * 1024
_FRAMES_MAX: Final = 4_096


@dataclass(slots=True)
class Pending:
    """A call in flight: its messages so far, and how it ended."""

    frames: list[bytes] = field(default_factory=list)
    size: int = 0
    """The bytes of the messages."""
    error: RocketMQError | None = None
    is_done: bool = False


class PublicChannel:
    """Connects at first use, and again after a connection broke."""

    def __init__(
        self, settings: ConnectionSettings, client_id: str, telemetry: bytes, heartbeat: bytes
    ) -> None:
        """`telemetry` holds the client's settings, `heartbeat` the message that keeps it known.

        Raises ValueError for endpoints that are no addresses.
        """
        self.settings = settings
        self._endpoints = Endpoints(settings)
        self._telemetry = telemetry
        self._heartbeat = heartbeat
        self._metadata = (
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", pops.CLIENT_VERSION),
            ("x-mq-protocol", "v2"),
        )
        self._inbox: Inbox = SimpleQueue()
        self._connection: GrpcConnection | None = None
        self._pending: dict[Call, Pending] = {}
        self._stream: Call | None = None
        self._is_known = False
        self._refusal: RocketMQError | None = None
        self._heartbeat_due = 0.0

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self._endpoints.first)

    def call_many(
        self, name: str, messages: Sequence[bytes], *, timeout_ms: int
    ) -> list[bytes | RocketMQError]:
        """Return the answer of each call, or its error; many are in flight at once."""
        answers: list[bytes | RocketMQError] = []
        for first in range(0, len(messages), _CALLS_MAX):
            some = [self.start(name, one, timeout_ms) for one in messages[first:][:_CALLS_MAX]]
            for pending in some:
                while not pending.is_done:
                    self.turn(_STEP_MS_MAX)
                answers.append(_answer_of(pending))
        return answers

    def call(self, name: str, message: bytes, *, timeout_ms: int) -> bytes:
        """Return a call's answer. Raises RocketMQError."""
        (answer,) = self.call_many(name, [message], timeout_ms=timeout_ms)
        if isinstance(answer, RocketMQError):
            raise answer
        return answer

    def start(self, name: str, message: bytes, timeout_ms: int) -> Pending:
        """Begin a call; `turn` until it is done. A failure is its error."""
        pending = Pending()
        self.turn(0)
        try:
            self._keep_known()
            connection = self._connected()
            begin = connection.stream if name == _STREAMED else connection.start
            call = begin(pops.path_of(name), message, timeout_ms=timeout_ms)
            self._pending[call] = pending
        except RocketMQError as error:
            _end(pending, error)
        return pending

    def turn(self, timeout_ms: int) -> None:
        """Wait for events of the calls in flight. Raises nothing."""
        if self._connection is None:
            return
        event = next_event(self._inbox, timeout_ms)
        while event is not None:
            self._on_event(event)
            event = next_event(self._inbox, 0)

    def forget(self) -> None:
        """Connect again with the next call: the service no longer knows this client."""
        self._lose(ConnectionLostError(self._endpoints.first, "the client connects again"))

    def close(self) -> None:
        """Close the connection; every call in flight ends with an error."""
        self.forget()

    # --- inside -------------------------------------------------------------------------------

    def _connected(self) -> GrpcConnection:
        connection = self._connection
        # A restarted service does not know this client until it has its stream.
        is_unknown = connection is not None and (self._stream is None or connection.is_stale)
        if is_unknown and not self._pending:
            self.forget()
        if self._connection is None:
            # The servers of proxies close connections with pings within five minutes.
            self._connection = self._endpoints.connect(
                self._inbox, metadata=self._metadata, ping_after_ms=None
            )
            self._introduce(self._connection)
        return self._connection

    def _introduce(self, connection: GrpcConnection) -> None:
        """Open the stream with our settings and wait until they are taken. Raises RocketMQError."""
        self._is_known, self._refusal = False, None
        self._stream = connection.exchange(pops.path_of("Telemetry"), self._telemetry)
        end_at = time.monotonic() + self.settings.request_timeout_ms / 1_000
        try:
            while not self._is_known:
                if self._refusal is not None:
                    raise self._refusal
                left_ms = int((end_at - time.monotonic()) * 1_000)
                if left_ms <= 0:
                    raise DeadlineExceededError(connection.address, "settings were not answered")
                self.turn(left_ms)
        except RocketMQError as error:
            self._lose(error)
            raise
        self._heartbeat_due = time.monotonic()

    def _keep_known(self) -> None:
        """Send a heartbeat if it is due, and wait for no answer."""
        connection = self._connected()
        if time.monotonic() >= self._heartbeat_due:
            self._heartbeat_due = time.monotonic() + _HEARTBEAT_SECONDS
            timeout_ms = self.settings.request_timeout_ms
            connection.start(pops.path_of("Heartbeat"), self._heartbeat, timeout_ms=timeout_ms)

    def _on_event(self, event: Event) -> None:
        call = event.call
        if event.message is not None and not event.is_over:
            call.taken()
        if call is self._stream:
            self._on_stream(call, event.message)
            return
        pending = self._pending.get(call)
        if pending is not None and event.message is not None:
            pending.frames.append(bytes(event.message))
            pending.size += len(event.message)
            if pending.size > _ANSWER_SIZE_MAX or len(pending.frames) > _FRAMES_MAX:
                self._lose(RemoteProtocolError(f"an answer of more than {pending.size} bytes"))
                return
        if event.is_over and call.connection is self._connection:
            self._on_end(call)

    def _on_end(self, call: Call) -> None:
        pending = self._pending.pop(call, None)
        error = call.error()
        if pending is not None:
            _end(pending, error)
        silent_ms = (time.monotonic() - call.connection.heard_at) * 1_000
        is_silent = call.status == DEADLINE_EXCEEDED and silent_ms >= SILENCE_MS_MAX
        if error is not None and (call.status == UNAVAILABLE or is_silent):
            self._lose(error)

    def _on_stream(self, call: Call, message: memoryview | None) -> None:
        if message is None:
            self._stream = None
            self._refusal = call.error() or RemoteProtocolError("the stream of settings ended")
            if call.status == UNAVAILABLE:
                self._lose(self._refusal)
            return
        try:
            # Other commands are for producers and push consumers.
            self._is_known = pops.settings_answered(message) or self._is_known
        except RocketMQError as error:
            self._refusal = error

    def _lose(self, error: RocketMQError) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._stream, self._is_known = None, False
        self._inbox = SimpleQueue()
        pending, self._pending = self._pending, {}
        for one in pending.values():
            _end(one, error)


def _end(pending: Pending, error: RocketMQError | None) -> None:
    pending.error, pending.is_done = error, True


def _answer_of(pending: Pending) -> bytes | RocketMQError:
    if pending.error is not None:
        return pending.error
    if not pending.frames:
        return RemoteProtocolError("a call was answered with nothing")
    return pending.frames[0]
