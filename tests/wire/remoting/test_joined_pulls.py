"""Pulls that are sent as one: their answers are gathered, and none is taken for another."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.remoting.frames import Frame
from rocketmq_wire.remoting.headers import FLAG_REPLY, Header, HeaderCodec, encode_header
from rocketmq_wire.remoting.pulls import AnswerShape, learn_shape
from rocketmq_wire.remoting.session import ClientSession, Completed, ServerSession
from rocketmq_wire.requests.messages import PullReplies, PullReply, PullStatus
from rocketmq_wire.signing import Credentials
from support.golden_frames import PULLS, golden_frame
from support.remoting_sessions import (
    PULL,
    answer_to,
    asked,
    completed,
    encode_frame,
    receive,
    start,
)

WIDTH = 32
JOINED = replace(PULL, start=1_000, count_max=WIDTH, times=4)
STARTS = [1_000, 1_032, 1_064, 1_096]
BODIES = [b"a" * 70, b"b" * 5_000, b"c", b"d" * 300]


def header_of(opaque, next_begin, *, code=0, low=0, high=5_000_000, suggested=0, remark="FOUND"):
    fields = {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(next_begin),
        "maxOffset": str(high),
        "minOffset": str(low),
    }
    return Header(code, "JAVA", 479, opaque, FLAG_REPLY, remark, fields)


def answer(opaque, index, *, body=None, codec=HeaderCodec.JSON, next_begin=None, **fields):
    body = BODIES[index] if body is None else body
    next_begin = STARTS[index] + WIDTH if next_begin is None else next_begin
    return encode_frame(Frame(header_of(opaque, next_begin, **fields), body, codec))


def begun(session=None, pull=JOINED):
    """A session with joined pulls under way, and their number and what was sent."""
    session = session or ClientSession(opaque_start=500)
    opaque, parts = session.start(pull, now_ms=0, timeout_ms=1_000)
    return session, opaque, b"".join(parts)


def learned(session):
    """Let a session see a header of the usual shape, by pulls of their own."""
    session, opaque, _ = begun(session)
    for index in range(4):
        receive(session, answer(opaque + index, index))
    completed(session)
    return session


# --- shapes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "name", "queue"), PULLS)
def test_what_real_brokers_answer_has_a_shape(version, name, queue):
    header = golden_frame(version, name).header
    pull = replace(PULL, queue=queue)
    encoded = encode_header(header)
    shape = learn_shape(encoded, pull)
    assert shape is not None
    assert shape.reply.status is PullStatus.FOUND
    fields = {**header.ext_fields, "nextBeginOffset": "9876543210", "minOffset": "77"}
    other = encode_header(replace(header, opaque=2**31 - 1, ext_fields=fields))
    numbers = shape.match(b"xx" + other + b"yy", 2, 2 + len(other))
    assert numbers is not None
    assert numbers[:3] == (b"2147483647", b"9876543210", b"77")


@pytest.mark.parametrize("name", ["pull-no-new", "pull-no-match", "pull-illegal"])
def test_only_found_messages_have_a_shape(name):
    encoded = encode_header(golden_frame("5.3.3", name).header)
    assert learn_shape(encoded, PULL) is None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"no JSON",
        b'{"code":0,"flag":1}',
        encode_header(header_of(1, -5)),
        encode_header(replace(header_of(1, 5), flag=0)),
        encode_header(header_of(1, 5, remark='"opaque":7,')),
        encode_header(header_of(1, 5, code=2)),
    ],
)
def test_odd_headers_have_none(header):
    shape = learn_shape(header, PULL)
    assert shape is None or shape.match(header, 0, len(header)) is not None
    if shape is not None:
        assert b'\\"opaque' in header  # A remark in quotes differs from a name.


def shape_of(header: Header) -> AnswerShape:
    shape = learn_shape(encode_header(header), PULL)
    assert shape is not None
    return shape


@given(st.data())
def test_a_header_that_differs_in_anything_else_does_not_match(data):
    encoded = encode_header(header_of(12, 345, low=6, high=789))
    shape = shape_of(header_of(1, 2))
    index = data.draw(st.integers(0, len(encoded) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = encoded[:index] + bytes([byte]) + encoded[index + 1 :]
    numbers = shape.match(changed, 0, len(changed))
    usual = re.sub(rb"[0-9]", b"0", encoded) == re.sub(rb"[0-9]", b"0", changed)
    if numbers is not None:
        assert usual
        assert changed == encode_header(
            header_of(int(numbers[0]), int(numbers[1]), low=int(numbers[2]), high=int(numbers[3]))
        )


@pytest.mark.parametrize("number", [b"-1", b"007", b"", b"1e3", b"1.5", b'"1"', b"9" * 20])
def test_what_is_no_plain_number_does_not_match(number):
    shape = shape_of(header_of(1, 2))
    encoded = encode_header(header_of(1, 2)).replace(b'"opaque":1', b'"opaque":' + number)
    assert shape.match(encoded, 0, len(encoded)) is None


# --- sending --------------------------------------------------------------------------------


def sent_pulls(sent: bytes):
    server = ServerSession()
    receive(server, sent)
    return asked(server)


@pytest.mark.parametrize("credentials", [None, Credentials("key-of-ours", "secret-of-ours")])
def test_a_server_sees_single_pulls(credentials):
    _, opaque, sent = begun(ClientSession(opaque_start=500, credentials=credentials))
    seen = sent_pulls(sent)
    assert [one.opaque for one in seen] == [opaque + index for index in range(4)]
    assert [one.request for one in seen] == [
        replace(JOINED, start=start, times=1) for start in STARTS
    ]


def test_numbers_that_are_taken_are_passed_over():
    session = ClientSession(opaque_start=2**31 - 3)
    _, first, _ = begun(session)
    _, second, sent = begun(ClientSession(opaque_start=0))
    assert first == 2**31 - 3
    session._opaque_next = 2**31 - 2
    other = start(session)
    assert other == 1
    assert [one.opaque for one in sent_pulls(sent)] == [second + index for index in range(4)]


# --- receiving ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(HeaderCodec))
@settings(max_examples=40)
@given(st.permutations(range(4)), st.integers(1, 700), st.booleans())
def test_answers_in_any_order_and_any_pieces_come_as_one(codec, order, step, knows_shape):
    session = learned(ClientSession()) if knows_shape else ClientSession()
    session, opaque, _ = begun(session)
    sent = b"".join(answer(opaque + index, index, codec=codec) for index in order)
    for at in range(0, len(sent), step):
        assert completed(session) == []
        receive(session, sent[at : at + step])
    (done,) = completed(session)
    assert done.opaque == opaque
    assert done.result == PullReply(
        PullStatus.FOUND, STARTS[-1] + WIDTH, 0, 5_000_000, tuple(BODIES), remark="FOUND"
    )
    assert session.pending_count == 0
    assert session.late_count == 0


def joined_reply(done: Completed) -> PullReply:
    """The answer to a pull, which may have been joined of several."""
    assert isinstance(done.result, PullReply)
    return done.result


ODD: dict[str, dict[str, Any]] = {
    "short": {"next_begin": STARTS[2] + 20},
    "far": {"next_begin": STARTS[2] + 40},
    "empty": {"body": b""},
    "nothing": {"code": 20, "body": b"", "remark": "NO_MATCHED_MESSAGE"},
    "illegal": {"code": 21, "body": b"", "remark": "OFFSET_TOO_SMALL"},
    "busy": {"code": 2, "body": b"", "remark": "[TIMEOUT_CLEAN_QUEUE]"},
}


@pytest.mark.parametrize("knows_shape", [False, True])
@pytest.mark.parametrize("odd", ODD)
def test_one_that_is_not_what_was_planned_leaves_all_as_they_came(odd, knows_shape):
    session = learned(ClientSession()) if knows_shape else ClientSession()
    session, opaque, _ = begun(session)
    for index in (0, 3, 2, 1):
        receive(session, answer(opaque + index, index, **(ODD[odd] if index == 2 else {})))
    (done,) = completed(session)
    assert isinstance(done.result, PullReplies)
    answers = list(done.result.answers)
    assert len(answers) == 4
    found = answers.pop(2)
    if odd == "busy":
        assert isinstance(found, BrokerError)
        assert found.code == 2
    else:
        assert isinstance(found, PullReply)
        assert found.next_begin == ODD[odd].get("next_begin", STARTS[2] + WIDTH)
    for one, index in zip(answers, (0, 1, 3), strict=True):
        assert one == PullReply(
            PullStatus.FOUND,
            STARTS[index] + WIDTH,
            0,
            5_000_000,
            (BODIES[index],),
            remark="FOUND",
        )


def test_the_suggested_replica_and_the_bounds_are_those_of_the_answers():
    session, opaque, _ = begun(learned(ClientSession()))
    for index in range(4):
        receive(session, answer(opaque + index, index, suggested=1, low=3, high=2_000 + index))
    (done,) = completed(session)
    reply = joined_reply(done)
    assert (reply.suggested_broker_id, reply.start, reply.end) == (1, 3, 2_003)


def test_a_server_that_answers_in_ever_new_ways_is_still_understood():
    session = ClientSession()
    for number in range(30):
        session, opaque, _ = begun(session)
        for index in range(4):
            receive(session, answer(opaque + index, index, remark=f"remark {number}"))
        (done,) = completed(session)
        assert joined_reply(done).remark == f"remark {number}"
        assert joined_reply(done).records == tuple(BODIES)


def test_other_answers_come_between_them():
    session, opaque, _ = begun(learned(ClientSession()))
    other = start(session)
    single = session.start(replace(PULL, start=7), now_ms=0, timeout_ms=1_000).opaque
    receive(session, answer(opaque, 0), answer_to(other, 42))
    assert [done.opaque for done in completed(session)] == [other]
    receive(session, answer(single, 0, next_begin=39))
    (alone,) = completed(session)
    assert (alone.opaque, joined_reply(alone).next_begin) == (single, 39)
    receive(session, *(answer(opaque + index, index) for index in (1, 2, 3)))
    assert [done.opaque for done in completed(session)] == [opaque]


def test_a_request_of_the_server_under_their_number_is_not_taken_for_an_answer():
    session, opaque, _ = begun(learned(ClientSession()))
    request = replace(header_of(opaque, STARTS[0] + WIDTH), flag=0)
    receive(session, encode_frame(Frame(request, BODIES[0])))
    assert completed(session) == []
    assert len(session.take_answers()) == 1
    receive(session, *(answer(opaque + index, index) for index in range(4)))
    assert [done.opaque for done in completed(session)] == [opaque]


GIVE_UPS = {
    "expired": lambda session, _: session.expire(1_000),
    "forgotten": lambda session, opaque: session.forget(opaque),
    "abandoned": lambda session, _: session.abandon(),
}


@pytest.mark.parametrize("give_up", GIVE_UPS)
def test_joined_pulls_are_given_up_together(give_up):
    session, opaque, _ = begun(learned(ClientSession()))
    receive(session, answer(opaque, 0), answer(opaque + 1, 1))
    given_up = GIVE_UPS[give_up](session, opaque)
    assert given_up in ([opaque], True)
    receive(session, answer(opaque + 2, 2), answer(opaque + 3, 3))
    assert completed(session) == []
    assert session.late_count == 2
    assert session.pending_count == 0


def test_an_answer_given_up_before_it_is_taken_is_late():
    session, opaque, _ = begun(learned(ClientSession()))
    receive(session, *(answer(opaque + index, index) for index in range(4)))
    assert session.forget(opaque)
    other = start(session)
    receive(session, answer_to(other, 42))
    assert [done.opaque for done in completed(session)] == [other]
    assert session.late_count == 1


def test_they_expire_together_and_not_while_the_server_is_heard():
    session, opaque, _ = begun()
    receive(session, answer(opaque, 0))
    assert session.expire(999) == []
    assert session.expire(1_000) == [opaque]


def test_an_answer_that_comes_twice_is_late_the_second_time():
    session, opaque, _ = begun(learned(ClientSession()))
    receive(session, answer(opaque, 0), answer(opaque, 0))
    assert completed(session) == []
    assert session.late_count == 1
    receive(session, *(answer(opaque + index, index) for index in (1, 2, 3)))
    assert joined_reply(completed(session)[0]).records == tuple(BODIES)


def test_answers_complete_before_a_protocol_error_are_returned():
    session, opaque, _ = begun(learned(ClientSession()))
    parts = [answer(opaque + index, index) for index in range(4)]
    receive(session, b"".join(parts) + b"\x00\x00\x00\x01rest")
    done = session.next_completed()
    assert done is not None
    assert done.opaque == opaque
    with pytest.raises(RemoteProtocolError):
        session.next_completed()


def test_a_broken_answer_fails_by_itself():
    session, opaque, _ = begun(learned(ClientSession()))
    broken = replace(header_of(opaque + 1, 0), ext_fields={"nextBeginOffset": "x"})
    receive(session, answer(opaque, 0), encode_frame(Frame(broken, b"body")))
    receive(session, answer(opaque + 2, 2), answer(opaque + 3, 3))
    (done,) = completed(session)
    assert isinstance(done.result, PullReplies)
    kinds = [isinstance(one, PullReply) for one in done.result.answers]
    assert kinds == [True, False, True, True]
    assert isinstance(done.result.answers[1], RemoteProtocolError)
    assert not isinstance(done.result.answers[1], BrokerError)


def test_very_many_under_way_stay_apart():
    session = learned(ClientSession())
    starts = count(1_000, 10_000)
    under_way = {}
    for begin, _ in zip(starts, range(50), strict=False):
        pull = replace(JOINED, start=begin)
        _, opaque, _ = begun(session, pull)
        under_way[opaque] = begin
    for index in (3, 1, 0, 2):
        for opaque, begin in under_way.items():
            next_begin = begin + (index + 1) * WIDTH
            body = b"%d" % next_begin
            receive(session, answer(opaque + index, index, body=body, next_begin=next_begin))
    for done in completed(session):
        begin = under_way.pop(done.opaque)
        assert joined_reply(done).next_begin == begin + 4 * WIDTH
        assert joined_reply(done).records == tuple(
            b"%d" % (begin + (index + 1) * WIDTH) for index in range(4)
        )
    assert not under_way
