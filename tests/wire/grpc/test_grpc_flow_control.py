"""What a client's HTTP/2 connection may hold, and what it may send: windows, frames, streams."""

from __future__ import annotations

import struct

import pytest

from rocketmq_wire import http2
from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.grpc_session import MessageReceived
from rocketmq_wire.http2 import Kind, Setting
from support.http2_peer import HEAD, Http2Peer, data, headers, prefixed
from support.http2_peer import connected_peer as peer

KIB = 1024


# --- what may be held -----------------------------------------------------------------------


def granted(server: Http2Peer, stream: int) -> int:
    updates = [
        payload for head, payload in server.taken(Kind.WINDOW_UPDATE) if head.stream == stream
    ]
    return sum(http2.decode_integer(payload) for payload in updates)


def test_a_stream_may_send_its_window_and_then_as_much_as_is_taken() -> None:
    server = peer()
    window = 400 * KIB
    server.session.start("/x.Y/Z", [], receive_window=window)
    assert granted(server, 1) == window - http2.WINDOW_SIZE_DEFAULT
    server.give(headers(1, HEAD))
    for _ in range(4):
        server.give(data(1, prefixed(bytes(100 * KIB - 5))))
    assert granted(server, 1) == 0
    first, *_ = events = server.events()
    assert len(events) == 4
    assert isinstance(first, MessageReceived)
    server.session.taken(first)
    assert granted(server, 1) == 100 * KIB


def test_a_message_larger_than_the_window_is_let_through() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD))
    size = 5_000_000
    server.give(data(1, struct.pack(">BI", 0, size)))
    assert granted(server, 1) + http2.WINDOW_SIZE_DEFAULT - 5 >= size
    for _ in range(500):
        server.give(data(1, bytes(size // 500)))
    assert [len(message) for message in server.messages()] == [size]


def test_a_peer_that_sends_more_than_it_may_breaks_the_protocol() -> None:
    server = peer()
    server.session.start("/x.Y/Z", [])
    server.give(headers(1, HEAD))
    server.give(data(1, prefixed(bytes(http2.WINDOW_SIZE_DEFAULT - 5))))
    with pytest.raises(RemoteProtocolError, match="too many"):
        server.give(data(1, bytes(1)))


def test_the_connections_own_window_never_runs_dry() -> None:
    server = peer()
    size = http2.FRAME_SIZE_MAX
    for _ in range(http2.WINDOW_SIZE_MAX // 2 // size + 2):
        # Of a stream that nobody wants any more: it counts for the connection all the same.
        server.give(http2.encode_head(Kind.DATA, 0, 9, size))
        left = size
        while left:
            taken = min(left, len(server.session.next_buffer()))
            server.session.received(taken)
            left -= taken
    assert granted(server, 0) > http2.WINDOW_SIZE_MAX // 2


# --- what may be sent -----------------------------------------------------------------------


def sent(server: Http2Peer, stream: int = 1) -> bytes:
    return b"".join(payload for head, payload in server.taken(Kind.DATA) if head.stream == stream)


def test_a_request_waits_for_the_peers_window() -> None:
    server = peer()
    request = bytes(range(256)) * 1_000
    server.session.start("/x.Y/Z", [request[:1_000], request[1_000:]])
    frames = server.taken(Kind.DATA)
    first = b"".join(payload for _, payload in frames)
    assert len(first) == http2.WINDOW_SIZE_DEFAULT
    assert all(head.size <= http2.FRAME_SIZE_DEFAULT and not head.flags for head, _ in frames)
    server.give(http2.encode_window_update(1, 1 << 20))
    assert sent(server) == b""
    server.give(http2.encode_window_update(0, 1 << 20))
    frames = server.taken(Kind.DATA)
    assert first + b"".join(payload for _, payload in frames) == prefixed(request)
    assert [head.flags for head, _ in frames][-1] == http2.END_STREAM


def test_a_request_that_must_wait_does_not_hold_up_others() -> None:
    server = peer({Setting.INITIAL_WINDOW_SIZE: 10})
    server.session.start("/x.Y/Z", [bytes(100)])
    server.session.start("/x.Y/Z", [b"abc"])
    frames = server.taken(Kind.DATA)
    assert [(head.stream, head.size) for head, _ in frames] == [(1, 10), (3, 8)]


def test_a_new_initial_window_counts_for_open_streams_too() -> None:
    server = peer({Setting.INITIAL_WINDOW_SIZE: 10})
    server.session.start("/x.Y/Z", [bytes(95)])
    assert len(sent(server)) == 10
    server.give(http2.encode_settings({Setting.INITIAL_WINDOW_SIZE: 5}))
    server.give(http2.encode_window_update(1, 5))
    assert sent(server) == b""
    server.give(http2.encode_settings({Setting.INITIAL_WINDOW_SIZE: 1_000}))
    assert len(sent(server)) == 90


def test_larger_frames_are_used_when_the_peer_takes_them() -> None:
    server = peer({Setting.MAX_FRAME_SIZE: 1 << 20, Setting.INITIAL_WINDOW_SIZE: 1 << 20})
    server.session.start("/x.Y/Z", [bytes(50_000)])
    ((head, _),) = server.taken(Kind.DATA)
    assert head.size == 50_005


def test_calls_over_the_peers_limit_wait_for_others_to_end() -> None:
    server = peer({Setting.MAX_CONCURRENT_STREAMS: 2})
    for _ in range(3):
        server.session.start("/x.Y/Z", [b"x"])
    assert [head.stream for head, _ in server.taken(Kind.HEADERS)] == [1, 3]
    server.answer(1, b"")
    assert [head.stream for head, _ in server.taken(Kind.HEADERS)] == [5]


def test_a_call_that_is_kept_open_takes_more_messages() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [b"one"], is_kept_open=True)
    server.session.send(call, [b"t", b"wo"])
    frames = server.taken(Kind.DATA)
    assert b"".join(payload for _, payload in frames) == prefixed(b"one") + prefixed(b"two")
    assert all(not head.flags for head, _ in frames)
    server.give(headers(1, HEAD) + data(1, prefixed(b"1")))
    assert server.messages() == [b"1"]
    server.session.send(call, [])
    assert sent(server) == prefixed(b"")
    server.give(headers(1, ((b"grpc-status", b"0"),), is_last=True))
    assert server.ended().call == call
    with pytest.raises(LocalProtocolError, match="no more messages"):
        server.session.send(call, [b"late"])


def test_only_calls_that_are_kept_open_take_more_messages() -> None:
    server = peer()
    call = server.session.start("/x.Y/Z", [b"one"])
    with pytest.raises(LocalProtocolError, match="no more messages"):
        server.session.send(call, [b"two"])


def test_messages_of_a_call_that_waits_for_its_stream_wait_with_it() -> None:
    server = peer({Setting.MAX_CONCURRENT_STREAMS: 0})
    call = server.session.start("/x.Y/Z", [b"one"], is_kept_open=True)
    server.session.send(call, [b"two"])
    assert server.taken(Kind.DATA) == []
    server.give(http2.encode_settings({Setting.MAX_CONCURRENT_STREAMS: 1}))
    assert sent(server) == prefixed(b"one") + prefixed(b"two")
