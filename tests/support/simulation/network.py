"""Connections of simulated clients: the broker's own protocol code over pipes that delay and break.

The bytes of a connection arrive in order, late, and cut anywhere. If a connection breaks, either
side learns of it at another time, and bytes in flight may be lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from rocketmq_broker.servers.remoting.server import Connection, RemotingServer
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.session import ClientSession, Responder
from rocketmq_wire.requests.contract import Reply, Request
from support.remoting_sessions import receive
from support.simulation.loop import VirtualLoop

Done = Callable[[Reply | RocketMQError | None], None]
"""Called once with the answer of a request; with None if its connection broke before."""
_NEVER_MS = 1 << 40
_DELAYS_MS = (0.05, 0.2, 0.2, 1, 1, 5, 30)


class Network:
    """All connections to one broker."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.stalls_until = 0.0
        """The time before which no byte arrives."""
        self.links: list[Link] = []

    def connect(self, server: RemotingServer, responder: Responder | None = None) -> Link:
        link = Link(self, server, responder)
        self.links.append(link)
        return link

    def cut_all(self) -> None:
        """The broker has gone."""
        for link in list(self.links):
            link.cut(is_server_dead=True)


class _Pipe:
    """One direction of a connection."""

    def __init__(
        self, network: Network, chance: random.Random, take: Callable[[bytes], None]
    ) -> None:
        self._network = network
        self._chance = chance
        self._take: Callable[[bytes], None] | None = take
        self._last = 0.0
        self._data: deque[bytes] = deque()

    def send(self, data: bytes) -> None:
        if len(data) > 1 and self._chance.random() < 0.1:
            at = self._chance.randrange(1, len(data))
            self._send(data[:at])
            self._send(data[at:])
        else:
            self._send(data)

    def end(self, at: float) -> None:
        """Lose what arrives after a time."""
        self._network.loop.call_at(at, self.close)

    def _send(self, data: bytes) -> None:
        network = self._network
        arrival = network.loop.seconds + self._chance.choice(_DELAYS_MS) / 1_000
        self._last = max(self._last, arrival, network.stalls_until)
        # Timers of one time may run in any order; bytes keep theirs.
        self._data.append(data)
        network.loop.call_at(self._last, self._arrive)

    def _arrive(self) -> None:
        data = self._data.popleft()
        if self._take is not None:
            self._take(data)

    def close(self) -> None:
        """Lose what has not arrived."""
        self._take = None


class _Socket:
    """Stands in for a connection's socket."""

    def setsockopt(self, *_: object) -> None:
        """Nothing is buffered here."""

    def fileno(self) -> int:
        return -1


class _Transport(asyncio.Transport):
    """The broker's end of a connection."""

    def __init__(self, link: Link, port: int) -> None:
        self._link = link
        self.is_dead = False
        """True once the connection is lost."""
        self._is_closing = False
        self._is_reading = True
        self._unread: list[bytes] = []
        self._info = {
            "peername": ("10.0.0.9", port),
            "sockname": ("127.0.0.1", 10911),
            "socket": _Socket(),
        }

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._info.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""

    def write(self, data: Buffer) -> None:  # type: ignore[override]
        if not self.is_closing():
            self._link.to_client.send(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing or self.is_dead

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""
        if not self._is_reading:
            self._unread.append(data)
        elif not self.is_closing():
            _fill(self._link.server_end, data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._link.cut()


def _fill(protocol: Connection, data: bytes) -> None:
    left = memoryview(data)
    while len(left):
        buffer = protocol.get_buffer(-1)
        size = min(len(buffer), len(left))
        buffer[:size] = left[:size]
        protocol.buffer_updated(size)
        left = left[size:]


class Link:
    """One connection."""

    def __init__(
        self, network: Network, server: RemotingServer, responder: Responder | None
    ) -> None:
        self._network = network
        # Its own, because the broker closes its connections in any order.
        self._chance = random.Random(network.chance.getrandbits(64))
        self._session = ClientSession(responder=responder)
        self._asked: dict[int, Done] = {}
        self.is_open = True
        self._is_cut = False
        with network.loop.as_running():
            self.server_end = Connection(server)
        self._transport = _Transport(self, 30_000 + len(network.links) % 30_000)
        self._to_server = _Pipe(network, self._chance, self._transport.feed)
        self.to_client = _Pipe(network, self._chance, self._receive)
        self.server_end.connection_made(self._transport)

    def ask(self, request: Request[Reply], done: Done) -> None:
        """Send a request."""
        if not self.is_open:
            done(None)
            return
        started = self._session.start(request, now_ms=0, timeout_ms=_NEVER_MS)
        self._asked[started.opaque] = done
        self._to_server.send(b"".join(started.parts))

    def cut(self, *, is_server_dead: bool = False) -> None:
        """Break the connection; a dead broker takes no more bytes, also of one that is breaking."""
        loop = self._network.loop
        if not self._is_cut:
            self._is_cut = True
            at = self._later()
            self.to_client.end(at)
            loop.call_at(at, self._lost)
            if not is_server_dead:
                loop.call_at(self._later(), self._server_lost)
        if is_server_dead:
            self._end_server()

    def _end_server(self) -> bool:
        """The broker's end is closed; False if it was before."""
        if self not in self._network.links:
            return False
        self._network.links.remove(self)
        self._to_server.close()
        self._transport.is_dead = True
        return True

    def _later(self) -> float:
        """A time at which a side learns that the connection broke; each has its own."""
        seconds = self._chance.choice((0, 0.001, 0.2, 2)) + self._chance.random() / 1_000
        return self._network.loop.seconds + seconds

    def _server_lost(self) -> None:
        if self._end_server():
            self.server_end.connection_lost(None)

    def _receive(self, data: bytes) -> None:
        receive(self._session, data)
        while (completed := self._session.next_completed()) is not None:
            self._asked.pop(completed.opaque)(completed.result)

    def _lost(self) -> None:
        self.is_open = False
        asked, self._asked = self._asked, {}
        for done in asked.values():
            done(None)
