"""Chunks and streams: what the bulk service says about ranges of records, and back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError, TopicNotFoundError
from rocketmq_wire.grpc.bulk import records
from rocketmq_wire.grpc.bulk.records import PullRange, PullRecords, RecordChunk
from rocketmq_wire.grpc.bulk.shapes import Shape
from rocketmq_wire.limits import STREAM_RANGES_MAX
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.messages import PullReply, PullStatus, SendReply, SendStatus
from rocketmq_wire.stubs import message_class

QUEUE = QueueId("orders", "broker-a", 3)
FOUND = RecordChunk(
    start=100,
    end=102,
    queue_start=5,
    queue_end=900,
    range_index=2,
    records=(b"first", b"second"),
    sizes=struct.pack("<2i", 5, 6),
)


def test_the_protobuf_library_reads_a_chunk_by_the_proto_file() -> None:
    message = message_class("RecordChunk").FromString(records.encode_chunk(FOUND))
    assert message.range_index == 2
    assert (message.start, message.end) == (100, 102)
    assert (message.queue_start, message.queue_end) == (5, 900)
    assert message.status == 1
    assert message.records == b"firstsecond"
    assert message.sizes == struct.pack("<2i", 5, 6)


def test_a_chunks_records_are_a_view_over_the_received_bytes() -> None:
    content = records.encode_chunk(FOUND)
    chunk = records.decode_chunk(content)
    (body,) = chunk.records
    assert isinstance(body, memoryview)
    assert body.obj is content
    assert bytes(body) == b"firstsecond"


@given(
    st.builds(
        RecordChunk,
        start=st.integers(0, 2**62),
        end=st.integers(0, 2**62),
        status=st.sampled_from(PullStatus),
        queue_start=st.integers(0, 2**62),
        queue_end=st.integers(0, 2**62),
        range_index=st.integers(0, 2**31 - 1),
        records=st.just(()) | st.binary(min_size=1).map(lambda body: (body,)),
        sizes=st.none() | st.binary(min_size=4),
        remark=st.text(st.characters(codec="utf-8"), max_size=9),
        suggested_broker_id=st.integers(0, 9),
    )
)
def test_a_chunk_comes_back_as_it_was(chunk: RecordChunk) -> None:
    assert records.decode_chunk(records.encode_chunk(chunk)) == chunk


def test_a_chunk_with_an_error_comes_back_with_its_class_and_raises_it_as_a_reply() -> None:
    failed = RecordChunk(start=1, end=1, status=None, error=TopicNotFoundError(17, "gone"))
    found = records.decode_chunk(records.encode_chunk(failed))
    assert found.ends_range
    with pytest.raises(TopicNotFoundError, match="gone"):
        records.reply_of_chunk(found)


@pytest.mark.parametrize(
    ("status", "ends"),
    [
        (PullStatus.FOUND, False),
        (PullStatus.NO_MATCHED_MESSAGE, False),
        (PullStatus.NO_NEW_MESSAGE, True),
        (PullStatus.OFFSET_ILLEGAL, True),
    ],
)
def test_only_a_chunk_with_nothing_behind_it_ends_its_range(status: PullStatus, ends: bool) -> None:
    assert RecordChunk(start=0, end=0, status=status).ends_range is ends


def test_a_chunk_has_either_a_status_or_an_error() -> None:
    chunk, status = message_class("RecordChunk"), message_class("Status")
    for message in (chunk(), chunk(status=77), chunk(status=1, error=status(code=17))):
        with pytest.raises(RemoteProtocolError, match="a chunk has status"):
            records.decode_chunk(message.SerializeToString())


def test_a_pulls_answer_and_its_chunk_say_the_same() -> None:
    reply = PullReply(PullStatus.FOUND, 102, 5, 900, (b"ab",), b"\2\0\0\0", 1, "FOUND")
    assert records.reply_of_chunk(records.chunk_of_reply(reply, start=100)) == reply


@given(
    st.builds(
        PullRecords,
        group=st.text(st.characters(codec="utf-8"), max_size=9),
        ranges=st.lists(
            st.builds(
                lambda start, count: PullRange(QUEUE, start, None if count < 0 else start + count),
                st.integers(0, 2**60),
                st.integers(-1, 2**60),
            ),
            min_size=1,
            max_size=4,
        ).map(tuple),
        subscription=st.just(Subscription("a || b")),
        chunk_size=st.integers(0, 2**31 - 1),
        chunk_count_max=st.integers(0, 2**31 - 1),
        suspend_ms=st.integers(0, 2**60),
    )
)
def test_a_stream_of_ranges_comes_back_as_it_was(request: PullRecords) -> None:
    assert records.decode_pull_records(records.PULL_RECORDS.encode(request)) == request


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "1 to 10000 ranges, not 0"),
        ({"ranges": [{"start": -1}]}, "not a range"),
        ({"ranges": [{"start": 5, "end": 4}]}, "not a range"),
        ({"ranges": [{"start": 5}], "chunk_size": -1}, "cannot be negative"),
        ({"ranges": [{"start": 5}], "suspend_ms": -1}, "cannot be negative"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(fields: dict[str, object], complaint: str) -> None:
    content = message_class("PullRecordsRequest")(**fields).SerializeToString()
    with pytest.raises(RemoteProtocolError, match=complaint):
        records.decode_pull_records(content)


def test_too_many_ranges_are_refused_before_they_become_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = message_class("PullRecordsRequest")(ranges=[{}] * (STREAM_RANGES_MAX + 1))
    monkeypatch.delattr(Shape, "from_message")
    with pytest.raises(RemoteProtocolError, match="not 10001"):
        records.decode_pull_records(message.SerializeToString())


def test_an_expression_that_is_left_out_selects_everything() -> None:
    message = message_class("PullRecordsRequest")(ranges=[{"start": 5}])
    assert records.decode_pull_records(message.SerializeToString()).subscription.selects_all


def test_a_refused_send_keeps_its_order_in_a_stream() -> None:
    sent = SendReply(SendStatus.OK, "7F000001", 3, 42, None, 1_000)
    assert records.decode_send_outcome(records.encode_send_outcome(sent)) == sent
    refused = records.decode_send_outcome(
        records.encode_send_outcome(TopicNotFoundError(17, "no topic"))
    )
    assert type(refused) is TopicNotFoundError


def test_a_sends_answer_without_a_status_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="answered with status 0"):
        records.decode_send_outcome(b"")
