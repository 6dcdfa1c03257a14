"""Downloads many ranges over one transport, and yields their chunks in order.

`Download.chunks` is the loop. It takes the finished calls, reports each result to the window of its
range, asks the windows for pulls to send, yields the foremost window's next chunk, and polls while
there is none. A window (`FetchWindow`) decides for its range; nothing calls back.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rocketmq_client.download import fresh_bounds
from rocketmq_client.download.contract import RangeChunk, ReadLimits, ReadSpec
from rocketmq_client.download.fetch_window import AHEAD_BYTES_MAX, FetchWindow
from rocketmq_client.download.pulls import Pull
from rocketmq_client.retry import Backoff
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.net.clock import ActiveClock, OutageLog
from rocketmq_client.transport.tcp.broker_requests import BrokerRequests
from rocketmq_client.transport.tcp.connection import Call
from rocketmq_wire.errors import CorruptRecordError, RocketMQError
from rocketmq_wire.model import Buffer, OffsetRange, QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply

_logger = logging.getLogger(__name__)

# A download looks at its clocks at least this often.
_STEP_MS_MAX: Final = 1_000
# Small pulls that are sent as one: with sixteen, the cost of each of them vanishes.
_TIMES_MAX: Final = 16
# In flight at one broker, so on one connection, for any number of ranges: eight queues with
# sixteen each. Hundreds gain nothing over that, and a broker works off some sixteen at a time, for
# all its clients: the others' would wait behind them.
PULLS_PER_BROKER_MAX: Final = 128


class Download:
    """The first pulls of all ranges are sent at once; then the foremost range comes first."""

    def __init__(
        self,
        settings: ConnectionSettings,
        clock: ActiveClock,
        requests: BrokerRequests,
        ranges: Sequence[OffsetRange],
        spec: ReadSpec,
    ) -> None:
        self._clock = clock
        self._requests = requests
        self._spec = spec
        self._windows = [_window(wanted, spec, settings) for wanted in ranges]
        self._pulls: dict[Call, tuple[FetchWindow, Pull]] = {}
        """The pulls in flight."""
        self._inquiries: dict[Call, _Inquiry] = {}
        """The requests in flight for fresh bounds."""
        self._inbox: list[Call] = []
        """The finished ones of both."""
        self._outage_log = OutageLog(_logger, spec.limits.outage_ms)

    def chunks(self) -> Iterator[RangeChunk]:
        """Every range's chunks, in the order given."""
        self._clock.enter()
        try:
            while self._windows:
                self._take_results()
                self._send_requests()
                foremost = self._windows[0]
                chunk = foremost.take()
                if chunk is not None:
                    self._outage_log.end_wait()
                    # The next pulls are on their way before the consumer goes to work.
                    self._send_requests()
                    self._requests.flush()
                    self._clock.leave()
                    try:
                        yield chunk
                    finally:
                        self._clock.enter()
                elif foremost.is_finished:
                    self._windows.pop(0)
                else:
                    self._outage_log.log_wait(self._clock.now_ms(), foremost.waits_for)
                    self._requests.step(0 if self._inbox else self._wait_ms())
        finally:
            # Replies to inquiries are small: they may still come, into an inbox without a reader.
            self._requests.give_up(self._pulls)
            self._clock.leave()

    def _wait_ms(self) -> int:
        """Until the first back-off ends that keeps a window from asking."""
        now_ms = self._clock.now_ms()
        wait_ms = _STEP_MS_MAX
        for window in self._windows:
            wake_at_ms = window.wake_at_ms()
            if wake_at_ms is not None and wake_at_ms > now_ms:
                wait_ms = min(wait_ms, wake_at_ms - now_ms)
        return wait_ms

    # --- requests -----------------------------------------------------------------------------

    def _send_requests(self) -> None:
        """Send what the windows want to send, the foremost one first."""
        limits = self._spec.limits
        now_ms = self._clock.now_ms()
        for window in self._windows:
            if window.wants_bounds(now_ms):
                self._send_inquiry(window)
        for window, pull in due_pulls(self._windows, limits, now_ms):
            self._send_pull(window, pull)

    def _send_pull(self, window: FetchWindow, pull: Pull) -> None:
        queue = window.wanted.queue
        request = PullMessages(
            group=self._spec.group,
            queue=queue,
            start=pull.start,
            count_max=pull.count_max,
            bytes_max=pull.bytes_max,
            times=pull.times,
            subscription=self._spec.subscription,
        )
        call = self._requests.ask(
            queue.broker,
            request,
            self._inbox,
            timeout_ms=self._spec.limits.pull_timeout_ms,
            slow_ms=self._spec.limits.slow_pull_ms,
        )
        self._pulls[call] = window, pull

    def _send_inquiry(self, window: FetchWindow) -> None:
        """Ask for everything at once; the replies come behind those of pulls."""
        inquiry = _Inquiry(window)
        for broker, request in fresh_bounds.requests_for(window.wanted.queue):
            call = self._requests.ask(
                broker,
                request,
                self._inbox,
                timeout_ms=fresh_bounds.TIMEOUT_MS,
                slow_ms=self._spec.limits.slow_pull_ms,
            )
            inquiry.calls.append(call)
            self._inquiries[call] = inquiry

    # --- results ------------------------------------------------------------------------------

    def _take_results(self) -> None:
        """Report each finished call to its window. Raises the error that ends the download."""
        for call in self._inbox:
            pulled = self._pulls.pop(call, None)
            if pulled is not None:
                self._take_pull(*pulled, call)
                continue
            inquiry = self._inquiries.pop(call)
            inquiry.done_count += 1
            if inquiry.done_count == len(inquiry.calls):
                _take_bounds(inquiry, call.done_ms)
        self._inbox.clear()

    def _take_pull(self, window: FetchWindow, pull: Pull, call: Call) -> None:
        broker, result = window.wanted.queue.broker, call.result
        if isinstance(result, PullReply):
            self._outage_log.log_recovery(call.done_ms, broker)
            window.on_reply(pull.ticket, result, call.done_ms)
        elif isinstance(result, PullReplies):
            self._outage_log.log_recovery(call.done_ms, broker)
            window.on_replies(pull.ticket, result.answers, call.done_ms)
        else:
            assert isinstance(result, RocketMQError)
            window.on_failure(pull.ticket, result, call.done_ms, heard_ms=call.heard_ms)
            self._outage_log.log(result, call.done_ms, broker)


@dataclass(slots=True)
class _Inquiry:
    """The requests for a queue's fresh bounds and its topic's fresh route, for a window's doubt."""

    window: FetchWindow
    calls: list[Call] = field(default_factory=list)
    done_count: int = 0


def _take_bounds(inquiry: _Inquiry, now_ms: int) -> None:
    """Report fresh bounds to the window, or why there are none."""
    window, queue = inquiry.window, inquiry.window.wanted.queue
    results = [call.result for call in inquiry.calls if call.result is not None]
    found = fresh_bounds.read_answers(queue, *results)
    if isinstance(found, RocketMQError):
        window.on_bounds_failure(found, now_ms)
        return
    bounds, standing = found
    reset_count = window.reset_count
    window.on_bounds(bounds, standing, now_ms)
    if window.reset_count > reset_count:
        # The broker has a reset of the group in mind. The ranges to read were planned before.
        _logger.warning(
            "%s: an offset within [%d,%d) was called illegal; asking again",
            queue,
            bounds.start,
            bounds.end,
        )


def _window(wanted: OffsetRange, spec: ReadSpec, settings: ConnectionSettings) -> FetchWindow:
    return FetchWindow(
        wanted,
        spec,
        backoff=Backoff(settings.request_retry.within(spec.limits.outage_ms)),
        first_offset=partial(first_offset, wanted.queue),
        times_max=_TIMES_MAX,
    )


def due_pulls(
    windows: Sequence[FetchWindow], limits: ReadLimits, now_ms: int
) -> Iterator[tuple[FetchWindow, Pull]]:
    """Schedule pulls to send now, the foremost range's first; each counts as in flight at once.

    The reader waits for the foremost range's chunks. Within the limits the next ranges are read
    ahead. So every range gets its turn, at the latest when it is the foremost.
    """
    bytes_free = min(limits.bytes_max, 2 * AHEAD_BYTES_MAX)
    bytes_free -= sum(window.outstanding_bytes for window in windows)
    in_flight_max = max(PULLS_PER_BROKER_MAX, limits.pulls_in_flight)
    in_flight: defaultdict[str, int] = defaultdict(int)
    # A few ranges cannot have too many, and this runs for every few answers.
    if len(windows) * limits.pulls_in_flight > in_flight_max:
        for window in windows:
            in_flight[window.wanted.queue.broker] += window.in_flight
    is_urgent = True
    for window in windows:
        broker = window.wanted.queue.broker
        while in_flight[broker] < in_flight_max and not window.is_covered:
            before = window.outstanding_bytes
            pull = window.next_pull(now_ms, bytes_free=bytes_free, is_urgent=is_urgent)
            if pull is None:
                break
            bytes_free -= window.outstanding_bytes - before
            in_flight[broker] += pull.times
            yield window, pull
        is_urgent = False


def first_offset(queue: QueueId, body: Buffer) -> int | None:
    """Return the queue offset of the body's first record; None if it is another queue's, or torn.

    Once the oldest file of RocketMQ's log has expired, a pull of a queue whose first message was
    the very first of the log is answered from the oldest file that is left: with as many bytes of
    any other record. RocketMQ finds every other expired message missing. Bytes that are merely
    damaged count as offset 0: the decoder judges them.
    """
    if int.from_bytes(body[:4], "big") > len(body):
        return None
    try:
        message, _ = decode_record(body, check_crc=False)
    except CorruptRecordError:
        return 0
    is_own = (message.topic, message.queue_index) == (queue.topic, queue.index)
    return message.queue_offset if is_own else None
