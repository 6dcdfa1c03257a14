"""The handlers of the public service: bytes -> a caller and a message -> a reply or its status.

Every error becomes a status inside the reply. The call itself never fails with an exception,
because clients would take the whole broker for unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import grpc

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.servers.public_grpc import members, pulling, receiving, routing, sending
from rocketmq_broker.servers.public_grpc.caller import CLIENT_ID, Caller, Service, identified
from rocketmq_broker.servers.public_grpc.renewals import CHECK_SECONDS
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal, RemoteProtocolError, RocketMQError
from rocketmq_wire.grpc.bulk.methods import check_size
from rocketmq_wire.grpc.bulk.shapes import check_messages
from rocketmq_wire.grpc.public.status import status_of
from rocketmq_wire.limits import MESSAGE_EXTRAS_MAX, PUBLIC_ENTRIES_MAX
from rocketmq_wire.stubs import public

_LOG = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[bytes, bytes]
PeerOf = Callable[[Context], Peer]
_Answer = Callable[[Caller, Any], Awaitable[Any]]
_Stream = Callable[[Caller, Any], AsyncGenerator[Any, None]]
_RENEWING_PEER: Final = Peer(-(1 << 61), "127.0.0.1", 0)


class PublicCalls:
    """All calls of the public service."""

    def __init__(self, service: Service, peer_of: PeerOf) -> None:
        self._service = service
        self._peer_of = peer_of
        self._renewing: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """One handler per call. They take and return bytes, without serialisers."""
        answers: Mapping[str, _Answer] = {
            "QueryRoute": routing.query_route,
            "QueryAssignment": routing.query_assignment,
            "Heartbeat": members.heartbeat,
            "NotifyClientTermination": members.terminate,
            "SyncLiteSubscription": routing.refuse_lite_topics,
            "SendMessage": sending.send,
            "EndTransaction": sending.end_transaction,
            "RecallMessage": sending.recall,
            "AckMessage": receiving.ack,
            "ChangeInvisibleDuration": receiving.change,
            "ForwardMessageToDeadLetterQueue": receiving.forward,
            "UpdateOffset": pulling.update,
            "GetOffset": pulling.get,
            "QueryOffset": pulling.query,
        }
        streams: Mapping[str, _Stream] = {
            "ReceiveMessage": receiving.receive,
            "PullMessage": pulling.pull,
        }
        found = {
            name: grpc.unary_unary_rpc_method_handler(self._unary(name, answer))
            for name, answer in answers.items()
        }
        for name, stream in streams.items():
            found[name] = grpc.unary_stream_rpc_method_handler(self._streamed(name, stream))
        found["Telemetry"] = grpc.stream_stream_rpc_method_handler(self.telemetry)
        return found

    def begin(self, own_port: int) -> None:
        """Start to renew leases on the running loop; routes name the port."""
        self._service.own_port = own_port
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    def end(self) -> None:
        """End the telemetry streams, and stop renewing leases."""
        self._service.sessions.hang_up_all()
        if self._renewing is not None:
            self._renewing.cancel()

    def _unary(self, name: str, answer: _Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handle(content: bytes, context: Context) -> bytes:
            try:
                caller = self._caller(context)
                reply = await answer(caller, _parsed(name, content))
            except Exception as error:  # noqa: BLE001 - a call's outermost frame
                reply = public.message_class(f"{name}Response")(status=_status_of(error, name))
            return bytes(reply.SerializeToString())

        return handle

    def _streamed(self, name: str, stream: _Stream) -> Callable[[bytes, Context], Awaitable[None]]:
        async def handle(content: bytes, context: Context) -> None:
            try:
                caller = self._caller(context)
                request = _parsed(name, content)
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
        sender = identified(self._service.guard, peer, metadata)
        return Caller(
            client_id=metadata[CLIENT_ID],
            peer=replace(peer, sender=sender),
            metadata=metadata,
            seconds_left=context.time_remaining(),
            now_ms=self._service.shell.now_ms(),
            sender=sender,
            service=self._service,
        )

    async def telemetry(self, commands: AsyncIterator[bytes], context: Context) -> None:
        """Serve a client's telemetry stream until it ends."""
        try:
            await members.converse(self._caller(context), commands, context.write)
        except Exception as error:  # noqa: BLE001 - a call's outermost frame
            command = public.message_class("TelemetryCommand")(
                status=_status_of(error, "Telemetry")
            )
            await context.write(bytes(command.SerializeToString()))

    async def _renew(self) -> None:
        service = self._service
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await service.renewals.renew_due(
                lambda request: service.shell.ask(request, _RENEWING_PEER),
                service.sessions.is_online,
                service.shell.now_ms(),
            )


def _parsed(name: str, content: bytes) -> Any:
    """The message of a call whose caller is known. Raises RemoteProtocolError."""
    if name == "SendMessage":
        check_messages(content, PUBLIC_ENTRIES_MAX, MESSAGE_EXTRAS_MAX)
    else:
        check_size(name, content)
    return public.parse(f"{name}Request", content)


def _status_of(error: Exception, name: str) -> Any:
    if isinstance(error, RemoteProtocolError):
        return status_of(PublicRefusal(PublicCode.BAD_REQUEST, str(error)))
    if isinstance(error, RocketMQError):
        return status_of(error)
    _LOG.error("call=%s failed", name, exc_info=error)
    return status_of(
        PublicRefusal(PublicCode.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
    )
