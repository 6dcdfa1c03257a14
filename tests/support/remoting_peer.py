"""A plain blocking TCP peer of the broker, for tests that look at single frames."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import TypeVar, cast

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.session import ClientSession, Completed, Responder
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.signing import Credentials

R = TypeVar("R", bound=Reply)

_TIMEOUT_SECONDS = 20.0
_TIMEOUT_MS = 60_000


class RemotingPeer:
    """One connection. Nothing is retried, nothing is hidden."""

    def __init__(
        self,
        address: str,
        *,
        receive_buffer_size: int | None = None,
        responder: Responder | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`responder` answers what the broker asks; see `answer_next`."""
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_size is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        self.socket.settimeout(_TIMEOUT_SECONDS)
        self.socket.connect((host, int(port)))
        self.session = ClientSession(responder=responder, credentials=credentials)

    def __enter__(self) -> RemotingPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def write(self, parts: Iterable[Buffer]) -> None:
        self.socket.sendall(b"".join(parts))

    def start(self, request: Request[Reply]) -> int:
        """Send a request; its number."""
        started = self.session.start(request, now_ms=0, timeout_ms=_TIMEOUT_MS)
        self.write(started.parts)
        return started.opaque

    def start_oneway(self, request: Request[Reply]) -> None:
        self.write(self.session.start_oneway(request))

    def next_completed(self) -> Completed:
        """Wait for the next answer. Raises ConnectionError when the broker hangs up."""
        while (completed := self.session.next_completed()) is None:
            size = self.socket.recv_into(self.session.next_buffer())
            if not size:
                raise ConnectionError("the broker closed the connection")
            self.session.received(size)
        return completed

    def next_reply(self, kind: type[R]) -> R:
        """Wait for the next answer, which must be a reply of this kind."""
        result = self.next_completed().result
        assert isinstance(result, kind)
        return result

    def call(self, request: Request[R]) -> R:
        """Ask and wait for the answer, which must come next."""
        opaque = self.start(request)
        completed = self.next_completed()
        assert completed.opaque == opaque
        if isinstance(completed.result, RocketMQError):
            raise completed.result
        return cast(R, completed.result)

    def answer_next(self) -> None:
        """Wait for something that the broker asks, and answer it."""
        assert self.session.next_completed() is None
        while not (answers := self.session.take_answers()):
            size = self.socket.recv_into(self.session.next_buffer())
            assert size, "the broker closed the connection"
            self.session.received(size)
            assert self.session.next_completed() is None
        self.write(answers)

    def next_notices(self) -> list[str]:
        """Wait for the notifications that a group's members changed."""
        # What came together with the last answer has been received, but not looked at.
        assert self.session.next_completed() is None
        while not (notices := self.session.take_notices()):
            size = self.socket.recv_into(self.session.next_buffer())
            assert size, "the broker closed the connection"
            self.session.received(size)
            assert self.session.next_completed() is None
        return [notice.group for notice in notices]

    def is_closed_by_broker(self) -> bool:
        """True once the broker hung up; waits for it, whatever it still sends."""
        try:
            while self.socket.recv(4_096):
                pass
            return True
        except ConnectionResetError:
            return True
