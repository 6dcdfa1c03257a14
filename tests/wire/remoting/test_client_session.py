"""The asking side: who is answered, late and unasked frames, time-outs, oneways, notices."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketmq_wire.errors import (
    FrameTooLargeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from rocketmq_wire.remoting.frames import FRAME_SIZE_MAX, Frame
from rocketmq_wire.remoting.headers import FLAG_ONEWAY, FLAG_REPLY, Header, HeaderCodec
from rocketmq_wire.remoting.session import (
    OPAQUE_MAX,
    ClientSession,
    Completed,
    Deferred,
    ServerSession,
)
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import NotifyMembersChanged
from rocketmq_wire.requests.members import GetClientOffsets
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.offsets import CommitOffset, GetMaxOffset, OffsetReply, OffsetsReply
from support.remoting_sessions import (
    QUEUE,
    answer_to,
    asked,
    completed,
    encode_frame,
    frame_of,
    receive,
    start,
)


def test_a_server_request_that_reuses_a_pending_opaque_completes_nothing():
    client = ClientSession()
    opaque = start(client)
    receive(client, encode_frame(Frame(Header(40, opaque=opaque, flag=FLAG_ONEWAY))))
    receive(client, encode_frame(Frame(Header(220, opaque=opaque))))
    assert completed(client) == []
    assert client.pending_count == 1
    (answer,) = client.take_answers()
    assert client.take_answers() == []
    header = frame_of(answer).header
    assert (header.code, header.opaque, header.flag) == (3, opaque, FLAG_REPLY)
    assert header.remark == " request type 220 not supported"
    receive(client, answer_to(opaque, 5))
    assert completed(client) == [Completed(opaque, OffsetReply(5))]


def test_the_server_notifies_a_client_that_its_group_changed():
    client, server = ClientSession(), ServerSession()
    opaque = start(client)
    first, second = (
        server.notify(NotifyMembersChanged("g")),
        server.notify(NotifyMembersChanged("h")),
    )
    headers = [frame_of(*parts).header for parts in (first, second)]
    assert [(header.code, header.opaque, header.flag) for header in headers] == [
        (40, 0, FLAG_ONEWAY),
        (40, 1, FLAG_ONEWAY),
    ]
    receive(client, *first, *second)
    assert completed(client) == []
    assert client.take_notices() == [NotifyMembersChanged("g"), NotifyMembersChanged("h")]
    assert client.take_notices() == []
    assert client.take_answers() == []
    receive(client, answer_to(opaque, 1))
    assert completed(client) == [Completed(opaque, OffsetReply(1))]


def test_a_notice_that_wants_an_answer_gets_one():
    client = ClientSession()
    receive(client, encode_frame(Frame(Header(40, opaque=9, ext_fields={"consumerGroup": "g"}))))
    completed(client)
    (answer,) = client.take_answers()
    assert (frame_of(answer).header.code, frame_of(answer).header.opaque) == (0, 9)


def test_a_request_of_the_server_is_answered_by_the_responder():
    reply = OffsetsReply({QUEUE: 42})
    seen = []

    def respond(request):
        seen.append(request)
        return reply if isinstance(request, GetClientOffsets) else None

    client = ClientSession(responder=respond)
    fields = {"topic": "orders", "group": "g", "clientAddr": "10.0.0.9:1"}
    receive(client, encode_frame(Frame(Header(221, opaque=7, ext_fields=fields))))
    check = b'{"subscriptionData":{"topic":"T"}}'
    receive(client, encode_frame(Frame(Header(46, opaque=8), check)))
    oneway = Header(221, opaque=9, flag=FLAG_ONEWAY, ext_fields=fields)
    receive(client, encode_frame(Frame(oneway)))
    assert completed(client) == []
    assert seen[0] == seen[2] == GetClientOffsets("g", "orders")
    answered, unknown = map(frame_of, client.take_answers())
    header = answered.header
    assert (header.code, header.opaque, header.flag) == (0, 7, FLAG_REPLY)
    assert b'"messageQueueTable":{{' in bytes(answered.body)
    assert (unknown.header.code, unknown.header.opaque) == (3, 8)


def test_an_answer_that_takes_time_is_sent_when_it_is_known():
    deferred = Deferred()
    client = ClientSession(responder=lambda _: deferred)
    fields = {"topic": "orders", "group": "g"}
    receive(client, encode_frame(Frame(Header(221, opaque=7, ext_fields=fields))))
    assert completed(client) == []
    assert client.take_answers() == []
    deferred.deliver(OffsetsReply({}))
    (answer,) = client.take_answers()
    assert (frame_of(answer).header.code, frame_of(answer).header.opaque) == (0, 7)


def test_a_flood_of_notices_is_bounded():
    client, server = ClientSession(), ServerSession()
    for number in range(1_000):
        receive(client, *server.notify(NotifyMembersChanged(f"g{number}")))
    completed(client)
    notices = client.take_notices()
    assert len(notices) == 256
    assert notices[-1].group == "g999"


def test_requests_that_belong_to_servers_are_refused_by_a_client():
    client = ClientSession()
    receive(client, encode_frame(Frame(Header(106, opaque=9))))
    completed(client)
    (answer,) = client.take_answers()
    assert frame_of(answer).header.code == 3


def test_a_oneway_of_the_server_is_not_answered():
    client = ClientSession()
    receive(client, encode_frame(Frame(Header(40, opaque=1, flag=FLAG_ONEWAY), b"x")))
    assert completed(client) == []
    assert client.take_answers() == []


def test_a_late_answer_is_counted_and_dropped():
    client = ClientSession()
    opaque = start(client, now_ms=100, timeout_ms=50)
    assert client.expire(149) == []
    assert client.expire(150) == [opaque]
    assert client.expire(150) == []
    receive(client, answer_to(opaque, 5))
    assert completed(client) == []
    assert client.late_count == 1


def test_a_second_answer_and_one_without_a_request_are_dropped():
    client = ClientSession()
    opaque = start(client)
    receive(client, answer_to(opaque, 1), answer_to(opaque, 2), answer_to(999, 3))
    assert completed(client) == [Completed(opaque, OffsetReply(1))]
    assert client.late_count == 2


def test_each_request_has_its_own_deadline():
    client = ClientSession()
    slow = start(client, now_ms=0, timeout_ms=30_000)
    quick = start(client, now_ms=10, timeout_ms=100)
    same = start(client, now_ms=60, timeout_ms=50)
    assert client.deadline_ms == 110
    assert sorted(client.expire(29_999)) == [quick, same]
    assert client.deadline_ms == 30_000
    assert client.expire(40_000) == [slow]
    assert client.deadline_ms is None


def test_a_request_that_may_be_slow_waits_on_from_what_was_heard_last():
    client = ClientSession()
    slow = client.start(GetMaxOffset(QUEUE), now_ms=0, timeout_ms=100, slow_ms=350).opaque
    quick = start(client, now_ms=0, timeout_ms=110)
    assert client.expire(100, heard_ms=60) == []
    assert client.deadline_ms == 110
    assert client.expire(110, heard_ms=105) == [quick], "others do not"
    assert client.deadline_ms == 160
    assert client.expire(200, heard_ms=190) == []
    assert client.expire(290, heard_ms=190) == [slow]
    again = client.start(GetMaxOffset(QUEUE), now_ms=0, timeout_ms=100, slow_ms=350).opaque
    assert client.expire(340, heard_ms=340) == []
    assert client.deadline_ms == 350
    assert client.expire(350, heard_ms=350) == [again], "no request waits for ever"


def test_the_deadline_of_an_answered_request_is_forgotten():
    client = ClientSession()
    quick = start(client, timeout_ms=100)
    slow = start(client, timeout_ms=200)
    receive(client, answer_to(quick, 0))
    assert len(completed(client)) == 1
    assert client.deadline_ms == 200
    assert client.expire(150) == []
    assert client.forget(slow)
    assert not client.forget(slow)
    assert client.deadline_ms is None


def test_deadlines_of_answered_requests_do_not_pile_up():
    client = ClientSession()
    start(client, timeout_ms=10)
    for _ in range(5_000):
        client.forget(start(client, timeout_ms=30_000))
    assert len(client._deadlines) < 200
    assert client.deadline_ms == 10


def test_a_broken_connection_gives_up_everything():
    client = ClientSession()
    opaques = [start(client), start(client)]
    assert client.abandon() == opaques
    assert client.pending_count == 0
    assert client.expire(10**12) == []


def test_opaques_wrap_and_skip_those_in_use():
    client = ClientSession(opaque_start=OPAQUE_MAX)
    assert [start(client), start(client), start(client)] == [OPAQUE_MAX, 0, 1]
    again = ClientSession(opaque_start=0)
    start(again)
    again._opaque_next = 0
    assert start(again) == 1


def test_an_expired_number_used_again_has_its_new_deadline():
    client = ClientSession()
    opaque = start(client, timeout_ms=100)
    client.forget(opaque)
    client._opaque_next = opaque
    assert start(client, timeout_ms=500) == opaque
    assert client.expire(100) == []
    assert client.expire(500) == [opaque]


def test_a_oneway_waits_for_nothing():
    client, server = ClientSession(), ServerSession()
    receive(server, *client.start_oneway(CommitOffset("g", QUEUE, 5)))
    assert client.pending_count == 0
    (question,) = asked(server)
    assert question.is_oneway
    assert question.request == CommitOffset("g", QUEUE, 5)
    assert server.answer(question, Done()) == ()


def test_an_unreadable_answer_fails_its_request_alone():
    client = ClientSession()
    first, second = start(client), start(client)
    header = Header(0, opaque=first, flag=FLAG_REPLY, ext_fields={"offset": "many"})
    receive(client, encode_frame(Frame(header)), answer_to(second, 2))
    broken, whole = completed(client)
    assert broken.opaque == first
    assert isinstance(broken.result, RemoteProtocolError)
    assert whole == Completed(second, OffsetReply(2))


def test_answers_in_binary_are_read():
    client = ClientSession()
    opaque = start(client)
    header = Header(0, opaque=opaque, flag=FLAG_REPLY, ext_fields={"offset": "5"})
    receive(client, encode_frame(Frame(header, b"", HeaderCodec.BINARY)))
    assert completed(client) == [Completed(opaque, OffsetReply(5))]


def test_answers_before_the_connection_breaks_are_delivered():
    client = ClientSession()
    opaque = start(client)
    receive(client, answer_to(opaque, 5) + b"HTTP/1.1 400 Bad Request")
    assert client.next_completed() == Completed(opaque, OffsetReply(5))
    with pytest.raises(FrameTooLargeError):
        client.next_completed()
    with pytest.raises(FrameTooLargeError):
        client.next_buffer()


def test_a_request_that_cannot_be_sent_leaves_nothing_pending():
    client = ClientSession()
    group = "g" * FRAME_SIZE_MAX
    with pytest.raises(LocalProtocolError):
        client.start(PullMessages(group, QUEUE, 0, 1), now_ms=0, timeout_ms=1)
    assert client.pending_count == 0
    assert client.deadline_ms is None


def test_the_client_knows_whether_a_frame_is_under_way():
    client = ClientSession()
    opaque = start(client)
    answer = answer_to(opaque, 5)
    receive(client, answer[:7])
    assert not client.is_between_frames
    receive(client, answer[7:])
    assert client.is_between_frames


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_protocol_error_in_a_client(data: bytes):
    session = ClientSession()
    with contextlib.suppress(RemoteProtocolError):
        receive(session, data)
        completed(session)


class Conversations(RuleBasedStateMachine):
    """Whatever happens in whatever order: each request ends exactly once, in one way."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ClientSession(opaque_start=OPAQUE_MAX - 2)
        self.now_ms = 0
        self.deadlines: dict[int, int] = {}
        self.gone: list[int] = []
        self.late = 0

    @rule(timeout_ms=st.integers(1, 50))
    def ask(self, timeout_ms: int) -> None:
        opaque = start(self.client, now_ms=self.now_ms, timeout_ms=timeout_ms)
        assert opaque not in self.deadlines
        self.deadlines[opaque] = self.now_ms + timeout_ms

    @precondition(lambda self: self.deadlines)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        opaque = data.draw(st.sampled_from(sorted(self.deadlines)))
        receive(self.client, answer_to(opaque, opaque))
        assert completed(self.client) == [Completed(opaque, OffsetReply(opaque))]
        del self.deadlines[opaque]
        self.gone.append(opaque)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        opaque = data.draw(st.sampled_from(self.gone))
        if opaque not in self.deadlines:
            receive(self.client, answer_to(opaque, 0))
            assert completed(self.client) == []
            self.late += 1

    @rule(elapsed_ms=st.integers(0, 40))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        due = {opaque for opaque, time_ms in self.deadlines.items() if time_ms <= self.now_ms}
        assert set(self.client.expire(self.now_ms)) == due
        for opaque in due:
            del self.deadlines[opaque]
            self.gone.append(opaque)

    @invariant()
    def agrees(self) -> None:
        assert self.client.pending_count == len(self.deadlines)
        assert self.client.deadline_ms == min(self.deadlines.values(), default=None)
        assert self.client.late_count == self.late


TestConversations = Conversations.TestCase
TestConversations.settings = settings(max_examples=50, stateful_step_count=30)


def test_answers_to_nothing_end_the_connection_and_late_ones_do_not() -> None:
    client = ClientSession()
    late = [start(client) for _ in range(2_000)]
    assert all(client.forget(opaque) for opaque in late)
    for opaque in late:
        receive(client, answer_to(opaque, 5))
    assert completed(client) == []
    for opaque in range(50_000, 51_024):
        receive(client, answer_to(opaque, 5))
    assert completed(client) == []
    receive(client, answer_to(60_000, 5))
    with pytest.raises(RemoteProtocolError, match="answers came without a request"):
        completed(client)
