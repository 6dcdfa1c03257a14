"""Pop consumption on the wire: handles, side tables, bit sets, revive records, every request."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.records.handles import (
    ReceiptHandle,
    RetryKind,
)
from rocketmq_wire.remoting.codec import decode_reply, decode_request, encode_reply, encode_request
from rocketmq_wire.remoting.codecs.pop import decode_bits, encode_bits
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.contract import CountReply, Done, Reply, Request
from rocketmq_wire.requests.groups import (
    Assignment,
    AssignmentReply,
    ConsumeMode,
    QueryAssignment,
    SetConsumeMode,
)
from rocketmq_wire.requests.pop import (
    AckMessage,
    AckMessages,
    AckSpan,
    AwaitMessages,
    AwaitMessagesReply,
    ChangeInvisibleTime,
    GetPollingCount,
    InitMode,
    InvisibleTimeReply,
    PeekMessages,
    PopMessages,
    PoppedSpan,
    PopReply,
    PopStatus,
    ack_of,
    ack_spans,
    change_of,
)
from support.remoting_exchanges import ask, header_of

QUEUE = QueueId("orders", "broker-a", 3)
HANDLE = "42 1700000000000 60000 5 0 broker-a 3 44"
RETRIED = "7 1700000000000 60000 5 1 broker-a 0 9"
SPAN = AckSpan("g", "orders", RetryKind.NONE, 3, 5, 42, 1_700_000_000_000, 60_000, (42, 45, 51))
RECORDS = (b"two records",)
EXCHANGES: list[tuple[Request[Reply], int, Reply]] = [
    (
        PopMessages("g", QUEUE, 32, 60_000),
        200050,
        PopReply(
            PopStatus.FOUND,
            *(1_700_000_000_000, 60_000, 5, 17),
            (
                PoppedSpan(RetryKind.V1, 0, 7, (7, 9)),
                PoppedSpan(RetryKind.NONE, 3, 42, (42,)),
                PoppedSpan(RetryKind.NONE, 0, 0, (0, 1)),
            ),
            RECORDS,
            remark="FOUND",
        ),
    ),
    (
        PopMessages(
            group="g",
            queue=QueueId("orders", "", -1),
            count_max=1,
            invisible_ms=5_000,
            poll_ms=15_000,
            born_ms=1_700_000_000_000,
            init_mode=InitMode.MAX,
            subscription=Subscription("a > 1", "SQL92"),
            is_orderly=True,
            attempt_id="a-1",
        ),
        200050,
        PopReply(
            PopStatus.FOUND,
            *(1_700_000_000_000, 5_000, 999, 0),
            (PoppedSpan(RetryKind.NONE, 3, 42, (42, 44), (2, 0)),),
            RECORDS,
            remark="FOUND",
        ),
    ),
    (
        PopMessages("g", QUEUE, 32, 60_000),
        200050,
        PopReply(PopStatus.POLLING_FULL, 1, 2, 3, 4, remark="NO_MESSAGE_IN_QUEUE"),
    ),
    (
        PeekMessages("g", QUEUE, 8),
        200052,
        PopReply(PopStatus.NOT_FOUND, 1, 0, 0, 0, remark="NO_MESSAGE_IN_QUEUE"),
    ),
    (AckMessage("g", QUEUE, 44, HANDLE), 200051, Done()),
    (AckMessages("broker-a", (SPAN,)), 200151, Done()),
    (AckMessages("broker-a", ()), 200151, Done()),
    (
        ChangeInvisibleTime("g", QUEUE, 44, HANDLE, 10_000),
        200053,
        InvisibleTimeReply(1_700_000_005_000, 10_000, 5),
    ),
    (AwaitMessages("g", QUEUE), 200054, AwaitMessagesReply(True)),
    (AwaitMessages("g", QUEUE, 20_000, 5, True, "a-1"), 200054, AwaitMessagesReply(False, True)),
    (GetPollingCount("g", QUEUE), 200055, CountReply(1024)),
    (QueryAssignment("g", "orders", "c@1"), 400, AssignmentReply(None)),
    (QueryAssignment("g", "orders", "c@1"), 400, AssignmentReply(())),
    (
        QueryAssignment("g", "orders", "c@1", "AVG_BY_CIRCLE", "BROADCASTING"),
        400,
        AssignmentReply(
            (
                Assignment(ConsumeMode.POP, QueueId("orders", "broker-a", -1)),
                Assignment(ConsumeMode.PULL, QUEUE),
            )
        ),
    ),
    (SetConsumeMode("g", "orders", ConsumeMode.POP, 8), 401, Done()),
]


@pytest.mark.parametrize(("asked", "code"), [(asked, code) for asked, code, _ in EXCHANGES])
def test_every_request_survives_the_wire(asked: Request[Reply], code: int):
    encoded = encode_request(asked)
    assert encoded.code == code
    header = header_of(encoded.code, encoded.ext_fields)
    assert decode_request(header, b"".join(encoded.body)) == asked


@pytest.mark.parametrize(("asked", "reply"), [(asked, reply) for asked, _, reply in EXCHANGES])
def test_every_reply_survives_the_wire(asked: Request[Reply], reply: Reply):
    assert ask(asked, reply) == reply


@pytest.mark.parametrize("asked", [asked for asked, _, _ in EXCHANGES])
def test_a_broken_field_is_refused_or_has_a_meaning(asked: Request[Reply]):
    encoded = encode_request(asked)
    for name in encoded.ext_fields:
        for value in ("", "x", "9" * 400, str(2**63), "1.5", "\ud800"):
            refusal = refusal_of(encoded.code, {**encoded.ext_fields, name: value})
            assert refusal is None or refusal.code == 1


def refusal_of(code: int, fields: dict[str, str]) -> BrokerError | None:
    """What a broker answers to a request it cannot read; any other error is the test's failure."""
    try:
        decode_request(header_of(code, fields), b"[]")
    except BrokerError as error:
        return error
    return None


def test_the_golden_bit_set_is_read_and_written():
    assert encode_bits((100, 103, 109), 100) == "CQI="
    assert decode_bits("CQI=", 100) == (100, 103, 109)


def test_a_java_batch_of_acks_is_read():
    body = (
        b'{"acks":[{"b":"CQI=","c":"g","it":60000,"pt":1700000000000,"q":3,"r":"0","rq":5,'
        b'"so":42,"t":"orders"}],"brokerName":"broker-a"}'
    )
    assert decode_request(header_of(200151, {}), body) == AckMessages("broker-a", (SPAN,))
    assert json.loads(
        bytes(encode_request(AckMessages("broker-a", (SPAN,))).body[0])
    ) == json.loads(body)


INT62 = st.integers(-(2**62), 2**62)


@given(st.sets(st.integers(0, 4_095)), INT62)
def test_bit_sets_survive(offsets: set[int], start: int):
    wanted = tuple(start + offset for offset in sorted(offsets))
    assert decode_bits(encode_bits(wanted, start), start) == wanted


@pytest.mark.parametrize("text", ["?", "CQI", "A" * 1_000])
def test_a_hostile_bit_set_is_refused(text: str):
    with pytest.raises(RemoteProtocolError):
        decode_bits(text, 0)


def test_an_answer_in_javas_words_is_read():
    fields = {
        "popTime": "1700000000000",
        "invisibleTime": "60000",
        "reviveQid": "5",
        "restNum": "3",
        "startOffsetInfo": "1 0 7;0 3 42",
        "msgOffsetInfo": "1 0 7,9;0 3 42,43",
        "orderCountInfo": "0 qo3%43 2;0 3 0",
    }
    asked = PopMessages("g", QUEUE, 32, 60_000)
    reply = EXCHANGES[0][2]
    encoded = encode_reply(asked, reply)
    assert encoded.ext_fields["startOffsetInfo"] == "1 0 7;0 3 42;0 0 0"
    assert encoded.ext_fields["msgOffsetInfo"] == "1 0 7,9;0 3 42;0 0 0,1"
    read = PopReply(PopStatus.FOUND, 1_700_000_000_000, 60_000, 5, 3)
    from_java = ask_with(asked, fields)
    assert (from_java.pop_ms, from_java.rest_count) == (read.pop_ms, read.rest_count)
    assert [handle.text() for handle in from_java.handles("broker-a")] == [
        "7 1700000000000 60000 5 1 broker-a 0 7",
        RETRIED,
        "42 1700000000000 60000 5 0 broker-a 3 42",
        "42 1700000000000 60000 5 0 broker-a 3 43",
    ]
    assert from_java.spans[1].attempts == (0, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"msgOffsetInfo": "0 3 42"},
        {"msgOffsetInfo": "0 3 42", "startOffsetInfo": "0 4 42"},
        {"msgOffsetInfo": "9 3 42", "startOffsetInfo": "9 3 42"},
        {"msgOffsetInfo": "0 3 x", "startOffsetInfo": "0 3 42"},
        {"msgOffsetInfo": "0 3", "startOffsetInfo": "0 3 42"},
        {"msgOffsetInfo": "0 3 1;0 3 2", "startOffsetInfo": "0 3 1"},
    ],
)
def test_broken_side_tables_are_refused(fields: dict[str, str]):
    with pytest.raises(RemoteProtocolError):
        ask_with(PopMessages("g", QUEUE, 32, 60_000), fields)


def ask_with(asked: PopMessages, fields: dict[str, str]) -> PopReply:
    """The reply that a frame of code 0 with these fields stands for."""
    return decode_reply(asked, Header(0, flag=1, ext_fields=fields), b"")


def test_acks_name_the_topic_that_holds_the_message():
    assert ack_of("g", "orders", RETRIED) == AckMessage(
        "g", QueueId("%RETRY%g_orders", "broker-a", 0), 9, RETRIED
    )
    change = change_of("g", "orders", HANDLE, 10_000)
    assert (change.queue, change.offset) == (QUEUE, 44)
    renewed = InvisibleTimeReply(1_700_000_005_000, 10_000, 5).handle_after(
        ReceiptHandle.parse(HANDLE)
    )
    assert renewed.text() == "44 1700000005000 10000 5 0 broker-a 3 44"


def test_acks_of_a_checkpoint_are_joined():
    handles = [ReceiptHandle.parse(text) for text in (HANDLE, RETRIED, HANDLE.replace("44", "42"))]
    (first, second) = ack_spans("g", [("orders", handle) for handle in handles])
    assert (first.offsets, first.stored_topic) == ((42, 44), "orders")
    assert (second.offsets, second.stored_topic) == ((9,), "%RETRY%g_orders")
