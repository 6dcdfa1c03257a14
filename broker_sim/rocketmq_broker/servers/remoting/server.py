"""Serves RocketMQ's remoting protocol over TCP: connections of frames <-> the shell.

A connection receives into its decoder's buffers and sends replies without copying them. Limits
bound the memory of each peer: one frame, the replies that it has not read, and its requests in
flight. At a limit the broker stops reading from that connection until the peer has caught up.
Bytes that are no frames close that connection only.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import mmap
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.peer_log import PeerLog
from rocketmq_broker.security.guard import Guard
from rocketmq_broker.security.tls_files import TlsFiles
from rocketmq_broker.servers.shell.member_calls import Answered
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.servers.sockets.descriptors import Room
from rocketmq_broker.servers.sockets.listener import Listener, ProtocolSniffer, hand_over, peer_text
from rocketmq_broker.servers.sockets.output import Output
from rocketmq_broker.servers.sockets.tls_layer import TlsLayer
from rocketmq_broker.servers.sockets.unfinished_frames import UnfinishedFrames
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, ProtocolError, RocketMQError, broker_error
from rocketmq_wire.limits import UNFINISHED_SIZE_MAX
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.remoting.session import ReceivedRequest, ServerSession
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged

_PEERS = PeerLog(logging.getLogger(__name__))

# Large enough that a reply of megabytes needs few wake-ups of the loop.
_SEND_BUFFER_SIZE: Final = 1024 * 1024
_IDLE_CHECKS: Final = 4
_REFUSED_SECONDS: Final = 0.1
"""The rest of a connection after a request whose sender is unknown: strangers cost little."""
_SLICE_SECONDS: Final = 0.005
"""The time for the requests of one connection, before other connections get theirs."""


class Role(enum.Enum):
    """The requests that a port accepts."""

    BOTH = "name server and broker"
    NAME_SERVER = "name server"
    BROKER = "broker"

    def takes(self, request: Request[Reply]) -> bool:
        return self is Role.BOTH or request.to_name_server is (self is Role.NAME_SERVER)


class RemotingServer:
    """One listening port."""

    def __init__(
        self,
        shell: EngineShell,
        config: BrokerConfig,
        role: Role = Role.BOTH,
        tls_files: TlsFiles | None = None,
        guard: Guard | None = None,
        *,
        room: Room,
    ) -> None:
        """Without `tls_files` only plaintext is served; without `guard` everything is allowed."""
        self.room = room
        self.unfinished = UnfinishedFrames(UNFINISHED_SIZE_MAX)
        self.shell = shell
        self.config = config
        self.role = role
        self.guard = guard
        self._tls_files = tls_files
        self.connections: set[Connection] = set()
        self._waiting: set[asyncio.Transport] = set()
        """Accepted transports that have not sent enough yet to become a connection."""
        self._listener: Listener | None = None
        self._idle_task: asyncio.Task[None] | None = None

    def listen(self, bound: socket.socket) -> None:
        self._listener = Listener(bound, self._protocol, self.room)
        self._idle_task = asyncio.get_running_loop().create_task(self._close_idle())

    def _protocol(self) -> asyncio.BaseProtocol:
        if self._tls_files is None:
            return Connection(self)
        is_enforcing = self.config.tls_mode == "enforcing"
        return ProtocolSniffer(
            on_tls=self._begin_tls,
            on_plain=None if is_enforcing else self._begin_plain,
            wait_seconds=self.config.idle_seconds,
            waiting=self._waiting,
        )

    def _begin_plain(self, transport: asyncio.Transport, data: bytes) -> None:
        hand_over(transport, Connection(self), data)

    def _begin_tls(self, transport: asyncio.Transport, data: bytes) -> None:
        assert self._tls_files is not None
        context, peer = self._tls_files.context(), peer_text(transport)
        layer = TlsLayer(transport, context, lambda: Connection(self), peer, self._waiting)
        layer.feed(data)

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        if self._idle_task is not None:
            self._idle_task.cancel()

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self.connections):
            connection.close()
        # One turn of the loop lets the transports send their rest and the TLS goodbye.
        await asyncio.sleep(0)
        if self._listener is not None:
            await self._listener.hang_up(lambda: [*self._waiting, *self.connections])

    async def _close_idle(self) -> None:
        idle_seconds = self.config.idle_seconds
        while True:
            await asyncio.sleep(idle_seconds / _IDLE_CHECKS)
            oldest = asyncio.get_running_loop().time() - idle_seconds
            for connection in list(self.connections):
                if connection.is_idle_since(oldest):
                    connection.close()


_peer_keys = itertools.count(1)


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    _transport: asyncio.Transport
    _output: Output

    def __init__(self, server: RemotingServer) -> None:
        self._server = server
        self._shell = server.shell
        self._config = server.config
        self._session = ServerSession(
            frame_size_max=self._config.frame_bytes_max,
            allocate=self._allocate,
            check=None if server.guard is None else self._check,
        )
        self._in_flight = 0
        self._asked: dict[int, Answered] = {}
        """The callback of each request to this client, by the request's number."""
        self._has_room = False
        """True while a large frame is unfinished."""
        self._waits_for_room = False
        self._is_silent = True
        self._is_reading = True
        self._is_working = False
        self._is_resting = False
        """True after a refused stranger, and while other connections get their time."""
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()

    # --- asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._output = Output(transport)
        # A client that has gone already has no name.
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname")
        self.peer = Peer(next(_peer_keys), str(peer[0]), int(peer[1]), str(local[0]))
        accepted = transport.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_SIZE)
        # Asyncio sets this only for sockets with a given protocol number, and the bound one has
        # none. Without it, a second small reply waits 40 ms until the first one is acknowledged.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.connections.add(self)
        self._shell.listen(
            self.peer,
            on_members_changed=lambda group: self._notify(NotifyMembersChanged(group)),
            on_check=self._notify,
            ask_client=self._ask,
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._session.next_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._active_at = self._loop.time()
        self._session.received(nbytes)
        if self._has_room and not self._session.is_in_large_frame:
            self._has_room = False
            self._server.unfinished.give_back(self)
        self._work()

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        # Asyncio reports a lost connection twice if a write fails within this call.
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._active_at = self._loop.time()
        self._output.resume()
        self._catch_up()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._is_closed = True
        self._output.clear()
        self._session.close()
        self._server.unfinished.give_back(self)
        self._server.connections.discard(self)
        self._shell.forget_peer(self.peer)
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(None)

    # --- the server calls ---------------------------------------------------------------------

    def is_idle_since(self, time: float) -> bool:
        """True if no byte has passed since `time` and no request is in flight."""
        return self._active_at < time and not self._in_flight

    def close(self) -> None:
        """Close once everything written is sent; later requests and replies are dropped."""
        self._is_closed = True
        self._transport.pause_reading()
        self._output.close()

    def abort(self) -> None:
        self._transport.abort()

    def read_on(self) -> None:
        """There is room for the frame that has arrived in part."""
        self._waits_for_room = False
        self._active_at = self._loop.time()
        self._catch_up()

    # --- requests and answers -----------------------------------------------------------------

    @property
    def _is_at_limit(self) -> bool:
        if self._output.size > self._config.output_bytes_max:
            return True
        in_flight_max = self._config.requests_in_flight_max
        return (
            self._in_flight >= in_flight_max
            # Held pulls have a limit of their own.
            and self._in_flight - self._shell.held_count(self.peer) >= in_flight_max
        )

    def _work(self) -> None:
        """Process the received requests as far as the limits allow."""
        if self._is_working:
            # A reply that is given at once calls this; the loop below continues by itself.
            return
        self._is_working = True
        self._output.hold()
        began = self._loop.time()
        try:
            while not self._is_closed and not self._is_at_limit and not self._is_resting:
                received = self._session.next_request()
                for opaque, reply in self._session.take_answered():
                    self._asked.pop(opaque)(reply)
                if received is None:
                    break
                self._submit(received)
                if self._loop.time() - began > _SLICE_SECONDS and not self._is_resting:
                    self._is_resting = True
                    self._loop.call_soon(self._work_on)
        except ProtocolError as error:
            peer = peer_text(self._transport)
            _PEERS.warning(self.peer.host, "peer=%s closed: %s", peer, error)
            self._output.release()
            self._is_closed = True
            self._transport.abort()
            return
        finally:
            self._is_working = False
            self._output.release()
        self._read_if(not self._is_at_limit and not self._waits_for_room and not self._is_resting)

    def _work_on(self) -> None:
        self._is_resting = False
        if not self._is_closed:
            self._work()

    def _allocate(self, size: int) -> memoryview:
        self._has_room = True
        self._waits_for_room = not self._server.unfinished.take(self, size)
        if self._waits_for_room:
            # Takes memory as the bytes arrive, and none that was freed and could be used first.
            return memoryview(mmap.mmap(-1, size))
        # A bytearray would be filled with zeros first.
        return np.empty(size, np.uint8).data

    def _check(self, header: Header, body: Buffer) -> Callable[[Request[Reply]], None]:
        guard = self._server.guard
        assert guard is not None
        try:
            sender = guard.identify_request(self.peer.host, header, body)
        except BrokerError:
            self._is_resting = True
            self._loop.call_later(_REFUSED_SECONDS, self._work_on)
            raise
        if sender != self.peer.sender:
            # The request is submitted before the next one is checked.
            self.peer = replace(self.peer, sender=sender)
        return partial(guard.check_right, sender)

    def _submit(self, received: ReceivedRequest) -> None:
        request, role = received.request, self._server.role
        if not isinstance(request, BrokerError) and not role.takes(request):
            remark = f" request type {received.code} not supported by the {role.value}"
            request = broker_error(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if isinstance(request, BrokerError):
            self._output.write(self._session.answer(received, request))
            return
        if self._is_silent:
            self._is_silent = False
            self._server.room.heard(self._transport.get_extra_info("socket").fileno())
        self._in_flight += 1

        def done(result: Reply | RocketMQError) -> None:
            self._in_flight -= 1
            if self._is_closed:
                return
            if not isinstance(result, (Reply, BrokerError)):
                result = broker_error(ResponseCode.SYSTEM_ERROR, str(result))
            if not self._output.is_holding:
                # A sync completes many sends at once, and an append many pulls.
                self._output.hold()
                self._loop.call_soon(self._release)
            self._output.write(self._session.answer(received, result))
            self._catch_up()

        self._shell.submit(request, self.peer, done)

    def _release(self) -> None:
        if not self._is_closed and not self._is_working:
            self._output.release()

    def _notify(self, notice: Request[Reply]) -> None:
        # A client that does not read its replies gets no notices: they must not pile up.
        if not self._transport.is_closing() and self._output.size <= self._config.output_bytes_max:
            self._output.write(self._session.notify(notice))

    def _ask(self, request: Request[Reply], answered: Answered) -> Callable[[], None]:
        """Send a request to the client; the returned function gives up waiting."""
        opaque, parts = self._session.start(request)
        self._asked[opaque] = answered
        self._output.write(parts)

        def give_up() -> None:
            self._session.forget(opaque)
            self._asked.pop(opaque, None)

        return give_up

    def _catch_up(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._work()

    def _read_if(self, wanted: bool) -> None:
        if wanted is self._is_reading or self._is_closed:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
