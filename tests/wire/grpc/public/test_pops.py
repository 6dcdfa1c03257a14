"""What a popping client says to the public service, and the records that it makes of messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    CorruptRecordError,
    NotAuthorizedError,
    RemoteProtocolError,
    TopicNotFoundError,
)
from rocketmq_wire.grpc.public import pops
from rocketmq_wire.grpc.public.messages import SYSTEM_PROPERTIES, Delivery, incoming_of
from rocketmq_wire.grpc.public.status import make_status
from rocketmq_wire.model import Host, StoredMessage, Subscription
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.records.record import body_crc, decode_record
from rocketmq_wire.stubs import public

HANDLE = ReceiptHandle(7, 1_000, 60_000, 3, RetryKind.NONE, "broker-a", 2, 9, 400)
HOST = Host(bytes((10, 0, 0, 1)), 10_911)
NAMES = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=8).filter(
    lambda name: name not in SYSTEM_PROPERTIES
)
VALUES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)


def stored(body: bytes = b"hello", sys_flag: int = 0, **named: str) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        body=body,
        properties={"UNIQ_KEY": "id-1", **named},
        flag=0,
        queue_index=2,
        queue_offset=9,
        physical_offset=400,
        sys_flag=sys_flag,
        born_ms=1_700_000_000_123,
        born_host=HOST,
        store_ms=1_700_000_000_456,
        store_host=HOST,
        reconsume_times=1,
        prepared_transaction_offset=0,
        body_crc=body_crc(body),
        store_size=0,
    )


def frames_of(*messages: Any, code: PublicCode = PublicCode.OK) -> list[bytes]:
    response = public.message_class("ReceiveMessageResponse")
    first = response(status=make_status(code))
    frames = [first, *(response(message=message) for message in messages)]
    return [bytes(frame.SerializeToString()) for frame in frames]


def sent(message: StoredMessage) -> Any:
    return incoming_of(message, Delivery("orders", HANDLE.text(), 60_000, 2))


@given(st.binary(max_size=64), st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from((0, 1)))
def test_a_message_becomes_the_record_that_it_was(
    body: bytes, named: dict[str, str], sys_flag: int
) -> None:
    message = stored(body, sys_flag, TAGS="TagA", KEYS="a b", __SHARDINGKEY="g")
    message = replace(message, properties={**message.properties, **named})
    records, handles = pops.received("orders", frames_of(sent(message)))
    found, end = decode_record(records)
    assert (handles, end) == ((HANDLE,), len(records))
    added = {"__BORNHOST": "10.0.0.1"}
    assert found.properties == {**message.properties, **added}
    for name in (
        *("topic", "body", "queue_index", "queue_offset", "physical_offset", "sys_flag"),
        *("born_ms", "store_ms", "store_host", "reconsume_times"),
    ):
        assert getattr(found, name) == getattr(message, name), name


def test_a_record_has_the_queue_and_offset_of_its_handle() -> None:
    """A retry topic's message says where it was first; what acknowledges it counts."""
    message = sent(stored())
    handle = HANDLE._replace(retry=RetryKind.V1, queue_index=0, offset=77)
    message.system_properties.receipt_handle = handle.text()
    records, handles = pops.received("orders", frames_of(message))
    found, _ = decode_record(records)
    assert (found.queue_index, found.queue_offset, handles) == (0, 77, (handle,))


@pytest.mark.parametrize(("kind", "digest"), [(1, "0D4A1185"), (1, "d4a1185"), (0, "")])
def test_digests_of_every_kind_are_compared(kind: int, digest: str) -> None:
    message = sent(stored(b"hello world"))
    message.system_properties.body_digest.type = kind
    message.system_properties.body_digest.checksum = digest
    assert pops.received("orders", frames_of(message))[1] == (HANDLE,)
    if kind:
        message.body = b"hello w0rld"
        with pytest.raises(CorruptRecordError, match="not as it was sent"):
            pops.received("orders", frames_of(message))


def test_a_body_damaged_in_the_store_fails_its_digest() -> None:
    message = sent(replace(stored(b"hello w0rld"), body_crc=body_crc(b"hello world")))
    with pytest.raises(CorruptRecordError, match="not as it was sent"):
        pops.received("orders", frames_of(message))


def test_nothing_there_is_no_error() -> None:
    assert pops.received("orders", frames_of(code=PublicCode.MESSAGE_NOT_FOUND)) == (b"", ())


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (PublicCode.TOPIC_NOT_FOUND, TopicNotFoundError),
        (PublicCode.UNAUTHORIZED, NotAuthorizedError),
        (PublicCode.TOO_MANY_REQUESTS, BrokerBusyError),
        (PublicCode.ILLEGAL_INVISIBLE_TIME, BrokerError),
    ],
)
def test_a_refusal_is_the_error_that_a_broker_would_give(
    code: PublicCode, error: type[BrokerError]
) -> None:
    with pytest.raises(error) as raised:
        pops.received("orders", frames_of(code=code))
    assert str(int(code)) in raised.value.remark


def test_an_unreadable_message_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        pops.received("orders", [b"\xff\xff\xff"])
    message = sent(stored())
    message.system_properties.receipt_handle = "nonsense"
    with pytest.raises(RemoteProtocolError, match="not a receipt handle"):
        pops.received("orders", frames_of(message))


def test_one_readable_queue_of_each_broker_is_returned() -> None:
    response = public.message_class("QueryRouteResponse")(status=make_status(PublicCode.OK))
    for name, permission in (("b", 4), ("a", 2), ("b", 4), ("writes-only", 3)):
        queue = response.message_queues.add(permission=permission)
        queue.broker.name = name
    found = pops.brokers_of("orders", bytes(response.SerializeToString()))
    assert [name for name, _ in found] == ["a", "b"]
    request = public.parse(
        "ReceiveMessageRequest",
        pops.receive(
            "g", found[0][1], Subscription("TagA"), count_max=16, invisible_ms=10_000, poll_ms=5_000
        ),
    )
    assert request.message_queue.broker.name == "a"
    assert request.message_queue.topic.name == "orders"
    assert (request.filter_expression.type, request.filter_expression.expression) == (1, "TagA")
    assert request.invisible_duration.seconds == 10


def test_failed_acknowledgements_are_returned_as_errors() -> None:
    response = public.message_class("AckMessageResponse")(
        status=make_status(PublicCode.MULTIPLE_RESULTS)
    )
    response.entries.add(status=make_status(PublicCode.OK))
    response.entries.add(status=make_status(PublicCode.INVALID_RECEIPT_HANDLE))
    (error,) = pops.ack_errors(bytes(response.SerializeToString()))
    assert error.code == 208
