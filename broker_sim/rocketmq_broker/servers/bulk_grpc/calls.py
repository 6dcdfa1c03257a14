"""The calls of the bulk gRPC service: bytes -> typed requests to the shell -> bytes.

gRPC passes bytes only; the mapping encodes and decodes the messages. So sent records are joined
once, and received records are views into the request.

A stream of ranges reads its next chunk when gRPC has taken the last one, which happens as fast as
the client reads. For a client that stops reading, the broker holds one chunk, and gRPC another.
"""

from __future__ import annotations

import asyncio
import ipaddress
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar
from urllib.parse import unquote

import grpc

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.security.guard import Guard, SigningAccount
from rocketmq_broker.servers.shell.clock import TimeSlices
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.grpc.bulk.mapping import METHODS, error_to_metadata
from rocketmq_wire.grpc.bulk.methods import Method, Outcome
from rocketmq_wire.grpc.bulk.records import (
    SEND_RECORDS,
    PullRange,
    PullRecords,
    RecordChunk,
    chunk_of_reply,
    decode_pull_records,
    encode_chunk,
    encode_send_outcome,
)
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import (
    LOST_REMARK,
    PullMessages,
    PullReply,
    PullStatus,
    SendReply,
)

R = TypeVar("R", bound=Reply)
_Sending = asyncio.Future[SendReply]
Context = grpc.aio.ServicerContext[bytes, bytes]

# The default size. A chunk of any size costs both sides some 0.2 ms; this project's client asks for
# larger ones, which also decode in fewer steps.
CHUNK_SIZE: Final = 1024 * 1024
CHUNK_SIZE_MAX: Final = 4 * 1024 * 1024
CHUNK_COUNT_MAX: Final = 10_000
SUSPEND_MS_MAX: Final = 60_000
# A filtered stream skips messages that do not match without a chunk, but not for too long: the
# client needs a sign of life, and the offset to resume from.
UNMATCHED_PULLS_MAX: Final = 64
# Sends of one stream that wait for the disk: they bound the memory that a client takes.
SENDS_IN_FLIGHT_MAX: Final = 32

# For gRPC's own tools; this project's client reads the metadata. Never UNAVAILABLE: gRPC clients
# repeat such a call by themselves.
_STATUS_CODES: Final[dict[int, grpc.StatusCode]] = {
    ResponseCode.SYSTEM_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    ResponseCode.SERVICE_NOT_AVAILABLE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ResponseCode.NO_PERMISSION: grpc.StatusCode.PERMISSION_DENIED,
    ResponseCode.TOPIC_NOT_EXIST: grpc.StatusCode.NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: grpc.StatusCode.NOT_FOUND,
    ResponseCode.FLOW_CONTROL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ResponseCode.GO_AWAY: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class Shell(Protocol):
    """Does requests: `EngineShell`, or a fake."""

    async def ask(self, request: Request[R], peer: Peer) -> R:
        """The reply to a request. Raises BrokerError."""
        ...

    def ask_later(self, request: Request[R], peer: Peer) -> asyncio.Future[R]:
        """Do a send; the future gets its reply or BrokerError."""
        ...


def parse_peer(text: str, *, local_host: str = "") -> Peer:
    """The Peer of gRPC's name of a connection, `ipv4:10.0.0.1:4711` or `ipv6:%5B::1%5D:4711`.

    Its key is negative, so that it differs from all connection numbers of the TCP server.
    """
    _, _, address = unquote(text).partition(":")
    host, _, digits = address.rpartition(":")
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)
        port = int(digits)
    except ValueError:
        host, port = "127.0.0.1", 0
    return Peer(-1 - (zlib.crc32(host.encode()) << 16 | port), host, port, local_host)


class _Client(NamedTuple):
    """The client of a call, and its metadata."""

    peer: Peer
    metadata: Mapping[str, str]


class BulkCalls:
    """The handlers of the service, by name."""

    def __init__(
        self, shell: Shell, *, local_host: str, suspend_ms_max: int, guard: Guard | None = None
    ) -> None:
        self._shell = shell
        self._guard = guard
        self._local_host = local_host
        self._suspend_ms_max = suspend_ms_max
        self.relayed_peers: Mapping[int, tuple[str, int]] = {}
        """The client's address of each relayed connection, by the port of the relay."""
        self._send_streams: dict[asyncio.Task[Any], int] = {}
        """The number of unanswered batches of each open stream of sends."""

    def end_idle_streams(self) -> None:
        """End the idle streams of sends, which producers keep open for ever."""
        for stream, unanswered in list(self._send_streams.items()):
            if not unanswered:
                stream.cancel()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """One handler per call. They take and return bytes, without serialisers."""
        found = {
            method.name: grpc.unary_unary_rpc_method_handler(self._unary(method))
            for method in METHODS
        }
        found["PullRecords"] = grpc.unary_stream_rpc_method_handler(self.pull_records)
        found["SendRecordsStream"] = grpc.stream_stream_rpc_method_handler(self.send_records)
        return found

    async def _ask(self, request: Request[R], client: _Client, account: SigningAccount | None) -> R:
        """Do a request if the client has the right to it. Raises BrokerError."""
        return await self._shell.ask(request, self._sender_of(request, client, account))

    def _identify(self, client: _Client) -> SigningAccount | None:
        """The account of a client, before its request is parsed. Raises BrokerError.

        A stream asks for every request, because it is open as long as its client runs.
        """
        if self._guard is None:
            return None
        return self._guard.identify_call(client.peer.host, client.metadata)

    def _sender_of(
        self, request: Request[R], client: _Client, account: SigningAccount | None
    ) -> Peer:
        """The sender of a request, which has the right to it. Raises NotAuthorizedError."""
        if self._guard is None:
            return client.peer
        self._guard.check_right(account, request)
        return replace(client.peer, sender=account)

    def _client(self, context: Context) -> _Client:
        if self._guard is None:
            return _Client(self.peer_of(context), {})
        found = context.invocation_metadata() or ()
        return _Client(
            self.peer_of(context), {name: value for name, value in found if isinstance(value, str)}
        )

    def peer_of(self, context: Context) -> Peer:
        """The client of a call, also behind a relayed connection."""
        peer = parse_peer(context.peer(), local_host=self._local_host)
        behind = self.relayed_peers.get(peer.port)
        return peer if behind is None else replace(peer, host=behind[0], port=behind[1])

    def _unary(self, method: Method) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def answer(content: bytes, context: Context) -> bytes:
            client = self._client(context)
            try:
                account = self._identify(client)
                requests = method.decode_requests(content)
                outcomes = await self._ask_all(requests, client, account)
                return method.encode_outcomes(requests, outcomes)
            except BrokerError as error:
                await _refuse(context, error)
            except RemoteProtocolError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return answer

    async def _ask_all(
        self, requests: Sequence[Request[Any]], client: _Client, account: SigningAccount | None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        slices = TimeSlices()
        for request in requests:
            await slices.pause()
            try:
                outcomes.append(await self._ask(request, client, account))
            except BrokerError as error:
                outcomes.append(error)
        return outcomes

    async def pull_records(self, content: bytes, context: Context) -> None:
        """Stream the ranges of the request in their order, up to one that cannot be read.

        The client then asks again from that range on.
        """
        client = self._client(context)
        try:
            self._identify(client)
            request = decode_pull_records(content)
        except BrokerError as error:
            await _refuse(context, error)
        except RemoteProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        for index, wanted in enumerate(request.ranges):
            if not await self._stream_range(request, index, wanted, client, context):
                return

    async def _stream_range(
        self, request: PullRecords, index: int, wanted: PullRange, client: _Client, context: Context
    ) -> bool:
        """Stream one range; False if its end was not reached."""
        start = covered = wanted.start
        unmatched = 0
        while wanted.end is None or start < wanted.end:
            pull = self._pull(request, wanted, start)
            try:
                reply = await self._ask(pull, client, self._identify(client))
            except BrokerError as error:
                failed = RecordChunk(covered, start, status=None, range_index=index, error=error)
                await context.write(encode_chunk(failed))
                return False
            is_lost = reply.remark == LOST_REMARK
            if is_lost and covered < start:
                # The offsets that the filter skipped are no part of the lost ones.
                passed = PullReply(PullStatus.NO_MATCHED_MESSAGE, start, reply.start, reply.end)
                await context.write(
                    encode_chunk(chunk_of_reply(passed, start=covered, range_index=index))
                )
                covered = start
            chunk = _chunk(reply, wanted, asked=start, covered=covered, index=index)
            is_passed = chunk.status is PullStatus.NO_MATCHED_MESSAGE and not is_lost
            if is_passed and chunk.end != wanted.end:
                unmatched += 1
                if unmatched < UNMATCHED_PULLS_MAX:
                    start = chunk.end
                    await asyncio.sleep(0)
                    continue
            await context.write(encode_chunk(chunk))
            if chunk.ends_range:
                # A range without an end stops at the end of its queue.
                return wanted.end is None and chunk.status is PullStatus.NO_NEW_MESSAGE
            start = covered = chunk.end
            unmatched = 0
        return True

    def _pull(self, request: PullRecords, wanted: PullRange, start: int) -> PullMessages:
        count_max = min(request.chunk_count_max or CHUNK_COUNT_MAX, CHUNK_COUNT_MAX)
        suspend_ms = None
        if wanted.end is not None:
            count_max = min(count_max, wanted.end - start)
        elif request.suspend_ms:
            suspend_ms = min(request.suspend_ms, self._suspend_ms_max)
        return PullMessages(
            group=request.group,
            queue=wanted.queue,
            start=start,
            count_max=count_max,
            bytes_max=min(request.chunk_size or CHUNK_SIZE, CHUNK_SIZE_MAX),
            subscription=request.subscription,
            suspend_ms=suspend_ms,
        )

    async def send_records(self, batches: AsyncIterator[bytes], context: Context) -> None:
        """Store every batch of a stream; replies keep the order of the batches."""
        client = self._client(context)
        stream = asyncio.current_task()
        assert stream is not None
        self._send_streams[stream] = 0
        waiting: asyncio.Queue[_Sending | None] = asyncio.Queue(SENDS_IN_FLIGHT_MAX)
        answering = asyncio.create_task(self._answer_sends(waiting, stream, context))
        try:
            async for content in batches:
                self._send_streams[stream] += 1
                await waiting.put(self._send(content, client))
                if answering.done():
                    break
            if not answering.done():
                await waiting.put(None)
            await answering
        finally:
            del self._send_streams[stream]
            answering.cancel()
            while not waiting.empty():
                sending = waiting.get_nowait()
                # Reading the exception keeps asyncio from logging a refused send.
                if sending is not None and not sending.cancel() and not sending.cancelled():
                    sending.exception()

    def _send(self, content: bytes, client: _Client) -> _Sending:
        """Pass a batch to the shell at once, so that batches are stored in their order.

        A task for each batch would cost one more turn of the loop.
        """
        try:
            account = self._identify(client)
            request = SEND_RECORDS.decode(content)
            return self._shell.ask_later(request, self._sender_of(request, client, account))
        except (BrokerError, RemoteProtocolError) as error:
            failed: _Sending = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _answer_sends(
        self, waiting: asyncio.Queue[_Sending | None], stream: asyncio.Task[Any], context: Context
    ) -> None:
        while (sending := await waiting.get()) is not None:
            outcome: SendReply | BrokerError
            try:
                outcome = await sending
            except BrokerError as error:
                outcome = error
            except RemoteProtocolError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            await context.write(encode_send_outcome(outcome))
            if stream in self._send_streams:
                self._send_streams[stream] -= 1


def _chunk(
    reply: PullReply, wanted: PullRange, *, asked: int, covered: int, index: int
) -> RecordChunk:
    """The chunk of a pull's reply, which also covers the offsets that the filter skipped."""
    chunk = chunk_of_reply(reply, start=covered, range_index=index)
    if chunk.ends_range:
        return chunk
    if chunk.end <= asked:
        text = f"a pull of {wanted.queue} at {asked} continues at {chunk.end}"
        error = BrokerError(ResponseCode.SYSTEM_ERROR, text)
        return RecordChunk(chunk.start, asked, status=None, range_index=index, error=error)
    if wanted.end is not None and chunk.end > wanted.end:
        # The last pull of a filtered range may have read past the range's end.
        cut = replace(reply, next_begin=wanted.end)
        return chunk_of_reply(cut, start=covered, range_index=index)
    return chunk


async def _refuse(context: Context, error: BrokerError) -> NoReturn:
    code = _STATUS_CODES.get(error.code, grpc.StatusCode.FAILED_PRECONDITION)
    await context.abort(code, str(error), error_to_metadata(error))
