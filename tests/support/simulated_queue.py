"""One queue of a broker that behaves as real ones do, and a driver with virtual time and faults."""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rocketmq_client.download.contract import RangeChunk, ReadLimits, ReadSpec
from rocketmq_client.download.fetch_window import FetchWindow
from rocketmq_client.download.pulls import Pull
from rocketmq_client.loss import Loss, LossPolicy, Standing
from rocketmq_client.retry import Backoff
from rocketmq_client.retry_schedules import REQUEST
from rocketmq_wire.errors import (
    BrokerError,
    ConnectionLostError,
    DeadlineExceededError,
    broker_error,
)
from rocketmq_wire.model import Bounds, Buffer, OffsetRange, QueueId, Subscription
from rocketmq_wire.remoting.pulls import join_answers
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply, PullStatus

_HEAD = struct.Struct(">iq")
_ENTRIES_SCANNED_MIN = 800
STRAY_OFFSET = 1_000_000_000


def fake_records(offsets: Sequence[int], size_of: Callable[[int], int]) -> bytes:
    """Stand-ins for stored records: a size, an offset, padding."""
    parts = []
    for offset in offsets:
        size = size_of(offset)
        parts.append(_HEAD.pack(size, offset).ljust(size, b"."))
    return b"".join(parts)


def offsets_in(body: Buffer) -> list[int]:
    """The offsets of the records in a body."""
    offsets, position = [], 0
    while position < len(body):
        size, offset = _HEAD.unpack_from(body, position)
        offsets.append(offset)
        position += size
    return offsets


def first_offset_in(body: Buffer, stray_is: int | None = None) -> int | None:
    """`first_offset` for fake records; `stray_is` is the offset in the stray one."""
    first = offsets_in(body)[0]
    return stray_is if first == STRAY_OFFSET else first


@dataclass
class SimulatedQueue:
    """A queue `[start, end)` and the limits of the broker that holds it."""

    start: int
    end: int
    count_cap: int = 32
    bytes_cap: int = 256 * 1024
    index_file_count: int = 1_000_000_000
    is_filtered: bool = False
    matches: Callable[[int], bool] = lambda _: True
    size_of: Callable[[int], int] = lambda _: 120
    vanished: range = range(0)
    """Offsets that the queue lists, though their messages are gone."""
    is_first_out_of_range: bool = False
    """Offset 0 is gone, too, and brings the record of another message."""
    standing: Standing = Standing.SERVED
    reset_is_pending: bool = False
    refusal: BrokerError | None = None

    @property
    def is_gone(self) -> bool:
        return self.standing in (Standing.TOPIC_GONE, Standing.QUEUE_GONE)

    def bounds(self) -> Bounds:
        if self.is_gone:
            return Bounds(0, 0)
        has_first = self.start not in self.vanished and not self.is_first_out_of_range
        return Bounds(self.start, self.end, has_first=has_first)

    def pull(self, asked: int, count_max: int, bytes_max: int) -> PullReply:
        """Answer as section 5.1 of the protocol says. Raises BrokerError."""
        if self.refusal is not None:
            raise self.refusal
        if self.is_gone:
            raise broker_error(17, "topic not exist")
        if self.reset_is_pending:
            self.reset_is_pending = False
            return self._reply(PullStatus.OFFSET_ILLEGAL, self.start, remark="OFFSET_RESET")
        if self.end == 0 and asked == 0:
            return self._reply(PullStatus.NO_NEW_MESSAGE, 0, remark="NO_MESSAGE_IN_QUEUE")
        if asked < self.start:
            return self._reply(PullStatus.OFFSET_ILLEGAL, self.start, remark="OFFSET_TOO_SMALL")
        if asked > self.end:
            return self._reply(PullStatus.OFFSET_ILLEGAL, self.end, remark="OFFSET_OVERFLOW_BADLY")
        if asked == self.end:
            return self._reply(PullStatus.NO_NEW_MESSAGE, asked, remark="OFFSET_OVERFLOW_ONE")
        return self._scan(asked, count_max, min(self.bytes_cap, bytes_max))

    def _scan(self, asked: int, count_max: int, bytes_max: int) -> PullReply:
        file_end = (asked // self.index_file_count + 1) * self.index_file_count
        scan_end = min(self.end, file_end, asked + max(_ENTRIES_SCANNED_MIN, count_max))
        found: list[int] = []
        size, cursor = 0, asked
        while cursor < scan_end and len(found) < min(count_max, self.count_cap):
            if cursor in self.vanished or not self.matches(cursor):
                cursor += 1
                continue
            size += self.size_of(cursor)
            if found and size > bytes_max:
                break
            found.append(cursor)
            cursor += 1
        if not found:
            is_gone = asked in self.vanished
            remark = "MESSAGE_WAS_REMOVING" if is_gone else "NO_MATCHED_MESSAGE"
            return self._reply(PullStatus.NO_MATCHED_MESSAGE, cursor, remark=remark)
        stored = [self.stored_offset(offset) for offset in found]
        return self._reply(PullStatus.FOUND, cursor, (fake_records(stored, self.size_of),))

    def stored_offset(self, offset: int) -> int:
        """The offset in the record that stands for an offset."""
        return STRAY_OFFSET if self.is_first_out_of_range and not offset else offset

    def _reply(
        self,
        status: PullStatus,
        next_begin: int,
        records: tuple[Buffer, ...] = (),
        remark: str = "",
    ) -> PullReply:
        return PullReply(status, next_begin, self.start, self.end, records, remark=remark)


@dataclass(frozen=True)
class Faults:
    """How the way to the broker misbehaves; shares of one."""

    lost: float = 0.0
    duplicated: float = 0.0
    busy: float = 0.0
    broken: float = 0.0
    delay_ms_max: int = 20
    outage: tuple[int, int] = (0, 0)
    """During these milliseconds nothing gets through."""


@dataclass
class Driver:
    """Runs a window to its end against a queue, in virtual time, checking what it hands on."""

    window: FetchWindow
    queue: SimulatedQueue
    random: random.Random
    faults: Faults = field(default_factory=Faults)
    take_share: float = 1.0
    pull_timeout_ms: int = 3_000
    changes: list[tuple[int, Callable[[SimulatedQueue], None]]] = field(default_factory=list)
    now_ms: int = 1_000
    pulls: list[Pull] = field(default_factory=list)
    chunks: list[RangeChunk] = field(default_factory=list)
    in_flight_max: int = 0
    held_bytes_max: int = 0
    joint_troubles: int = 0
    """Answers to pulls sent as one that were not what was planned."""
    _events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _serial: int = 0

    def run(self) -> Driver:
        """Drive until the window is finished. Raises what the window raises, or on a hang."""
        for at_ms, change in self.changes:
            self._at(at_ms, partial(change, self.queue))
        for _ in range(200_000):
            self._take()
            if self.window.is_finished:
                return self
            while (pull := self.window.next_pull(self.now_ms)) is not None:
                self._send(pull)
            if self.window.wants_bounds(self.now_ms):
                self._send_bounds()
            self._advance()
        raise AssertionError("the window hangs")

    @property
    def offsets(self) -> list[int]:
        """Every wanted offset that was handed on, in order."""
        return [
            offset
            for chunk in self.chunks
            for offset in offsets_in(chunk.body)
            if chunk.start <= offset < chunk.end
        ]

    @property
    def losses(self) -> list[Loss]:
        return [chunk.loss for chunk in self.chunks if chunk.loss is not None]

    def check_order(self, gone: Container[int] = ()) -> None:
        """Chunks follow each other without a gap and hold what they claim.

        Of what is `gone` some may lack in an unfiltered chunk: readers count, and see it.
        """
        cursor = self.window.wanted.start
        for chunk in self.chunks:
            assert chunk.start == cursor < chunk.end
            cursor = chunk.end
            inside = [o for o in offsets_in(chunk.body) if chunk.start <= o < chunk.end]
            assert inside == sorted(set(inside)), "an offset twice or out of order in one chunk"
            if chunk.expected_count is not None:
                lack = set(range(chunk.start, chunk.end)).difference(inside)
                assert chunk.expected_count == chunk.end - chunk.start
                assert all(offset in gone for offset in lack) or chunk.loss is not None
        assert cursor == self.window.wanted.end

    def _at(self, at_ms: int, action: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at_ms, self._serial, action))

    def _delay(self) -> int:
        return self.random.randint(1, self.faults.delay_ms_max)

    def _is_out(self, at_ms: int) -> bool:
        return self.faults.outage[0] <= at_ms < self.faults.outage[1]

    def _take(self) -> None:
        while self.random.random() < self.take_share:
            chunk = self.window.take()
            if chunk is None:
                return
            self.chunks.append(chunk)

    def _send(self, pull: Pull) -> None:
        self.pulls.append(pull)
        self.in_flight_max = max(self.in_flight_max, self.window.in_flight)
        arrive_ms = self.now_ms + self._delay()
        timeout = DeadlineExceededError("broker-a", "no answer")
        self._at(
            self.now_ms + self.pull_timeout_ms,
            lambda: self.window.on_failure(pull.ticket, timeout, self.now_ms),
        )
        if self._is_out(arrive_ms) or self.random.random() < self.faults.broken:
            lost = ConnectionLostError("broker-a", "reset")
            self._at(arrive_ms, lambda: self.window.on_failure(pull.ticket, lost, self.now_ms))
        elif self.random.random() >= self.faults.lost:
            self._at(arrive_ms, lambda: self._answer(pull))

    def _answer(self, pull: Pull) -> None:
        """The broker carries the pull out now, or all of them; the answer arrives later."""
        answers = [
            self._answer_one(pull.start + number * pull.count_max, pull)
            for number in range(pull.times)
        ]
        result: PullReply | PullReplies | BrokerError = answers[0]
        if pull.times > 1:
            asked = PullMessages("group", ORDERS, pull.start, pull.count_max, times=pull.times)
            result = join_answers(asked, answers)
        for _ in range(2 if self.random.random() < self.faults.duplicated else 1):
            self._at(self.now_ms + self._delay(), lambda: self._report(pull.ticket, result))

    def _answer_one(self, start: int, pull: Pull) -> PullReply | BrokerError:
        if self.random.random() < self.faults.busy:
            return broker_error(self.random.choice([2, 215]), "slow down")
        try:
            return self.queue.pull(start, pull.count_max, pull.bytes_max)
        except BrokerError as error:
            return error

    def _report(self, ticket: int, result: PullReply | PullReplies | BrokerError) -> None:
        if isinstance(result, PullReply):
            self.window.on_reply(ticket, result, self.now_ms)
        elif isinstance(result, PullReplies):
            self.joint_troubles += 1
            self.window.on_replies(ticket, result.answers, self.now_ms)
        else:
            self.window.on_failure(ticket, result, self.now_ms)

    def _send_bounds(self) -> None:
        at_ms = self.now_ms + self._delay()
        if self._is_out(at_ms):
            lost = ConnectionLostError("broker-a", "reset")
            self._at(at_ms, lambda: self.window.on_bounds_failure(lost, self.now_ms))
            return
        self._at(
            at_ms,
            lambda: self.window.on_bounds(self.queue.bounds(), self.queue.standing, self.now_ms),
        )

    def _advance(self) -> None:
        """Advance to the next event or to the end of a back-off."""
        wake_ms = self.window.wake_at_ms()
        waits = wake_ms is not None and wake_ms > self.now_ms
        if self._events and not (waits and wake_ms < self._events[0][0]):  # type: ignore[operator]
            at_ms, _, action = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            action()
        elif waits:
            assert wake_ms is not None
            self.now_ms = wake_ms
        else:
            self.now_ms += 1
        self.held_bytes_max = max(self.held_bytes_max, self.window.held_bytes)


ORDERS = QueueId("orders", "broker-a", 3)
LIMITS = ReadLimits()


def window_of(
    start: int,
    end: int,
    limits: ReadLimits = LIMITS,
    *,
    is_filtered: bool = False,
    loss_policy: LossPolicy = LossPolicy.RAISE,
    **options: Any,
) -> FetchWindow:
    """A download of offsets of one queue."""
    subscription = Subscription("paid" if is_filtered else "*")
    spec = ReadSpec("readers", subscription, limits, loss_policy)
    backoff = Backoff(REQUEST.within(limits.outage_ms), random.Random(start).randint)
    return FetchWindow(OffsetRange(ORDERS, start, end), spec, backoff=backoff, **options)


def next_pull(window: FetchWindow, now_ms: int) -> Pull:
    """The next pull of a window that has one."""
    pull = window.next_pull(now_ms)
    assert pull is not None
    return pull


def take(window: FetchWindow) -> RangeChunk:
    """The next chunk of a window that has one."""
    chunk = window.take()
    assert chunk is not None
    return chunk


def driver_of(
    window: FetchWindow, queue: SimulatedQueue, *, seed: int = 1, **options: Any
) -> Driver:
    """What drives it against a simulated broker."""
    return Driver(window, queue, random.Random(seed), **options)
