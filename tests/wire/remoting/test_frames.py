"""Frames: golden bytes, every cut, lengths checked before anything is allocated, no copies."""

from __future__ import annotations

import gc
import struct
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import FrameTooLargeError, LocalProtocolError, RemoteProtocolError
from rocketmq_wire.model import buffer_size
from rocketmq_wire.remoting.frames import (
    FRAME_SIZE_MAX,
    Frame,
    FrameDecoder,
    encode_frame_head,
)
from rocketmq_wire.remoting.headers import Header, HeaderCodec
from support.remoting_sessions import encode_frame, receive

GOLDEN_HEADER = Header(105, opaque=7, version=401, language="PYTHON", ext_fields={"topic": "T"})
GOLDEN_JSON = bytes.fromhex(
    "000000830000007D7B22636F6465223A3130352C226578744669656C6473223A7B22746F706963223A2254227D2C22"
    "666C6167223A302C226C616E6775616765223A22505954484F4E222C226F7061717565223A372C2273657269616C69"
    "7A655479706543757272656E74525043223A224A534F4E222C2276657273696F6E223A3430317D4242"
)
GOLDEN_BINARY = bytes.fromhex(
    "000000270100002100690301910000000700000000000000000000000C0005746F70696300000001544242"
)
GOLDEN_FRAMES = [
    (Frame(GOLDEN_HEADER, b"BB"), GOLDEN_JSON),
    (Frame(GOLDEN_HEADER, b"BB", HeaderCodec.BINARY), GOLDEN_BINARY),
]


class Allocations:
    """Counts what a decoder allocates for large bodies."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> bytearray:
        self.sizes.append(size)
        return bytearray(size)


def frames_of(*pieces: bytes, decoder: FrameDecoder | None = None) -> list[Frame]:
    decoder = decoder or FrameDecoder()
    frames = []
    for piece in pieces:
        receive(decoder, piece)
        while frame := decoder.next_frame():
            frames.append(Frame(frame.header, bytes(frame.body), frame.codec))
    return frames


@pytest.mark.parametrize(("frame", "encoded"), GOLDEN_FRAMES)
def test_the_golden_frames_are_written_and_read(frame: Frame, encoded: bytes):
    assert encode_frame(frame) == encoded
    assert frames_of(encoded) == [frame]


def test_both_codecs_may_follow_each_other_on_one_connection():
    assert frames_of(GOLDEN_JSON + GOLDEN_BINARY + GOLDEN_JSON) == [
        GOLDEN_FRAMES[0][0],
        GOLDEN_FRAMES[1][0],
        GOLDEN_FRAMES[0][0],
    ]


@pytest.mark.parametrize(("frame", "encoded"), GOLDEN_FRAMES)
def test_a_frame_survives_any_cut(frame: Frame, encoded: bytes):
    for cut in range(len(encoded) + 1):
        assert frames_of(encoded[:cut], encoded[cut:] + encoded) == [frame, frame]


def test_a_frame_survives_arriving_byte_by_byte():
    data = GOLDEN_JSON + GOLDEN_BINARY
    assert frames_of(*(data[i : i + 1] for i in range(len(data)))) == [
        frame for frame, _ in GOLDEN_FRAMES
    ]


@pytest.mark.parametrize("staging_size", [8, 40, 64, 136, 200, 16_384])
def test_a_frame_survives_any_cut_with_any_staging_size(staging_size: int):
    """Covers headers larger than the staging buffer and bodies that start inside it."""
    large = Frame(GOLDEN_HEADER, bytes(range(256)) * 3)
    encoded = encode_frame(large) + GOLDEN_JSON + encode_frame(Frame(GOLDEN_HEADER))
    for cut in range(len(encoded) + 1):
        decoder = FrameDecoder(staging_size=staging_size)
        assert frames_of(encoded[:cut], encoded[cut:], decoder=decoder) == [
            large,
            GOLDEN_FRAMES[0][0],
            Frame(GOLDEN_HEADER),
        ]
        assert decoder.is_between_frames


def test_an_empty_body_and_an_empty_frame_are_read():
    assert frames_of(encode_frame(Frame(Header(34)))) == [Frame(Header(34))]
    with pytest.raises(RemoteProtocolError):
        frames_of(struct.pack(">ii", 4, 0))


def test_the_head_alone_announces_the_body():
    head = encode_frame_head(GOLDEN_HEADER, 2)
    assert head + b"BB" == GOLDEN_JSON
    assert encode_frame_head(GOLDEN_HEADER, 2, HeaderCodec.BINARY) + b"BB" == GOLDEN_BINARY


def test_a_size_is_counted_in_bytes():
    assert buffer_size(memoryview(bytes(8)).cast("I")) == 8
    assert buffer_size(b"abc") == buffer_size(bytearray(3)) == 3


# --- limits ---------------------------------------------------------------------------------


def test_a_frame_of_just_the_limit_is_taken_and_one_byte_more_is_refused():
    size = len(GOLDEN_JSON)
    assert len(frames_of(GOLDEN_JSON, decoder=FrameDecoder(size))) == 1
    with pytest.raises(FrameTooLargeError) as caught:
        frames_of(GOLDEN_JSON, decoder=FrameDecoder(size - 1))
    assert (caught.value.size, caught.value.size_max) == (size, size - 1)
    assert str(caught.value).startswith("[ROCKETMQ_CONNECTION.FRAME_TOO_LARGE] ")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request", b"<!DOCTYPE HTML>", b"<html>"])
def test_a_web_server_is_recognized_by_the_beginning_of_its_answer(answer: bytes):
    with pytest.raises(FrameTooLargeError, match="speaks HTTP") as caught:
        frames_of(answer)
    assert caught.value.is_http
    with pytest.raises(FrameTooLargeError, match="is over the limit") as caught:
        frames_of(b"ZZZZ")
    assert not caught.value.is_http


@pytest.mark.parametrize("total", [FRAME_SIZE_MAX - 3, 2**31 - 1])
def test_an_oversized_frame_is_refused_by_its_first_four_bytes(total: int):
    allocations = Allocations()
    decoder = FrameDecoder(allocate=allocations)
    receive(decoder, struct.pack(">i", total))
    with pytest.raises(FrameTooLargeError):
        decoder.next_frame()
    assert allocations.sizes == []


@pytest.mark.parametrize(
    ("total", "mark", "reason"),
    [
        (0, 0, "no room"),
        (3, 0, "no room"),
        (-1, 0, "no room"),
        (-(2**31), 0, "no room"),
        (100, 97, "header of 97 bytes"),
        (100, 0xFF_FFFF, "header of 16777215 bytes"),
        (10_000_000, 10_000_000, "header of 10000000 bytes"),
        (100, 2 << 24, "serialization type 2"),
        (100, 0xFF << 24, "serialization type 255"),
    ],
)
def test_hostile_lengths_are_refused_before_anything_is_allocated(
    total: int, mark: int, reason: str
):
    allocations = Allocations()
    decoder = FrameDecoder(allocate=allocations)
    receive(decoder, struct.pack(">iI", total, mark))
    with pytest.raises(RemoteProtocolError, match=reason):
        decoder.next_frame()
    assert allocations.sizes == []


def test_another_protocols_bytes_are_refused():
    for hello in (
        b"GET / HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ):
        with pytest.raises(RemoteProtocolError):
            frames_of(hello)


def test_good_frames_before_a_bad_one_are_delivered_and_the_error_stays():
    decoder = FrameDecoder()
    receive(decoder, GOLDEN_JSON + struct.pack(">iI", -1, 0) + GOLDEN_JSON)
    assert decoder.next_frame() == GOLDEN_FRAMES[0][0]
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            decoder.next_frame()
    with pytest.raises(RemoteProtocolError):
        decoder.next_buffer()


def test_a_bad_header_behind_good_lengths_is_refused():
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        frames_of(struct.pack(">iI", 8, 4) + b"nope")
    # The same in a frame that is too large for the staging buffer, in both ways of receiving it.
    for header_size in (4, 20_000):
        with pytest.raises(RemoteProtocolError, match="not JSON"):
            frames_of(struct.pack(">iI", 40_004, header_size) + b"n" * 40_000)


def test_a_frame_that_peers_would_refuse_is_not_written():
    header_size = len(GOLDEN_JSON) - 2
    assert encode_frame_head(GOLDEN_HEADER, FRAME_SIZE_MAX - header_size)
    with pytest.raises(LocalProtocolError, match="over the 16777216"):
        encode_frame_head(GOLDEN_HEADER, FRAME_SIZE_MAX - header_size + 1)


# --- lending buffers ------------------------------------------------------------------------


def test_a_large_body_is_received_into_its_own_buffer_without_another_copy():
    allocations = Allocations()
    decoder = FrameDecoder(allocate=allocations)
    body = bytes(range(256)) * 4096
    encoded = encode_frame_head(GOLDEN_HEADER, len(body)) + body
    buffer = decoder.next_buffer()
    assert len(buffer) == 16_384
    buffer[:] = encoded[: len(buffer)]
    decoder.received(len(buffer))
    rest = decoder.next_buffer()
    assert allocations.sizes == [len(body)]
    assert len(rest) == len(encoded) - 16_384
    rest[:] = encoded[16_384:]
    decoder.received(len(rest))
    frame = decoder.next_frame()
    assert frame is not None
    assert isinstance(frame.body, memoryview)
    assert frame.body.obj is rest.obj
    assert frame.body == body


def test_the_next_buffer_ends_with_a_large_body():
    decoder = FrameDecoder(staging_size=256)
    body = bytes(1000)
    encoded = encode_frame(Frame(GOLDEN_HEADER, body))
    receive(decoder, encoded[:-10])
    assert len(decoder.next_buffer()) == 10
    receive(decoder, encoded[-10:])
    assert decoder.is_between_frames
    assert len(decoder.next_buffer()) == 256


def test_a_delivered_small_body_is_not_overwritten_by_what_follows():
    decoder = FrameDecoder(staging_size=256)
    receive(decoder, encode_frame(Frame(Header(1), b"first")))
    first = decoder.next_frame()
    receive(decoder, encode_frame(Frame(Header(1), b"other")))
    assert first is not None
    assert first.body == b"first"


def test_a_delivered_large_body_is_not_overwritten_by_what_follows():
    decoder = FrameDecoder(staging_size=64)
    receive(decoder, encode_frame(Frame(Header(1), b"1" * 500)))
    first = decoder.next_frame()
    receive(decoder, encode_frame(Frame(Header(1), b"2" * 500)))
    assert first is not None
    assert first.body == b"1" * 500


def test_the_next_buffer_is_never_empty():
    decoder = FrameDecoder(staging_size=64)
    data = encode_frame(Frame(Header(1), b"x" * 37)) * 20
    for start in range(0, len(data), 7):
        assert len(decoder.next_buffer())
        receive(decoder, data[start : start + 7])


def test_more_bytes_than_the_buffer_holds_are_refused():
    decoder = FrameDecoder(staging_size=64)
    for size in (-1, 65):
        with pytest.raises(ValueError, match="do not fit the buffer"):
            decoder.received(size)
    receive(decoder, encode_frame_head(Header(1), 500))
    with pytest.raises(ValueError, match="do not fit the buffer"):
        decoder.received(501)


def test_the_decoder_knows_whether_a_connection_may_close():
    decoder = FrameDecoder()
    assert decoder.is_between_frames
    receive(decoder, GOLDEN_JSON[:1])
    assert not decoder.is_between_frames
    receive(decoder, GOLDEN_JSON[1:])
    assert decoder.is_between_frames


@given(
    st.lists(
        st.builds(
            Frame,
            st.builds(Header, st.integers(0, 1000), opaque=st.integers(0, 2**31 - 1)),
            st.binary(max_size=600),
            st.sampled_from(HeaderCodec),
        ),
        max_size=5,
    ),
    st.integers(8, 300),
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
)
def test_any_frames_survive_any_cuts(frames: list[Frame], staging_size: int, sizes: list[int]):
    data = b"".join(encode_frame(frame) for frame in frames)
    decoder = FrameDecoder(staging_size=staging_size)
    pieces: list[bytes] = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    assert frames_of(*pieces, decoder=decoder) == frames


def test_a_closed_decoder_keeps_neither_a_body_nor_the_owner_of_its_memory() -> None:
    class Owner:
        def allocate(self, size: int) -> bytearray:
            self.body = bytearray(size)
            return self.body

    owner = Owner()
    decoder = FrameDecoder(allocate=owner.allocate)
    head = struct.pack(">iI", 4 + 11 + 100_000, 11) + b'{"code":10}'
    decoder.next_buffer()[: len(head)] = head
    decoder.received(len(head))
    assert decoder.is_in_large_frame
    kept = weakref.ref(owner)
    gc.disable()
    try:
        decoder.close()
        del owner
        assert kept() is None
    finally:
        gc.enable()
