"""Transactions and recall as Java clients and brokers write them."""

from __future__ import annotations

from rocketmq_wire.remoting.codec import decode_request, encode_request
from rocketmq_wire.requests.transactions import (
    CheckTransaction,
    EndTransaction,
    Resolution,
)
from support.remoting_exchanges import header_of


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
