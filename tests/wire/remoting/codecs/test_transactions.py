"""Transactions and recall as Java clients and brokers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.records.handles import RecallHandle
from rocketmq_wire.remoting.codec import decode_request, encode_request
from rocketmq_wire.requests.messages import RecallMessage
from rocketmq_wire.requests.transactions import (
    CheckTransaction,
    EndTransaction,
    Resolution,
    immunity_ms,
    is_half,
)
from support.remoting_exchanges import header_of

NAMES = st.text("abcZ09_-%|", min_size=1, max_size=20)


def test_a_java_producers_end_is_read() -> None:
    fields = {
        "commitLogOffset": "1234",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "7F00000100002A9F0000000000000",
        "producerGroup": "p",
        "tranStateTableOffset": "5",
        "transactionId": "0A",
    }
    assert decode_request(header_of(37, fields), b"") == EndTransaction(
        "p", 5, 1234, Resolution.COMMIT, "7F00000100002A9F0000000000000", "0A"
    )


def test_an_end_of_4_9_names_no_topic_and_one_of_5_names_its_broker() -> None:
    end = EndTransaction("p", 5, 9, Resolution.ROLLBACK)
    assert encode_request(end).ext_fields == {
        "producerGroup": "p",
        "tranStateTableOffset": "5",
        "commitLogOffset": "9",
        "commitOrRollback": "12",
        "fromTransactionCheck": "false",
        "msgId": "",
        "transactionId": "",
    }
    named = EndTransaction(
        "p", 5, 9, Resolution.ROLLBACK, topic="t", broker="b", is_from_check=True
    )
    fields = encode_request(named).ext_fields
    assert (fields["topic"], fields["bname"], fields["fromTransactionCheck"]) == ("t", "b", "true")


def test_a_brokers_question_carries_the_record() -> None:
    fields = {
        "bname": "broker-a",
        "commitLogOffset": "1234",
        "msgId": "0A",
        "offsetMsgId": "7F00",
        "topic": "orders",
        "tranStateTableOffset": "5",
        "transactionId": "0A",
    }
    assert decode_request(header_of(39, fields), memoryview(b"record")) == CheckTransaction(
        5, 1234, b"record", "orders", "0A", "0A", "7F00", "broker-a"
    )


HANDLE = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDEgMEE="


def test_a_handle_is_written_as_java_writes_it() -> None:
    handle = RecallHandle("orders", "broker-a", 1_700_000_000_001, "0A")
    assert handle.text() == HANDLE
    assert RecallHandle.parse(HANDLE) == handle
    assert RecallHandle.parse(HANDLE.rstrip("=")) == handle


def test_a_javas_recall_is_read() -> None:
    fields = {"producerGroup": "p", "recallHandle": HANDLE, "topic": "orders"}
    assert decode_request(header_of(370, fields), b"") == RecallMessage("orders", HANDLE, "p")


@given(NAMES, NAMES, st.integers(0, 10**17), NAMES)
def test_every_handle_survives(topic: str, broker: str, due_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, due_ms, key)
    assert RecallHandle.parse(handle.text()) == handle


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.hex()))
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a recall handle"):
        RecallHandle.parse(text)


@pytest.mark.parametrize(
    ("value", "sys_flag", "expected"),
    [("true", 0x4, True), ("TRUE", 0, True), ("false", 0x4, False), ("true", 0x8, False)],
)
def test_the_property_makes_a_half_message(value: str, sys_flag: int, expected: bool) -> None:
    assert is_half({"TRAN_MSG": value}, sys_flag) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [("60", 60_000), ("0", 0), ("-1", None), ("x", None), ("", None)]
)
def test_immunity_is_in_seconds(text: str, expected: int | None) -> None:
    assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) == expected
