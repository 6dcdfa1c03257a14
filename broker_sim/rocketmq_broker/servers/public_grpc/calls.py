"""The handlers of the public service: bytes -> a caller and a message -> a reply or its status.

Every error becomes a status inside the reply. The call itself never fails with an exception,
because clients would take the whole broker for unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.security.guard import Guard
from rocketmq_broker.servers.public_grpc.caller import CLIENT_ID, Caller, identified
from rocketmq_broker.servers.public_grpc.limits import PublicLimits
from rocketmq_broker.servers.public_grpc.lookup import Lookup
from rocketmq_broker.servers.public_grpc.members import Members
from rocketmq_broker.servers.public_grpc.pulling import Pulls
from rocketmq_broker.servers.public_grpc.receiving import Receives
from rocketmq_broker.servers.public_grpc.renewals import CHECK_SECONDS, Renewals
from rocketmq_broker.servers.public_grpc.routing import assignment_reply, lite_refusal, route_reply
from rocketmq_broker.servers.public_grpc.sending import Sends
from rocketmq_broker.servers.public_grpc.sessions import Sessions
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal, RemoteProtocolError, RocketMQError
from rocketmq_wire.grpc.public.status import status_of
from rocketmq_wire.requests.topics import GetRoute
from rocketmq_wire.stubs import public

_LOG = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[bytes, bytes]
PeerOf = Callable[[Context], Peer]
_Answer = Callable[[Caller, Any], Awaitable[Any]]
_MakeReply = Callable[[Any, Lookup, tuple[str, int]], Any]
_Stream = Callable[[Caller, Any], AsyncGenerator[Any, None]]
_RENEWING_PEER: Final = Peer(-(1 << 61), "127.0.0.1", 0)


class PublicCalls:
    """All calls of the public service, over one shell."""

    def __init__(
        self,
        shell: EngineShell,
        lookup: Lookup,
        *,
        peer_of: PeerOf,
        limits: PublicLimits,
        guard: Guard | None,
        expiry_seconds: float,
    ) -> None:
        self._shell = shell
        self._lookup = lookup
        self._guard = guard
        self._peer_of = peer_of
        self.own_port = 0
        """The port in routes for clients that do not say how they reached the broker."""
        self.sessions = Sessions(
            shell,
            count_max=limits.sessions_max,
            commands_max=limits.commands_max,
            expiry_seconds=expiry_seconds,
            time=time.monotonic,
        )
        self._renewals = Renewals()
        self._members = Members(lookup, limits, self.sessions, self._renewals)
        self._sends = Sends(lookup, limits)
        self._receives = Receives(lookup, limits, self.sessions, self._renewals)
        self._pulls = Pulls(lookup, limits)
        self._renewing: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """One handler per call. They take and return bytes, without serialisers."""
        answers: Mapping[str, _Answer] = {
            "QueryRoute": self._routed(route_reply),
            "QueryAssignment": self._routed(assignment_reply),
            "Heartbeat": self._members.heartbeat,
            "NotifyClientTermination": self._members.terminate,
            "SyncLiteSubscription": _refuse_lite_topics,
            "SendMessage": self._sends.send,
            "EndTransaction": self._sends.end_transaction,
            "RecallMessage": self._sends.recall,
            "AckMessage": self._receives.ack,
            "ChangeInvisibleDuration": self._receives.change,
            "ForwardMessageToDeadLetterQueue": self._receives.forward,
            "UpdateOffset": self._pulls.update,
            "GetOffset": self._pulls.get,
            "QueryOffset": self._pulls.query,
        }
        streams: Mapping[str, _Stream] = {
            "ReceiveMessage": self._receives.receive,
            "PullMessage": self._pulls.pull,
        }
        found = {
            name: grpc.unary_unary_rpc_method_handler(self._unary(name, answer))
            for name, answer in answers.items()
        }
        for name, stream in streams.items():
            found[name] = grpc.unary_stream_rpc_method_handler(self._streamed(name, stream))
        found["Telemetry"] = grpc.stream_stream_rpc_method_handler(self.telemetry)
        return found

    def begin(self) -> None:
        """Start to renew leases on the running loop."""
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    def end(self) -> None:
        """End the telemetry streams, and stop renewing leases."""
        self.sessions.hang_up_all()
        if self._renewing is not None:
            self._renewing.cancel()

    # --- one answer ---------------------------------------------------------------------------

    def _unary(self, name: str, answer: _Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handle(content: bytes, context: Context) -> bytes:
            try:
                caller = self._caller(context)
                reply = await answer(caller, public.parse(f"{name}Request", content))
            except Exception as error:  # noqa: BLE001 - a call's outermost frame
                reply = public.message_class(f"{name}Response")(status=_status_of(error, name))
            return bytes(reply.SerializeToString())

        return handle

    def _streamed(self, name: str, stream: _Stream) -> Callable[[bytes, Context], Awaitable[None]]:
        async def handle(content: bytes, context: Context) -> None:
            try:
                caller = self._caller(context)
                request = public.parse(f"{name}Request", content)
                # Closing hands unwritten messages back at once.
                async with contextlib.aclosing(stream(caller, request)) as frames:
                    async for frame in frames:
                        await context.write(bytes(frame.SerializeToString()))
            except Exception as error:  # noqa: BLE001 - a call's outermost frame
                if context.cancelled():
                    return  # The client cancelled the call, which is the error.
                frame = public.message_class(f"{name}Response")(status=_status_of(error, name))
                await context.write(bytes(frame.SerializeToString()))

        return handle

    def _caller(self, context: Context) -> Caller:
        """Raises PublicRefusal (40017, 40100)."""
        peer = self._peer_of(context)
        metadata = {
            name: value
            for name, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        account = identified(self._guard, peer, metadata)
        return Caller(
            client_id=metadata[CLIENT_ID],
            peer=peer,
            metadata=metadata,
            seconds_left=context.time_remaining(),
            now_ms=time.time_ns() // 1_000_000,
            asking=self._shell,
            guard=self._guard,
            account=account,
        )

    def _routed(self, make_reply: _MakeReply) -> _Answer:
        async def answer(caller: Caller, request: Any) -> Any:
            caller.check_right(GetRoute(request.topic.name))
            host = self._lookup.host or caller.peer.local_host or "127.0.0.1"
            return make_reply(request, self._lookup, (host, self.own_port))

        return answer

    # --- telemetry ----------------------------------------------------------------------------

    async def telemetry(self, commands: AsyncIterator[bytes], context: Context) -> None:
        """Serve a client's telemetry stream until it ends."""
        try:
            await self._members.converse(self._caller(context), commands, context.write)
        except Exception as error:  # noqa: BLE001 - a call's outermost frame
            command = public.message_class("TelemetryCommand")(
                status=_status_of(error, "Telemetry")
            )
            await context.write(bytes(command.SerializeToString()))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._renewals.renew_due(
                lambda request: self._shell.ask(request, _RENEWING_PEER),
                self.sessions.is_online,
                time.time_ns() // 1_000_000,
            )


async def _refuse_lite_topics(caller: Caller, request: Any) -> Any:
    del caller
    raise lite_refusal(f"SyncLiteSubscription of topic {request.topic.name}")


def _status_of(error: Exception, name: str) -> Any:
    if isinstance(error, RemoteProtocolError):
        return status_of(PublicRefusal(PublicCode.BAD_REQUEST, str(error)))
    if isinstance(error, RocketMQError):
        return status_of(error)
    _LOG.error("call=%s failed", name, exc_info=error)
    return status_of(
        PublicRefusal(PublicCode.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
    )
