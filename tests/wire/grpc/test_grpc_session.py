"""A gRPC client's side of an HTTP/2 connection against a scripted server: no network."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_wire import http2
from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.grpc_session import CallEnded, GrpcSession, MessageReceived
from rocketmq_wire.http2 import Kind, Setting
from support.http2_peer import HEAD, Http2Peer, data, headers, prefixed
from support.http2_peer import connected_peer as peer

KIB = 1024


# --- a call ---------------------------------------------------------------------------------


def test_a_connection_begins_with_the_preface_and_settings() -> None:
    opened = Http2Peer(GrpcSession("broker:8081"))
    (settings, payload), (update, _) = opened.take()
    assert (settings.kind, update.kind, update.stream) == (Kind.SETTINGS, Kind.WINDOW_UPDATE, 0)
    assert http2.decode_settings(payload)[Setting.ENABLE_PUSH] == 0
    assert not opened.session.is_ready
    opened.start()
    assert opened.session.is_ready
    ((ack, _),) = opened.take()
    assert (ack.kind, ack.flags) == (Kind.SETTINGS, http2.ACK)


def test_a_call_is_one_block_of_headers_and_one_message() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [b"he", b"llo"], timeout_ms=5_000)
    (head, block), (body, content) = server.take()
    assert (head.kind, head.stream, head.flags) == (Kind.HEADERS, 1, http2.END_HEADERS)
    assert server.fields(block) == {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/x.Y/Z",
        b":authority": b"broker:8081",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        b"user-agent": b"pyspark-rocketmq",
        b"grpc-timeout": b"5000m",
    }
    assert (body.kind, body.stream, body.flags) == (Kind.DATA, 1, http2.END_STREAM)
    assert content == prefixed(b"hello")


def test_an_answer_is_its_message_and_an_end() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [])
    server.answer(1, b"answer")
    message, end = server.events()
    assert isinstance(message, MessageReceived)
    assert (message.call, bytes(message.message)) == (call, b"answer")
    assert end == CallEnded(call, 0)


def test_a_refusal_brings_its_status_text_and_metadata() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [b"?"])
    trailers = (
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"5"),
        (b"grpc-message", b"no%20such%20t%C3%B6pic"),
        (b"rocketmq-code", b"17"),
        (b"rocketmq-remark-bin", b"w6Q"),
    )
    server.give(headers(1, trailers, is_last=True))
    assert server.ended() == CallEnded(
        call,
        5,
        "no such töpic",
        (
            ("content-type", "application/grpc"),
            ("rocketmq-code", "17"),
            ("rocketmq-remark-bin", "ä".encode()),
        ),
    )


def test_calls_are_answered_in_any_order() -> None:
    server = peer()
    calls = [server.session.start("/x.Y/Z", [b"%d" % n]) for n in range(3)]
    for stream in (5, 1, 3):
        server.answer(stream, b"%d" % stream)
    ends = [event.call for event in server.events() if isinstance(event, CallEnded)]
    assert ends == [calls[2], calls[0], calls[1]]


def test_a_header_block_may_be_spread_over_frames() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [])
    whole = headers(1, (*HEAD, (b"grpc-status", b"7")), is_last=True)[http2.HEAD_SIZE :]
    frames = http2.encode_frame(Kind.HEADERS, http2.END_STREAM, 1, whole[:5])
    frames += http2.encode_frame(Kind.CONTINUATION, 0, 1, whole[5:9])
    frames += http2.encode_frame(Kind.CONTINUATION, http2.END_HEADERS, 1, whole[9:])
    server.give(frames)
    assert server.ended().call == call


def test_padding_and_priority_of_headers_are_cut_off() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    block = headers(1, (*HEAD, (b"grpc-status", b"7")))[http2.HEAD_SIZE :]
    flags = http2.PADDED | http2.PRIORITY | http2.END_HEADERS | http2.END_STREAM
    server.give(http2.encode_frame(Kind.HEADERS, flags, 1, b"\x03" + bytes(5) + block + b"\0\0\0"))
    assert server.ended().status == 7


@pytest.mark.parametrize(
    ("fields", "is_last", "status", "text"),
    [
        (((b":status", b"503"),), False, 14, "HTTP status 503"),
        (((b":status", b"404"), (b"content-type", b"text/html")), False, 12, "'text/html'"),
        (((b":status", b"200"), (b"content-type", b"text/html")), False, 2, "HTTP status 200"),
        (((b":status", b"502"),), True, 14, "HTTP status 502"),
        (HEAD, True, 2, "without a status"),
        ((*HEAD, (b"grpc-status", b"x")), True, 2, ""),
    ],
)
def test_answers_that_are_none_of_grpcs_end_the_call(
    fields: tuple[tuple[bytes, bytes], ...], is_last: bool, status: int, text: str
) -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.take()
    server.give(headers(1, fields, is_last=is_last))
    ended = server.ended()
    assert ended.status == status
    assert text in ended.text
    assert len(server.taken(Kind.RST_STREAM)) == (0 if is_last else 1)


def test_a_stream_that_ends_in_the_middle_of_a_message_is_no_success() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD) + data(1, prefixed(b"answer")[:8]))
    server.give(headers(1, ((b"grpc-status", b"0"),), is_last=True))
    assert "within a message" in server.ended().text


def test_a_stream_that_ends_without_trailers_is_no_success() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD) + data(1, b"", is_last=True))
    assert server.ended().status == 2


# --- large messages -------------------------------------------------------------------------


def test_a_large_message_is_received_into_its_own_buffer() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [], receive_window=1 << 20)
    server.give(headers(1, HEAD))
    content = prefixed(bytes(range(256)) * 1_000)
    server.give(http2.encode_head(Kind.DATA, 0, 1, len(content)) + content[:100])
    buffer = server.session.next_buffer()
    assert len(buffer) == len(content) - 100
    server.give(content[100:])
    (event,) = server.events()
    assert isinstance(event, MessageReceived)
    assert event.message == content[5:]
    assert event.message.obj is buffer.obj


@settings(max_examples=60, deadline=None)
@given(
    messages=st.lists(st.binary(max_size=9_000), max_size=5),
    cuts=st.lists(st.integers(1, 9_000), max_size=12),
    padding=st.none() | st.integers(0, 255),
    step=st.integers(1, 5_000),
)
def test_messages_survive_any_cutting_into_frames_and_reads(
    messages: list[bytes], cuts: list[int], padding: int | None, step: int
) -> None:
    server = peer()
    server.session.start("/x.Y/Z", [], receive_window=1 << 20)
    content = b"".join(prefixed(message) for message in messages)
    wire = headers(1, HEAD)
    for cut in [*cuts, len(content) + 1]:
        piece, content = content[:cut], content[cut:]
        wire += data(1, piece, padding=padding)
    server.give(wire + headers(1, ((b"grpc-status", b"0"),), is_last=True), step=step)
    events = server.events()
    assert [bytes(e.message) for e in events if isinstance(e, MessageReceived)] == messages
    assert events[-1] == CallEnded(1, 0)


def test_a_message_over_the_limit_is_refused_before_it_is_allocated() -> None:
    server = peer(message_size_max=1_000)
    server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD))
    with pytest.raises(RemoteProtocolError, match="4294967295 bytes is over the limit of 1000"):
        server.give(data(1, struct.pack(">BI", 0, 2**32 - 1)))


def test_a_compressed_message_is_refused() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD))
    with pytest.raises(RemoteProtocolError, match="compressed"):
        server.give(data(1, b"\x01\0\0\0\x01x"))


# --- ends and signs of life -----------------------------------------------------------------


def test_a_cancelled_call_is_reset_and_gives_no_more_events() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [])
    other = server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD) + data(1, prefixed(b"early")))
    server.session.cancel(call)
    ((reset, payload),) = server.taken(Kind.RST_STREAM)
    assert (reset.stream, http2.decode_integer(payload)) == (1, http2.ErrorCode.CANCEL)
    server.give(data(1, prefixed(bytes(10_000))))
    server.give(headers(1, ((b"grpc-status", b"0"),), is_last=True))
    server.answer(3, b"late")
    assert [event.call for event in server.events()] == [other, other]


def test_a_call_that_is_cancelled_after_its_end_came_leaves_no_event_for_the_next_one() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [])
    server.answer(1, b"all of it")
    taken = server.session.next_event()
    assert isinstance(taken, MessageReceived)
    server.session.cancel(call)
    assert server.events() == []
    assert server.taken(Kind.RST_STREAM) == []


def test_a_cancelled_call_that_never_got_a_stream_leaves_nothing() -> None:
    server = peer({Setting.MAX_CONCURRENT_STREAMS: 0})
    server.session.cancel(server.session.start("/x.Y/Z", []))
    server.give(http2.encode_settings({Setting.MAX_CONCURRENT_STREAMS: 9}))
    assert [head.kind for head, _ in server.take()] == [Kind.SETTINGS]


@pytest.mark.parametrize(
    ("code", "status", "is_unprocessed"), [(7, 14, True), (8, 1, False), (2, 14, False)]
)
def test_a_reset_ends_its_call(code: int, status: int, is_unprocessed: bool) -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.give(http2.encode_frame(Kind.RST_STREAM, 0, 1, struct.pack(">I", code)))
    ended = server.ended()
    assert (ended.status, ended.is_unprocessed) == (status, is_unprocessed)


def test_a_goaway_lets_older_calls_finish_and_gives_newer_ones_back_unprocessed() -> None:
    server = peer()
    first = server.session.start("/x.Y/Z", [])
    second = server.session.start("/x.Y/Z", [])
    server.give(http2.encode_frame(Kind.GOAWAY, 0, 0, struct.pack(">II", 1, 0) + b"bye"))
    ended = server.ended()
    assert (ended.call, ended.is_unprocessed) == (second, True)
    assert "bye" in ended.text
    assert server.session.is_closing
    with pytest.raises(LocalProtocolError):
        server.session.start("/x.Y/Z", [])
    server.answer(1, b"still")
    assert [event.call for event in server.events()] == [first, first]


def test_pings_are_answered_and_answers_to_ours_are_counted() -> None:
    server = peer()
    server.give(http2.encode_frame(Kind.PING, 0, 0, b"12345678"))
    ((head, payload),) = server.take()
    assert (head.kind, head.flags, payload) == (Kind.PING, http2.ACK, b"12345678")
    server.session.ping()
    ((head, _),) = server.take()
    assert (head.kind, head.flags) == (Kind.PING, 0)
    server.give(http2.encode_frame(Kind.PING, http2.ACK, 0, bytes(8)))
    assert server.session.pongs == 1


def test_frames_of_unknown_kinds_are_ignored() -> None:
    server = peer()
    server.give(struct.pack(">IBI", 3 << 8 | 0xEE, 0, 0) + b"abc")
    server.session.start("/x.Y/Z", [])
    server.answer(1, b"fine")
    assert server.messages() == [b"fine"]


# --- hostile bytes --------------------------------------------------------------------------


def test_a_port_that_speaks_something_else_is_told_by_its_first_bytes() -> None:
    opened = Http2Peer(GrpcSession("broker:8081"))
    with pytest.raises(RemoteProtocolError, match=r"does not speak HTTP/2.*HTTP/1\.1"):
        opened.give(b"HTTP/1.1 400 Bad Request\r\n\r\n")


BLOCK = headers(1, HEAD)[http2.HEAD_SIZE :]


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (http2.encode_head(Kind.HEADERS, 0, 1, 1 << 20), "kind 1 has 1048576 bytes"),
        (http2.encode_frame(Kind.SETTINGS, 0, 0, b"abc"), "settings of 3 bytes"),
        (http2.encode_settings({Setting.MAX_FRAME_SIZE: 1}), "impossible settings"),
        (http2.encode_settings({Setting.INITIAL_WINDOW_SIZE: 1 << 31}), "impossible settings"),
        (http2.encode_frame(Kind.PUSH_PROMISE, 0, 1, bytes(4)), "pushes"),
        (http2.encode_frame(Kind.CONTINUATION, 0, 1, b""), "never began"),
        (
            http2.encode_frame(Kind.HEADERS, 0, 1, BLOCK) + data(1, b"x"),
            "block is interrupted",
        ),
        (
            http2.encode_frame(Kind.HEADERS, 0, 1, BLOCK)
            + http2.encode_frame(Kind.PING, 0, 0, bytes(8)),
            "block is interrupted",
        ),
        (
            http2.encode_frame(Kind.HEADERS, 0, 1, bytes(30_000))
            + http2.encode_frame(Kind.CONTINUATION, 0, 1, bytes(30_000)) * 2,
            "more than 65536 bytes",
        ),
        (http2.encode_frame(Kind.DATA, http2.PADDED, 1, b"\x05abc"), "padding is longer"),
        (
            http2.encode_frame(Kind.HEADERS, http2.PADDED | http2.END_HEADERS, 1, b"\x05abc"),
            "padding is longer",
        ),
        (http2.encode_frame(Kind.GOAWAY, 0, 0, b"abc"), "only 3 bytes"),
        (http2.encode_frame(Kind.WINDOW_UPDATE, 0, 1, b""), "only 0 bytes"),
    ],
)
def test_frames_that_break_the_protocol_are_refused(frame: bytes, complaint: str) -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    with pytest.raises(RemoteProtocolError, match=complaint):
        server.give(frame)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 11), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=40)
        ),
        max_size=6,
    )
)
def test_arbitrary_frames_give_events_or_a_protocol_error(
    frames: list[tuple[int, int, int, bytes]],
) -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.session.start("/x.Y/Z", [])
    wire = b"".join(
        struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload
        for kind, flags, stream, payload in frames
    )
    try:
        server.give(wire, step=7)
    except RemoteProtocolError:
        return
    assert len(server.events()) <= len(frames) * 10
