"""The clients of the public service: their settings and their telemetry streams.

Over a client's stream the broker checks transactions, and passes on the requests of tools. A client
without a stream keeps its session until it has been silent for the expiry time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.servers.public_grpc.lookup import LIMITS, PublicLimits
from rocketmq_broker.servers.shell.member_calls import Answered
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal
from rocketmq_wire.grpc.public.messages import Delivery, incoming_of
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.remoting.codec import encode_reply
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeResult,
    GetRunningInfo,
    RelayedReply,
    RunningInfoReply,
)
from rocketmq_wire.requests.transactions import CheckTransaction
from rocketmq_wire.stubs import public

_FIRST_KEY: Final = -(1 << 62)
"""Below the keys of all connections, because a client may use several connections."""

_SETTINGS_FACTOR: Final = 3
"""Settings take three times the bytes of their message."""
_SESSION_SIZE: Final = 2_048
_RESULTS: Final = {
    PublicCode.OK: ConsumeResult.SUCCESS,
    PublicCode.FAILED_TO_CONSUME_MESSAGE: ConsumeResult.LATER,
    PublicCode.MESSAGE_CORRUPTED: ConsumeResult.RETURN_NULL,
}


@dataclass(slots=True)
class _Held:
    """What the broker keeps for all clients."""

    size: int = 0


@dataclass(eq=False, slots=True)
class Session:
    peer: Peer
    settings: Any
    seen_at: float
    limits: PublicLimits
    held: _Held
    weight: int = 0
    """The memory of the settings."""
    unread_size: int = 0
    """Bytes of the commands to write."""
    commands: asyncio.Queue[Any] | None = None
    """The commands to write to its stream, None to end it; None if no stream is open."""
    asked: dict[str, tuple[Request[Reply], Answered]] = field(default_factory=dict)
    """The unanswered requests to the client, by nonce."""

    @property
    def group(self) -> str:
        return str(self.settings.subscription.group.name)

    def send(self, command: Any) -> None:
        """Send a command over the stream, which ends if the client does not read."""
        if self.commands is None:
            return
        size = command.ByteSize()
        is_full = self.unread_size and self.unread_size + size > self.limits.commands_size_max
        if is_full or self.held.size + size > self.limits.held_size_max:
            self.hang_up()
            return
        try:
            self.commands.put_nowait(command)
        except asyncio.QueueFull:
            self.hang_up()
            return
        self._hold(size)

    async def next_command(self, commands: asyncio.Queue[Any]) -> Any:
        """The next command to write to a stream; None ends it."""
        command = await commands.get()
        if command is not None:
            self._hold(-command.ByteSize())
        return command

    def _hold(self, size: int) -> None:
        self.unread_size += size
        self.held.size += size

    def hang_up(self) -> None:
        """End the stream; a client that still runs opens another one."""
        if self.commands is None:
            return
        while not self.commands.empty():
            self.commands.get_nowait()
        self._hold(-self.unread_size)
        self.commands.put_nowait(None)


class Sessions:
    """All sessions. Every call happens on the event loop's thread."""

    def __init__(
        self,
        shell: EngineShell,
        *,
        expiry_seconds: float,
        time: Callable[[], float] = monotonic,
        limits: PublicLimits = LIMITS,
    ) -> None:
        self._shell = shell
        self._limits = limits
        self._expiry_seconds = expiry_seconds
        self._time = time
        self._sessions: dict[str, Session] = {}
        self._held = _Held()
        self._keys = itertools.count(_FIRST_KEY)
        self._nonces = itertools.count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: str) -> Session | None:
        """The client's session; the call counts as a sign of life."""
        session = self._sessions.get(key)
        if session is not None:
            session.seen_at = self._time()
        return session

    def is_online(self, key: str) -> bool:
        """True while a client's stream is open."""
        session = self._sessions.get(key)
        return session is not None and session.commands is not None

    def put(self, key: str, peer: Peer, settings: Any) -> Session:
        """Store a client's settings. Raises PublicRefusal if there are too many clients."""
        session = self.find(key)
        weight = _SESSION_SIZE + _SETTINGS_FACTOR * settings.ByteSize()
        grown = weight - (session.weight if session is not None else 0)
        if self._held.size + grown > self._limits.held_size_max:
            self._expire()
            if self._held.size + grown > self._limits.held_size_max:
                raise PublicRefusal(PublicCode.TOO_MANY_REQUESTS, "clients take too much memory")
        if session is None:
            self._expire()
            if len(self._sessions) >= self._limits.sessions_max:
                raise PublicRefusal(PublicCode.TOO_MANY_REQUESTS, "too many clients are connected")
            own = replace(peer, key=next(self._keys))
            session = Session(own, settings, self._time(), self._limits, self._held)
            self._sessions[key] = session
        session.peer = replace(session.peer, sender=peer.sender)
        session.settings = settings
        self._held.size += weight - session.weight
        session.weight = weight
        return session

    def begin_stream(self, session: Session) -> asyncio.Queue[Any]:
        """Open a telemetry stream of the client; an earlier one ends."""
        session.hang_up()
        # One more, for the None that ends the stream.
        session.commands = asyncio.Queue(self._limits.commands_max + 1)
        self._shell.listen(
            session.peer,
            # Members of the public service share all queues, so they need no notices.
            on_members_changed=lambda _: None,
            on_check=lambda check: self._check(session, check),
            ask_client=lambda request, answered: self._ask(session, request, answered),
        )
        return session.commands

    def end_stream(self, session: Session, commands: asyncio.Queue[Any]) -> None:
        """Close a stream; unless a newer one is open, the client takes no more requests."""
        if session.commands is not commands:
            return
        session.hang_up()
        session.commands = None
        self._shell.forget_peer(session.peer)
        asked, session.asked = session.asked, {}
        for _, answered in asked.values():
            answered(None)

    def remove(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.hang_up()
            self._held.size -= session.weight
            self._shell.forget_peer(session.peer)

    def hang_up_all(self) -> None:
        """End every stream, because the broker stops."""
        for session in self._sessions.values():
            session.hang_up()

    def answered(self, session: Session, command: Any) -> None:
        """Pass on a client's answer to a request; a late answer is dropped."""
        content = getattr(command, command.WhichOneof("command"))
        waiting = session.asked.pop(content.nonce, None)
        if waiting is not None:
            request, answered = waiting
            answered(_reply_of(request, command))

    def _ask(
        self, session: Session, request: Request[Reply], answered: Answered
    ) -> Callable[[], None]:
        nonce = str(next(self._nonces))
        command = _command_of(request, nonce)
        if command is None or session.commands is None:
            asyncio.get_running_loop().call_soon(answered, None)
            return lambda: None
        session.asked[nonce] = (request, answered)
        session.send(command)

        def give_up() -> None:
            session.asked.pop(nonce, None)

        return give_up

    def _check(self, session: Session, check: CheckTransaction) -> None:
        stored, _ = decode_record(check.record, check_crc=False)
        command = public.message_class("TelemetryCommand")()
        recover = command.recover_orphaned_transaction_command
        recover.message.CopyFrom(incoming_of(stored, Delivery(stored.topic)))
        recover.transaction_id = check.transaction_id
        session.send(command)

    def _expire(self) -> None:
        oldest = self._time() - self._expiry_seconds
        for key, session in list(self._sessions.items()):
            if session.commands is None and session.seen_at < oldest:
                self._held.size -= session.weight
                del self._sessions[key]


def _command_of(request: Request[Reply], nonce: str) -> Any | None:
    """The telemetry command for a request; None if these clients have no such command."""
    command = public.message_class("TelemetryCommand")()
    if isinstance(request, ConsumeDirectly):
        stored, _ = decode_record(request.record, check_crc=False)
        verify = command.verify_message_command
        verify.nonce = nonce
        verify.message.CopyFrom(incoming_of(stored, Delivery(stored.topic)))
        return command
    if isinstance(request, GetRunningInfo):
        command.print_thread_stack_trace_command.nonce = nonce
        return command
    return None


def _reply_of(request: Request[Reply], command: Any) -> RelayedReply | None:
    """The answer in the form of the TCP protocol; None if it answers another command."""
    reply: Reply
    if isinstance(request, ConsumeDirectly) and command.HasField("verify_message_result"):
        result = _RESULTS.get(command.status.code, ConsumeResult.EXCEPTION)
        reply = ConsumeDirectlyReply(result, remark=command.status.message)
    elif isinstance(request, GetRunningInfo) and command.HasField("thread_stack_trace"):
        trace = command.thread_stack_trace.thread_stack_trace
        reply = RunningInfoReply({"THREAD_STACK_TRACE": trace}, {}, {}, ())
    else:
        return None
    encoded = encode_reply(request, reply)
    return RelayedReply(
        encoded.code, encoded.remark, encoded.ext_fields, b"".join(map(bytes, encoded.body))
    )
