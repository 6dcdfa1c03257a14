"""One socket to a gRPC server: bytes between it and the session, without any thread.

The socket never blocks; `turn` waits for it, and for nothing longer than it is told. While somebody
waits, a peer that is silent for some seconds is asked for a sign of life, and given up soon after:
a machine that vanished does not close its connections.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np

from rocketmq_client.settings import split_address
from rocketmq_client.tls import OPEN_TO_ALL, Security, TlsSettings
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_client.transport.net.poll import wait_for
from rocketmq_client.transport.tls.probe import explain_hang_up, explain_silence
from rocketmq_client.transport.tls.socket import TlsSocket, connect_tls
from rocketmq_wire.allocator import keep_freed_buffers
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    RemoteProtocolError,
    WrongSettingsError,
)
from rocketmq_wire.grpc_session import RECEIVE_WINDOW, Event, GrpcSession, MessageReceived
from rocketmq_wire.model import Buffer
from rocketmq_wire.signing import Credentials, sign_call

# Our broker answers pings while it is busy: they are gRPC's own threads' work.
PING_AFTER_MS: Final = 5_000
SILENCE_MS_MAX: Final = 15_000
_SEND_PARTS_MAX: Final = 64
_PROBE_SECONDS: Final = 0.5
# Of one turn, so that whoever waits can look at its clocks now and then.
_RECEIVE_SIZE_MAX: Final = 8 * 1024 * 1024


C = TypeVar("C", bound="GrpcConnection")


def connect_to_first(
    addresses: Sequence[str], connect: Callable[[str], C]
) -> tuple[C, tuple[str, ...]]:
    """A connection to the first address that can be reached, and all of them, that one in front.

    Raises the first address's ConnectError or WrongSettingsError when none can be.
    """
    error: ConnectError | WrongSettingsError | None = None
    for address in addresses:
        try:
            connection = connect(address)
        except (ConnectError, WrongSettingsError) as failure:
            error = error or failure
            continue
        return connection, (address, *(other for other in addresses if other != address))
    assert error is not None
    raise error


class GrpcConnection:
    """One HTTP/2 connection, made when it is created. Raises ConnectError and TlsError."""

    def __init__(
        self,
        address: str,
        clock: ActiveClock,
        *,
        connect_timeout_ms: int,
        security: Security = OPEN_TO_ALL,
        metadata: tuple[tuple[str, str], ...] = (),
        ping_after_ms: int = PING_AFTER_MS,
        silence_ms_max: int = SILENCE_MS_MAX,
    ) -> None:
        """`metadata` goes with every call, besides what signs it. Silence that is given up before
        it is pinged is never pinged.
        """
        keep_freed_buffers()
        self.address = address
        self._clock = clock
        self._tls = security.tls
        self._ping_after_ms, self._silence_ms_max = ping_after_ms, silence_ms_max
        self._session = GrpcSession(
            address,
            scheme="http" if self._tls is None else "https",
            allocate=_allocate,
            metadata=_metadata(security.credentials, metadata),
        )
        self._out: deque[memoryview] = deque()
        self._socket = _connect(address, connect_timeout_ms, security.tls)
        self._heard_ms = clock.now_ms()
        self._pinged_ms: int | None = None

    @property
    def is_stale(self) -> bool:
        """True when no call should be started here: closed by the peer, or about to be."""
        with contextlib.suppress(ConnectionLostError, RemoteProtocolError, WrongSettingsError):
            self._receive()
            return self._session.is_closing
        return True

    def start(
        self,
        path: str,
        message: Sequence[Buffer],
        *,
        timeout_ms: int | None = None,
        receive_window: int = RECEIVE_WINDOW,
        is_kept_open: bool = False,
    ) -> int:
        """Begin a call and send what can be sent at once; see `GrpcSession.start`.

        Raises ConnectError when the peer takes no new calls, and ConnectionLostError.
        """
        if self._session.is_closing:
            raise ConnectError(self.address, "the peer is closing the connection")
        number = self._session.start(
            path,
            message,
            timeout_ms=timeout_ms,
            receive_window=receive_window,
            is_kept_open=is_kept_open,
        )
        self._begin_waiting()
        return number

    def send(self, number: int, message: Sequence[Buffer]) -> None:
        """Send one more message of a call that is kept open. Raises ConnectionLostError."""
        self._session.send(number, message)
        self._begin_waiting()

    def cancel(self, number: int) -> None:
        """Give a call up."""
        self._session.cancel(number)

    def taken(self, event: MessageReceived) -> None:
        """A message was taken; the peer is told that it may send more."""
        self._session.taken(event)
        self._flush()

    def next_event(self) -> Event | None:
        """The next event that is already here."""
        return self._session.next_event()

    def turn(self, timeout_ms: int, *, also: int | None = None) -> bool:
        """Send and receive; waits up to `timeout_ms` for something to happen. False: nothing did.

        `also` is a second descriptor whose input ends the waiting. Raises ConnectionLostError and
        RemoteProtocolError; the connection is then useless.
        """
        self._flush()
        if self._receive():
            return True
        now_ms = self._clock.now_ms()
        wait_ms = max(0, min(timeout_ms, self._check_silence(now_ms)))
        self._flush()
        is_writing = bool(self._out)
        if isinstance(self._socket, TlsSocket):
            is_writing = self._socket.wants_write
        is_ready = wait_for(
            self._socket.fileno(), is_writing=is_writing, also=also, timeout_ms=wait_ms
        )
        if not is_ready:
            return False
        self._flush()
        self._receive()
        return True

    @property
    def landed_count(self) -> int:
        """How often bytes of messages came."""
        return self._session.landed_count

    def heard_since(self, time_ms: int) -> bool:
        """True if anything came after this time of the clock."""
        return self._heard_ms > time_ms

    def close(self) -> None:
        """Close the socket; the peer ends what is under way."""
        self._out.clear()
        self._socket.close()

    # --- inside -------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        # What was silent until now was not asked anything.
        self._heard_ms, self._pinged_ms = self._clock.now_ms(), None
        self._flush()

    def _check_silence(self, now_ms: int) -> int:
        """Ping a silent peer, give up a dead one; how long to wait until the next look."""
        silent_ms = now_ms - self._heard_ms
        if silent_ms >= self._silence_ms_max:
            raise ConnectionLostError(self.address, f"nothing was heard of it for {silent_ms} ms")
        if silent_ms < self._ping_after_ms:
            return self._ping_after_ms - silent_ms
        if self._pinged_ms is None:
            self._pinged_ms = now_ms
            self._session.ping()
        return self._silence_ms_max - silent_ms

    def _flush(self) -> None:
        self._out.extend(memoryview(part).cast("B") for part in self._session.data_to_send())
        try:
            while self._out:
                sent = self._socket.sendmsg(list(itertools.islice(self._out, _SEND_PARTS_MAX)))
                self._drop_sent(sent)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._hang_up(_reason(error)) from error

    def _drop_sent(self, size: int) -> None:
        while size:
            part = self._out.popleft()
            if size < len(part):
                self._out.appendleft(part[size:])
                return
            size -= len(part)

    def _receive(self) -> bool:
        """Receive until an event is there or nothing more is; True if anything came."""
        received = 0
        session = self._session
        try:
            while received < _RECEIVE_SIZE_MAX and not session.has_event:
                size = self._socket.recv_into(session.next_buffer())
                if size == 0:
                    raise self._hang_up("the peer closed it")
                received += size
                session.received(size)
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._hang_up(_reason(error)) from error
        if received:
            self._heard_ms, self._pinged_ms = self._clock.now_ms(), None
        return bool(received) or session.has_event

    def _hang_up(self, reason: str) -> ConnectionLostError | WrongSettingsError:
        """The peer closed it, which may mean that it wants TLS, or that it speaks no gRPC."""
        found: WrongSettingsError | None = None
        if self._session.is_ready:
            pass
        elif self._tls is None:
            found = explain_hang_up(self.address, _greeting(), is_tls=False, is_grpc=True)
        else:
            found = explain_silence(self.address, partial(_greet_again, self.address, self._tls))
        return found or ConnectionLostError(self.address, reason)


def _metadata(
    credentials: Credentials | None, always: tuple[tuple[str, str], ...]
) -> Callable[[], tuple[tuple[str, str], ...]]:
    """What makes the metadata of a call."""
    if credentials is None:
        return lambda: always

    def sign() -> tuple[tuple[str, str], ...]:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return (*always, *sign_call(credentials, now))

    return sign


def _greeting() -> bytes:
    """What a server of HTTP/2 answers at once."""
    return b"".join(GrpcSession("probe").data_to_send())


def _greet_again(address: str, tls: TlsSettings) -> bytes:
    """What a server of HTTP/2 says to our greeting, if anything; raises as a connection does."""
    reached = socket.create_connection(split_address(address), _PROBE_SECONDS)
    probe = connect_tls(reached, tls, address, _PROBE_SECONDS)
    try:
        probe.sendmsg([memoryview(_greeting())])
        wait_ms = int(_PROBE_SECONDS * 1_000)
        wait_for(probe.fileno(), is_writing=False, also=None, timeout_ms=wait_ms)
        answer = bytearray(1)
        return bytes(answer[: probe.recv_into(memoryview(answer))])
    finally:
        probe.close()


def _allocate(size: int) -> memoryview:
    # Not filled with zeros first, as a bytearray would be: a tenth of the cost of receiving.
    return np.empty(size, np.uint8).data


def _connect(address: str, timeout_ms: int, tls: TlsSettings | None) -> socket.socket | TlsSocket:
    """Connect to the first place that an address names and that listens."""
    give_up_at = time.monotonic() + timeout_ms / 1_000
    try:
        connected = socket.create_connection(split_address(address), timeout_ms / 1_000)
    except TimeoutError as error:
        raise ConnectError(address, "the connection attempt timed out") from error
    except (OSError, ValueError) as error:
        raise ConnectError(address, _reason(error)) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        connected.setblocking(False)
        return connected
    try:
        return connect_tls(connected, tls, address, give_up_at - time.monotonic())
    except TimeoutError as error:
        connected.close()
        raise ConnectError(address, "the TLS handshake timed out") from error
    except OSError as error:
        connected.close()
        found = explain_hang_up(address, _greeting(), is_tls=True, is_grpc=True)
        raise found or ConnectError(address, _reason(error)) from error
    except WrongSettingsError:
        connected.close()
        raise


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
