"""One non-blocking socket to one address: carries calls and their results."""

from __future__ import annotations

import enum
import errno
import itertools
import os
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.buffers import BufferPool
from rocketmq_client.transport.tls.probe import explain_hang_up, reason_of
from rocketmq_client.transport.tls.socket import TlsSocket
from rocketmq_wire.addresses import split_address
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    FrameTooLargeError,
    RemoteProtocolError,
    RocketMQError,
    TlsError,
    TransportError,
    WrongPortError,
    WrongSettingsError,
)
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.session import ClientSession, Responder
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged
from rocketmq_wire.requests.topics import GetRoute

# The bytes of one turn: a busy broker must not keep the others' answers waiting.
_RECEIVE_SIZE_MAX: Final = 8 * 1024 * 1024
_SEND_PARTS_MAX: Final = 64
# The answers that wait for a broker to read them; one of a consumer's state takes some 100 KB.
_UNREAD_ANSWERS_MAX: Final = 4 * 1024 * 1024
# The kernel notices after this time that a peer has vanished (power cut, dropped packets), whether
# we send or wait.
_PEER_SILENT_MS: Final = 15_000
_KEEPALIVE_IDLE_S: Final = 5
_KEEPALIVE_INTERVAL_S: Final = 5
_KEEPALIVE_COUNT: Final = 2
# A name server and a broker both answer this to any client.
_HARMLESS: Final = GetRoute("TBW102")


class Role(enum.Enum):
    """What a broker's address is that a call was sent to."""

    MASTER = "the master"
    LONE_REPLICA = "a replica that serves reads while the master is unavailable"
    SUGGESTED_REPLICA = "a replica that the master suggested for a pull"


@dataclass(slots=True, eq=False)
class Call:
    """One request, from when it is asked to its result."""

    broker: str | None
    """A broker's name; None is the name server."""
    request: Request[Reply]
    inbox: list[Call]
    """Where the call lands when it is done."""
    timeout_ms: int
    deadline_ms: int
    slow_ms: int | None = None
    fields: Mapping[str, str] | None = None
    """Header fields that hooks add."""
    is_oneway: bool = False
    is_given_up: bool = False
    """True if the caller no longer wants the result."""
    role: Role = Role.MASTER
    tries_left: int = 0
    """Name servers that have not failed yet."""
    address: str = ""
    """Where the request was sent last; so are the three below."""
    connection: Connection | None = None
    opaque: int = 0
    sent_ms: int = 0
    result: Reply | RocketMQError | None = None
    done_ms: int = 0

    @property
    def heard_ms(self) -> int:
        """When anything last came from where the request was sent."""
        return 0 if self.connection is None else self.connection.heard_ms


class Connection:
    """Queues calls at once, also while it connects, and puts finished ones into `done`."""

    def __init__(
        self,
        address: str,
        buffers: BufferPool,
        done: list[Call],
        *,
        settings: ConnectionSettings,
        now_ms: int,
        responder: Responder | None = None,
    ) -> None:
        self.address = address
        self._tls = settings.tls
        self.is_open = False
        self.is_dead = False
        self._connect_deadline_ms = now_ms + settings.connect_timeout_ms
        self._session = ClientSession(
            allocate=buffers.allocate, credentials=settings.credentials, responder=responder
        )
        self._calls: dict[int, Call] = {}
        self._done = done
        self._out: deque[memoryview] = deque()
        self._targets: list[tuple[int, Any]] = []
        self._reason = ""
        self._socket: socket.socket | TlsSocket | None = None
        self._was_answered = False
        self.notices: list[NotifyMembersChanged] = []
        """Notices of the broker; the exchange takes them after each turn."""
        self.heard_ms = now_ms
        """The time when bytes came last."""
        self._served_ms = now_ms
        """The time when the last answer to a request came, or bytes of a frame in the middle."""
        self._answer_bytes = 0
        """The answers to the broker's requests that were queued since nothing was unsent."""
        self._begin()

    # --- state --------------------------------------------------------------------------------

    def fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """True while it connects, and while it has bytes to send."""
        if isinstance(self._socket, TlsSocket) and (not self.is_open or self._socket.wants_write):
            return self._socket.wants_write
        return not self.is_open or bool(self._out)

    @property
    def deadline_ms(self) -> int | None:
        """The time when something expires next."""
        deadline_ms = self._session.deadline_ms
        if self.is_open:
            return deadline_ms
        if deadline_ms is None:
            return self._connect_deadline_ms
        return min(deadline_ms, self._connect_deadline_ms)

    # --- calls --------------------------------------------------------------------------------

    def submit(self, call: Call, *, now_ms: int, timeout_ms: int) -> None:
        """Queue a call's request. Raises LocalProtocolError if it cannot be encoded."""
        opaque, parts = self._session.start(
            call.request,
            now_ms=now_ms,
            timeout_ms=timeout_ms,
            slow_ms=call.slow_ms,
            fields=call.fields,
        )
        call.connection = self
        call.opaque = opaque
        call.sent_ms = now_ms
        self._calls[opaque] = call
        self._queue(parts)

    def tell(self, request: Request[Reply], fields: Mapping[str, str] | None = None) -> None:
        """Queue a oneway request. Raises LocalProtocolError if it cannot be encoded."""
        self._queue(self._session.start_oneway(request, fields))

    @property
    def unsent_count(self) -> int:
        """The parts of frames that the socket has not taken yet."""
        return len(self._out)

    def drop(self, call: Call) -> bool:
        """Forget a call; False if it was done already."""
        if self._calls.get(call.opaque) is not call:
            return False
        self._session.forget(call.opaque)
        del self._calls[call.opaque]
        return True

    def is_stale(self) -> bool:
        """True if the peer closed it while it was idle: a request would be lost."""
        if self.is_dead or self._socket is None:
            return True
        if not self.is_open or self._calls:
            return False
        if isinstance(self._socket, TlsSocket):
            # Encrypted bytes can only be examined by reading them.
            self._receive(self.heard_ms)
            return self.is_dead
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    # --- moving bytes -------------------------------------------------------------------------

    def flush(self) -> None:
        # Answers to requests of the broker may be ready only now.
        self._queue_answers()
        if not self.is_open or not self._out or self._socket is None:
            return
        try:
            while self._out:
                sent = self._socket.sendmsg(list(itertools.islice(self._out, _SEND_PARTS_MAX)))
                if not self._take_sent(sent):
                    return
        except BlockingIOError:
            return
        except OSError as error:
            self._hang_up(reason_of(error))

    def on_ready(self, now_ms: int, *, readable: bool, writable: bool) -> None:
        if not self.is_open:
            self._finish_connect(now_ms)
        if writable:
            self.flush()
        if readable and self.is_open and not self.is_dead:
            self._receive(now_ms)

    def expire(self, now_ms: int) -> None:
        if self.is_dead:
            return
        if not self.is_open and now_ms >= self._connect_deadline_ms:
            self.fail(ConnectError(self.address, "the connection attempt timed out"))
            return
        expired = self._session.expire(now_ms, heard_ms=self._served_ms)
        calls = [self._calls.pop(opaque) for opaque in expired]
        # No bytes came since it was sent: the connection is suspect, not this request.
        is_silent = any(self.heard_ms <= call.sent_ms for call in calls)
        # A frame has stopped in its middle: every other answer waits behind it.
        is_stuck = not self._session.is_between_frames and bool(calls)
        is_silent = is_silent or (is_stuck and now_ms - self.heard_ms >= _PEER_SILENT_MS)
        for call in calls:
            waited = f"{now_ms - call.sent_ms} ms"
            if self.is_open:
                self._finish(call, DeadlineExceededError(self.address, f"waited {waited}"))
            else:
                # The request never left, which a sender must know.
                self._finish(call, ConnectError(self.address, f"no connection after {waited}"))
        if self.is_open and is_silent:
            self.fail(ConnectionLostError(self.address, "nothing was heard of it"))

    def fail(self, error: TransportError | RemoteProtocolError | WrongSettingsError) -> None:
        """Close the connection; each call that waits ends with the error."""
        if self.is_dead:
            return
        self.close()
        calls = list(self._calls.values())
        self._calls.clear()
        self._session.abandon()
        for call in calls:
            self._finish(call, error)

    def close(self) -> None:
        """Close the socket and leave the calls as they are."""
        self.is_dead = True
        self._out.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # --- inside -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Resolve the address and start connecting to its first target."""
        try:
            host, port = split_address(self.address)
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError, UnicodeError) as error:
            self._reason = reason_of(error)
            self.is_dead = True
            return
        # A name such as localhost may resolve to several targets, and only some of them listen.
        self._targets = [(family, target) for family, _, _, _, target in found]
        self._reason = "no address was found"
        self.is_dead = not self._connect_next()

    @property
    def failure(self) -> ConnectError:
        return ConnectError(self.address, self._reason)

    def _connect_next(self) -> bool:
        while self._targets:
            family, target = self._targets.pop(0)
            if self._socket is not None:
                self._socket.close()
            try:
                self._socket = _new_socket(family)
                code = self._socket.connect_ex(target)
            except OSError as error:
                self._reason = reason_of(error)
                continue
            if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                return True
            self._reason = os.strerror(code)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        return False

    def _finish_connect(self, now_ms: int) -> None:
        assert self._socket is not None
        if not isinstance(self._socket, TlsSocket):
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._reason = os.strerror(code)
                if not self._connect_next():
                    self.fail(self.failure)
                return
        try:
            if self._tls is None:
                self.is_open = True
            else:
                if not isinstance(self._socket, TlsSocket):
                    self._socket = TlsSocket(self._socket, self._tls, self.address)
                self.is_open = self._socket.handshake()
            self.heard_ms = now_ms
        except TlsError as error:
            self.fail(error)
        except OSError as error:
            self._hang_up(reason_of(error))

    def _hang_up(self, reason: str) -> None:
        """Fail because the peer closed it, naming the other protocol if the peer speaks one."""
        found: WrongSettingsError | None = None
        if not self._was_answered and not self.is_dead:
            greeting = ClientSession().start(_HARMLESS, now_ms=0, timeout_ms=1)
            is_tls = self._tls is not None
            parts = b"".join(greeting.parts)
            found = explain_hang_up(self.address, parts, is_tls=is_tls, is_grpc=False)
        if found is None and not self.is_open:
            self._reason = reason
            self.fail(self.failure)
        else:
            self.fail(found or ConnectionLostError(self.address, reason))

    def _queue_answers(self) -> None:
        """Queue answers to requests of the broker, unless it reads none of them."""
        if not self._out:
            self._answer_bytes = 0
        for answer in self._session.take_answers():
            self._answer_bytes += len(answer)
            if self._answer_bytes > _UNREAD_ANSWERS_MAX:
                text = f"{self.address} does not read the answers to its own requests"
                self.fail(RemoteProtocolError(text))
                return
            self._queue((answer,))

    def _queue(self, parts: tuple[Buffer, ...]) -> None:
        # All of them or none: a part of a frame would make nonsense of what follows.
        self._out.extend([memoryview(part).cast("B") for part in parts])

    def _take_sent(self, size: int) -> bool:
        """Remove sent bytes from the queue; False if the socket took only a part."""
        while size and self._out:
            part = self._out[0]
            if size < len(part):
                self._out[0] = part[size:]
                return False
            size -= len(part)
            self._out.popleft()
        return True

    def _receive(self, now_ms: int) -> None:
        received = 0
        try:
            while not self.is_dead and self._socket is not None:
                buffer = self._session.next_buffer()
                if received >= _RECEIVE_SIZE_MAX:
                    # Only the bytes that TLS has decrypted, which poll(2) does not know.
                    pending = self._socket.pending if isinstance(self._socket, TlsSocket) else 0
                    buffer = buffer[:pending]
                    if not pending:
                        return
                size = self._socket.recv_into(buffer)
                if size == 0:
                    self._hang_up("the peer closed it")
                    return
                self.heard_ms = now_ms
                received += size
                self._session.received(size)
                self._complete(now_ms)
                if size < len(buffer):
                    return  # The kernel has no more: save the call that would return nothing.
        except BlockingIOError:
            return
        except TlsError as error:
            self.fail(error)
        except OSError as error:
            self._hang_up(reason_of(error))
        except RemoteProtocolError as error:
            is_http = isinstance(error, FrameTooLargeError) and error.is_http
            self.fail(WrongPortError(self.address, False, speaks_http=True) if is_http else error)

    def _complete(self, now_ms: int) -> None:
        if not self._session.is_between_frames:
            self._served_ms = now_ms
        late_before = self._session.late_count
        while (completed := self._session.next_completed()) is not None:
            self._was_answered = True
            self._served_ms = now_ms
            call = self._calls.pop(completed.opaque, None)
            if call is not None:
                self._finish(call, completed.result)
        if late_before < self._session.late_count <= self._session.given_up_count:
            self._served_ms = now_ms  # Late answers come first: the link is slow.
        self._queue_answers()
        self.notices.extend(self._session.take_notices())

    def _finish(self, call: Call, result: Reply | RocketMQError) -> None:
        call.result = result
        self._done.append(call)


def _new_socket(family: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setblocking(False)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has these options; without them the requests' own deadlines remain.
    for name, value in (
        ("TCP_USER_TIMEOUT", _PEER_SILENT_MS),
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_COUNT),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
