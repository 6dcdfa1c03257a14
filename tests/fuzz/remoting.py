"""Entry points of the remoting protocol: frames, headers, sessions, requests and replies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.errors import (
    BrokerError,
)
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting import codec
from rocketmq_wire.remoting.frames import Frame, FrameDecoder
from rocketmq_wire.remoting.headers import Header, HeaderCodec, decode_header, encode_header
from rocketmq_wire.remoting.session import ClientSession, ServerSession
from support.remoting_exchanges import EXCHANGES
from support.remoting_sessions import ASK_MAX, PULL, encode_frame


def _feed(session: FrameDecoder | ClientSession | ServerSession, data: bytes) -> None:
    """Pass bytes in pieces, as a socket would; the first byte decides their size."""
    step = 1 + (data[0] if data else 0)
    rest = data[1:]
    while rest:
        buffer = session.next_buffer()
        size = min(len(buffer), len(rest), step)
        buffer[:size] = rest[:size]
        session.received(size)
        rest = rest[size:]


def frames(data: bytes) -> None:
    decoder = FrameDecoder(frame_size_max=65_536)
    _feed(decoder, data)
    while decoder.next_frame() is not None:
        pass


def server_session(data: bytes) -> None:
    session = ServerSession(frame_size_max=65_536)
    _feed(session, data)
    while (received := session.next_request()) is not None:
        session.answer(received, BrokerError(1, "no"))


def client_session(data: bytes) -> None:
    session = ClientSession()
    for request in (ASK_MAX, PULL, *(one for one, _, _ in EXCHANGES[:6])):
        session.start(request, now_ms=0, timeout_ms=1_000)
    _feed(session, data)
    while session.next_completed() is not None:
        pass
    session.take_answers()
    session.take_notices()


def headers(data: bytes) -> None:
    which = HeaderCodec.BINARY if data[:1] == b"\1" else HeaderCodec.JSON
    decode_header(data[1:], which)


def _split(data: bytes) -> tuple[dict[str, str], bytes]:
    """Lines of `name=value`, an empty line, a body."""
    head, _, body = data.partition(b"\n\n")
    lines = head.decode("utf-8", "replace").split("\n")
    return {name: text for name, is_one, text in (x.partition("=") for x in lines) if is_one}, body


def _joined(fields: dict[str, str], body: tuple[Buffer, ...]) -> bytes:
    lines = "\n".join(f"{name}={text}" for name, text in fields.items())
    return lines.encode("utf-8", "replace") + b"\n\n" + b"".join(bytes(part) for part in body)


_CODES: Final = sorted({code for _, code, _ in EXCHANGES})


def requests(data: bytes) -> None:
    fields, body = _split(data[3:])
    code = _CODES[data[0] % len(_CODES)] if data else 0
    header = Header(code, version=int.from_bytes(data[1:3], "big"), ext_fields=fields)
    codec.decode_request(header, body)


def request_seeds() -> list[bytes]:
    seeds = []
    for request, code, _ in EXCHANGES:
        encoded = codec.encode_request(request)
        head = bytes([_CODES.index(code)]) + b"\1\xce"
        seeds.append(head + _joined(dict(encoded.ext_fields), encoded.body))
    return seeds


def replies(data: bytes) -> None:
    if len(data) < 3:
        return
    request = EXCHANGES[data[0] % len(EXCHANGES)][0]
    fields, body = _split(data[3:])
    header = Header(int.from_bytes(data[1:3], "big"), remark="remark", ext_fields=fields)
    codec.decode_reply(request, header, body)


def reply_seeds() -> list[bytes]:
    seeds = []
    for at, (request, _, reply) in enumerate(EXCHANGES):
        encoded = codec.encode_reply(request, reply)
        head = bytes([at]) + encoded.code.to_bytes(2, "big")
        seeds.append(head + _joined(dict(encoded.ext_fields), encoded.body))
    return seeds


def request_frames() -> list[bytes]:
    frames: list[bytes] = []
    for number, (request, code, _) in enumerate(EXCHANGES[:40]):
        encoded = codec.encode_request(request)
        header = Header(code, opaque=number, ext_fields=dict(encoded.ext_fields))
        body = b"".join(encoded.body)
        frames += (b"\x40" + encode_frame(Frame(header, body, which)) for which in HeaderCodec)
    return frames


def answer_frames() -> list[bytes]:
    seeds = []
    for opaque in range(8):
        for which in HeaderCodec:
            header = Header(0, opaque=opaque, flag=1, ext_fields={"offset": "7"})
            seeds.append(b"\x40" + encode_frame(Frame(header, b"body", which)))
    return seeds


def header_seeds() -> list[bytes]:
    header = Header(11, opaque=7, remark="r", ext_fields={"topic": "orders", "queueId": "3"})
    lenient = b"\0{code:11,'language':\"JAVA\",extFields:{1:2,a:null},flag:0,opaque:1,version:1}"
    return [
        b"\0" + encode_header(header),
        b"\1" + encode_header(header, HeaderCodec.BINARY),
        lenient,
    ]
