"""Tools ask the broker about members of groups, and the broker asks the members."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_broker.engine.core.outcomes import AskMembers, Member
from rocketmq_broker.servers.shell.member_calls import MemberCalls
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import ConsumerInfo, QueueId, TopicConfig
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeResult,
    GetClientOffsets,
    GetMembersOffsets,
    GetRunningInfo,
    QueueInfo,
    RelayedReply,
    RunningInfoReply,
)
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.offsets import OffsetsReply
from rocketmq_wire.requests.topics import CreateTopic
from support.remoting_peer import RemotingPeer

ORDERS_0 = QueueId("orders", "broker-a", 0)
INFO = RunningInfoReply({"PROP": "1"}, {ORDERS_0: QueueInfo(7)}, {}, ())
CONSUMED = ConsumeDirectlyReply(ConsumeResult.LATER, 5, remark="why")


@pytest.fixture
def broker():
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield broker


@pytest.fixture
def tool(broker):
    with RemotingPeer(broker.name_server) as peer:
        peer.call(CreateTopic(TopicConfig("orders", 1, 1)))
        yield peer


@pytest.fixture
def asked():
    return []


@pytest.fixture
def answers():
    return {
        GetRunningInfo: INFO,
        ConsumeDirectly: CONSUMED,
        GetClientOffsets: OffsetsReply({ORDERS_0: 41}),
    }


@pytest.fixture
def member(broker, asked, answers):
    """A member that answers; `asked` holds the requests that it got."""

    def respond(request):
        asked.append(request)
        return answers[type(request)]

    with RemotingPeer(broker.name_server, responder=respond) as peer:
        info = ConsumerInfo("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        peer.call(Heartbeat("c@1", (), (info,)))
        # The broker notifies a member that joins.
        assert peer.next_notices() == ["g"]
        yield peer


def answered(tool, member, request):
    """The reply that the tool gets after the member's."""
    opaque = tool.start(request)
    member.answer_next()
    completed = tool.next_completed()
    assert completed.opaque == opaque
    return completed.result


def test_running_info_is_the_members_own_reply(tool, member, asked):
    assert answered(tool, member, GetRunningInfo("g", "c@1", with_stacks=True)) == INFO
    assert asked == [GetRunningInfo("g", "c@1", with_stacks=True)]


def test_a_message_is_handed_to_the_member_with_its_record(tool, member, asked):
    sent = tool.call(SendMessage("p", ORDERS_0, 1, b"one"))
    request = ConsumeDirectly("g", "c@1", sent.message_id, "", b"")
    assert answered(tool, member, request) == CONSUMED
    (seen,) = asked
    assert seen.broker == "broker-a"
    assert decode_record(seen.record)[0].body == b"one"


def test_members_offsets_are_collected_by_client(tool, member):
    reply = answered(tool, member, GetMembersOffsets("g", "orders"))
    assert reply.members == {"c@1": {ORDERS_0: 41}}
    assert tool.call(GetMembersOffsets("g", "orders", "c@2")).members == {}


@pytest.mark.parametrize(
    ("request_", "code", "remark"),
    [
        (GetRunningInfo("g", "c@2"), 1, "<g> <c@2> not online"),
        (GetRunningInfo("absent", "c@1"), 1, "not online"),
        (GetMembersOffsets("absent", "orders"), 206, "not online"),
        (ConsumeDirectly("g", "c@1", "no id", "", b""), 1, "no id"),
        (ConsumeDirectly("g", "c@1", "00" * 16, "", b""), 1, "can not find message"),
    ],
)
@pytest.mark.usefixtures("member")
def test_a_request_for_a_missing_member_is_refused(tool, request_, code, remark):
    with pytest.raises(BrokerError, match=remark) as caught:
        tool.call(request_)
    assert caught.value.code == code


def test_a_member_that_hangs_up_ends_the_wait(tool, member):
    tool.start(GetRunningInfo("g", "c@1"))
    # The member leaves after it received the request.
    member.session.received(member.socket.recv_into(member.session.next_buffer()))
    member.socket.close()
    assert tool.next_completed().result.code == 1


def test_unexpected_replies_are_dropped(tool, member):
    member.session.start(GetRunningInfo("g", "c@1"), now_ms=0, timeout_ms=1)
    stray = RemotingPeer(f"127.0.0.1:{tool.socket.getpeername()[1]}")
    with stray:
        # A reply with an unknown request number.
        parts = stray.session.start_oneway(Heartbeat("c@9", (), ()))
        content = b"".join(parts).replace(b'"flag":2', b'"flag":3')
        assert content != b"".join(parts)
        stray.write([content])
        assert stray.call(Heartbeat("c@9", (), ())) == Done()


def test_calls_have_a_limit_and_unreachable_members_an_answer():
    results: list[Any] = []
    calls = MemberCalls()
    nobody = AskMembers((Member("g", "c@1", 5),), GetClientOffsets("g", "t"), lambda _: Done())
    calls.begin(nobody, results.append)
    crowd = tuple(Member("g", f"c@{number}", 5) for number in range(2_000))
    calls.begin(AskMembers(crowd, nobody.request, lambda _: Done()), results.append)
    refused = AskMembers((), nobody.request, _refuse)
    calls.begin(refused, results.append)
    assert [getattr(result, "code", 0) for result in results] == [0, 2, 16]


def _refuse(answers):
    raise broker_error(16, str(answers))


def test_an_answer_that_is_unreadable_counts_as_none(tool, member, answers):
    answers[GetClientOffsets] = RelayedReply(0, None, {}, b"{no json")
    assert answered(tool, member, GetMembersOffsets("g", "orders")).members == {}
