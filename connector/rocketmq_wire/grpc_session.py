"""A gRPC client's side of one HTTP/2 connection: calls in, bytes out; bytes in, events out.

No I/O: the shell sends what `data_to_send` gives, receives into `next_buffer`, reports it by
`received`, and drains `next_event`. A call sends one message, or many when it is kept open, and
gets one or many.

- A large message is received straight into its own buffer; only what arrived together with a
  frame's head is copied there, at most a few KiB.
- A peer may send `receive_window` bytes of a call beyond what was `taken`, or the rest of one
  message if that is more. Calls that stream pass their own window: nothing else bounds what waits.
- Calls beyond the peer's limit of streams wait until others have ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_wire import grpc_headers, http2
from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.grpc_headers import CANCELLED, UNAVAILABLE, UNKNOWN, Metadata
from rocketmq_wire.grpc_messages import PREFIX, MessageAssembler
from rocketmq_wire.hpack import HeaderDecoder
from rocketmq_wire.http2 import FrameHead, Kind, Setting
from rocketmq_wire.http2_reading import FrameReader
from rocketmq_wire.model import Buffer

MESSAGE_SIZE_MAX: Final = 64 * 1024 * 1024
# HTTP/2's default: nothing has to be negotiated. Larger answers are granted as they come.
RECEIVE_WINDOW: Final = http2.WINDOW_SIZE_DEFAULT
_HEADER_BLOCK_SIZE_MAX: Final = 64 * 1024
_CONNECTION_WINDOW_LOW: Final = 1 << 30
# Larger frames only mean fewer heads; the peer's limit counts.
_SENT_FRAME_SIZE_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A whole message of a call's answer."""

    call: int
    message: memoryview


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The last event of a call."""

    call: int
    status: int
    text: str = ""
    metadata: Metadata = ()
    is_unprocessed: bool = False
    """The peer says that it did nothing: the call may be repeated, whatever it was."""


Event = MessageReceived | CallEnded


@dataclass(slots=True)
class _Call:
    number: int
    headers: bytes
    unsent: deque[memoryview]
    receive_window: int
    assembler: MessageAssembler
    stream: int = 0
    """0 while the call waits for its stream."""
    send_window: int = 0
    granted: int = 0
    """What the peer may still send."""
    held: int = 0
    """Bytes of messages that came, or were announced, and are not taken yet."""
    http_status: int | None = None
    is_kept_open: bool = False
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)


class GrpcSession:
    """One connection's state. Not thread-safe."""

    def __init__(
        self,
        authority: str,
        *,
        scheme: str = "http",
        message_size_max: int = MESSAGE_SIZE_MAX,
        allocate: Callable[[int], memoryview] = lambda size: memoryview(bytearray(size)),
        metadata: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        """`allocate` makes the buffers of messages, which must be writable; `metadata` is asked
        for at every call: signatures cover the time.
        """
        self._metadata = metadata
        self._authority, self._scheme = authority, scheme
        self._message_size_max, self._allocate = message_size_max, allocate
        self._calls: dict[int, _Call] = {}
        self._streams: dict[int, _Call] = {}
        self._waiting: deque[_Call] = deque()
        self._sending: deque[_Call] = deque()
        self._events: deque[Event] = deque()
        self._out: list[Buffer] = []
        self._next_call = 1
        self._next_stream = 1
        self._decoder = HeaderDecoder()
        # What the peer allows us.
        self._streams_max = 100
        self._frame_size_max = http2.FRAME_SIZE_DEFAULT
        self._stream_window = http2.WINDOW_SIZE_DEFAULT
        self._send_window = http2.WINDOW_SIZE_DEFAULT
        # What we receive.
        self._granted = http2.WINDOW_SIZE_MAX
        self._reader = FrameReader(self)
        self._block: tuple[FrameHead, bytearray] | None = None
        self.landed_count = 0
        """How often bytes of messages came: whole messages may be a long time apart."""
        self.is_ready = False
        """True once the peer's settings came: it speaks HTTP/2."""
        self.is_closing = False
        """True when no new calls may be started."""
        self.pongs = 0
        self._open()

    def _open(self) -> None:
        settings = {
            Setting.ENABLE_PUSH: 0,
            Setting.MAX_FRAME_SIZE: http2.FRAME_SIZE_MAX,
            Setting.MAX_HEADER_LIST_SIZE: _HEADER_BLOCK_SIZE_MAX,
        }
        growth = http2.WINDOW_SIZE_MAX - http2.WINDOW_SIZE_DEFAULT
        self._out.append(http2.PREFACE + http2.encode_settings(settings))
        self._out.append(http2.encode_window_update(0, growth))

    # --- calls --------------------------------------------------------------------------------

    def start(
        self,
        path: str,
        message: Sequence[Buffer],
        *,
        timeout_ms: int | None = None,
        receive_window: int = RECEIVE_WINDOW,
        is_kept_open: bool = False,
    ) -> int:
        """Begin a call whose request is `message`, in parts; they must not change until sent.

        One that is kept open takes more messages by `send`, until it is cancelled or the peer ends
        it.
        """
        if self.is_closing:
            raise LocalProtocolError("the connection takes no new calls")
        call = _Call(
            self._next_call,
            grpc_headers.encode_request(
                self._scheme,
                self._authority,
                path,
                timeout_ms=timeout_ms,
                metadata=self._metadata(),
            ),
            deque(_prefixed(message)),
            receive_window,
            MessageAssembler(self._message_size_max, self._allocate),
            is_kept_open=is_kept_open,
        )
        self._next_call += 1
        self._calls[call.number] = call
        self._waiting.append(call)
        self._pump()
        return call.number

    def send(self, call_number: int, message: Sequence[Buffer]) -> None:
        """Send one more message of a call that is kept open."""
        call = self._calls.get(call_number)
        if call is None or not call.is_kept_open:
            raise LocalProtocolError(f"call {call_number} takes no more messages")
        was_idle = call.stream and not call.unsent
        call.unsent.extend(_prefixed(message))
        if was_idle:
            self._sending.append(call)
        self._pump()

    def taken(self, event: MessageReceived) -> None:
        """The caller has taken a message: the peer may send as much again."""
        call = self._calls.get(event.call)
        if call is not None:
            call.held -= len(event.message) + PREFIX.size
            self._grant(call)

    def cancel(self, call_number: int) -> None:
        """End a call; it gives no more events, also when its end is among those that wait."""
        self._events = deque(event for event in self._events if event.call != call_number)
        call = self._calls.get(call_number)
        if call is None:
            return
        if call.stream:
            self._out.append(http2.encode_reset(call.stream, http2.ErrorCode.CANCEL))
        self._forget(call)
        self._pump()

    def ping(self) -> None:
        """Ask the peer for a sign of life; `pongs` counts the answers."""
        self._out.append(http2.encode_frame(Kind.PING, 0, 0, bytes(8)))

    @property
    def has_event(self) -> bool:
        """True when `next_event` would give one."""
        return bool(self._events)

    def next_event(self) -> Event | None:
        """The next event, or None until more bytes came."""
        return self._events.popleft() if self._events else None

    def data_to_send(self) -> list[Buffer]:
        """What to send now, in parts; it is not given again."""
        out, self._out = self._out, []
        return out

    # --- sending ------------------------------------------------------------------------------

    def _pump(self) -> None:
        while self._waiting and len(self._streams) < self._streams_max:
            call = self._waiting.popleft()
            call.stream = self._next_stream
            self._next_stream += 2
            self.is_closing = self.is_closing or self._next_stream > http2.STREAM_ID_MAX
            call.send_window = self._stream_window
            call.granted = RECEIVE_WINDOW
            self._streams[call.stream] = call
            flags = http2.END_HEADERS
            self._out.append(http2.encode_frame(Kind.HEADERS, flags, call.stream, call.headers))
            self._grant(call)
            self._sending.append(call)
        for _ in range(len(self._sending)):
            call = self._sending.popleft()
            self._send_some(call)
            if call.unsent:
                self._sending.append(call)

    def _send_some(self, call: _Call) -> None:
        """Send as much of a call's request as the peer allows."""
        frame_size_max = min(self._frame_size_max, _SENT_FRAME_SIZE_MAX)
        while call.unsent:
            size = min(call.send_window, self._send_window, frame_size_max)
            if size <= 0:
                return
            parts: list[Buffer] = []
            filled = 0
            while call.unsent and filled < size:
                part = call.unsent.popleft()
                if filled + len(part) > size:
                    call.unsent.appendleft(part[size - filled :])
                    part = part[: size - filled]
                parts.append(part)
                filled += len(part)
            call.send_window -= filled
            self._send_window -= filled
            flags = 0 if call.unsent or call.is_kept_open else http2.END_STREAM
            self._out.append(http2.encode_head(Kind.DATA, flags, call.stream, filled))
            self._out.extend(parts)

    def _grant(self, call: _Call, frame_left: int = 0) -> None:
        """Keep the peer's permission to send at what may still be held."""
        if not call.stream:
            return
        rest = call.assembler.rest
        missing = 0 if rest is None else len(rest) - frame_left
        wanted = max(call.receive_window - call.held, missing)
        growth = wanted - call.granted
        if growth > 0 and (missing > call.granted or growth >= call.receive_window // 4):
            call.granted += growth
            self._out.append(http2.encode_window_update(call.stream, growth))

    # --- receiving ----------------------------------------------------------------------------

    def next_buffer(self) -> memoryview:
        """Where to receive into: never empty, valid until the next call of `received`."""
        return self._reader.next_buffer()

    def received(self, size: int) -> None:
        """Take over the first `size` bytes of the buffer last lent.

        Raises RemoteProtocolError for what is no HTTP/2 or no gRPC; the session is then useless.
        """
        self._reader.received(size)

    def assembler_of(self, stream: int) -> MessageAssembler | None:
        """Where the reader puts a stream's bytes; None: nobody wants them."""
        call = self._streams.get(stream)
        return None if call is None else call.assembler

    def on_data(self, head: FrameHead, padding: int) -> None:
        """A DATA frame begins."""
        if self._block is not None:
            raise RemoteProtocolError("a header block is interrupted")
        self._granted -= head.size
        if self._granted < _CONNECTION_WINDOW_LOW:
            growth = http2.WINDOW_SIZE_MAX - self._granted
            self._out.append(http2.encode_window_update(0, growth))
            self._granted = http2.WINDOW_SIZE_MAX
        call = self._streams.get(head.stream)
        if call is not None:
            call.granted -= head.size
            call.held += head.size - padding
            if call.granted < 0:
                raise RemoteProtocolError(f"the peer sent {-call.granted} bytes too many")

    def on_message(self, stream: int, message: memoryview | None, *, frame_left: int) -> None:
        """Bytes of a stream came, and with them the end of a message if there is one."""
        call = self._streams[stream]
        self.landed_count += 1
        if message is not None:
            self._events.append(MessageReceived(call.number, message))
        self._grant(call, frame_left)

    def on_data_end(self, head: FrameHead) -> None:
        """A DATA frame is over."""
        call = self._streams.get(head.stream)
        if call is not None and head.flags & http2.END_STREAM:
            self._end(call, UNKNOWN, "the answer ended without a status")

    def on_frame(self, head: FrameHead, payload: bytes) -> None:
        """A frame of any other kind."""
        if self._block is not None and head.kind != Kind.CONTINUATION:
            raise RemoteProtocolError("a header block is interrupted")
        if head.kind in (Kind.HEADERS, Kind.CONTINUATION):
            self._on_header_block(head, payload)
        elif head.kind == Kind.SETTINGS:
            self._on_settings(head, payload)
        elif head.kind == Kind.WINDOW_UPDATE:
            self._on_window_update(head, payload)
        elif head.kind == Kind.PING:
            if head.flags & http2.ACK:
                self.pongs += 1
            else:
                self._out.append(http2.encode_frame(Kind.PING, http2.ACK, 0, payload[:8]))
        elif head.kind == Kind.RST_STREAM:
            self._on_reset(head, payload)
        elif head.kind == Kind.GOAWAY:
            self._on_goaway(payload)
        elif head.kind == Kind.PUSH_PROMISE:
            raise RemoteProtocolError("the peer pushes, which we refused")

    def _on_settings(self, head: FrameHead, payload: bytes) -> None:
        self.is_ready = True
        if head.flags & http2.ACK:
            return
        settings = http2.decode_settings(payload)
        window = settings.get(Setting.INITIAL_WINDOW_SIZE, self._stream_window)
        frame_size = settings.get(Setting.MAX_FRAME_SIZE, self._frame_size_max)
        in_range = http2.FRAME_SIZE_DEFAULT <= frame_size <= http2.FRAME_SIZE_MAX
        if window > http2.WINDOW_SIZE_MAX or not in_range:
            raise RemoteProtocolError(f"impossible settings: {settings}")
        for call in self._streams.values():
            call.send_window += window - self._stream_window
        self._stream_window, self._frame_size_max = window, frame_size
        self._streams_max = settings.get(Setting.MAX_CONCURRENT_STREAMS, self._streams_max)
        self._out.append(http2.encode_frame(Kind.SETTINGS, http2.ACK, 0))
        self._pump()

    def _on_window_update(self, head: FrameHead, payload: bytes) -> None:
        growth = http2.decode_integer(payload) & http2.WINDOW_SIZE_MAX
        if head.stream == 0:
            self._send_window += growth
        elif head.stream in self._streams:
            self._streams[head.stream].send_window += growth
        self._pump()

    def _on_reset(self, head: FrameHead, payload: bytes) -> None:
        code = http2.decode_integer(payload)
        call = self._streams.get(head.stream)
        if call is None:
            return
        if code == http2.ErrorCode.REFUSED_STREAM:
            self._end(call, UNAVAILABLE, "the peer refused the stream", is_unprocessed=True)
        elif code in (http2.ErrorCode.CANCEL, http2.ErrorCode.NO_ERROR):
            self._end(call, CANCELLED, f"the peer ended the stream with code {code}")
        else:
            self._end(call, UNAVAILABLE, f"the peer reset the stream with code {code}")

    def _on_goaway(self, payload: bytes) -> None:
        last_stream = http2.decode_integer(payload) & http2.STREAM_ID_MAX
        code = http2.decode_integer(payload, 4)
        self.is_closing = True
        text = f"the peer closes the connection (code {code}): {payload[8:].decode('latin-1')}"
        for call in list(self._calls.values()):
            if not call.stream or call.stream > last_stream:
                self._end(call, UNAVAILABLE, text, is_unprocessed=True)

    def _on_header_block(self, head: FrameHead, payload: bytes) -> None:
        if head.kind == Kind.HEADERS:
            self._block = (head, bytearray(http2.unpadded(head, payload)))
        elif self._block is None or self._block[0].stream != head.stream:
            raise RemoteProtocolError("a header block goes on that never began")
        else:
            self._block[1].extend(payload)
        first, block = self._block
        if len(block) > _HEADER_BLOCK_SIZE_MAX:
            raise RemoteProtocolError(f"a header block of more than {_HEADER_BLOCK_SIZE_MAX} bytes")
        if not head.flags & http2.END_HEADERS:
            return
        self._block = None
        # Decoded even if nobody waits for it: all blocks of a connection share one table.
        fields = self._decoder.decode(bytes(block))
        call = self._streams.get(first.stream)
        if call is not None:
            self._on_fields(call, fields, is_last=bool(first.flags & http2.END_STREAM))

    def _on_fields(self, call: _Call, fields: list[tuple[bytes, bytes]], *, is_last: bool) -> None:
        if not is_last:
            refusal = grpc_headers.refusal_of(fields)
            if refusal is not None:
                self._cancel_as(call, *refusal)
            return
        status, text, metadata = grpc_headers.decode_trailers(fields)
        if status == grpc_headers.OK and not call.assembler.is_between_messages:
            status, text = UNKNOWN, "the answer ended within a message"
        self._end(call, status, text, metadata)

    def _cancel_as(self, call: _Call, status: int, text: str) -> None:
        """End a call whose answer is not worth waiting for."""
        self._out.append(http2.encode_reset(call.stream, http2.ErrorCode.CANCEL))
        self._end(call, status, text)

    # --- ends -----------------------------------------------------------------------------------

    def _end(
        self,
        call: _Call,
        status: int,
        text: str,
        metadata: Metadata = (),
        *,
        is_unprocessed: bool = False,
    ) -> None:
        self._forget(call)
        self._events.append(CallEnded(call.number, status, text, metadata, is_unprocessed))
        self._pump()

    def _forget(self, call: _Call) -> None:
        self._calls.pop(call.number, None)
        self._streams.pop(call.stream, None)
        call.unsent.clear()
        if call in self._waiting:
            self._waiting.remove(call)
        if call in self._sending:
            self._sending.remove(call)


def _prefixed(message: Sequence[Buffer]) -> list[memoryview]:
    """A message's parts behind gRPC's own prefix."""
    parts = [memoryview(part).cast("B") for part in message if len(part)]
    size = sum(len(part) for part in parts)
    return [memoryview(PREFIX.pack(0, size)), *parts]
