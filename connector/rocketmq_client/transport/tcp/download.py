"""Downloads many ranges over one transport: drives their windows and hands chunks on in order."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from rocketmq_client.download import fresh_bounds
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.download.fetch_window import FetchWindow
from rocketmq_client.download.first_record import first_offset
from rocketmq_client.download.in_flight_pulls import Pull
from rocketmq_client.download.pull_scheduling import due_pulls
from rocketmq_client.retry import Backoff
from rocketmq_wire.errors import RocketMQError, TransportError
from rocketmq_wire.model import OffsetRange
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply

if TYPE_CHECKING:
    from rocketmq_client.transport.tcp.exchange import Handle
    from rocketmq_client.transport.tcp.transport import TcpTransport

_logger = logging.getLogger(__name__)

# Nothing of a download waits longer than this without looking at its clocks.
_STEP_MS_MAX: Final = 1_000
# Small pulls that are sent as one: with sixteen, what is done for each of them vanishes.
_TIMES_MAX: Final = 16


class Download:
    """The first pulls of all ranges are sent at once; then the foremost range comes first."""

    def __init__(
        self, transport: TcpTransport, ranges: Sequence[OffsetRange], spec: ReadSpec
    ) -> None:
        self._transport = transport
        self._spec = spec
        self._windows = [
            FetchWindow(
                wanted,
                spec.limits,
                is_filtered=not spec.subscription.selects_all,
                loss_policy=spec.loss_policy,
                backoff=Backoff(
                    transport.settings.retry_delay_ms,
                    transport.settings.retry_delay_ms_max,
                    random.Random(),
                ),
                first_offset=partial(first_offset, wanted.queue),
                times_max=_TIMES_MAX,
            )
            for wanted in ranges
        ]
        self._handles: dict[tuple[int, int], Handle] = {}
        self._error: RocketMQError | None = None
        self._is_closed = False
        self._awaited: dict[str, int] = {}
        """Brokers that are away, and said to be: since when."""

    def chunks(self) -> Iterator[RangeChunk]:
        """Every range's chunks, in the order given."""
        clock = self._transport.clock
        clock.enter()
        try:
            while self._windows:
                chunk = self._next_chunk()
                if chunk is None:
                    continue
                # The next pulls are on their way before the consumer goes to work.
                self._pump()
                self._transport.exchange.flush()
                clock.leave()
                try:
                    yield chunk
                finally:
                    clock.enter()
        finally:
            self._is_closed = True
            self._transport.exchange.cut(self._handles.values())
            self._handles.clear()
            clock.leave()

    def _next_chunk(self) -> RangeChunk | None:
        """The next chunk, or None after one turn of waiting or at the end of a range."""
        self._pump()
        if self._error is not None:
            raise self._error
        first = self._windows[0]
        chunk = first.take()
        if chunk is not None:
            return chunk
        if first.is_finished:
            self._windows.pop(0)
            return None
        self._transport.exchange.step(self._wait_ms())
        return None

    def _wait_ms(self) -> int:
        """Until the first back-off ends that keeps a window from asking."""
        now_ms = self._transport.clock.now_ms()
        wait_ms = _STEP_MS_MAX
        for window in self._windows:
            wake_at_ms = window.wake_at_ms()
            if wake_at_ms is not None and wake_at_ms > now_ms:
                wait_ms = min(wait_ms, wake_at_ms - now_ms)
        return wait_ms

    # --- asking -------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what the windows want to send, the foremost one first."""
        limits, now_ms = self._spec.limits, self._transport.clock.now_ms()
        for window in self._windows:
            if window.wants_bounds(now_ms):
                _BoundsQuestion(self._transport, window, self._report).ask(limits.slow_pull_ms)
        for window, pull in due_pulls(self._windows, limits, now_ms):
            self._send(window, pull)

    def _send(self, window: FetchWindow, pull: Pull) -> None:
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
        key = (id(window), pull.ticket)
        self._transport.ask(
            queue.broker,
            request,
            partial(self._on_done, window, pull, key),
            self._spec.limits.pull_timeout_ms,
            partial(self._on_sent, key),
            self._spec.limits.slow_pull_ms,
        )

    def _on_sent(self, key: tuple[int, int], handle: Handle) -> None:
        if self._is_closed:
            self._transport.exchange.cut([handle])
        else:
            self._handles[key] = handle

    def _on_done(
        self,
        window: FetchWindow,
        pull: Pull,
        key: tuple[int, int],
        result: Reply | RocketMQError,
    ) -> None:
        handle = self._handles.pop(key, None)
        if self._is_closed:
            return
        now_ms = self._transport.clock.now_ms()
        try:
            if isinstance(result, PullReply):
                self._say_back(window.wanted.queue.broker, now_ms)
                window.on_reply(pull.ticket, result, now_ms)
            elif isinstance(result, PullReplies):
                self._say_back(window.wanted.queue.broker, now_ms)
                window.on_replies(pull.ticket, result.answers, now_ms)
            else:
                assert isinstance(result, RocketMQError)
                heard_ms = handle.connection.heard_ms if handle is not None else 0
                window.on_failure(pull.ticket, result, now_ms, heard_ms=heard_ms)
                self._say_awaited(window.wanted.queue.broker, result)
        except RocketMQError as error:
            self._error = self._error or error

    def _say_awaited(self, broker: str, error: RocketMQError) -> None:
        """Say once for each outage that the download waits, and for how long."""
        if isinstance(error, TransportError) and broker not in self._awaited:
            self._awaited[broker] = self._transport.clock.now_ms()
            _logger.warning(
                "waiting for %s for up to %.0f s: %s",
                broker,
                self._spec.limits.outage_ms / 1_000,
                error,
            )

    def _say_back(self, broker: str, now_ms: int) -> None:
        """Say that the outage is over which was told of."""
        since_ms = self._awaited.pop(broker, None) if self._awaited else None
        if since_ms is not None:
            seconds = (now_ms - since_ms) / 1_000
            _logger.warning("%s answers again after %.1f s, the download goes on", broker, seconds)

    def _report(self, error: RocketMQError) -> None:
        self._error = self._error or error


class _BoundsQuestion:
    """Fresh bounds of a queue and a fresh route of its topic, for a window in doubt."""

    def __init__(
        self,
        transport: TcpTransport,
        window: FetchWindow,
        report: Callable[[RocketMQError], None],
    ) -> None:
        self._transport = transport
        self._window = window
        self._report = report
        self._questions = fresh_bounds.questions(window.wanted.queue)
        self._answers: dict[int, Reply | RocketMQError] = {}

    def ask(self, slow_ms: int) -> None:
        """Ask everything at once; the answers come behind those of pulls."""
        for place, (broker, request) in enumerate(self._questions):
            on_done = partial(self._on_answer, place)
            self._transport.ask(broker, request, on_done, fresh_bounds.TIMEOUT_MS, slow_ms=slow_ms)

    def _on_answer(self, place: int, result: Reply | RocketMQError) -> None:
        self._answers[place] = result
        if len(self._answers) < len(self._questions):
            return
        now_ms = self._transport.clock.now_ms()
        try:
            self._decide(now_ms)
        except RocketMQError as error:
            self._report(error)

    def _decide(self, now_ms: int) -> None:
        window, queue = self._window, self._window.wanted.queue
        answers = (self._answers[place] for place in range(len(self._questions)))
        found = fresh_bounds.read_answers(queue, *answers)
        if isinstance(found, RocketMQError):
            window.on_bounds_failure(found, now_ms)
            return
        bounds, standing = found
        resets = window.reset_count
        window.on_bounds(bounds, standing, now_ms)
        if window.reset_count > resets:
            # The broker has a reset of the group in mind. What is to be read was planned before.
            _logger.warning(
                "%s: an offset within [%d,%d) was called illegal; asking again",
                queue,
                bounds.start,
                bounds.end,
            )
