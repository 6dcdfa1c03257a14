"""One gRPC channel to one address: sends calls, and puts their events into its owner's inbox.

grpcio is imported when the first connection is made, not with this module: Spark's workers are
forked from a process that must not have it. Its threads do not survive a fork, so a forked process
whose parent had connections can have none.

- A unary call puts its message and its end in the inbox. A streamed one has a thread of its own,
  which asks for a message when the one before was taken: what the peer sends beyond that waits in
  gRPC and in the sockets, up to the call's window.
- Pings detect a peer that is down, also while a call is silent: a machine that vanished does not
  close its connections.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import quote

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.errors import OK, UNAVAILABLE, Metadata, error_of
from rocketmq_client.transport.grpc.tls_relay import TlsRelay, greet_again
from rocketmq_client.transport.tls.probe import (
    HTTP2_GREETING,
    explain_hang_up,
    explain_silence,
    reason_of,
)
from rocketmq_client.transport.tls.socket import connect_tls
from rocketmq_wire.addresses import split_address, split_addresses
from rocketmq_wire.allocator import keep_freed_buffers
from rocketmq_wire.errors import ConnectError, ForkedError, RocketMQError, WrongSettingsError
from rocketmq_wire.signing import sign_call

MESSAGE_SIZE_MAX: Final = 64 * 1024 * 1024
# HTTP/2's default. Larger answers are granted as they come.
RECEIVE_WINDOW: Final = 65_535
PING_AFTER_MS: Final = 5_000
SILENCE_MS_MAX: Final = 15_000
# Fewer frames for a large message: each becomes one part to copy.
_FRAME_SIZE_MAX: Final = 1024 * 1024
_RECONNECT_MS: Final = 100
_FORK_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"


@dataclass(frozen=True, slots=True)
class Event:
    """A message of a call, its end, or both: a call with one answer ends with it."""

    call: Call
    message: memoryview | None
    is_over: bool


Inbox = SimpleQueue[Event | None]
"""Where events arrive; None wakes the owner."""


def next_event(inbox: Inbox, timeout_ms: int) -> Event | None:
    """The next event; None if none came in time, or the owner was woken."""
    try:
        return inbox.get(timeout=timeout_ms / 1_000) if timeout_ms > 0 else inbox.get_nowait()
    except Empty:
        return None


class _Library:
    """grpcio, once it is loaded, and whether this process is a copy of one that used it."""

    module: Any = None
    was_forked = False
    lock = threading.Lock()
    abandoned: Final[list[object]] = []
    """The parent's channels. Freed here, they would wait for threads that only the parent has."""

    @classmethod
    def load(cls, address: str) -> Any:
        """Import grpcio. Raises ForkedError."""
        with cls.lock:
            if cls.was_forked:
                raise ForkedError(address)
            if cls.module is None:
                # With its own support for forks, a process loses some of those that it starts,
                # as PySpark starts Java, to an abort within gRPC's handlers.
                os.environ.setdefault(_FORK_SUPPORT, "0")
                cls.module = import_module("grpc")
                os.register_at_fork(after_in_child=cls._on_fork)
            return cls.module

    @classmethod
    def _on_fork(cls) -> None:
        cls.was_forked = True
        cls.lock = threading.Lock()


class Endpoints:
    """The addresses of the settings; the one that was reached last is tried first."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Raises ValueError for endpoints that are no addresses."""
        self._addresses = split_addresses(settings.endpoints or "")
        if not self._addresses:
            raise ValueError(f"endpoints names no address: {settings.endpoints!r}")
        self._settings = settings

    @property
    def first(self) -> str:
        return self._addresses[0]

    def connect(self, inbox: Inbox, **options: Any) -> GrpcConnection:
        """Connect to the first reachable address, with the options of `GrpcConnection`.

        Raises the first address's ConnectError or WrongSettingsError if none is reachable.
        """
        error: ConnectError | WrongSettingsError | None = None
        for address in self._addresses:
            try:
                connection = GrpcConnection(address, inbox, settings=self._settings, **options)
            except (ConnectError, WrongSettingsError) as failure:
                error = error or failure
                continue
            others = (other for other in self._addresses if other != address)
            self._addresses = (address, *others)
            return connection
        assert error is not None
        raise error


class GrpcConnection:
    """A channel of its own. Raises ConnectError, TlsError and ForkedError when it is created."""

    def __init__(
        self,
        address: str,
        inbox: Inbox,
        *,
        settings: ConnectionSettings,
        metadata: tuple[tuple[str, str], ...] = (),
        receive_window: int = RECEIVE_WINDOW,
        ping_after_ms: int | None = PING_AFTER_MS,
        silence_ms_max: int = SILENCE_MS_MAX,
    ) -> None:
        """`metadata` goes with every call, besides what signs it. A call's peer may send
        `receive_window` bytes beyond the message that is waited for. A peer that is silent during a
        call is pinged, and given up after `silence_ms_max`; None pings none.
        """
        library = _Library.load(address)
        keep_freed_buffers()
        self.address = address
        self.receive_window = receive_window
        self.heard_at = time.monotonic()
        """The time of the last answer, or of the connection's start."""
        self.was_answered = False
        self.is_ending = False
        """True if the peer ended a stream that stays open: it is going down."""
        self.inbox = inbox
        """The inbox of the next calls; those in flight keep theirs."""
        self._tls = settings.tls
        self._credentials = settings.credentials
        self._fixed_metadata = metadata
        self.error_class: type[Exception] = library.RpcError
        """What a stream's messages end with if the call fails."""
        self._streams: set[Call] = set()
        target, self._relay = _reach(address, settings)
        options = _options(address, settings.connect_timeout_ms, receive_window)
        if ping_after_ms is not None:
            options += _ping_options(ping_after_ms, silence_ms_max)
        self._channel: Any = library.insecure_channel(target, options)

    @property
    def is_stale(self) -> bool:
        """True when no call should be started here. A plain channel connects again by itself."""
        return self.is_ending or (self._relay is not None and self._relay.is_over)

    def start(self, path: str, message: bytes, *, timeout_ms: int) -> Call:
        """Begin a call with one answer."""
        rpc = self._channel.unary_unary(path).future(
            message, timeout=timeout_ms / 1_000, metadata=self._metadata()
        )
        call = Call(self, rpc)
        rpc.add_done_callback(call.on_answer)
        return call

    def stream(self, path: str, message: bytes, *, timeout_ms: int | None = None) -> Call:
        """Begin a call with many answers; each is waited for when the one before was `taken`."""
        timeout = None if timeout_ms is None else timeout_ms / 1_000
        rpc = self._channel.unary_stream(path)(message, timeout=timeout, metadata=self._metadata())
        return self._read(Call(self, rpc))

    def exchange(self, path: str, message: bytes) -> Call:
        """Begin a stream of messages both ways, which is open until it is cancelled or ends."""
        outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        outgoing.put(message)
        words = iter(outgoing.get, None)
        rpc = self._channel.stream_stream(path)(words, metadata=self._metadata())
        return self._read(Call(self, rpc, outgoing))

    def _read(self, call: Call) -> Call:
        self._streams.add(call)
        threading.Thread(target=call.read, name="grpc-reader", daemon=True).start()
        return call

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._credentials is None:
            return self._fixed_metadata
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return (*self._fixed_metadata, *sign_call(self._credentials, now))

    def forget(self, call: Call) -> None:
        self._streams.discard(call)

    def hear(self) -> None:
        self.heard_at, self.was_answered = time.monotonic(), True

    def close(self) -> None:
        """Close the channel; the peer ends the calls in flight."""
        if _Library.was_forked:
            _Library.abandoned.append(self._channel)
            return
        for call in tuple(self._streams):
            call.cancel()
        self._channel.close()
        if self._relay is not None:
            self._relay.close()

    def explain(self) -> RocketMQError | None:
        """Why no answer ever came: the peer requires TLS or a certificate, or speaks no gRPC."""
        if self._tls is None:
            return explain_hang_up(self.address, HTTP2_GREETING, is_tls=False, is_grpc=True)
        if self._relay is not None and self._relay.error is not None:
            return self._relay.error
        tls = self._tls
        return explain_silence(self.address, lambda: greet_again(self.address, tls))


class Channels(Endpoints):
    """Keeps one idle connection for the next download. Not thread-safe."""

    def __init__(self, settings: ConnectionSettings) -> None:
        super().__init__(settings)
        self._process_id = os.getpid()
        self._idle: GrpcConnection | None = None
        self.generation = 0
        """How often the transport was closed."""

    def open_stream(self, inbox: Inbox, receive_window: int) -> GrpcConnection:
        """Return a connection for one stream, whose window must not be shared with calls."""
        connection, self._idle = self._idle, None
        if connection is not None:
            if not connection.is_stale and connection.receive_window == receive_window:
                connection.inbox = inbox
                return connection
            connection.close()
        return self.connect(inbox, receive_window=receive_window)

    def give_back(self, connection: GrpcConnection, generation: int) -> None:
        """Keep a stream's connection for the next stream, unless the transport was closed since."""
        is_same = generation == self.generation and self._process_id == os.getpid()
        if is_same and self._idle is None:
            self._idle = connection
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connection; those of streams are closed when they are given back."""
        if self._idle is not None:
            self._idle.close()
        self._idle = None
        self._process_id = os.getpid()
        self.generation += 1


class Call:
    """A call in flight. Its events arrive in the inbox that the connection had at its start."""

    def __init__(
        self,
        connection: GrpcConnection,
        rpc: Any,
        outgoing: SimpleQueue[bytes | None] | None = None,
    ) -> None:
        self.connection = connection
        self.started_at = time.monotonic()
        self.status = OK
        """gRPC's status, and the text beside it, once the call is over."""
        self.text = ""
        self._metadata: Metadata = ()
        self._rpc = rpc
        self._outgoing = outgoing
        self._inbox = connection.inbox
        self._room = threading.Semaphore(1)

    @property
    def is_silent(self) -> bool:
        """True if no call of the connection was answered since this one began."""
        return self.connection.heard_at <= self.started_at

    def send(self, message: bytes) -> None:
        """Send one more message of an exchange."""
        assert self._outgoing is not None
        self._outgoing.put(message)

    def taken(self) -> None:
        """Read the next message of a stream, since the last one was taken."""
        self._room.release()

    def cancel(self) -> None:
        """End the call and the threads that wait for it. Its later events mean nothing."""
        self.connection.forget(self)
        self._rpc.cancel()
        self._room.release()
        if self._outgoing is not None:
            self._outgoing.put(None)

    def error(self) -> RocketMQError | None:
        """The error of a call that is over. May ask the peer which protocol it speaks."""
        connection = self.connection
        if self.status == OK:
            return None
        if self.status == UNAVAILABLE and not connection.was_answered:
            found = connection.explain()
            if found is not None:
                return found
        return error_of(connection.address, self.status, self.text, self._metadata)

    # --- on other threads ---------------------------------------------------------------------

    def read(self) -> None:
        """The thread of a stream: asks for a message when the one before was taken."""
        with suppress(self.connection.error_class):
            while True:
                self._room.acquire()
                message = next(self._rpc, None)
                if message is None:
                    break
                self.connection.hear()
                self._inbox.put(Event(self, memoryview(message), is_over=False))
        self.cancel()
        self._end(None)

    def on_answer(self, rpc: Any) -> None:
        """A call with one answer is over; runs on a thread of gRPC's."""
        # A server may end a call with OK and no message; an error here would lose the end, too.
        message = rpc.result() if rpc.code().value[0] == OK else None
        self._end(None if message is None else memoryview(message))

    def _end(self, message: memoryview | None) -> None:
        self.status = self._rpc.code().value[0]
        self.text = self._rpc.details() or ""
        self._metadata = tuple(tuple(pair) for pair in self._rpc.trailing_metadata() or ())
        if self.status == OK or self._metadata:
            self.connection.hear()
        self._inbox.put(Event(self, message, is_over=True))


def _options(
    address: str, connect_timeout_ms: int, receive_window: int
) -> list[tuple[str, int | str]]:
    host, port = split_address(address)
    return [
        ("grpc.default_authority", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
        ("grpc.enable_http_proxy", 0),
        # Connections are ours to share: a download's window is its own.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", MESSAGE_SIZE_MAX),
        ("grpc.max_send_message_length", -1),
        ("grpc.min_reconnect_backoff_ms", connect_timeout_ms),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
        ("grpc.http2.max_frame_size", _FRAME_SIZE_MAX),
        # The window stays as it is: it bounds what waits for a suspended consumer.
        ("grpc.http2.lookahead_bytes", receive_window),
        ("grpc.http2.bdp_probe", 0),
    ]


def _ping_options(after_ms: int, silence_ms_max: int) -> list[tuple[str, int | str]]:
    return [
        ("grpc.keepalive_time_ms", after_ms),
        ("grpc.keepalive_timeout_ms", silence_ms_max - after_ms),
        # Current gRPC libraries use this option; its default is a minute.
        ("grpc.http2.ping_timeout_ms", silence_ms_max - after_ms),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def _reach(address: str, settings: ConnectionSettings) -> tuple[str, TlsRelay | None]:
    """Return gRPC's target for an address: its first host that listens, or a TLS relay to it.

    gRPC would report a refused connection or a TLS failure late and in words of its own.
    """
    tls = settings.tls
    timeout_seconds = settings.connect_timeout_ms / 1_000
    give_up_at = time.monotonic() + timeout_seconds
    try:
        connected = socket.create_connection(split_address(address), timeout_seconds)
    except TimeoutError as error:
        raise ConnectError(address, "the connection attempt timed out") from error
    except (OSError, ValueError) as error:
        raise ConnectError(address, reason_of(error)) from error
    if tls is None:
        host, port = connected.getpeername()[:2]
        connected.close()
        return (f"ipv6:{quote(f'[{host}]')}:{port}" if ":" in host else f"ipv4:{host}:{port}"), None
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        relay = TlsRelay(connect_tls(connected, tls, address, give_up_at - time.monotonic()))
    except TimeoutError as error:
        connected.close()
        raise ConnectError(address, "the TLS handshake timed out") from error
    except OSError as error:
        connected.close()
        found = explain_hang_up(address, HTTP2_GREETING, is_tls=True, is_grpc=True)
        raise found or ConnectError(address, reason_of(error)) from error
    except WrongSettingsError:
        connected.close()
        raise
    return relay.target, relay
