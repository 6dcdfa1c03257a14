"""Watches the end of one queue: pure.

The end is asked for when a caller wants to know it. While a caller waits for messages, a pull is
held at the broker until one arrives; the end is known for as long as the pull is held. (Without a
waiting caller no pull is held: a busy query asks for ends at every batch, and would receive each
queue's next message twice.) A held pull that expires is sent again, also without a caller: one
small request in `hold_ms` for an idle queue. After an arrival nothing is asked until the next
caller.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.retry import END_OFFSET, Backoff
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply

HOLD_MS: Final = 15_000
# A real broker looks for expired pulls every five seconds only.
_HOLD_GRACE_MS: Final = 10_000
ASK_TIMEOUT_MS: Final = 5_000
# The pause if a broker does not hold pulls, or keeps calling the end illegal.
_PAUSE_MS: Final = 200


class WatchState(enum.Enum):
    STALE = "a message arrived since the end was asked for, or the end was never asked for"
    ASKING = "the end is being asked for"
    KNOWN = "the end was asked for and answered"
    HELD = "a pull is held: nothing has arrived"


@dataclass(slots=True)
class QueueWatch:
    """One queue. `demand` is a number that grows with every caller who wants the end."""

    queue: QueueId
    group: str
    end: int | None = None
    state: WatchState = WatchState.STALE
    error: RocketMQError | None = None
    hold_ms: int = HOLD_MS
    """The time for which the broker may hold a pull."""
    _seen_demand: int = 0
    """The demand that the last request was sent for."""
    _is_in_flight: bool = False
    _not_before_ms: int = 0
    _held_since_ms: int = 0
    _backoff: Backoff = field(default_factory=lambda: Backoff(END_OFFSET))

    def next_request(
        self, now_ms: int, demand: int, *, is_awaited: bool = False
    ) -> tuple[Request[Reply], int] | None:
        """Return a request to send now and its time-out; `is_awaited` while a caller waits."""
        if self._is_in_flight or now_ms < self._not_before_ms:
            return None
        if is_awaited and self.state is WatchState.KNOWN and demand <= self._seen_demand:
            self.state = WatchState.HELD
        if self.state is WatchState.HELD and self.end is not None:
            self._is_in_flight = True
            self._held_since_ms = now_ms
            pull = PullMessages(
                group=self.group,
                queue=self.queue,
                start=self.end,
                count_max=1,
                suspend_ms=self.hold_ms,
            )
            return pull, self.hold_ms + _HOLD_GRACE_MS
        if demand <= self._seen_demand and self.error is None:
            return None
        self._is_in_flight = True
        self._seen_demand = demand
        self.state = WatchState.ASKING
        return GetMaxOffset(self.queue), ASK_TIMEOUT_MS

    def on_answer(self, result: Reply | RocketMQError, now_ms: int) -> None:
        """Note the answer, or the error, of the request in flight."""
        self._is_in_flight = False
        if isinstance(result, OffsetReply):
            self._know(result.value)
            self.state = WatchState.KNOWN
        elif isinstance(result, PullReply):
            self._on_pull(result, now_ms)
        else:
            assert isinstance(result, RocketMQError)
            self.error = result
            self.state = WatchState.STALE
            self._not_before_ms = now_ms + self._backoff.next_delay_ms()

    @property
    def is_stale(self) -> bool:
        """Whether a message arrived behind the known end, and the end can be asked for again."""
        return self.state is WatchState.STALE and self.error is None

    def is_settled(self, demand: int) -> bool:
        """Whether no newer answer will come soon for this demand."""
        if self.error is not None or self.state is WatchState.HELD:
            return True
        return self._seen_demand >= demand and not self._is_in_flight

    def wake_at_ms(self) -> int | None:
        """When a pause ends after which a request is due."""
        is_waiting = self.error is not None or self.state is WatchState.HELD
        return self._not_before_ms if is_waiting and not self._is_in_flight else None

    def _on_pull(self, reply: PullReply, now_ms: int) -> None:
        if reply.status is PullStatus.FOUND or reply.end > (self.end or 0):
            self.state = WatchState.STALE
        elif now_ms - self._held_since_ms < _PAUSE_MS:
            self._not_before_ms = now_ms + _PAUSE_MS
        self._know(reply.end)

    def _know(self, end: int) -> None:
        self.end = end
        self.error = None
        self._backoff.reset()
