"""The requests and replies of one connection, without I/O.

`ClientSession`: `start` returns the bytes to write; received frames complete requests in any order.
The session matches replies by opaque number; the server numbers its own requests from the same
range. A reply to an expired request is late: the session counts and drops it.

`ServerSession`: `next_request` returns requests in the order of their arrival, an unreadable one as
the refusal to send; `answer` returns the bytes to write. Oneway requests get no answer.

Neither is thread-safe. Both receive as `FrameDecoder` does: fill `next_buffer()`, then call
`received(n)`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from rocketmq_wire.codes import BROKER_VERSION, CLIENT_VERSION, ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    FilterWordsError,
    ProtocolError,
    RemoteProtocolError,
    RocketMQError,
)
from rocketmq_wire.filters.sql92_support import check_words
from rocketmq_wire.limits import HEADER_SIZE_MAX
from rocketmq_wire.model import Buffer, buffer_size
from rocketmq_wire.remoting.codec import (
    check_code,
    check_request_size,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from rocketmq_wire.remoting.codecs.layouts import EncodedReply
from rocketmq_wire.remoting.frames import FRAME_SIZE_MAX, Frame, FrameDecoder, encode_frame_head
from rocketmq_wire.remoting.headers import FLAG_ONEWAY, FLAG_REPLY, Header
from rocketmq_wire.remoting.pulls import JoinedPulls, PullFrames
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import NotifyMembersChanged
from rocketmq_wire.requests.members import RelayedReply
from rocketmq_wire.requests.messages import PullMessages, PullReply
from rocketmq_wire.requests.pop import PopMessages
from rocketmq_wire.signing import Credentials, sign_request, signed_version


class Deferred:
    """An answer to come: call `deliver` with it, in the thread that uses the session."""

    __slots__ = ("deliver",)

    def __init__(self) -> None:
        # A oneway request gets no answer.
        self.deliver: Callable[[Reply | BrokerError], None] = lambda _: None


Responder = Callable[[Request[Reply]], "Reply | BrokerError | Deferred | None"]
"""Answers a request of the server; None for a request that the client does not know."""

_Added = Mapping[str, str] | None
OPAQUE_MAX: Final = 2**31 - 1
_LANGUAGE: Final = "PYTHON"
_DEADLINES_SPARE: Final = 64
_NOTICES_MAX: Final = 256
# Answers beyond one for each request that was given up; brokers send some answers twice.
_STRAYS_MAX: Final = 1_024
# One system call receives five answers of a real broker with 32 messages of 350 bytes each, so an
# answer costs 22 us instead of 31. A large answer is copied up to this size: some 10 us of the 700
# us that 4 MiB take.
_ANSWER_STAGING_SIZE: Final = 64 * 1024


class Started(NamedTuple):
    """A started request: its opaque number, and the parts of its frame to write in order."""

    opaque: int
    parts: tuple[Buffer, ...]


class Completed(NamedTuple):
    """A finished request: its opaque number, and the reply or the error."""

    opaque: int
    result: Reply | RocketMQError


class _Pending(NamedTuple):
    request: Request[Reply]
    deadline_ms: int
    timeout_ms: int
    last_ms: int
    """The limit for extensions of the deadline."""


class _Session:
    """Both sides of a connection: frames in, and the parts of frames out."""

    def __init__(
        self,
        version: int,
        decoder: FrameDecoder,
        opaque_start: int = 0,
        credentials: Credentials | None = None,
    ) -> None:
        self._version = version
        self._decoder = decoder
        self._opaque_next = opaque_start & OPAQUE_MAX
        self._credentials = credentials

    def next_buffer(self) -> memoryview:
        """The buffer to receive into. Raises RemoteProtocolError after bytes that are no frames."""
        return self._decoder.next_buffer()

    def received(self, size: int) -> None:
        """Accept the first `size` bytes of the last `next_buffer()`."""
        self._decoder.received(size)

    def close(self) -> None:
        """Drop what was received: the connection is closed."""
        self._decoder.close()

    @property
    def is_in_large_frame(self) -> bool:
        """True while a frame that `allocate` made room for is incomplete."""
        return self._decoder.is_in_large_frame

    def _encode(
        self, request: Request[Reply], opaque: int, flag: int, fields: _Added = None
    ) -> tuple[Buffer, ...]:
        code, ext_fields, body = encode_request(request)
        if fields:
            ext_fields = {**fields, **ext_fields}
        version = self._version
        if self._credentials is not None:
            version = signed_version(ext_fields, version)
            ext_fields = sign_request(self._credentials, ext_fields, body)
        header = Header(code, _LANGUAGE, version, opaque, flag, None, ext_fields)
        return _frame_parts(header, body)

    def _encode_reply(self, opaque: int, reply: EncodedReply) -> tuple[Buffer, ...]:
        code, remark, ext_fields, body = reply
        header = Header(code, _LANGUAGE, self._version, opaque, FLAG_REPLY, remark, ext_fields)
        return _frame_parts(header, body)


class ClientSession(_Session):
    """The client's side of one connection."""

    def __init__(
        self,
        *,
        opaque_start: int = 0,
        allocate: Callable[[int], Buffer] = bytearray,
        credentials: Credentials | None = None,
        responder: Responder | None = None,
    ) -> None:
        self._joined = JoinedPulls()
        decoder = FrameDecoder(
            staging_size=_ANSWER_STAGING_SIZE, allocate=allocate, take=self._joined.take
        )
        super().__init__(CLIENT_VERSION, decoder, opaque_start, credentials)
        self._pull_frames = PullFrames(
            lambda pull, opaque: b"".join(self._encode(pull, opaque, 0)),
            is_signed=credentials is not None,
        )
        self._pending: dict[int, _Pending] = {}
        # A heap; deadlines of finished requests stay in it until they are the first.
        self._deadlines: list[tuple[int, int]] = []
        self._responder = responder
        self._answers: list[bytes] = []
        self.late_count = 0
        """The number of dropped answers: to requests that were given up, or to none at all."""
        self.given_up_count = 0
        """The number of answers that requests had not got when they were given up."""
        self._notices: deque[NotifyMembersChanged] = deque(maxlen=_NOTICES_MAX)

    @property
    def pending_count(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending)

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the next request expires; None if none is pending."""
        while self._deadlines and not self._is_current(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    # --- requests -------------------------------------------------------------------------

    def start(
        self,
        request: Request[Reply],
        *,
        now_ms: int,
        timeout_ms: int,
        slow_ms: int | None = None,
        fields: _Added = None,
    ) -> Started:
        """Start a request. Raises LocalProtocolError if it cannot be sent.

        `slow_ms` extends the timeout while bytes arrive: the server first sends the answers to
        earlier requests, which may be large. `fields` are added to those of the header.
        """
        opaque = self._free_opaque()
        parts: tuple[Buffer, ...]
        if isinstance(request, PullMessages) and request.times > 1:
            opaques = [opaque, *(self._free_opaque() for _ in range(request.times - 1))]
            parts = (self._pull_frames.frames(request, opaques),)
            self._joined.start(request, opaques)
        elif isinstance(request, PullMessages) and not fields:
            parts = (self._pull_frames.frame(request, opaque),)
        else:
            parts = self._encode(request, opaque, 0, fields)
        deadline_ms = now_ms + timeout_ms
        last_ms = now_ms + max(timeout_ms, slow_ms or 0)
        self._pending[opaque] = _Pending(request, deadline_ms, timeout_ms, last_ms)
        heapq.heappush(self._deadlines, (deadline_ms, opaque))
        if len(self._deadlines) > 2 * len(self._pending) + _DEADLINES_SPARE:
            self._deadlines = [(item.deadline_ms, key) for key, item in self._pending.items()]
            heapq.heapify(self._deadlines)
        return Started(opaque, parts)

    def start_oneway(self, request: Request[Reply], fields: _Added = None) -> tuple[Buffer, ...]:
        """The parts of the frame of a oneway request."""
        return self._encode(request, self._free_opaque(), FLAG_ONEWAY, fields)

    def expire(self, now_ms: int, *, heard_ms: int = 0) -> list[int]:
        """Give up the requests whose deadline has passed; returns their opaque numbers.

        `heard_ms` is the time of the last received bytes: slow requests wait on from there.
        """
        expired: list[int] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, opaque = heapq.heappop(self._deadlines)
            if not self._is_current(deadline_ms, opaque):
                continue
            pending = self._pending[opaque]
            later_ms = min(heard_ms + pending.timeout_ms, pending.last_ms)
            if later_ms > now_ms:
                self._pending[opaque] = pending._replace(deadline_ms=later_ms)
                heapq.heappush(self._deadlines, (later_ms, opaque))
            else:
                del self._pending[opaque]
                self._joined.forget(opaque)
                self._give_up(pending.request)
                expired.append(opaque)
        return expired

    def forget(self, opaque: int) -> bool:
        """Give up one request; False if it was not pending."""
        self._joined.forget(opaque)
        pending = self._pending.pop(opaque, None)
        if pending is not None:
            self._give_up(pending.request)
        return pending is not None

    def abandon(self) -> list[int]:
        """Give up all requests, as after a broken connection; returns their opaque numbers."""
        opaques = list(self._pending)
        self._pending.clear()
        self._deadlines.clear()
        self._joined.clear()
        return opaques

    # --- receiving ------------------------------------------------------------------------

    def next_completed(self) -> Completed | None:
        """The next finished request; None until more bytes come.

        Raises RemoteProtocolError if the peer's bytes are no frames, or answer what nobody asked:
        the caller must disconnect.
        """
        while True:
            if self.late_count > self.given_up_count + _STRAYS_MAX:
                raise RemoteProtocolError(f"{self.late_count} answers came without a request")
            if self._joined.done:
                opaque, result = self._joined.done.popleft()
                if self._pending.pop(opaque, None) is not None:
                    return Completed(opaque, result)
                self.late_count += 1
                continue
            frame = self._decoder.next_frame()
            if frame is None:
                return None
            header = frame.header
            if not header.is_reply:
                self._take_server_request(frame)
                continue
            joined = self._joined.request_of(header.opaque)
            if joined is not None:
                answer = cast("PullReply | RocketMQError", _result_of(joined, frame))
                self._joined.put(header.opaque, answer)
                continue
            # The first of joined pulls may be answered twice while other answers are missing.
            is_repeated = self._joined.stands_for_all(header.opaque)
            pending = None if is_repeated else self._pending.pop(header.opaque, None)
            if pending is None:
                self.late_count += 1
                continue
            return Completed(header.opaque, _result_of(pending.request, frame))

    def take_answers(self) -> list[bytes]:
        """The frames to write as answers to requests of the server."""
        answers, self._answers = self._answers, []
        return answers

    def take_notices(self) -> list[NotifyMembersChanged]:
        """The notices of the server since the last call, at most the last 256."""
        notices = list(self._notices)
        self._notices.clear()
        return notices

    @property
    def is_between_frames(self) -> bool:
        """False while a frame has arrived in part."""
        return self._decoder.is_between_frames

    def _take_server_request(self, frame: Frame) -> None:
        header = frame.header
        try:
            request = decode_request(header, frame.body)
        except BrokerError:
            request = None
        result: Reply | BrokerError | Deferred | None = None
        if isinstance(request, NotifyMembersChanged):
            self._notices.append(request)
            result = Done()
        elif request is not None and self._responder is not None:
            result = self._responder(request)
        if header.is_oneway:
            return
        if request is None or result is None:
            remark = f" request type {header.code} not supported"
            self._answer(header, EncodedReply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark, {}))
        elif isinstance(result, Deferred):
            deferred = request
            result.deliver = lambda reply: self._answer(header, encode_reply(deferred, reply))
        else:
            self._answer(header, encode_reply(request, result))

    def _answer(self, header: Header, encoded: EncodedReply) -> None:
        """Queue the answer to a request of the server."""
        self._answers.append(b"".join(self._encode_reply(header.opaque, encoded)))

    def _give_up(self, request: Request[Reply]) -> None:
        self.given_up_count += request.times if isinstance(request, PullMessages) else 1

    def _free_opaque(self) -> int:
        opaque = self._opaque_next
        while opaque in self._pending or opaque in self._joined:
            opaque = (opaque + 1) & OPAQUE_MAX
        self._opaque_next = (opaque + 1) & OPAQUE_MAX
        return opaque

    def _is_current(self, deadline_ms: int, opaque: int) -> bool:
        pending = self._pending.get(opaque)
        return pending is not None and pending.deadline_ms == deadline_ms


def _result_of(request: Request[Reply], frame: Frame) -> Reply | RocketMQError:
    try:
        reply = decode_reply(request, frame.header, frame.body)
        if isinstance(request, PullMessages | PopMessages):
            check_words(request.subscription, request.queue.broker, frame.header.version)
        return reply
    except (BrokerError, RemoteProtocolError, FilterWordsError) as error:
        # The frame was whole, so only this request fails and the connection stays usable.
        return error


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request of a client, or the refusal to answer it with."""

    opaque: int
    code: int
    is_oneway: bool
    request: Request[Reply] | BrokerError


Check = Callable[[Header, Buffer], Callable[[Request[Reply]], None]]
"""Identifies the sender by the header and the unparsed body; returns the check of its rights.

Both raise the BrokerError to refuse a request with.
"""


class ServerSession(_Session):
    """The server's side of one connection."""

    def __init__(
        self,
        *,
        version: int = BROKER_VERSION,
        frame_size_max: int = FRAME_SIZE_MAX,
        allocate: Callable[[int], Buffer] = bytearray,
        check: Check | None = None,
    ) -> None:
        decoder = FrameDecoder(frame_size_max, header_size_max=HEADER_SIZE_MAX, allocate=allocate)
        super().__init__(version, decoder)
        self._check = check
        self._requests: set[int] = set()
        self._answered: list[tuple[int, RelayedReply]] = []

    def next_request(self) -> ReceivedRequest | None:
        """The next request; None until more bytes come.

        Raises RemoteProtocolError if the peer's bytes are no frames: the caller must disconnect.
        """
        while (frame := self._decoder.next_frame()) is not None:
            header = frame.header
            if header.is_reply:
                self._take_reply(frame)
                continue
            try:
                request: Request[Reply] | BrokerError = self._checked(frame)
            except BrokerError as error:
                request = error
            return ReceivedRequest(header.opaque, header.code, header.is_oneway, request)
        return None

    def _checked(self, frame: Frame) -> Request[Reply]:
        """The request in a frame. A stranger's body is not parsed."""
        header, body = frame.header, frame.body
        check_code(header.code)
        check_right = self._check(header, body) if self._check is not None else None
        check_request_size(header.code, body)
        request = decode_request(header, body)
        if check_right is not None:
            check_right(request)
        return request

    def answer(self, request: ReceivedRequest, result: Reply | BrokerError) -> tuple[Buffer, ...]:
        """The parts of the frame of an answer; none for a oneway request.

        An answer that is too large to be sent becomes a refusal with code 1, so that the client
        does not wait in vain.
        """
        if request.is_oneway:
            return ()
        try:
            return self._encode_reply(request.opaque, _encode_result(request, result))
        except ProtocolError as error:
            refusal = EncodedReply(ResponseCode.SYSTEM_ERROR, str(error), {})
            return self._encode_reply(request.opaque, refusal)

    def notify(self, notice: Request[Reply]) -> tuple[Buffer, ...]:
        """The parts of the frame of a oneway request to the client."""
        return self._begin(notice, FLAG_ONEWAY).parts

    def start(self, request: Request[Reply]) -> Started:
        """Start a request to the client; `take_answered` returns its answer."""
        started = self._begin(request, 0)
        self._requests.add(started.opaque)
        return started

    def forget(self, opaque: int) -> None:
        """Give up a request to the client; its answer will be dropped."""
        self._requests.discard(opaque)

    def take_answered(self) -> list[tuple[int, RelayedReply]]:
        """The client's answers since the last call, each with its request's opaque number."""
        answered, self._answered = self._answered, []
        return answered

    def _take_reply(self, frame: Frame) -> None:
        header = frame.header
        # A reply to a request that was given up is dropped.
        if header.opaque in self._requests:
            self._requests.remove(header.opaque)
            reply = RelayedReply(header.code, header.remark, header.ext_fields, bytes(frame.body))
            self._answered.append((header.opaque, reply))

    def _begin(self, request: Request[Reply], flag: int) -> Started:
        opaque = self._opaque_next
        self._opaque_next = (opaque + 1) & OPAQUE_MAX
        return Started(opaque, self._encode(request, opaque, flag))


def _frame_parts(header: Header, body: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    head = encode_frame_head(header, sum(map(buffer_size, body)))
    return (head, *(part for part in body if len(part)))


def _encode_result(request: ReceivedRequest, result: Reply | BrokerError) -> EncodedReply:
    if isinstance(result, BrokerError):
        return EncodedReply(result.code, result.remark, {})
    assert not isinstance(request.request, BrokerError), "only a refusal answers what is unreadable"
    return encode_reply(request.request, result)
