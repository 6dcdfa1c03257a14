"""Downloads one range of a queue: decides which pulls to send and puts their answers in order.

A pure state machine; the shell sends what `next_pull` returns and reports what became of it.

- An answer covers `[asked, nextBeginOffset)`. Coverage is what counts: pulls are predicted from
  what earlier ones covered, holes are asked again, what arrives twice is cut away.
- An answer to offset 0 may hold another message's record in the first one's place
  (`first_record`): narrower pulls single it out, and it counts as gone.
- Unfiltered answers claim one message for every offset they cover. The window cannot count records
  without walking them, so a chunk names its `expected_count` and the decoder compares.
- One pull proves no loss: a doubt asks for fresh bounds (`judge_doubt`).
- Time is an argument and may stand still while the consumer works; troubles are counted from the
  last answer that brought something.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from rocketmq_client.download.contract import RangeChunk, ReadLimits
from rocketmq_client.download.coverage import GATHER_BYTES, Coverage, Piece
from rocketmq_client.download.in_flight_pulls import InFlightPull, InFlightPulls, Joining, Pull
from rocketmq_client.download.pull_width import PullWidth
from rocketmq_client.loss import (
    Doubt,
    DoubtKind,
    Loss,
    LossPolicy,
    RangeLostError,
    Standing,
    is_doubtful,
    judge_doubt,
)
from rocketmq_client.retry import REQUEST, Backoff, OutageClock
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RemoteProtocolError, RocketMQError
from rocketmq_wire.model import Bounds, Buffer, OffsetRange
from rocketmq_wire.requests.messages import LOST_REMARK, PullReply, PullStatus

# What one pull may bring: enough to make its own cost vanish, far below a frame's 16 MiB.
PULL_BYTES_MAX: Final = 4 * 1024 * 1024
# Requested or received ahead of the consumer, whatever larger limit the user sets: four such pulls
# keep a connection busy, and more would only cost memory and leave the processor's cache.
AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
_RECORD_BYTES_GUESS: Final = 1024
_SCAN_WIDTH_MAX: Final = 1 << 40
_RECORD_BYTES_MIN: Final = 91
_BUSY_DELAY_MS: Final = 20
# Answers up to this size are asked for several at a time: of larger ones the bytes take the time.
_SMALL_ANSWER_BYTES: Final = 48 * 1024


class FetchWindow:
    """The download of `wanted`. Not thread-safe; every time is in milliseconds of one clock."""

    def __init__(
        self,
        wanted: OffsetRange,
        limits: ReadLimits,
        *,
        is_filtered: bool = False,
        loss_policy: LossPolicy = LossPolicy.RAISE,
        backoff: Backoff | None = None,
        first_offset: Callable[[Buffer], int | None] = lambda _: 0,
        times_max: int = 1,
    ) -> None:
        """So many pulls as `times_max` may be sent as one."""
        self.wanted = wanted
        self._first_offset = first_offset
        self._limits = limits
        self._is_filtered = is_filtered
        self._loss_policy = loss_policy
        policy = REQUEST.within(limits.outage_ms)
        backoff = backoff or Backoff(policy, random.Random(wanted.start).randint)
        self._patience = OutageClock(backoff)
        # Two pulls must fit below the message limit, or there is never one under way.
        room = min(limits.messages_max, limits.span_max or limits.messages_max)
        self._count_max = max(1, min(limits.count_per_pull, (room + 1) // 2))
        self._bytes_per_pull = max(1, min(PULL_BYTES_MAX, limits.bytes_max // 2))
        self._joining = Joining(times_max, limits.pulls_in_flight)
        # Under a filter the broker scans more offsets than the messages it was asked for.
        self._stride = PullWidth(_SCAN_WIDTH_MAX if is_filtered else self._count_max)
        self._record_bytes: float | None = None
        self._density = 1.0
        """Messages per offset: below one under a filter."""
        # Where pulling ends: a loss that will be raised makes what is behind it pointless.
        self._goal = wanted.end
        # As the last answer told it: pulls behind it would be called illegal.
        self._queue_end: int | None = None
        self._narrow_count = 0
        # Below this end pulls ask for so few at most: to find exactly which messages lack.
        self._narrow_end = wanted.start
        self._flights = InFlightPulls()
        self._coverage = Coverage(wanted.start, wanted.end)
        self._front: int | None = wanted.start
        """Everything below is here or under way; None when there may be holes."""
        self._doubt: Doubt | None = None
        self._doubt_is_asked = False
        self.reset_count = 0

    # --- what the shell asks ------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Everything was handed on."""
        return self._coverage.taken == self.wanted.end

    @property
    def is_covered(self) -> bool:
        """Nothing more will be pulled."""
        return self._coverage.edge >= self._goal

    @property
    def held_bytes(self) -> int:
        """Bytes received and not taken."""
        return self._coverage.held_bytes

    @property
    def outstanding_bytes(self) -> int:
        """Bytes received and not taken, or asked for."""
        return self._coverage.held_bytes + self._flights.bytes_expected

    @property
    def in_flight(self) -> int:
        """Pulls under way."""
        return self._flights.pulls

    def wake_at_ms(self) -> int | None:
        """When a back-off ends that keeps the window from asking; None: it waits for none."""
        return None if self.is_covered else self._patience.not_before_ms

    def next_pull(
        self, now_ms: int, *, bytes_free: int | None = None, is_urgent: bool = True
    ) -> Pull | None:
        """The next pull to send now, or None.

        `bytes_free` is what a budget shared with other windows leaves; the pull that everything
        waits for is sent in spite of it, unless this window is not the urgent one.
        """
        if self._doubt is not None or now_ms < self._patience.not_before_ms:
            return None
        if self._flights.are_enough(self._limits.pulls_in_flight):
            return None
        if self._stride.value is None and self._flights:
            return None
        gap = self._first_gap()
        if gap is None:
            return None
        start, end = gap
        if self._queue_end is not None and self._queue_end < start > self._coverage.edge:
            return None
        planned = min(self._stride.value or self._count_max, end - start)
        if start < self._narrow_end:
            planned = min(planned, self._narrow_count)
        # The hole that everything behind it waits for is asked in spite of any limit: what is
        # held can only be handed on once it is filled.
        is_head = is_urgent and start == self._coverage.edge and self._coverage.head is None
        times = self._times(start, end, planned)
        if times > 1 and not self._is_allowed(start, planned, times, bytes_free):
            times = 1
        if times == 0 or not (is_head or self._is_allowed(start, planned, times, bytes_free)):
            return None
        return self._send(start, end, planned, times, now_ms)

    def wants_bounds(self, now_ms: int) -> bool:
        """True once for every doubt: the shell then fetches fresh bounds and a fresh route."""
        if self._doubt is None or self._doubt_is_asked or now_ms < self._patience.not_before_ms:
            return False
        self._doubt_is_asked = True
        return True

    def take(self) -> RangeChunk | None:
        """Hand on what comes next, or None while it is still on its way.

        Raises RangeLostError where offsets are gone, unless they are to be skipped.
        """
        head = self._coverage.head
        if head is None:
            return None
        if head.loss is not None:
            return self._take_loss()
        if head.is_whole:
            return self._chunk(self._coverage.pop())
        if not self._is_gathered():
            return None
        return self._chunk(self._coverage.pop_gathered())

    # --- what the shell reports -----------------------------------------------------------------

    def on_reply(self, ticket: int, reply: PullReply, now_ms: int) -> None:
        """An answer came. One that nobody waits for any more is ignored.

        Raises RemoteProtocolError when it breaks the protocol.
        """
        front = self._front
        flight = self._land(ticket)
        if flight is None:
            return
        asked = flight.pull.start
        self._patience.answered(now_ms)
        self._queue_end, self._patience.last_remark = reply.end, reply.remark
        if reply.status is PullStatus.OFFSET_ILLEGAL:
            self._open_doubt(DoubtKind.ILLEGAL, asked, self.wanted.end, now_ms)
            return
        if reply.next_begin < asked:
            raise RemoteProtocolError(
                f"{self.wanted.queue}: asked for offset {asked}, told to go on at the earlier "
                f"{reply.next_begin} (status {reply.status.name})"
            )
        if reply.status is PullStatus.FOUND:
            is_taken = self._on_found(flight, reply, now_ms)
            if is_taken and front is not None and reply.next_begin >= flight.planned_end:
                # It left no hole.
                self._front = max(front, reply.next_begin)
        elif reply.next_begin > asked:
            self._on_advance(flight, reply, now_ms)
        else:
            self._on_nothing(flight, now_ms)

    def on_replies(
        self, ticket: int, replies: Sequence[PullReply | RocketMQError], now_ms: int
    ) -> None:
        """One at least of pulls sent as one brought something else. Raises as `on_reply` does."""
        flight = self._land(ticket)
        if flight is None:
            return
        if any(isinstance(reply, PullReply) for reply in replies):
            # What a part of them brought was heard before the others are judged.
            self._patience.answered(now_ms)
        for part, reply in zip(self._flights.part(flight), replies, strict=True):
            if isinstance(reply, RocketMQError):
                self.on_failure(part, reply, now_ms, heard_ms=now_ms)
            else:
                self.on_reply(part, reply, now_ms)
        self._joining.trouble()

    def on_failure(
        self, ticket: int, error: RocketMQError, now_ms: int, *, heard_ms: int = 0
    ) -> None:
        """A pull failed; `heard_ms` is when anything last came on its way.

        Raises the error when asking again cannot help or has lasted too long.
        """
        flight = self._land(ticket)
        if flight is None:
            return
        self._joining.trouble()
        if not (error.retryable or is_doubtful(error)):
            raise error
        asked, self._patience.last_error = flight.pull.start, error
        if is_doubtful(error):
            self._patience.answered(now_ms)
            self._open_doubt(DoubtKind.REFUSED, asked, self.wanted.end, now_ms)
            return
        since_ms = max(flight.sent_ms, heard_ms)  # Until then it was slow, not in trouble.
        self._patience.trouble(since_ms, now_ms)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            self._patience.pause(now_ms + _BUSY_DELAY_MS)
        else:
            self._patience.back_off(now_ms)
        self._patience.raise_if_silent(since_ms, error, now_ms)

    def on_bounds(self, bounds: Bounds, standing: Standing, now_ms: int) -> None:
        """Fresh bounds and a fresh route came: decide the doubt."""
        doubt, self._doubt = self._doubt, None
        self._doubt_is_asked = False
        if doubt is None:
            return
        loss = judge_doubt(
            self.wanted.queue,
            doubt,
            bounds,
            standing,
            missing=(self._coverage.edge, self.wanted.end),
            is_overdue=self._patience.is_stuck(now_ms),
        )
        if loss is not None and self._lose(loss):
            self._patience.progressed(now_ms)
            return
        if doubt.kind is DoubtKind.ILLEGAL:
            self.reset_count += 1
        self._patience.answered(now_ms)
        self._patience.back_off(now_ms)
        self._patience.raise_if_stuck(self.wanted.queue, self._coverage.edge, now_ms)

    def on_bounds_failure(self, error: RocketMQError, now_ms: int) -> None:
        """Bounds or route could not be had: ask for them again later."""
        if self._doubt is None:
            return
        self._doubt_is_asked = False
        self._patience.last_error = error
        self._patience.back_off(now_ms)
        self._patience.raise_if_silent(now_ms, error, now_ms)

    # --- asking ---------------------------------------------------------------------------------

    def _first_gap(self) -> tuple[int, int] | None:
        """The first offsets that are neither here nor under way."""
        coverage, end = self._coverage, self._goal
        if self._front is None:
            gap = self._flights.first_gap(coverage.edge, end, coverage.islands())
            if gap is None or gap[1] < end:
                return gap
            self._front = gap[0]
        return (self._front, end) if self._front < end else None

    def _times(self, start: int, end: int, planned: int) -> int:
        """As `Joining.times`, for pulls of that width."""
        is_usual = planned == self._stride.value and not self._is_filtered
        is_small = self._bytes_expected(planned) <= _SMALL_ANSWER_BYTES
        if not (is_usual and is_small and start and start >= self._narrow_end):
            return 1
        known_end = end if self._queue_end is None else min(end, self._queue_end)
        return self._joining.times(self._flights.pulls, (known_end - start) // planned)

    def _is_allowed(self, start: int, each: int, times: int, bytes_free: int | None) -> bool:
        """True if the limits leave room for so many pulls of `each` offsets from `start` on."""
        limits, coverage, planned = self._limits, self._coverage, each * times
        if limits.span_max is not None and start + planned > coverage.taken + limits.span_max:
            return False
        messages = coverage.held_messages + (self._flights.width + planned) * self._density
        if messages > limits.messages_max:
            return False
        free = min(limits.bytes_max, AHEAD_BYTES_MAX) - self.outstanding_bytes
        if bytes_free is not None:
            free = min(free, bytes_free)
        return self._bytes_expected(each) * times <= free

    def _bytes_expected(self, count: int) -> int:
        size = self._record_bytes or _RECORD_BYTES_GUESS
        return min(int(size * count * self._density), self._bytes_per_pull)

    def _send(self, start: int, gap_end: int, planned: int, times: int, now_ms: int) -> Pull:
        is_first = self._stride.value is None
        # A hole's own end is known: only the pull in front can show what the broker would give.
        is_front = gap_end == self._goal and start >= self._narrow_end
        is_probe = is_front and not is_first and self._stride.is_probe_due()
        count_max = planned
        if is_probe or (self._is_filtered and start >= self._narrow_end):
            # Under a filter the broker scans as many offsets as it is asked for messages.
            count_max, times = min(self._count_max, self.wanted.end - start), 1
        if self._limits.span_max is not None and not self._is_filtered:
            room = max(planned, self._coverage.taken + self._limits.span_max - start)
            count_max = min(count_max, room)
        pull = Pull(self._flights.new_ticket(), start, count_max, self._bytes_per_pull, times)
        is_open = is_first or is_probe or self._is_filtered
        planned_end = start + planned * times
        expected = self._bytes_expected(planned) * times
        self._flights.add(InFlightPull(pull, planned_end, is_open, now_ms, expected))
        if self._front == start:
            self._front = planned_end
        return pull

    def _land(self, ticket: int) -> InFlightPull | None:
        """The pull is no longer under way; None if it was given up before."""
        flight = self._flights.land(ticket)
        if flight is not None:
            self._front = None
        return flight

    # --- answers --------------------------------------------------------------------------------

    def _on_found(self, flight: InFlightPull, reply: PullReply, now_ms: int) -> bool:
        """Take messages in; False when they are to be asked for again."""
        asked, width = flight.pull.start, reply.next_begin - flight.pull.start
        body_size = sum(map(len, reply.records))
        if not width or not body_size:
            raise RemoteProtocolError(
                f"{self.wanted.queue}: messages were found at offset {asked}, but "
                f"{body_size} bytes up to offset {reply.next_begin} came"
            )
        body = reply.records[0]
        if not asked and not self._begins_rightly(flight, body, reply.next_begin):
            self._on_foreign(flight, body, reply.next_begin, now_ms)
            return False
        if self._is_filtered:
            # Counting would mean walking the records: the first one's size stands for all.
            size = max(int.from_bytes(body[:4], "big"), _RECORD_BYTES_MIN)
            count = max(1, min(body_size // size, width))
            self._density = count / width
        else:
            size, count = max(1, body_size // width), width
            if width > flight.pull.width:
                self._on_overstep(flight, reply.next_begin, now_ms)
                return False
        self._record_bytes = size
        self._joining.answered()
        self._learn(flight, width)
        if self._coverage.cover(asked, reply.next_begin, reply.records, reply.sizes, count):
            self._patience.progressed(now_ms)
        return True

    def _on_overstep(self, flight: InFlightPull, next_begin: int, now_ms: int) -> None:
        """More offsets than asked for: the broker left out messages that are already removed."""
        count_max = flight.pull.count_max
        if count_max == 1:
            self._open_doubt(DoubtKind.VANISHED, flight.pull.start, next_begin - 1, now_ms)
            return
        # Which ones, only a narrower pull can tell. The answer in hand is dropped.
        self._narrow_count = max(1, count_max // 2)
        self._narrow_end = max(self._narrow_end, next_begin)

    def _begins_rightly(self, flight: InFlightPull, body: Buffer, next_begin: int) -> bool:
        """Whether what was found from offset 0 on begins with a message that may stand there."""
        first = self._first_offset(body)
        if first and self._is_filtered:
            # The first that matches may be a later one. Where it alone was asked for, the broker
            # goes on behind it; behind offset 0, if it found another's record there.
            return flight.pull.count_max == 1 and first < next_begin
        return first == 0

    def _on_foreign(self, flight: InFlightPull, body: Buffer, next_begin: int, now_ms: int) -> None:
        """Offset 0 is gone: by itself it is asked for, and then doubted."""
        if flight.pull.count_max > 1:
            self._narrow_count, self._narrow_end = 1, max(self._narrow_end, 1)
            return
        # A later message of the queue may have been found: that one is there.
        end = min(self._first_offset(body) or next_begin, next_begin)
        self._open_doubt(DoubtKind.VANISHED, 0, end, now_ms)

    def _on_advance(self, flight: InFlightPull, reply: PullReply, now_ms: int) -> None:
        """No message, but a later offset to go on from."""
        asked = flight.pull.start
        # Under a filter that is the normal case of nothing matching. Anything else, and a status
        # name that speaks of removal, went past offsets that should have had a message.
        is_scan = (
            self._is_filtered
            and reply.status is PullStatus.NO_MATCHED_MESSAGE
            and "REMOVING" not in reply.remark
            and reply.remark != LOST_REMARK
        )
        if not is_scan:
            kind = DoubtKind.LOST if reply.remark == LOST_REMARK else DoubtKind.VANISHED
            self._open_doubt(kind, asked, reply.next_begin, now_ms)
            return
        self._density = min(self._density, 1 / (reply.next_begin - asked))
        self._learn(flight, reply.next_begin - asked)
        if self._coverage.cover(asked, reply.next_begin, (), None, 0):
            self._patience.progressed(now_ms)

    def _on_nothing(self, flight: InFlightPull, now_ms: int) -> None:
        """No message and no progress: below the end this must pass, or something is lost."""
        self._patience.trouble(now_ms, now_ms)
        if self._patience.is_stuck(now_ms):
            self._open_doubt(DoubtKind.SHORT, flight.pull.start, self.wanted.end, now_ms)
        else:
            self._patience.back_off(now_ms)

    def _learn(self, flight: InFlightPull, width: int) -> None:
        stride = self._stride.value
        was_cut = width < flight.pull.count_max
        if flight.is_open or (was_cut and stride is not None and flight.pull.count_max >= stride):
            self._stride.observe(width)

    # --- handing on -----------------------------------------------------------------------------

    def _is_gathered(self) -> bool:
        """True when waiting for more to join would not bring a better chunk soon."""
        coverage, edge = self._coverage, self._coverage.edge
        if coverage.held_bytes >= GATHER_BYTES or coverage.held_messages >= self._count_max:
            return True
        # Only what is under way and joins at the edge is worth waiting for.
        return not self._flights.joins(edge)

    def _take_loss(self) -> RangeChunk:
        loss = self._coverage.pop_loss()
        if self._loss_policy is LossPolicy.RAISE:
            raise RangeLostError(loss)
        return RangeChunk(loss.queue, loss.start, loss.end, b"", loss=loss)

    def _chunk(self, piece: Piece) -> RangeChunk:
        expected = None if self._is_filtered else piece.end - piece.start
        return RangeChunk(
            self.wanted.queue,
            piece.start,
            piece.end,
            piece.body,
            sizes=piece.sizes,
            expected_count=expected,
        )

    # --- trouble --------------------------------------------------------------------------------

    def _open_doubt(self, kind: DoubtKind, start: int, end: int, now_ms: int) -> None:
        if not self._coverage.is_missing(start, end):
            return  # An earlier answer settled these offsets.
        self._patience.trouble(now_ms, now_ms)
        if self._doubt is None:
            self._doubt = Doubt(kind, start, end)
            self._doubt_is_asked = False

    def _lose(self, loss: Loss) -> bool:
        """True if that settles offsets: the same loss again must not pass for progress."""
        start = self._coverage.lose(loss)
        self._front = None
        if start is not None and self._loss_policy is LossPolicy.RAISE:
            self._goal = min(self._goal, start)
        return start is not None
