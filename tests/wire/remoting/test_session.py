"""Conversations of both sides, and what a server makes of its client's frames."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import (
    BrokerError,
    RemoteProtocolError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from rocketmq_wire.remoting.frames import FRAME_SIZE_MAX, Frame
from rocketmq_wire.remoting.headers import FLAG_ONEWAY, FLAG_REPLY, Header, HeaderCodec
from rocketmq_wire.remoting.session import ClientSession, Completed, ReceivedRequest, ServerSession
from rocketmq_wire.requests.brokers import GetCluster
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.messages import PullReply, PullStatus
from rocketmq_wire.requests.offsets import OffsetReply
from rocketmq_wire.requests.topics import GetRoute, GetTopicStats
from rocketmq_wire.signing import Credentials, is_signed_by
from support.remoting_sessions import (
    ASK_MAX,
    PULL,
    answer_to,
    asked,
    completed,
    encode_frame,
    frame_of,
    receive,
)

# --- both sides together --------------------------------------------------------------------


def test_a_question_is_answered_through_both_sessions():
    client, server = ClientSession(), ServerSession()
    started = client.start(ASK_MAX, now_ms=0, timeout_ms=1_000)
    receive(server, *started.parts)
    (question,) = asked(server)
    assert question == ReceivedRequest(started.opaque, 30, False, ASK_MAX)
    receive(client, *server.answer(question, OffsetReply(7)))
    assert completed(client) == [Completed(started.opaque, OffsetReply(7))]
    assert client.pending_count == 0
    assert client.deadline_ms is None


def test_a_refusal_completes_the_request():
    client, server = ClientSession(), ServerSession()
    started = client.start(GetRoute("nowhere"), now_ms=0, timeout_ms=1_000)
    receive(server, *started.parts)
    (question,) = asked(server)
    receive(client, *server.answer(question, TopicNotFoundError(17, "no such topic")))
    (done,) = completed(client)
    assert done.opaque == started.opaque
    assert isinstance(done.result, TopicNotFoundError)
    assert done.result.remark == "no such topic"


def test_answers_come_back_in_any_order():
    client, server = ClientSession(), ServerSession()
    opaques = []
    for _ in range(3):
        started = client.start(ASK_MAX, now_ms=0, timeout_ms=1_000)
        opaques.append(started.opaque)
        receive(server, *started.parts)
    for index in (2, 0, 1):
        receive(client, answer_to(opaques[index], index))
    assert completed(client) == [
        Completed(opaques[2], OffsetReply(2)),
        Completed(opaques[0], OffsetReply(0)),
        Completed(opaques[1], OffsetReply(1)),
    ]


def test_records_travel_from_part_to_view_without_being_joined():
    client, server = ClientSession(), ServerSession()
    started = client.start(PULL, now_ms=0, timeout_ms=1_000)
    receive(server, *started.parts)
    (question,) = asked(server)
    records = (memoryview(b"a" * 600_000), memoryview(b"b" * 400_000))
    parts = server.answer(question, PullReply(PullStatus.FOUND, 9, 0, 9, records))
    assert parts[1] is records[0]
    assert parts[2] is records[1]
    receive(client, *parts)
    (done,) = completed(client)
    assert isinstance(done.result, PullReply)
    (body,) = done.result.records
    assert isinstance(body, memoryview)
    assert body == b"a" * 600_000 + b"b" * 400_000


def test_both_headers_carry_language_and_version():
    client, server = ClientSession(), ServerSession()
    started = client.start(ASK_MAX, now_ms=0, timeout_ms=1_000)
    question = frame_of(*started.parts).header
    assert (question.version, question.language, question.flag) == (401, "PYTHON", 0)
    receive(server, *started.parts)
    answer = frame_of(*server.answer(asked(server)[0], OffsetReply(7))).header
    assert (answer.version, answer.flag, answer.opaque) == (479, FLAG_REPLY, question.opaque)


# --- server ---------------------------------------------------------------------------------


def test_an_unknown_code_is_answered_not_dropped():
    server = ServerSession()
    receive(server, encode_frame(Frame(Header(361_000, opaque=9), b"body")))
    (question,) = asked(server)
    assert isinstance(question.request, UnsupportedRequestError)
    header = frame_of(*server.answer(question, question.request)).header
    assert (header.code, header.opaque, header.flag) == (3, 9, FLAG_REPLY)
    assert header.remark == " request type 361000 not supported"
    assert header.ext_fields == {}


def test_a_truncated_code_is_answered_as_unknown():
    server = ServerSession()
    pop_in_binary = Header(200_050 & 0xFFFF, opaque=9)
    receive(server, encode_frame(Frame(pop_in_binary, b"", HeaderCodec.BINARY)))
    (question,) = asked(server)
    assert isinstance(question.request, UnsupportedRequestError)
    assert question.request.remark == " request type 3442 not supported"


def test_an_unreadable_request_is_answered_and_the_next_one_read():
    server = ServerSession()
    bad = Header(30, opaque=1, ext_fields={"topic": "orders"})
    good = Header(106, opaque=2)
    receive(server, encode_frame(Frame(bad)), encode_frame(Frame(good)))
    refused, question = asked(server)
    assert isinstance(refused.request, BrokerError)
    assert (refused.opaque, refused.request.code) == (1, 1)
    assert "queueId" in refused.request.remark
    assert question.request == GetCluster()


def test_an_unreadable_oneway_is_not_answered():
    server = ServerSession()
    receive(server, encode_frame(Frame(Header(7, opaque=1, flag=FLAG_ONEWAY))))
    (question,) = asked(server)
    assert isinstance(question.request, BrokerError)
    assert server.answer(question, question.request) == ()


def test_a_reply_without_a_request_is_dropped():
    server = ServerSession()
    receive(server, answer_to(5, 5))
    assert asked(server) == []
    assert server.take_answered() == []


def test_an_answer_too_large_to_send_becomes_a_refusal():
    server = ServerSession()
    question = ReceivedRequest(4, 11, False, PULL)
    records = (bytes(FRAME_SIZE_MAX),)
    parts = server.answer(question, PullReply(PullStatus.FOUND, 9, 0, 9, records))
    header = frame_of(*parts).header
    assert (header.code, header.opaque) == (1, 4)
    assert "over the 16777216" in (header.remark or "")


def test_an_answer_of_the_wrong_kind_is_our_mistake():
    with pytest.raises(AssertionError):
        ServerSession().answer(ReceivedRequest(1, 7, False, BrokerError(3, "")), Done())


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_a_question_survives_any_cut(cut: int):
    client, server = ClientSession(), ServerSession()
    data = b"".join(client.start(GetTopicStats("orders"), now_ms=0, timeout_ms=1).parts)
    receive(server, data[:cut])
    early = asked(server)
    receive(server, data[cut:])
    assert [question.request for question in early + asked(server)] == [GetTopicStats("orders")]


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_protocol_error_in_a_server(data: bytes):
    session = ServerSession()
    with contextlib.suppress(RemoteProtocolError):
        receive(session, data)
        asked(session)


@pytest.mark.parametrize("request_", [ASK_MAX, PULL])
def test_added_header_fields_are_signed_and_replace_none(request_):
    secret = "a-secret-that-is-long"
    client = ClientSession(credentials=Credentials("key", secret))
    fields = {"traceId": "7", "topic": "other"}
    started = client.start(request_, now_ms=0, timeout_ms=1_000, fields=fields)
    oneway = client.start_oneway(request_, fields)
    for parts in (started.parts, oneway):
        header = frame_of(*parts).header
        assert (header.ext_fields["traceId"], header.ext_fields["topic"]) == ("7", "orders")
        assert is_signed_by(secret, header.ext_fields, header.version, b"")
        assert not is_signed_by(secret, {**header.ext_fields, "traceId": "8"}, header.version, b"")
