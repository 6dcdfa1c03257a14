"""Downloads one range of a queue: decides which pulls to send and puts their answers in order.

A pure state machine: the download's loop sends the pulls of `next_pull` and reports their results.

- An answer covers `[asked, nextBeginOffset)`. The window predicts the next pulls from what earlier
  ones covered, asks for holes again, and cuts away offsets that arrive twice.
- An answer to offset 0 may hold another queue's record instead of the first message (see
  `first_offset` of the TCP download). Narrower pulls single it out; the first message is gone.
- Unfiltered answers claim one message for every offset they cover. The window cannot count records
  without walking them, so a chunk names its `expected_count` and the decoder compares.
- One pull proves no loss: a doubt asks for fresh bounds (`judge_doubt`).
- Time is an argument and may stand still while the consumer works. An outage counts from the last
  answer that brought something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.download.coverage import GATHER_BYTES, Coverage, Piece
from rocketmq_client.download.pulls import InFlightPull, InFlightPulls, Joining, Pull, PullWidth
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import (
    Doubt,
    DoubtKind,
    Loss,
    LossPolicy,
    Standing,
    is_doubtful,
    judge_doubt,
)
from rocketmq_client.retry import Backoff, OutageClock
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RemoteProtocolError, RocketMQError
from rocketmq_wire.model import Bounds, Buffer, OffsetRange
from rocketmq_wire.requests.messages import LOST_REMARK, PullReply, PullStatus

# The bytes of one pull: enough to make its own cost vanish, far below a frame's 16 MiB.
PULL_BYTES_MAX: Final = 4 * 1024 * 1024
# The bytes requested or received ahead of the consumer, under any larger limit of the user: four
# such pulls keep a connection busy. More would cost memory and leave the processor's cache.
AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
_RECORD_BYTES_GUESS: Final = 1024
_SCAN_WIDTH_MAX: Final = 1 << 40
_RECORD_BYTES_MIN: Final = 91
_BUSY_DELAY_MS: Final = 20
# Pulls with answers up to this size go several as one; larger answers take their time anyway.
_SMALL_ANSWER_BYTES: Final = 48 * 1024


class FetchWindow:
    """Downloads `wanted`. Not thread-safe; every time is in milliseconds of one clock."""

    def __init__(
        self,
        wanted: OffsetRange,
        spec: ReadSpec,
        *,
        backoff: Backoff,
        first_offset: Callable[[Buffer], int | None] = lambda _: 0,
        times_max: int = 1,
    ) -> None:
        """Up to `times_max` pulls may be sent as one."""
        self.wanted = wanted
        self._first_offset = first_offset
        self._limits = limits = spec.limits
        self._is_filtered = not spec.subscription.selects_all
        self._loss_policy = spec.loss_policy
        self._outage = OutageClock(backoff)
        # Two pulls must fit below the message limit, or none is in flight while one is taken.
        room = min(limits.messages_max, limits.span_max or limits.messages_max)
        self._count_max = max(1, min(limits.count_per_pull, (room + 1) // 2))
        self._bytes_per_pull = max(1, min(PULL_BYTES_MAX, limits.bytes_max // 2))
        self._joining = Joining(times_max, limits.pulls_in_flight)
        # Under a filter the broker scans more offsets than the messages it was asked for.
        self._pull_width = PullWidth(_SCAN_WIDTH_MAX if self._is_filtered else self._count_max)
        self._record_bytes: float | None = None
        self._density = 1.0
        """Messages per offset: below one under a filter."""
        self._goal = wanted.end
        """The end of pulling: the range's, or the start of a loss that will be raised."""
        self._queue_end: int | None = None
        """The queue's end in the last answer: the broker calls pulls behind it illegal."""
        self._narrow_count = 0
        """The width of pulls below `_narrow_end`, which find out which messages are missing."""
        self._narrow_end = wanted.start
        self._in_flight = InFlightPulls()
        self._coverage = Coverage(wanted.start, wanted.end)
        self._front: int | None = wanted.start
        """Everything below is here or in flight; None if there may be holes."""
        self._doubt: Doubt | None = None
        self._doubt_is_asked = False
        self.reset_count = 0

    # --- state and requests -------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """True if everything was taken."""
        return self._coverage.taken == self.wanted.end

    @property
    def is_covered(self) -> bool:
        """True if no more pulls will be sent."""
        return self._coverage.edge >= self._goal

    @property
    def held_bytes(self) -> int:
        """The bytes received and not taken."""
        return self._coverage.held_bytes

    @property
    def outstanding_bytes(self) -> int:
        """The bytes received and not taken, or asked for."""
        return self._coverage.held_bytes + self._in_flight.bytes_expected

    @property
    def in_flight(self) -> int:
        """The number of pulls in flight."""
        return self._in_flight.pulls

    def wake_at_ms(self) -> int | None:
        """The end of the back-off that the window waits for; None if nothing more is pulled."""
        return None if self.is_covered else self._outage.not_before_ms

    def next_pull(
        self, now_ms: int, *, bytes_free: int | None = None, is_urgent: bool = True
    ) -> Pull | None:
        """Return the next pull to send now, or None.

        `bytes_free` is the rest of a budget shared with other windows. The urgent window sends the
        pull that everything waits for in spite of it.
        """
        if self._doubt is not None or now_ms < self._outage.not_before_ms:
            return None
        if self._in_flight.are_enough(self._limits.pulls_in_flight):
            return None
        if self._pull_width.value is None and self._in_flight:
            return None
        gap = self._first_gap()
        if gap is None:
            return None
        start, end = gap
        if self._queue_end is not None and self._queue_end < start > self._coverage.edge:
            return None
        planned = min(self._pull_width.value or self._count_max, end - start)
        if start < self._narrow_end:
            planned = min(planned, self._narrow_count)
        # Everything that was received waits for the hole in front of it, so no limit applies.
        is_head = is_urgent and start == self._coverage.edge and self._coverage.head is None
        times = self._times(start, end, planned)
        if times > 1 and not self._is_allowed(start, planned, times, bytes_free):
            times = 1
        if times == 0 or not (is_head or self._is_allowed(start, planned, times, bytes_free)):
            return None
        return self._send(start, end, planned, times, now_ms)

    def wants_bounds(self, now_ms: int) -> bool:
        """True once for every doubt: the loop then fetches fresh bounds and a fresh route."""
        if self._doubt is None or self._doubt_is_asked or now_ms < self._outage.not_before_ms:
            return False
        self._doubt_is_asked = True
        return True

    def take(self) -> RangeChunk | None:
        """Return the next chunk, or None while it is on its way.

        Raises RangeLostError if offsets are gone and are not to be skipped.
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

    def waits_for(self) -> str:
        """The first offset that is not here, and the broker's last answer."""
        return f"{self.wanted.queue} offset={self._coverage.edge}: {self._outage.last_word}"

    # --- results --------------------------------------------------------------------------------

    def on_reply(self, ticket: int, reply: PullReply, now_ms: int) -> None:
        """Take an answer in, unless its pull was given up.

        Raises RemoteProtocolError if it breaks the protocol.
        """
        front = self._front
        sent = self._remove(ticket)
        if sent is None:
            return
        asked = sent.pull.start
        self._outage.answered(now_ms)
        self._queue_end = reply.end
        self._outage.last_remark = reply.remark
        if reply.status is PullStatus.OFFSET_ILLEGAL:
            self._open_doubt(DoubtKind.ILLEGAL, asked, self.wanted.end, now_ms)
            return
        if reply.next_begin < asked:
            raise RemoteProtocolError(
                f"{self.wanted.queue}: asked for offset {asked}, but the broker continues "
                f"at the earlier {reply.next_begin} (status {reply.status.name})"
            )
        if reply.status is PullStatus.FOUND:
            is_taken = self._on_found(sent, reply, now_ms)
            if is_taken and front is not None and reply.next_begin >= sent.planned_end:
                # It left no hole.
                self._front = max(front, reply.next_begin)
        elif reply.next_begin > asked:
            self._on_advance(sent, reply, now_ms)
        else:
            # The plan saw the queue end behind this offset: ask where it ends now.
            self._open_doubt(DoubtKind.SHORT, asked, self.wanted.end, now_ms)

    def on_replies(
        self, ticket: int, replies: Sequence[PullReply | RocketMQError], now_ms: int
    ) -> None:
        """Take in the answers to pulls sent as one, not all as planned. Raises as `on_reply`."""
        sent = self._remove(ticket)
        if sent is None:
            return
        if any(isinstance(reply, PullReply) for reply in replies):
            # The broker answered, even if some of the pulls failed.
            self._outage.answered(now_ms)
        for part, reply in zip(self._in_flight.split(sent), replies, strict=True):
            if isinstance(reply, RocketMQError):
                self.on_failure(part, reply, now_ms, heard_ms=now_ms)
            else:
                self.on_reply(part, reply, now_ms)
        self._joining.on_trouble()

    def on_failure(
        self, ticket: int, error: RocketMQError, now_ms: int, *, heard_ms: int = 0
    ) -> None:
        """Take the failure of a pull in; `heard_ms` is when its connection last received bytes.

        Raises the error if another try cannot help, or if the outage has lasted too long.
        """
        sent = self._remove(ticket)
        if sent is None:
            return
        self._joining.on_trouble()
        if not (error.retryable or is_doubtful(error)):
            raise error
        asked, self._outage.last_error = sent.pull.start, error
        if is_doubtful(error):
            self._outage.answered(now_ms)
            self._open_doubt(DoubtKind.REFUSED, asked, self.wanted.end, now_ms)
            return
        since_ms = max(sent.sent_ms, heard_ms)  # Before, the link was slow, not down.
        self._outage.trouble(since_ms, now_ms)
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            self._outage.pause(now_ms + _BUSY_DELAY_MS)
        else:
            self._outage.back_off(now_ms)
        self._outage.raise_if_silent(since_ms, error, now_ms)

    def on_bounds(self, bounds: Bounds, standing: Standing, now_ms: int) -> None:
        """Decide the doubt by fresh bounds and a fresh route."""
        doubt, self._doubt = self._doubt, None
        self._doubt_is_asked = False
        if doubt is None:
            return
        missing = OffsetRange(self.wanted.queue, self._coverage.edge, self.wanted.end)
        is_overdue = self._outage.is_stuck(now_ms)
        loss = judge_doubt(missing, doubt, bounds, standing, is_overdue=is_overdue)
        if loss is not None and self._lose(loss):
            self._outage.progressed(now_ms)
            return
        if doubt.kind is DoubtKind.ILLEGAL:
            self.reset_count += 1
        self._outage.answered(now_ms)
        self._outage.back_off(now_ms)
        self._outage.raise_if_stuck(self.wanted.queue, self._coverage.edge, now_ms)

    def on_bounds_failure(self, error: RocketMQError, now_ms: int) -> None:
        """Ask for bounds and route again later, since they could not be fetched."""
        if self._doubt is None:
            return
        self._doubt_is_asked = False
        self._outage.last_error = error
        self._outage.back_off(now_ms)
        self._outage.raise_if_silent(now_ms, error, now_ms)

    # --- scheduling -----------------------------------------------------------------------------

    def _first_gap(self) -> tuple[int, int] | None:
        """The first offsets that are neither here nor in flight."""
        coverage, end = self._coverage, self._goal
        if self._front is None:
            gap = self._in_flight.first_gap(coverage.edge, end, coverage.islands())
            if gap is None or gap[1] < end:
                return gap
            self._front = gap[0]
        return (self._front, end) if self._front < end else None

    def _times(self, start: int, end: int, planned: int) -> int:
        """How many pulls of the planned width go as one; 0: wait for answers first."""
        is_usual = planned == self._pull_width.value and not self._is_filtered
        is_small = self._bytes_expected(planned) <= _SMALL_ANSWER_BYTES
        if not (is_usual and is_small and start and start >= self._narrow_end):
            return 1
        known_end = end if self._queue_end is None else min(end, self._queue_end)
        return self._joining.times(self._in_flight.pulls, (known_end - start) // planned)

    def _is_allowed(self, start: int, each: int, times: int, bytes_free: int | None) -> bool:
        """True if the limits leave room for `times` pulls of `each` offsets from `start` on."""
        limits, coverage, planned = self._limits, self._coverage, each * times
        if limits.span_max is not None and start + planned > coverage.taken + limits.span_max:
            return False
        messages = coverage.held_messages + (self._in_flight.width + planned) * self._density
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
        is_first = self._pull_width.value is None
        # A hole has a known end: only the foremost pull can show what the broker would give.
        is_front = gap_end == self._goal and start >= self._narrow_end
        is_probe = is_front and not is_first and self._pull_width.is_probe_due()
        count_max = planned
        if is_probe or (self._is_filtered and start >= self._narrow_end):
            # Under a filter the broker scans as many offsets as it is asked for messages.
            count_max, times = min(self._count_max, self.wanted.end - start), 1
        if self._limits.span_max is not None and not self._is_filtered:
            room = max(planned, self._coverage.taken + self._limits.span_max - start)
            count_max = min(count_max, room)
        pull = Pull(self._in_flight.new_ticket(), start, count_max, self._bytes_per_pull, times)
        is_open = is_first or is_probe or self._is_filtered
        planned_end = start + planned * times
        expected = self._bytes_expected(planned) * times
        self._in_flight.add(InFlightPull(pull, planned_end, is_open, now_ms, expected))
        if self._front == start:
            self._front = planned_end
        return pull

    def _remove(self, ticket: int) -> InFlightPull | None:
        """Return a pull that is no longer in flight; None if it was given up before."""
        sent = self._in_flight.remove(ticket)
        if sent is not None:
            self._front = None
        return sent

    # --- answers --------------------------------------------------------------------------------

    def _on_found(self, sent: InFlightPull, reply: PullReply, now_ms: int) -> bool:
        """Take messages in; False if they have to be pulled again."""
        asked, width = sent.pull.start, reply.next_begin - sent.pull.start
        body_size = sum(map(len, reply.records))
        if not width or not body_size:
            raise RemoteProtocolError(
                f"{self.wanted.queue}: messages were found at offset {asked}, but "
                f"{body_size} bytes up to offset {reply.next_begin} came"
            )
        body = reply.records[0]
        if not asked and not self._begins_rightly(sent, body, reply.next_begin):
            self._on_foreign(sent, body, reply.next_begin, now_ms)
            return False
        if self._is_filtered:
            # Counting would walk the records: the first one's size stands for all.
            size = max(int.from_bytes(body[:4], "big"), _RECORD_BYTES_MIN)
            count = max(1, min(body_size // size, width))
            self._density = count / width
        else:
            size, count = max(1, body_size // width), width
            if width > sent.pull.width:
                self._on_overstep(sent, reply.next_begin, now_ms)
                return False
        self._record_bytes = size
        self._joining.on_answer()
        self._learn(sent, width)
        if self._coverage.cover(asked, reply.next_begin, reply.records, reply.sizes, count):
            self._outage.progressed(now_ms)
        return True

    def _on_overstep(self, sent: InFlightPull, next_begin: int, now_ms: int) -> None:
        """Narrow the pulls down: the broker left out messages that it is removing."""
        count_max = sent.pull.count_max
        if count_max == 1:
            self._open_doubt(DoubtKind.VANISHED, sent.pull.start, next_begin - 1, now_ms)
            return
        # Only a narrower pull shows which ones. This answer is dropped.
        self._narrow_count = max(1, count_max // 2)
        self._narrow_end = max(self._narrow_end, next_begin)

    def _begins_rightly(self, sent: InFlightPull, body: Buffer, next_begin: int) -> bool:
        """True if an answer from offset 0 on begins with a message that may be there."""
        first = self._first_offset(body)
        if first and self._is_filtered:
            # The first match may be a later message. Behind a pull of one, the broker continues
            # behind that match, or behind offset 0 if it found another queue's record there.
            return sent.pull.count_max == 1 and first < next_begin
        return first == 0

    def _on_foreign(self, sent: InFlightPull, body: Buffer, next_begin: int, now_ms: int) -> None:
        """Pull offset 0 alone, and doubt it if that was done already."""
        if sent.pull.count_max > 1:
            self._narrow_count, self._narrow_end = 1, max(self._narrow_end, 1)
            return
        # The record may be a later message of the queue: that one is there.
        end = min(self._first_offset(body) or next_begin, next_begin)
        self._open_doubt(DoubtKind.VANISHED, 0, end, now_ms)

    def _on_advance(self, sent: InFlightPull, reply: PullReply, now_ms: int) -> None:
        """Judge an answer without messages that continues at a later offset."""
        asked = sent.pull.start
        # Under a filter, nothing matched. In any other case, and if the remark speaks of removal,
        # the broker passed offsets that should have had a message.
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
        self._learn(sent, reply.next_begin - asked)
        if self._coverage.cover(asked, reply.next_begin, (), None, 0):
            self._outage.progressed(now_ms)

    def _learn(self, sent: InFlightPull, width: int) -> None:
        count_max, usual = sent.pull.count_max, self._pull_width.value
        if sent.is_open or (usual is not None and width < count_max >= usual):
            self._pull_width.observe(width)

    # --- chunks ---------------------------------------------------------------------------------

    def _is_gathered(self) -> bool:
        """True if waiting for more answers would not improve the next chunk soon."""
        coverage, edge = self._coverage, self._coverage.edge
        if coverage.held_bytes >= GATHER_BYTES or coverage.held_messages >= self._count_max:
            return True
        # Only a pull in flight that continues at the edge is worth waiting for.
        return not self._in_flight.covers(edge)

    def _take_loss(self) -> RangeChunk:
        loss = self._coverage.pop_loss()
        if self._loss_policy is LossPolicy.RAISE:
            raise RangeLostError(loss)
        return RangeChunk(loss.queue, loss.start, loss.end, b"", loss=loss)

    def _chunk(self, piece: Piece) -> RangeChunk:
        expected = None if self._is_filtered else piece.end - piece.start
        queue, body = self.wanted.queue, piece.body
        return RangeChunk(queue, piece.start, piece.end, body, piece.sizes, expected)

    # --- doubts and losses ----------------------------------------------------------------------

    def _open_doubt(self, kind: DoubtKind, start: int, end: int, now_ms: int) -> None:
        if not self._coverage.is_missing(start, end):
            return  # An earlier answer has brought these offsets.
        self._outage.trouble(now_ms, now_ms)
        if self._doubt is None:
            self._doubt = Doubt(kind, start, end)
            self._doubt_is_asked = False

    def _lose(self, loss: Loss) -> bool:
        """Mark offsets as gone; False if all of them were: that is no progress."""
        start = self._coverage.lose(loss)
        self._front = None
        if start is not None and self._loss_policy is LossPolicy.RAISE:
            self._goal = min(self._goal, start)
        return start is not None
