"""Pull requests: which status, which messages, where to go on, and when to wait instead.

start of the pull          status           next_begin
queue empty, start 0       NO_NEW_MESSAGE   0             may wait
queue empty, start not 0   OFFSET_ILLEGAL   0
after a reset, once        OFFSET_ILLEGAL   where the reset was to
below the queue            OFFSET_ILLEGAL   first offset
in the queue               FOUND, or NO_MATCHED_MESSAGE   behind the last entry examined
at its end                 NO_NEW_MESSAGE   the end       may wait
beyond its end             OFFSET_ILLEGAL   the end
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Answer, Hold, Outcome
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.engine.groups.committed_offsets import Progress
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.engine.messages.filtering import (
    SQL_SCAN_MAX,
    SQL_SCAN_SIZE_MAX,
    Filter,
    filter_of,
    pick,
)
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import Bounds, Subscription
from rocketmq_wire.requests.messages import LOST_REMARK, PullMessages, PullReply, PullStatus

# A filtered pull looks at as many entries as it asks for messages, but at least at these
# (16,000 bytes of 20 in RocketMQ), and never at more than keeps the loop busy for long.
_SCAN_MIN: Final = 800
_SCAN_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PullLimits:
    """What one pull gets at most, and how long it may wait."""

    count_max: int
    bytes_max: int
    suspend_ms_max: int
    """0: no pull waits."""
    stops_at_file_end: bool = False
    """As in RocketMQ, where no pull goes past the end of a consume queue file."""
    allows_sql: bool = False
    """Pulls may filter by expressions over properties, not only by tags."""


class Pulling:
    """The rules of pulling, over the broker's tables and its store."""

    def __init__(
        self,
        limits: PullLimits,
        *,
        store: Store,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        progress: Progress,
    ) -> None:
        self.limits, self._store = limits, store
        self._topics, self._groups, self._clients = topics, groups, clients
        self._progress = progress

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
        moved = self._progress.take_reset(request.group, request.queue)
        if moved is not None:
            illegal = PullStatus.OFFSET_ILLEGAL
            return Answer(
                PullReply(illegal, moved, bounds.start, bounds.end, remark="OFFSET_RESET")
            )
        if request.commit is not None:
            self._progress.commit(request.group, request.queue, request.commit)
        misplaced = _status_outside(request.start, bounds)
        if misplaced is None:
            reply = self._read(request, bounds, wanted)
            self._progress.note_pull(request.group, request.queue, reply.next_begin)
            return Answer(reply)
        status, next_begin, remark = misplaced
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
        """Ask a held pull again: its queue grew, or its time is over (`is_final`).

        What grew may not match the filter. The pull then keeps waiting, behind what was examined.
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
        # As RocketMQ, which gives one message to who asks for none.
        count_max = min(max(request.count_max, 1), limits.count_max)
        bytes_max = limits.bytes_max
        if request.bytes_max is not None and request.bytes_max > 0:
            bytes_max = min(bytes_max, request.bytes_max)
        scan_max = min(max(_SCAN_MIN, request.count_max), _SCAN_MAX)
        if wanted.selector is not None:
            return self._read_selected(request, bounds, wanted, count_max, bytes_max)
        found = self._store.read(
            request.queue.topic,
            request.queue.index,
            request.start,
            count_max=count_max,
            bytes_max=bytes_max,
            tag_hashes=wanted.tag_hashes,
            scan_max=scan_max,
            stops_at_file_end=limits.stops_at_file_end,
        )
        return PullReply(
            PullStatus.FOUND if found.count else PullStatus.NO_MATCHED_MESSAGE,
            found.next_begin,
            bounds.start,
            bounds.end,
            records=found.parts,
            sizes=found.sizes,
            remark="FOUND" if found.count else LOST_REMARK if found.lost else "NO_MATCHED_MESSAGE",
        )

    def _read_selected(
        self,
        request: PullMessages,
        bounds: Bounds,
        wanted: Filter,
        count_max: int,
        bytes_max: int,
    ) -> PullReply:
        assert wanted.selector is not None
        found = self._store.read(
            request.queue.topic,
            request.queue.index,
            request.start,
            count_max=min(max(_SCAN_MIN, request.count_max), SQL_SCAN_MAX),
            bytes_max=SQL_SCAN_SIZE_MAX,
            stops_at_file_end=self.limits.stops_at_file_end,
        )
        if found.lost:
            return PullReply(
                PullStatus.NO_MATCHED_MESSAGE,
                found.next_begin,
                bounds.start,
                bounds.end,
                remark=LOST_REMARK,
            )
        picked = pick(
            wanted.selector,
            found.parts,
            np.frombuffer(found.sizes, "<i4"),
            count_max=count_max,
            bytes_max=bytes_max,
        )
        status = PullStatus.FOUND if picked.count else PullStatus.NO_MATCHED_MESSAGE
        return PullReply(
            status,
            request.start + picked.scanned,
            bounds.start,
            bounds.end,
            records=picked.parts,
            sizes=picked.sizes,
            remark=status.name,
        )


def _status_outside(start: int, bounds: Bounds) -> tuple[PullStatus, int, str] | None:
    """Status, next begin and remark of a pull that meets no message; None if it meets some."""
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
