"""What to ask a broker to know where one queue ends: pure.

When somebody wants to know, the end is asked for once. When somebody waits for arrivals, a pull is
then held at the broker until one comes: as long as it is held, the end is known. (Not before: a
query that is busy asks for ends at every batch, and would have each queue's next message sent to it
besides.) What was held for too long is held anew, whether or not somebody still wants to know: one
small request in `hold_ms` for an idle queue. Once something has arrived, nothing is asked until
somebody wants to know again.
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
# A real broker looks for expired holds every five seconds only.
_HOLD_GRACE_MS: Final = 10_000
ASK_TIMEOUT_MS: Final = 5_000
# A broker that does not hold pulls, or keeps calling the end illegal, is not asked without end.
_PAUSE_MS: Final = 200


class WatchState(enum.Enum):
    STALE = "something arrived since the end was asked for, or it never was"
    ASKING = "the end is being asked for"
    KNOWN = "the end was asked for and answered"
    HELD = "a pull is held: nothing has arrived"


@dataclass(slots=True)
class QueueWatch:
    """One queue; `demand` is a number that grows whenever somebody wants to know the end."""

    queue: QueueId
    group: str
    end: int | None = None
    state: WatchState = WatchState.STALE
    error: RocketMQError | None = None
    hold_ms: int = HOLD_MS
    """How long the broker may hold the pull."""
    _seen_demand: int = 0
    """The demand that the last answer, or the one under way, speaks for."""
    _is_under_way: bool = False
    _not_before_ms: int = 0
    _held_since_ms: int = 0
    _backoff: Backoff = field(default_factory=lambda: Backoff(END_OFFSET))

    def next_request(
        self, now_ms: int, demand: int, *, is_awaited: bool = False
    ) -> tuple[Request[Reply], int] | None:
        """A request to send now and its time-out, or None; `is_awaited` while somebody waits."""
        if self._is_under_way or now_ms < self._not_before_ms:
            return None
        if is_awaited and self.state is WatchState.KNOWN and demand <= self._seen_demand:
            self.state = WatchState.HELD
        if self.state is WatchState.HELD and self.end is not None:
            self._is_under_way = True
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
        self._is_under_way = True
        self._seen_demand = demand
        self.state = WatchState.ASKING
        return GetMaxOffset(self.queue), ASK_TIMEOUT_MS

    def on_answer(self, result: Reply | RocketMQError, now_ms: int) -> None:
        """The request under way was answered or failed."""
        self._is_under_way = False
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
        """Something arrived behind the known end, and nothing is in the way of asking again."""
        return self.state is WatchState.STALE and self.error is None

    def is_settled(self, demand: int) -> bool:
        """Nothing newer is to be had for this demand soon."""
        if self.error is not None or self.state is WatchState.HELD:
            return True
        return self._seen_demand >= demand and not self._is_under_way

    def wake_at_ms(self) -> int | None:
        """When a pause ends, behind which there is something to ask."""
        is_waiting = self.error is not None or self.state is WatchState.HELD
        return self._not_before_ms if is_waiting and not self._is_under_way else None

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
