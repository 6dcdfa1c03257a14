"""Pull requests: their status, messages and next offset, and whether they wait instead.

start of the pull          status           next_begin
queue empty, start 0       NO_NEW_MESSAGE   0             may wait
queue empty, start not 0   OFFSET_ILLEGAL   0
after a reset, once        OFFSET_ILLEGAL   the offset of the reset
below the queue            OFFSET_ILLEGAL   first offset
in the queue               FOUND, or NO_MATCHED_MESSAGE   behind the last entry examined
at its end                 NO_NEW_MESSAGE   the end       may wait
beyond its end             OFFSET_ILLEGAL   the end
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Answer, Hold, Outcome
from rocketmq_broker.engine.messages.filtering import Filter, filter_of, read_matching
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.model import Bounds, Subscription
from rocketmq_wire.requests.messages import LOST_REMARK, PullMessages, PullReply, PullStatus

# A filtered pull examines as many entries as it asks for messages, but at least _SCAN_MIN (as in
# RocketMQ: 16,000 bytes of 20 each), and at most _SCAN_MAX, so that it does not block the loop.
_SCAN_MIN: Final = 800
_SCAN_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The most that one pull gets, and how long it may wait."""

    count_max: int
    bytes_max: int
    suspend_ms_max: int
    """0: no pull waits."""
    stops_at_file_end: bool
    """True: as in RocketMQ, no pull reads past the end of a consume queue file."""
    allows_sql: bool
    """True: pulls may filter by expressions over properties, not only by tags."""


class Pulling:
    def __init__(self, tables: Tables) -> None:
        config = tables.config
        self.limits = PullLimits(
            config.transfer_count_max,
            config.transfer_bytes_max,
            config.longest_hold_ms,
            config.pull_stops_at_queue_file_end,
            config.property_filter,
        )
        self._store = tables.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = tables.clients
        self._committed = tables.committed

    def pull(self, request: PullMessages, now_ms: int, *, is_final: bool = False) -> Outcome:
        """Answer a pull, or hold it. Refusals: 1, 16, 17, 23, 24, 25, 26, 27, 29."""
        self._groups.ensure(request.group)
        self._topics.require_readable(request.queue)
        wanted = filter_of(
            self._subscription(request),
            allows_sql=self.limits.allows_sql,
            is_registered=request.uses_registered_subscription,
        )
        bounds = self._store.bounds(request.queue.topic, request.queue.index)
        moved = self._committed.take_reset(request.group, request.queue)
        outside: tuple[PullStatus, int, str] | None
        if moved is not None:
            outside = PullStatus.OFFSET_ILLEGAL, moved, "OFFSET_RESET"
        else:
            if request.commit is not None:
                self._committed.commit(request.group, request.queue, request.commit)
            outside = _status_outside(request.start, bounds)
        if outside is None:
            reply = self._read(request, bounds, wanted)
            self._committed.note_pull(request.group, request.queue, reply.next_begin)
            return Answer(reply)
        status, next_begin, remark = outside
        suspend_ms = min(request.suspend_ms or 0, self.limits.suspend_ms_max)
        if status is PullStatus.NO_NEW_MESSAGE and suspend_ms > 0 and not is_final:
            return Hold(
                request.queue,
                request.start,
                now_ms + suspend_ms,
                replace(request, commit=None) if request.commit is not None else request,
            )
        return Answer(PullReply(status, next_begin, bounds.start, bounds.end, remark=remark))

    def resume(self, hold: Hold, now_ms: int, *, is_final: bool) -> Outcome:
        """Repeat a held pull: its queue grew, or its time is over (`is_final`).

        If the new messages do not match the filter, the pull waits on behind them.
        """
        outcome = self.pull(hold.request, now_ms, is_final=is_final)
        if is_final:
            return outcome
        if isinstance(outcome, Hold):
            return replace(outcome, expires_at_ms=hold.expires_at_ms)
        reply = outcome.reply if isinstance(outcome, Answer) else None
        if isinstance(reply, PullReply) and reply.status is PullStatus.NO_MATCHED_MESSAGE:
            moved = replace(hold.request, start=reply.next_begin)
            return Hold(hold.queue, reply.next_begin, hold.expires_at_ms, moved)
        return outcome

    def _subscription(self, request: PullMessages) -> Subscription:
        if not request.uses_registered_subscription:
            return request.subscription
        topic = request.queue.topic
        registered = self._clients.subscription(request.group, topic)
        if registered is None:
            raise refusals.subscription_missing(request.group, topic)
        if registered.version < request.subscription_version:
            raise refusals.subscription_outdated(request.group, topic)
        return registered.subscription

    def _read(self, request: PullMessages, bounds: Bounds, wanted: Filter) -> PullReply:
        limits = self.limits
        # As in RocketMQ, a pull for no message gets one.
        count_max = min(max(request.count_max, 1), limits.count_max)
        bytes_max = limits.bytes_max
        if request.bytes_max is not None and request.bytes_max > 0:
            bytes_max = min(bytes_max, request.bytes_max)
        scan_max = min(max(_SCAN_MIN, request.count_max), _SCAN_MAX)
        found = read_matching(
            self._store,
            request.queue.topic,
            request.queue.index,
            request.start,
            wanted,
            count_max=count_max,
            bytes_max=bytes_max,
            scan_max=scan_max,
            stops_at_file_end=limits.stops_at_file_end,
        )
        status = PullStatus.FOUND if found.count else PullStatus.NO_MATCHED_MESSAGE
        return PullReply(
            status,
            found.next_begin,
            bounds.start,
            bounds.end,
            records=found.parts,
            sizes=found.sizes,
            remark=LOST_REMARK if found.lost else status.name,
        )


def _status_outside(start: int, bounds: Bounds) -> tuple[PullStatus, int, str] | None:
    """Status, next begin and remark of a pull outside the queue's messages; None inside."""
    if bounds.end == 0:
        if start == 0:
            return PullStatus.NO_NEW_MESSAGE, 0, "NO_MESSAGE_IN_QUEUE"
        return PullStatus.OFFSET_ILLEGAL, 0, "NO_MESSAGE_IN_QUEUE"
    if start < bounds.start:
        return PullStatus.OFFSET_ILLEGAL, bounds.start, "OFFSET_TOO_SMALL"
    if start == bounds.end:
        return PullStatus.NO_NEW_MESSAGE, start, "OFFSET_OVERFLOW_ONE"
    if start > bounds.end:
        return PullStatus.OFFSET_ILLEGAL, bounds.end, "OFFSET_OVERFLOW_BADLY"
    return None
