"""Downloads ranges as one stream of chunks: what to ask for, what chunks mean, when to give up.

A pure state machine: the download's loop opens the stream of `next_stream`, reports every chunk,
and opens another stream if this one broke or ended early.

- Chunks of a range follow each other without a gap, ranges follow each other in order. A chunk that
  breaks this rule breaks the protocol.
- Unfiltered chunks must hold one record for every offset they cover. The first hole cuts a chunk.
- Losses, time and outages are treated as in `fetch_window`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import Doubt, DoubtKind, LossPolicy, Standing, is_doubtful, judge_doubt
from rocketmq_client.retry import Backoff, OutageClock
from rocketmq_wire.errors import (
    BrokerError,
    DeadlineExceededError,
    RemoteProtocolError,
    RocketMQError,
)
from rocketmq_wire.grpc.bulk.records import PullRange, PullRecords, RecordChunk
from rocketmq_wire.model import Bounds, Buffer, OffsetRange, QueueId
from rocketmq_wire.requests.messages import LOST_REMARK, PullStatus

# As much as the broker gives. A chunk of any size costs it 0.6 ms of processor time, and decoding
# 0.4 ms: for 1 KiB bodies, broker, client and decoding together take 3.6 us a record in
# chunks of 2.2 MiB and 3.0 in chunks of 4 MiB. Small records are limited by their count before.
CHUNK_SIZE_MAX: Final = 4 * 1024 * 1024
# One chunk with its sizes is on its way while the one before is decoded. A second one behind it
# gained nothing.
WINDOW_SIZE_MAX: Final = CHUNK_SIZE_MAX + 640 * 1024
WINDOW_SIZE_MIN: Final = 65_535
# The chunks of a link that was too slow: 16 KiB/s are enough for a chunk of the first step.
CHUNK_SIZE_MIN: Final = 16 * 1024
_SLOWER: Final = 16
# Turns a limit of messages into one of bytes: a record with a one-letter topic, a body of one byte
# and the unique key that clients give every message. Only smaller ones may exceed the limit.
_RECORD_SIZE_MIN: Final = 135
_RECORD_HEAD: Final = struct.Struct(">i16xq")
_SIZE: Final = 4


class RangeStream:
    """Downloads several ranges. Not thread-safe; times are milliseconds of one clock."""

    def __init__(self, ranges: Sequence[OffsetRange], spec: ReadSpec, *, backoff: Backoff) -> None:
        self._ranges = [wanted for wanted in ranges if len(wanted)]
        self._spec = spec
        self._is_filtered = not spec.subscription.selects_all
        self._outage = OutageClock(backoff)
        self._current = 0
        self._position = self._ranges[0].start if self._ranges else 0
        self._first_range = 0
        """The first range of the open stream."""
        self._is_over = True
        self._doubt: Doubt | None = None
        self._awaited_position: int | None = None
        """The position before a proven loss: the offsets between them are waited for once."""
        self._opened_ms = 0
        """The time when the stream was opened."""
        self.window_size, self.chunk_size = _sizes(spec)

    # --- state and requests -------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """True if everything was taken."""
        return self._current == len(self._ranges)

    @property
    def doubted_queue(self) -> QueueId | None:
        """The queue whose fresh bounds and route are needed first, if any."""
        return None if self._doubt is None else self._ranges[self._current].queue

    @property
    def is_over(self) -> bool:
        """True if the stream should be closed: it brings no more chunks of use."""
        return self._is_over

    def delay_ms(self, now_ms: int) -> int:
        """The wait before the next stream is opened or bounds are asked for."""
        return max(0, self._outage.not_before_ms - now_ms)

    def next_stream(self, now_ms: int) -> PullRecords:
        """Return the request for a stream of everything that is missing."""
        self._first_range = self._current
        self._opened_ms = now_ms
        self._is_over = False
        limits = self._spec.limits
        rest = [
            PullRange(wanted.queue, wanted.start, wanted.end)
            for wanted in self._ranges[self._current + 1 :]
        ]
        first = self._ranges[self._current]
        return PullRecords(
            group=self._spec.group,
            ranges=(PullRange(first.queue, self._position, first.end), *rest),
            subscription=self._spec.subscription,
            chunk_size=self.chunk_size,
            chunk_count_max=max(
                1, min(limits.count_per_pull, limits.messages_max, limits.span_max or 1 << 30)
            ),
        )

    def waits_for(self) -> str:
        """The first offset that is not here, and the broker's last answer."""
        queue = self._ranges[self._current].queue
        return f"{queue} offset={self._position}: {self._outage.last_word}"

    # --- results --------------------------------------------------------------------------------

    def on_chunk(self, chunk: RecordChunk, now_ms: int) -> RangeChunk | None:
        """Take a chunk in; return the one for the caller, if any. Close the stream if it `is_over`.

        Raises RemoteProtocolError when the chunk breaks the protocol, and a refusal that lasts.
        """
        if self.is_finished or chunk.range_index != self._current - self._first_range:
            raise RemoteProtocolError(f"a chunk of range {chunk.range_index} came out of turn")
        wanted = self._ranges[self._current]
        if chunk.start != self._position:
            raise RemoteProtocolError(
                f"{wanted.queue}: a chunk begins at {chunk.start}, not at {self._position}"
            )
        self._outage.last_remark = chunk.remark
        if chunk.error is not None:
            self._on_refusal(chunk.error, now_ms)
            return None
        self._outage.answered(now_ms)
        if chunk.status is PullStatus.OFFSET_ILLEGAL:
            self._open_doubt(DoubtKind.ILLEGAL, wanted.end, now_ms)
            return None
        if not self._position <= chunk.end <= wanted.end:
            raise RemoteProtocolError(
                f"{wanted.queue}: a chunk from {chunk.start} ends at {chunk.end}, "
                f"outside [{self._position}, {wanted.end}]"
            )
        if chunk.status is PullStatus.NO_NEW_MESSAGE:
            self._on_nothing(now_ms)
            return None
        return self._on_records(chunk, wanted, now_ms)

    def on_end(self, now_ms: int) -> None:
        """Take the end of the stream in: it came too early, unless everything is here."""
        if not self.is_finished and not self._is_over:
            self._on_nothing(now_ms)

    def on_failure(self, error: RocketMQError, now_ms: int, *, heard_ms: int = 0) -> None:
        """Take the failure of the stream in; `heard_ms` is when its last chunk came.

        Raises the error if another try cannot help, or if the outage has lasted too long.
        """
        if not error.retryable:
            raise error
        if isinstance(error, DeadlineExceededError):
            # The link may be too slow for a whole chunk within the time-out.
            self.chunk_size = max(CHUNK_SIZE_MIN, self.chunk_size // _SLOWER)
        self._is_over = True
        self._outage.last_error = error
        since_ms = max(self._opened_ms, heard_ms)
        self._outage.trouble(since_ms, now_ms)
        self._outage.back_off(now_ms)
        self._outage.raise_if_silent(since_ms, error, now_ms)

    def on_bounds(self, bounds: Bounds, standing: Standing, now_ms: int) -> RangeChunk | None:
        """Decide the doubt by fresh bounds and a fresh route.

        Returns a chunk instead of lost offsets if they are to be skipped, else raises
        RangeLostError.
        """
        doubt, self._doubt = self._doubt, None
        if doubt is None:
            return None
        wanted = self._ranges[self._current]
        missing = OffsetRange(wanted.queue, self._position, wanted.end)
        is_overdue = self._outage.is_stuck(now_ms)
        loss = judge_doubt(missing, doubt, bounds, standing, is_overdue=is_overdue)
        if loss is None or loss.start > self._position:
            self._outage.answered(now_ms)
            self._outage.back_off(now_ms)
            if loss is None or self._awaited_position == self._position:
                self._outage.raise_if_stuck(wanted.queue, self._position, now_ms)
            if loss is not None:
                # The offsets before it are read first; they are waited for once.
                self._awaited_position = self._position
            return None
        if self._spec.loss_policy is LossPolicy.RAISE:
            raise RangeLostError(loss)
        self._advance(loss.end, now_ms)
        return RangeChunk(loss.queue, loss.start, loss.end, b"", loss=loss)

    def on_bounds_failure(self, error: RocketMQError, now_ms: int) -> None:
        """Ask for bounds and route again later, since they could not be fetched."""
        self._outage.last_error = error
        self._outage.back_off(now_ms)
        self._outage.raise_if_silent(self._opened_ms, error, now_ms)

    # --- chunks ---------------------------------------------------------------------------------

    def _on_records(
        self, chunk: RecordChunk, wanted: OffsetRange, now_ms: int
    ) -> RangeChunk | None:
        end = chunk.end
        body: Buffer = chunk.records[0] if chunk.records else b""
        if (chunk.status is PullStatus.FOUND) != bool(len(body)) or end == chunk.start:
            raise RemoteProtocolError(
                f"{wanted.queue}: a chunk of [{chunk.start}, {end}) says {chunk.status} "
                f"and brings {len(body)} bytes"
            )
        hole = None
        if not self._is_filtered:
            hole = first_hole(body, chunk.sizes, chunk.start, end)
        elif "REMOVING" in chunk.remark or chunk.remark == LOST_REMARK:
            # The filter did not pass these offsets: the broker is removing their messages.
            hole = (chunk.start, end)
        if hole is not None:
            end = hole[0]
        handed_on = None
        if end > chunk.start:
            expected = None if self._is_filtered else end - chunk.start
            handed_on = RangeChunk(wanted.queue, chunk.start, end, body, chunk.sizes, expected)
            self._advance(end, now_ms)
        if hole is not None:
            is_lost = chunk.remark == LOST_REMARK
            kind = DoubtKind.LOST if is_lost else DoubtKind.VANISHED
            self._open_doubt(kind, hole[1], now_ms)
        return handed_on

    def _advance(self, end: int, now_ms: int) -> None:
        self._position = end
        self._awaited_position = None
        self._outage.progressed(now_ms)
        if end == self._ranges[self._current].end:
            self._current += 1
            self._position = 0 if self.is_finished else self._ranges[self._current].start

    # --- doubts ---------------------------------------------------------------------------------

    def _on_refusal(self, error: BrokerError, now_ms: int) -> None:
        if not (error.retryable or is_doubtful(error)):
            raise error
        if error.retryable:
            self.on_failure(error, now_ms)
        else:
            self._outage.last_error = error
            self._outage.answered(now_ms)
            self._open_doubt(DoubtKind.REFUSED, self._ranges[self._current].end, now_ms)

    def _on_nothing(self, now_ms: int) -> None:
        """Ask where the queue ends now: the plan saw it end at or behind the range."""
        self._open_doubt(DoubtKind.SHORT, self._ranges[self._current].end, now_ms)

    def _open_doubt(self, kind: DoubtKind, end: int, now_ms: int) -> None:
        self._is_over = True
        self._outage.trouble(self._opened_ms, now_ms)
        self._doubt = Doubt(kind, self._position, end)


def first_hole(body: Buffer, sizes: Buffer | None, start: int, end: int) -> tuple[int, int] | None:
    """The first offsets of `[start, end)` that have no record in an unfiltered chunk.

    Walks the records only if their count is wrong or unknown.
    """
    if len(body) and sizes is not None and len(sizes) // _SIZE == end - start:
        return None
    expected, position = start, 0
    while position + _RECORD_HEAD.size <= len(body):
        size, offset = _RECORD_HEAD.unpack_from(body, position)
        if offset > expected:
            return expected, min(offset, end)
        if size < _RECORD_HEAD.size:
            break  # Torn: the decoder reports it, with the position.
        expected = max(expected, offset + 1)
        position += size
    return (expected, end) if expected < end else None


def _sizes(spec: ReadSpec) -> tuple[int, int]:
    """The bytes that may wait for the consumer, and the size of chunks."""
    limits = spec.limits
    messages_max = min(limits.messages_max, limits.span_max or limits.messages_max)
    window = min(WINDOW_SIZE_MAX, limits.bytes_max, messages_max * _RECORD_SIZE_MIN)
    # Sizes take up to 3 % more.
    return max(WINDOW_SIZE_MIN, window), max(1, min(CHUNK_SIZE_MAX, window * 15 // 16))
