"""Sessions fed and drained in one call each, and the questions and answers of their tests."""

from __future__ import annotations

from rocketmq_wire.model import Buffer, QueueId, buffer_size
from rocketmq_wire.remoting.frames import Frame, FrameDecoder, encode_frame_head
from rocketmq_wire.remoting.headers import FLAG_REPLY, Header
from rocketmq_wire.remoting.session import ClientSession, Completed, ReceivedRequest, ServerSession
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import GetMaxOffset

QUEUE = QueueId("orders", "broker-a", 3)
ASK_MAX = GetMaxOffset(QUEUE)
PULL = PullMessages("g", QUEUE, 0, 32)


def encode_frame(frame: Frame) -> bytes:
    return encode_frame_head(frame.header, buffer_size(frame.body), frame.codec) + frame.body


def receive(session: ClientSession | ServerSession | FrameDecoder, *parts: Buffer) -> None:
    """Fill the protocol's buffers as a socket would."""
    data = b"".join(parts)
    while data:
        buffer = session.next_buffer()
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        session.received(size)
        data = data[size:]


def completed(session: ClientSession) -> list[Completed]:
    items = []
    while (item := session.next_completed()) is not None:
        items.append(item)
    return items


def asked(session: ServerSession) -> list[ReceivedRequest]:
    items = []
    while (item := session.next_request()) is not None:
        items.append(item)
    return items


def frame_of(*parts: Buffer) -> Frame:
    decoder = FrameDecoder()
    receive(decoder, *parts)
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.is_between_frames
    return frame


def answer_to(opaque: int, value: int) -> bytes:
    header = Header(0, opaque=opaque, flag=FLAG_REPLY, ext_fields={"offset": str(value)})
    return encode_frame(Frame(header))


def start(session: ClientSession, *, now_ms: int = 0, timeout_ms: int = 1_000) -> int:
    return session.start(ASK_MAX, now_ms=now_ms, timeout_ms=timeout_ms).opaque
