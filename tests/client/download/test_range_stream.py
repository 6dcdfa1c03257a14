"""A download through one stream: a pure state machine, with time as an argument."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.download.contract import RangeChunk, ReadLimits, ReadSpec
from rocketmq_client.download.range_stream import (
    CHUNK_SIZE_MAX,
    CHUNK_SIZE_MIN,
    WINDOW_SIZE_MAX,
    WINDOW_SIZE_MIN,
    RangeStream,
    first_hole,
)
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason, Standing
from rocketmq_client.retry import Backoff, RetryPolicy
from rocketmq_wire.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionLostError,
    DeadlineExceededError,
    LocalProtocolError,
    NotAuthorizedError,
    RemoteProtocolError,
    TopicNotFoundError,
)
from rocketmq_wire.grpc.bulk.records import PullRange, RecordChunk
from rocketmq_wire.model import Bounds, OffsetRange, Subscription
from rocketmq_wire.requests.messages import PullStatus
from support.fake_shell import queue, record

LIMITS = ReadLimits(outage_ms=10_000)
SPEC = ReadSpec("group", limits=LIMITS)
SKIPPING = ReadSpec("group", limits=LIMITS, loss_policy=LossPolicy.SKIP)
FILTERED = ReadSpec("group", Subscription("odd"), limits=LIMITS)
RANGE = OffsetRange(queue(0), 100, 200)
OTHER = OffsetRange(queue(1), 0, 50)


def backoff_of(spec: ReadSpec) -> Backoff:
    return Backoff(RetryPolicy(100, 100).within(spec.limits.outage_ms))


def stream_of(*ranges: OffsetRange, spec: ReadSpec = SPEC) -> RangeStream:
    stream = RangeStream(ranges or (RANGE,), spec, backoff=backoff_of(spec))
    stream.next_stream(0)
    return stream


def found(start: int, end: int, **facts: Any) -> RecordChunk:
    gone = facts.pop("gone", ())
    offsets = [n for n in range(start, end) if n not in gone]
    body = b"".join(record(n) for n in offsets)
    sizes = struct.pack(f"<{len(offsets)}i", *[100] * len(offsets))
    facts = {"queue_start": 0, "queue_end": 1_000, "sizes": sizes, **facts}
    return RecordChunk(start, end, records=(body,), **facts)


def said(status: PullStatus, start: int, end: int, **facts: Any) -> RecordChunk:
    return RecordChunk(start, end, status=status, **facts)


def extent(chunk: RangeChunk | None) -> tuple[int, int]:
    assert chunk is not None
    return chunk.start, chunk.end


# --- the good way ---------------------------------------------------------------------------


def test_the_stream_asks_for_all_ranges_that_hold_something() -> None:
    empty = OffsetRange(queue(2), 7, 7)
    stream = stream_of(empty, RANGE, empty, OTHER)
    request = stream.next_stream(0)
    assert request.ranges == (PullRange(queue(0), 100, 200), PullRange(queue(1), 0, 50))
    assert request.group == "group"
    assert (request.chunk_size, request.chunk_count_max) == (32_768 * 135 * 15 // 16, 10_000)


def test_nothing_wanted_is_finished_at_once() -> None:
    assert RangeStream((), SPEC, backoff=backoff_of(SPEC)).is_finished
    assert RangeStream((OffsetRange(queue(0), 5, 5),), SPEC, backoff=backoff_of(SPEC)).is_finished


def test_chunks_are_handed_on_until_every_range_is_covered() -> None:
    stream = stream_of(RANGE, OTHER)
    first = stream.on_chunk(found(100, 150), 0)
    assert first is not None
    assert (first.queue, extent(first), first.expected_count) == (queue(0), (100, 150), 50)
    assert extent(stream.on_chunk(found(150, 200), 0)) == (150, 200)
    assert not stream.is_finished
    last = stream.on_chunk(found(0, 50, range_index=1), 0)
    assert last is not None
    assert last.queue == queue(1)
    assert stream.is_finished


def test_a_filtered_chunk_does_not_say_how_many_records_it_holds() -> None:
    stream = stream_of(spec=FILTERED)
    chunk = stream.on_chunk(found(100, 150, gone=range(100, 140)), 0)
    assert chunk is not None
    assert chunk.expected_count is None
    nothing = stream.on_chunk(said(PullStatus.NO_MATCHED_MESSAGE, 150, 200), 0)
    assert extent(nothing) == (150, 200)
    assert stream.is_finished


# --- broken streams -------------------------------------------------------------------------


def test_a_broken_stream_resumes_behind_the_chunks_that_were_taken() -> None:
    stream = stream_of(RANGE, OTHER)
    stream.on_chunk(found(100, 150), 0)
    stream.on_failure(ConnectionLostError("a", "broke"), 5)
    assert stream.delay_ms(5) > 0
    assert stream.delay_ms(200) == 0
    assert stream.next_stream(200).ranges == (
        PullRange(queue(0), 150, 200),
        PullRange(queue(1), 0, 50),
    )
    stream.on_chunk(found(150, 200), 200)
    stream.on_failure(ConnectionLostError("a", "broke"), 300)
    assert stream.next_stream(500).ranges == (PullRange(queue(1), 0, 50),)
    # Ranges are counted from the first one that was asked for.
    stream.on_chunk(found(0, 50, range_index=0), 500)
    assert stream.is_finished


def test_what_took_too_long_is_asked_for_in_smaller_chunks() -> None:
    stream = stream_of()
    sizes = [stream.chunk_size]
    for now_ms in range(0, 4_000, 1_000):
        stream.on_failure(DeadlineExceededError("a", "no chunk came"), now_ms)
        sizes.append(stream.next_stream(now_ms).chunk_size)
    assert sizes[1] == sizes[0] // 16
    assert sizes[-1] == CHUNK_SIZE_MIN
    stream.on_failure(ConnectionLostError("a", "broke"), 5_000)
    assert stream.next_stream(5_000).chunk_size == CHUNK_SIZE_MIN


def test_an_outage_is_counted_from_the_last_chunk_and_ends_with_the_last_error() -> None:
    stream = stream_of()
    stream.on_chunk(found(100, 150), 7_000)
    for now_ms in range(8_000, 17_000, 500):
        stream.on_failure(ConnectionLostError("a", f"at {now_ms}"), now_ms)
    with pytest.raises(ConnectionLostError, match="at 17000"):
        stream.on_failure(ConnectionLostError("a", "at 17000"), 17_000)


def test_a_chunk_ends_an_outage() -> None:
    stream = stream_of()
    stream.on_failure(ConnectionLostError("a", "broke"), 9_000)
    stream.next_stream(9_500)
    stream.on_chunk(found(100, 101), 9_500)
    assert stream.delay_ms(9_500) == 0
    stream.on_failure(ConnectionLostError("a", "broke"), 19_000)


def test_a_stream_that_ends_too_early_is_opened_again() -> None:
    stream = stream_of()
    stream.on_chunk(found(100, 150), 0)
    stream.on_end(0)
    assert stream.doubted_queue == queue(0)
    assert stream.on_bounds(Bounds(0, 200), Standing.SERVED, 0) is None
    assert stream.delay_ms(0) > 0
    assert stream.next_stream(100).ranges == (PullRange(queue(0), 150, 200),)


@pytest.mark.parametrize(
    "error", [NotAuthorizedError(16, "no"), LocalProtocolError("no"), RemoteProtocolError("no")]
)
def test_what_asking_again_cannot_help_is_raised_at_once(error: Any) -> None:
    with pytest.raises(type(error)):
        stream_of().on_failure(error, 0)


def test_a_busy_broker_is_asked_again_and_a_refusal_is_raised() -> None:
    stream = stream_of()
    busy = RecordChunk(100, 100, status=None, error=BrokerBusyError(2, "busy"))
    assert stream.on_chunk(busy, 0) is None
    assert (stream.delay_ms(0) > 0, stream.doubted_queue) == (True, None)
    refused = RecordChunk(100, 100, status=None, error=NotAuthorizedError(16, "no"))
    with pytest.raises(NotAuthorizedError):
        stream.on_chunk(refused, 0)


@pytest.mark.parametrize(
    "bad",
    [
        RecordChunk(100, 100, status=None, error=BrokerBusyError(2, "busy")),
        said(PullStatus.NO_NEW_MESSAGE, 100, 100),
        said(PullStatus.OFFSET_ILLEGAL, 100, 120),
        found(100, 150, gone=range(120, 130)),
    ],
    ids=["busy", "nothing new", "illegal", "a hole"],
)
def test_a_stream_is_over_with_what_must_be_asked_again_however_late_it_is(bad: Any) -> None:
    stream = stream_of()
    assert not stream.is_over
    stream.on_chunk(bad, 0)
    assert stream.delay_ms(9_000) == 0
    assert stream.is_over
    stream.next_stream(9_000)
    assert not stream.is_over


# --- doubts and losses ----------------------------------------------------------------------


def test_an_illegal_offset_below_the_queue_is_an_expiry_with_numbers() -> None:
    stream = stream_of()
    stream.on_chunk(found(100, 120), 0)
    assert stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 120, 160), 0) is None
    assert stream.doubted_queue == queue(0)
    with pytest.raises(RangeLostError) as caught:
        stream.on_bounds(Bounds(160, 1_000), Standing.SERVED, 0)
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (120, 160, LossReason.EXPIRED)


def test_lost_offsets_are_replaced_by_a_chunk_that_names_them() -> None:
    stream = stream_of(spec=SKIPPING)
    stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 100, 160), 0)
    chunk = stream.on_bounds(Bounds(160, 1_000), Standing.SERVED, 0)
    assert chunk is not None
    assert (extent(chunk), bytes(chunk.body)) == ((100, 160), b"")
    assert chunk.loss is not None
    assert chunk.loss.reason is LossReason.EXPIRED
    assert stream.next_stream(0).ranges == (PullRange(queue(0), 160, 200),)


def test_an_expiry_beyond_the_range_ends_the_range_and_no_more() -> None:
    stream = stream_of(RANGE, OTHER, spec=SKIPPING)
    stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 100, 900), 0)
    chunk = stream.on_bounds(Bounds(900, 1_000), Standing.SERVED, 0)
    assert extent(chunk) == (100, 200)
    assert stream.next_stream(0).ranges == (PullRange(queue(1), 0, 50),)


def test_a_queue_that_ends_below_the_range_is_truncated_at_once() -> None:
    stream = stream_of()
    stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 100, 30), 0)
    with pytest.raises(RangeLostError) as caught:
        stream.on_bounds(Bounds(0, 30), Standing.SERVED, 0)
    assert caught.value.loss.reason is LossReason.TRUNCATED


@pytest.mark.parametrize(
    ("standing", "least_ms"), [(Standing.SERVED, 0), (Standing.PROVISIONAL, 10_000)]
)
def test_a_queue_that_ends_within_the_range_is_truncated_at_once_or_after_an_outage(
    standing: Standing, least_ms: int
) -> None:
    stream = stream_of()
    stream.on_chunk(found(100, 120), 0)
    now_ms = 0
    with pytest.raises(RangeLostError) as caught:  # noqa: PT012
        while now_ms <= 11_000:
            assert stream.on_chunk(said(PullStatus.NO_NEW_MESSAGE, 120, 120), now_ms) is None
            assert stream.doubted_queue == queue(0)
            assert stream.on_bounds(Bounds(0, 120), standing, now_ms) is None
            now_ms += 500
            stream.next_stream(now_ms)
    assert least_ms <= now_ms <= least_ms + 500
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (120, 200, LossReason.TRUNCATED)


def test_messages_that_come_after_all_are_no_loss() -> None:
    stream = stream_of()
    stream.on_chunk(said(PullStatus.NO_NEW_MESSAGE, 100, 100), 0)
    stream.next_stream(200)
    assert extent(stream.on_chunk(found(100, 200), 200)) == (100, 200)
    assert stream.is_finished


def test_what_is_there_in_front_of_a_loss_is_read_first() -> None:
    stream = stream_of()
    for now_ms in (0, 10_000):
        stream.on_chunk(said(PullStatus.NO_NEW_MESSAGE, 100, 100), now_ms)
    # The queue grew a little between the stream's word and the fresh bounds.
    assert stream.on_bounds(Bounds(0, 150), Standing.SERVED, 10_000) is None
    stream.next_stream(10_200)
    assert extent(stream.on_chunk(found(100, 150), 10_200)) == (100, 150)


def test_what_is_said_to_be_in_front_of_a_loss_and_never_comes_is_a_timeout() -> None:
    stream = stream_of()
    now_ms = 0
    with pytest.raises(DeadlineExceededError, match="no progress at offset 100"):  # noqa: PT012
        while now_ms < 100_000:
            stream.on_chunk(said(PullStatus.NO_NEW_MESSAGE, 100, 100), now_ms)
            if stream.doubted_queue is not None:
                assert stream.on_bounds(Bounds(0, 150), Standing.SERVED, now_ms) is None
            now_ms += 100
            stream.next_stream(now_ms)
    assert now_ms < 11_000


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (Standing.TOPIC_GONE, LossReason.TOPIC_DELETED),
        (Standing.QUEUE_GONE, LossReason.QUEUE_REMOVED),
    ],
)
def test_a_refused_range_of_a_topic_or_queue_that_is_gone_is_a_loss(
    standing: Standing, reason: LossReason
) -> None:
    stream = stream_of()
    error = TopicNotFoundError(17, "topic not exist")
    stream.on_chunk(RecordChunk(100, 100, status=None, error=error), 0)
    assert stream.doubted_queue == queue(0)
    with pytest.raises(RangeLostError) as caught:
        stream.on_bounds(Bounds(0, 0), standing, 0)
    assert caught.value.loss.reason is reason


def test_a_doubtful_refusal_that_lasts_is_raised_as_it_is() -> None:
    stream = stream_of()
    refused = RecordChunk(100, 100, status=None, error=BrokerError(1, "something"))
    stream.on_chunk(refused, 0)
    assert stream.on_bounds(Bounds(0, 1_000), Standing.SERVED, 10) is None
    stream.on_chunk(refused, 10_500)
    with pytest.raises(BrokerError, match="something"):
        stream.on_bounds(Bounds(0, 1_000), Standing.SERVED, 10_500)


def test_offsets_without_a_record_in_an_unfiltered_chunk_are_doubted() -> None:
    stream = stream_of()
    chunk = stream.on_chunk(found(100, 150, gone=range(120, 130)), 0)
    assert extent(chunk) == (100, 120)
    assert stream.doubted_queue == queue(0)
    with pytest.raises(RangeLostError) as caught:
        stream.on_bounds(Bounds(130, 1_000), Standing.SERVED, 0)
    assert (caught.value.loss.start, caught.value.loss.end) == (120, 130)


def test_a_hole_that_stays_is_skipped_exactly() -> None:
    stream = stream_of(spec=SKIPPING)
    stream.on_chunk(found(100, 150, gone=range(120, 130)), 0)
    now_ms = 0
    while (chunk := stream.on_bounds(Bounds(0, 1_000), Standing.SERVED, now_ms)) is None:
        now_ms += 1_000
        assert now_ms <= 10_000
        stream.next_stream(now_ms)
        assert stream.on_chunk(found(120, 150, gone=range(120, 130)), now_ms) is None
    assert extent(chunk) == (120, 130)
    assert chunk.loss is not None
    assert chunk.loss.reason is LossReason.HOLE
    assert stream.next_stream(now_ms).ranges == (PullRange(queue(0), 130, 200),)


def test_unmatched_offsets_without_a_filter_are_doubted() -> None:
    stream = stream_of()
    assert stream.on_chunk(said(PullStatus.NO_MATCHED_MESSAGE, 100, 140), 0) is None
    assert stream.doubted_queue == queue(0)


def test_offsets_that_are_being_removed_are_not_taken_for_unmatched_ones() -> None:
    stream = stream_of(spec=FILTERED)
    removing = said(PullStatus.NO_MATCHED_MESSAGE, 100, 140, remark="MESSAGE_WAS_REMOVING")
    assert stream.on_chunk(removing, 0) is None
    assert stream.doubted_queue == queue(0)


def test_bounds_that_cannot_be_had_are_asked_for_until_the_outage_is_over() -> None:
    stream = stream_of()
    stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 100, 160), 0)
    stream.on_bounds_failure(ConnectionLostError("a", "broke"), 10)
    assert stream.doubted_queue == queue(0)
    assert stream.delay_ms(10) > 0
    with pytest.raises(ConnectionLostError):
        stream.on_bounds_failure(ConnectionLostError("a", "broke"), 10_000)


def test_a_broker_that_says_nothing_useful_for_an_outage_is_a_timeout() -> None:
    stream = stream_of()
    stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 100, 160, remark="OFFSET_RESET"), 0)
    assert stream.on_bounds(Bounds(0, 1_000), Standing.SERVED, 100) is None
    stream.on_chunk(said(PullStatus.OFFSET_ILLEGAL, 100, 160, remark="OFFSET_RESET"), 10_200)
    with pytest.raises(DeadlineExceededError, match="OFFSET_RESET"):
        stream.on_bounds(Bounds(0, 1_000), Standing.SERVED, 10_200)


# --- chunks that make no sense --------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "complaint"),
    [
        (found(101, 150), "begins at 101, not at 100"),
        (found(100, 201), "ends at 201"),
        (said(PullStatus.NO_MATCHED_MESSAGE, 100, 99), "ends at 99"),
        (found(100, 150, range_index=1), "range 1 came out of turn"),
        (said(PullStatus.FOUND, 100, 150), "brings 0 bytes"),
        (said(PullStatus.NO_MATCHED_MESSAGE, 100, 100), "brings 0 bytes"),
        (said(PullStatus.NO_MATCHED_MESSAGE, 100, 150, records=(b"x",)), "brings 1 bytes"),
    ],
)
def test_chunks_that_break_the_protocol_are_refused(chunk: RecordChunk, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        stream_of().on_chunk(chunk, 0)


def test_a_chunk_behind_the_last_one_is_refused() -> None:
    stream = stream_of()
    stream.on_chunk(found(100, 200), 0)
    with pytest.raises(RemoteProtocolError, match="out of turn"):
        stream.on_chunk(found(100, 200), 0)


# --- holes and limits -----------------------------------------------------------------------


@given(st.sets(st.integers(0, 30), max_size=8), st.booleans())
def test_the_first_hole_is_found_with_and_without_sizes(gone: set[int], has_sizes: bool) -> None:
    chunk = found(0, 30, gone=gone)
    missing = [n for n in range(30) if n in gone]
    expected = None
    if missing:
        end = next(n for n in range(missing[0], 31) if n not in gone or n == 30)
        expected = (missing[0], end)
    body, sizes = chunk.records[0], chunk.sizes if has_sizes else None
    assert first_hole(body, sizes, 0, 30) == expected


@pytest.mark.parametrize(
    ("limits", "window", "chunk"),
    [
        (ReadLimits(messages_max=1_000_000), WINDOW_SIZE_MAX, CHUNK_SIZE_MAX),
        (ReadLimits(), 32_768 * 135, 30_720 * 135),
        (ReadLimits(messages_max=20_000), 20_000 * 135, 18_750 * 135),
        (ReadLimits(bytes_max=1_000_000), 1_000_000, 937_500),
        (ReadLimits(messages_max=1_000), 135_000, 126_562),
        (ReadLimits(messages_max=1), WINDOW_SIZE_MIN, 126),
        (ReadLimits(span_max=2_000), 270_000, 253_125),
    ],
)
def test_what_may_wait_for_the_consumer_follows_the_limits(
    limits: ReadLimits, window: int, chunk: int
) -> None:
    spec = ReadSpec("g", limits=limits)
    stream = RangeStream((RANGE,), spec, backoff=backoff_of(spec))
    assert (stream.window_size, stream.chunk_size) == (window, chunk)
    count_max = stream.next_stream(0).chunk_count_max
    assert count_max <= min(limits.messages_max, limits.span_max or limits.messages_max)
