"""The server's side of an HTTP/2 connection, scripted by a test: frames in, frames out."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketmq_wire import http2
from rocketmq_wire.grpc_session import CallEnded, Event, GrpcSession, MessageReceived
from rocketmq_wire.hpack import Field, HeaderDecoder, encode_fields
from rocketmq_wire.http2 import FrameHead, Kind, Setting

HEAD = ((b":status", b"200"), (b"content-type", b"application/grpc"))
OK_TRAILERS = ((b"grpc-status", b"0"),)


def prefixed(message: bytes) -> bytes:
    """A message as gRPC puts it on a stream."""
    return b"\0" + len(message).to_bytes(4, "big") + message


@dataclass
class Http2Peer:
    """Collects what a session sends, and makes what it receives."""

    session: GrpcSession
    frames: list[tuple[FrameHead, bytes]] = field(default_factory=list)
    _bytes: bytearray = field(default_factory=bytearray)
    _preface_seen: bool = False
    _decoder: HeaderDecoder = field(default_factory=HeaderDecoder)

    def start(self, settings: dict[Setting, int] | None = None) -> None:
        """Send the first settings."""
        self.give(http2.encode_settings(settings or {}))

    def take(self) -> list[tuple[FrameHead, bytes]]:
        """The frames that the session has sent since the last look."""
        for part in self.session.data_to_send():
            self._bytes += part
        if not self._preface_seen and len(self._bytes) >= len(http2.PREFACE):
            assert self._bytes.startswith(http2.PREFACE)
            del self._bytes[: len(http2.PREFACE)]
            self._preface_seen = True
        taken = []
        while len(self._bytes) >= http2.HEAD_SIZE:
            head = http2.decode_head(self._bytes)
            end = http2.HEAD_SIZE + head.size
            if len(self._bytes) < end:
                break
            taken.append((head, bytes(self._bytes[http2.HEAD_SIZE : end])))
            del self._bytes[:end]
        self.frames += taken
        return taken

    def taken(self, kind: Kind) -> list[tuple[FrameHead, bytes]]:
        """Of the frames sent since the last look, those of one kind."""
        return [(head, payload) for head, payload in self.take() if head.kind == kind]

    def fields(self, payload: bytes) -> dict[bytes, bytes]:
        """The header fields of a block that the session sent."""
        return dict(self._decoder.decode(payload))

    def give(self, data: bytes, *, step: int | None = None) -> None:
        """Let the session receive bytes, at most `step` at a time."""
        view = memoryview(data)
        while len(view):
            buffer = self.session.next_buffer()
            assert len(buffer)
            size = min(len(view), len(buffer), step or len(view))
            buffer[:size] = view[:size]
            self.session.received(size)
            view = view[size:]

    def answer(
        self,
        stream: int,
        *messages: bytes,
        trailers: tuple[Field, ...] = OK_TRAILERS,
    ) -> None:
        """Answer a call wholly: head, messages, trailers."""
        self.give(headers(stream, HEAD))
        for message in messages:
            self.give(data(stream, prefixed(message)))
        self.give(headers(stream, trailers, is_last=True))

    def events(self) -> list[Event]:
        """Every event that waits."""
        found = []
        while (event := self.session.next_event()) is not None:
            found.append(event)
        return found

    def ended(self) -> CallEnded:
        """The one event that waits, an end."""
        (event,) = self.events()
        assert isinstance(event, CallEnded)
        return event

    def messages(self) -> list[bytes]:
        """The messages among the events that wait."""
        return [bytes(e.message) for e in self.events() if isinstance(e, MessageReceived)]


def headers(stream: int, fields: tuple[Field, ...], *, is_last: bool = False) -> bytes:
    """A HEADERS frame."""
    flags = http2.END_HEADERS | (http2.END_STREAM if is_last else 0)
    return http2.encode_frame(Kind.HEADERS, flags, stream, encode_fields(fields))


def data(
    stream: int, content: bytes, *, is_last: bool = False, padding: int | None = None
) -> bytes:
    """A DATA frame."""
    flags = http2.END_STREAM if is_last else 0
    if padding is None:
        return http2.encode_frame(Kind.DATA, flags, stream, content)
    payload = bytes((padding,)) + content + bytes(padding)
    return http2.encode_frame(Kind.DATA, flags | http2.PADDED, stream, payload)


def connected_peer(settings: dict[Setting, int] | None = None, **options: int) -> Http2Peer:
    """A server that has a client's first bytes behind it."""
    opened = Http2Peer(GrpcSession("broker:8081", **options))  # type: ignore[arg-type]
    opened.start(settings)
    opened.take()
    return opened
