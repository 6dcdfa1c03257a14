"""The clients of the public service: by id, what they said of themselves, and how to reach them.

A client's telemetry stream is its way in: by it the broker asks about transactions and has messages
verified. A client without one is still known by its settings, until it has been silent for long.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.servers.public_grpc.verification import answer_of, question_of
from rocketmq_broker.servers.shell.member_calls import Answered, AskClient
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal
from rocketmq_wire.grpc.public.messages import Delivery, incoming_of
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.transactions import CheckTransaction
from rocketmq_wire.stubs import public

_FIRST_KEY: Final = -(1 << 62)
"""Below all keys of connections: a client is itself, whatever connections it uses."""


class Listening(Protocol):
    """Where clients are made known that can be asked: `servers.shell.EngineShell`."""

    def listen(
        self,
        peer: Peer,
        on_members_changed: Callable[[str], None],
        ask_client: AskClient | None = None,
    ) -> None: ...

    def listen_checks(self, peer: Peer, on_check: Callable[[CheckTransaction], None]) -> None: ...

    def forget_peer(self, peer: Peer) -> None: ...


@dataclass(eq=False, slots=True)
class Session:
    """One client."""

    peer: Peer
    settings: Any
    seen_at: float
    commands: asyncio.Queue[Any] | None = None
    """What waits to be written to its stream; a None in it ends that. None between streams."""
    asked: dict[str, tuple[Request[Reply], Answered]] = field(default_factory=dict)
    """What it was asked and has not answered, by nonce."""

    @property
    def group(self) -> str:
        return str(self.settings.subscription.group.name)

    def tell(self, command: Any) -> None:
        """Send something by the stream; a client that does not read is cut off."""
        if self.commands is None:
            return
        try:
            self.commands.put_nowait(command)
        except asyncio.QueueFull:
            self.hang_up()

    def hang_up(self) -> None:
        """End the stream: the client opens another one if it is still there."""
        if self.commands is None:
            return
        while not self.commands.empty():
            self.commands.get_nowait()
        self.commands.put_nowait(None)


class Sessions:
    """All of them. Lives on the event loop's thread."""

    def __init__(
        self,
        listening: Listening,
        *,
        count_max: int,
        commands_max: int,
        expiry_seconds: float,
        time: Callable[[], float],
    ) -> None:
        self._listening = listening
        self._count_max, self._commands_max = count_max, commands_max
        self._expiry_seconds, self._time = expiry_seconds, time
        self._sessions: dict[str, Session] = {}
        self._keys = itertools.count(_FIRST_KEY)
        self._nonces = itertools.count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, client_id: str) -> Session | None:
        """The client, which counts as a sign of life."""
        session = self._sessions.get(client_id)
        if session is not None:
            session.seen_at = self._time()
        return session

    def is_online(self, client_id: str) -> bool:
        """True while a client's stream is open."""
        session = self._sessions.get(client_id)
        return session is not None and session.commands is not None

    def put(self, client_id: str, peer: Peer, settings: Any) -> Session:
        """Note a client's settings. Raises PublicRefusal when there are too many clients."""
        session = self.find(client_id)
        if session is None:
            self._expire()
            if len(self._sessions) >= self._count_max:
                raise PublicRefusal(PublicCode.TOO_MANY_REQUESTS, "too many clients are connected")
            own = Peer(next(self._keys), peer.host, peer.port, peer.local_host)
            session = Session(own, settings, self._time())
            self._sessions[client_id] = session
        session.settings = settings
        return session

    def begin_stream(self, session: Session) -> asyncio.Queue[Any]:
        """A telemetry stream of the client; one it had before ends."""
        session.hang_up()
        # One place more, for the word that ends it.
        session.commands = asyncio.Queue(self._commands_max + 1)
        self._listening.listen(
            session.peer,
            # Members share all queues here: nobody has to be told who is there.
            lambda _: None,
            lambda request, answered: self._ask(session, request, answered),
        )
        self._listening.listen_checks(session.peer, lambda check: self._check(session, check))
        return session.commands

    def end_stream(self, session: Session, commands: asyncio.Queue[Any]) -> None:
        """A stream is over: unless there is a newer one, nobody can be asked any more."""
        if session.commands is not commands:
            return
        session.commands = None
        self._listening.forget_peer(session.peer)
        asked, session.asked = session.asked, {}
        for _, answered in asked.values():
            answered(None)

    def remove(self, client_id: str) -> None:
        """A client has said goodbye."""
        session = self._sessions.pop(client_id, None)
        if session is not None:
            session.hang_up()
            self._listening.forget_peer(session.peer)

    def hang_up_all(self) -> None:
        """End every stream: the broker stops."""
        for session in self._sessions.values():
            session.hang_up()

    def answered(self, session: Session, command: Any) -> None:
        """A client's answer to what it was asked; one that nobody waits for is dropped."""
        content = getattr(command, command.WhichOneof("command"))
        waiting = session.asked.pop(content.nonce, None)
        if waiting is not None:
            request, answered = waiting
            answered(answer_of(request, command))

    def _ask(
        self, session: Session, request: Request[Reply], answered: Answered
    ) -> Callable[[], None]:
        nonce = str(next(self._nonces))
        command = question_of(request, nonce)
        if command is None or session.commands is None:
            asyncio.get_running_loop().call_soon(answered, None)
            return lambda: None
        session.asked[nonce] = (request, answered)
        session.tell(command)

        def give_up() -> None:
            session.asked.pop(nonce, None)

        return give_up

    def _check(self, session: Session, check: CheckTransaction) -> None:
        stored, _ = decode_record(check.record, check_crc=False)
        command = public.message_class("TelemetryCommand")()
        recover = command.recover_orphaned_transaction_command
        recover.message.CopyFrom(incoming_of(stored, Delivery(stored.topic)))
        recover.transaction_id = check.transaction_id
        session.tell(command)

    def _expire(self) -> None:
        oldest = self._time() - self._expiry_seconds
        for client_id, session in list(self._sessions.items()):
            if session.commands is None and session.seen_at < oldest:
                del self._sessions[client_id]
