"""Pulls and sends as Java and others send them, and what they need in answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import (
    RemoteProtocolError,
)
from rocketmq_wire.model import (
    Subscription,
)
from rocketmq_wire.remoting.codec import decode_reply, decode_request, encode_reply, encode_request
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    RecallMessage,
    SendBack,
    SendBatch,
    SendMessage,
    SendReply,
    SendStatus,
)
from support.remoting_exchanges import (
    BATCH,
    INT64,
    NAMELESS,
    PULL,
    QUEUE,
    QUEUES,
    SEND,
    TEXTS,
    header_of,
)


def test_the_smallest_pull_of_a_foreign_client_is_read():
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "3", "queueOffset": "42"}
    fields |= {"maxMsgNums": "32", "sysFlag": "4"}
    expected = PullMessages(group="g", queue=NAMELESS, start=42, count_max=32)
    for code in (11, 361):
        assert decode_request(header_of(code, fields), b"") == expected


def test_a_java_pull_is_read():
    fields = {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "42",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": "41",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
        "bname": "broker-a",
        "ns": "",
        "requestSource": "-1",
    }
    assert decode_request(header_of(11, fields), b"") == PullMessages(
        group="g",
        queue=QUEUE,
        start=42,
        count_max=32,
        subscription_version=1_700_000_000_000,
        uses_registered_subscription=True,
        commit=41,
        suspend_ms=15_000,
    )


def test_commit_and_suspend_are_read_only_when_flagged():
    fields = encode_request(PULL).ext_fields | {"commitOffset": "9", "suspendTimeoutMillis": "8"}
    pull = decode_request(header_of(11, fields), b"")
    assert pull == PULL


def test_a_blank_expression_type_means_tags():
    fields = encode_request(PULL).ext_fields | {"expressionType": " "}
    assert decode_request(header_of(11, fields), b"") == PULL


def test_a_pull_names_the_broker_and_its_byte_limit():
    fields = encode_request(PullMessages("g", QUEUE, 42, 32, 4_000_000)).ext_fields
    assert (fields["bname"], fields["maxMsgBytes"], fields["sysFlag"]) == (
        *("broker-a", "4000000", "4"),
    )
    assert "bname" not in encode_request(PullMessages("g", NAMELESS, 42, 32)).ext_fields


@pytest.mark.parametrize("status", PullStatus)
def test_every_pull_answer_has_the_bounds(status: PullStatus):
    encoded = encode_reply(PULL, PullReply(status, 5, 1, 9))
    assert encoded.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "5",
        "minOffset": "1",
        "maxOffset": "9",
    }
    assert encoded.code == status.value
    assert encoded.remark


def test_records_are_handed_on_without_a_copy():
    body = memoryview(bytearray(b"r" * 1_000_000))
    fields = {"nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9"}
    reply = decode_reply(PULL, Header(0, ext_fields=fields), body)
    assert len(reply.records) == 1
    assert reply.records[0] is body
    parts = (memoryview(b"one"), memoryview(b"two"))
    assert encode_reply(PULL, PullReply(PullStatus.FOUND, 5, 1, 9, parts)).body is parts


def test_an_answer_without_offsets_is_refused():
    with pytest.raises(RemoteProtocolError, match=r"PULL_MESSAGE.*nextBeginOffset"):
        decode_reply(PULL, Header(0), b"")


def test_the_answer_of_a_static_topic_is_refused():
    fields = {"nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9", "offsetDelta": "100"}
    with pytest.raises(RemoteProtocolError, match="static"):
        decode_reply(PULL, Header(0, ext_fields=fields), b"")
    assert decode_reply(PULL, Header(0, ext_fields=fields | {"offsetDelta": "0"}), b"")


def test_a_send_has_the_letters_of_the_second_version():
    assert encode_request(SEND).ext_fields == {
        "a": "p",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "1",
        "g": "1700000000000",
        "h": "7",
        "i": "TAGS\x01TagA\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    assert encode_request(BATCH).ext_fields["m"] == "true"


LONG_NAMES = {
    "producerGroup": "p",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "3",
    "sysFlag": "1",
    "bornTimestamp": "1700000000000",
    "flag": "7",
    "properties": "TAGS\x01TagA\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
    "bname": "broker-a",
}


def test_a_send_with_long_names_is_the_same_send():
    assert decode_request(header_of(10, LONG_NAMES), b"hello") == SEND


def test_a_send_without_its_optional_fields_is_read():
    optional = {"properties", "reconsumeTimes", "unitMode", "batch", "bname"}
    fields = {name: value for name, value in LONG_NAMES.items() if name not in optional}
    assert decode_request(header_of(10, fields), b"") == SendMessage(
        group="p", queue=NAMELESS, born_ms=1_700_000_000_000, body=b"", flag=7, sys_flag=1
    )


def test_the_batch_field_makes_a_batch_of_any_send_code():
    fields = encode_request(BATCH).ext_fields
    assert decode_request(header_of(310, fields), b"entries") == BATCH
    assert decode_request(header_of(320, fields | {"m": "false"}), b"entries") == BATCH
    long_names = LONG_NAMES | {"batch": "true"}
    assert isinstance(decode_request(header_of(10, long_names), b"entries"), SendBatch)


def test_a_body_to_send_is_passed_on_without_a_copy():
    body = memoryview(bytes(5))
    request = SendMessage(group="p", queue=QUEUE, born_ms=0, body=body)
    encoded = encode_request(request)
    assert encoded.body[0] is body
    decoded = decode_request(header_of(310, encoded.ext_fields), body)
    assert isinstance(decoded, SendMessage)
    assert decoded.body is body


def test_a_send_answer_carries_what_java_producers_read():
    fields = encode_reply(SEND, SendReply(SendStatus.OK, "0A00", 3, 42, "UNIQ")).ext_fields
    assert fields == {
        "msgId": "0A00",
        "queueId": "3",
        "queueOffset": "42",
        "transactionId": "UNIQ",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_the_common_field_names_the_broker_where_the_short_name_does_not():
    fields = encode_request(SEND).ext_fields
    fields["bname"] = fields.pop("n")
    assert decode_request(header_of(310, fields), b"hello") == SEND


def test_an_attempt_limit_counts_only_from_clients_that_mean_it() -> None:
    fields = {"offset": "7", "group": "g", "delayLevel": "3", "maxReconsumeTimes": "5"}
    assert decode_request(header_of(36, fields, version=121), b"") == SendBack(
        "g", 7, 3, attempts_max=5
    )
    assert decode_request(header_of(36, fields, version=120), b"") == SendBack("g", 7, 3)


@given(
    st.builds(
        PullMessages,
        group=TEXTS,
        queue=QUEUES,
        start=INT64,
        count_max=st.integers(-(2**31), 2**31 - 1),
        bytes_max=st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        subscription=st.builds(Subscription, TEXTS),
        subscription_version=INT64,
        commit=st.one_of(st.none(), INT64),
        suspend_ms=st.one_of(st.none(), st.integers(0, 2**31)),
    )
)
def test_any_pull_survives_the_wire(pull: PullMessages):
    encoded = encode_request(pull)
    assert decode_request(header_of(11, encoded.ext_fields), b"") == pull


RECALL_HANDLE = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDEgMEE="


def test_a_javas_recall_is_read() -> None:
    fields = {"producerGroup": "p", "recallHandle": RECALL_HANDLE, "topic": "orders"}
    assert decode_request(header_of(370, fields), b"") == RecallMessage(
        "orders", RECALL_HANDLE, "p"
    )
