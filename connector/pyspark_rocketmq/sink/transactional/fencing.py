"""Whose turn it is to commit a decision, and how long what another has asked may be under way.

Who is at it says so in the decision topic each second, before what it asks of the brokers. The last
one who begins has it: a driver that was thought dead, and wakes up, sees that and stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark_rocketmq.errors import ReplayError
from pyspark_rocketmq.sink.transactional.decision_log import Decision, DecisionLog
from rocketmq_wire.model import QueueId

_TURN_SECONDS: Final = 1.0
_UNDER_WAY_SECONDS: Final = 6.0
"""So long after a turn no request of one who took no further may be under way, or be worked on."""
_AWAKE_SECONDS: Final = 0.3
"""A broker that stood still until now reads first what others had sent it before: 256 ends at most,
which take it some 30 ms."""


class FencingToken:
    """One driver's turn at a decision, known to the brokers for as long as it lasts."""

    def __init__(
        self,
        log: DecisionLog,
        decision: Decision,
        decided_at: float | None = None,
        heads: Mapping[QueueId, int] | None = None,
    ) -> None:
        """`decided_at`: it is decided by us, at that time or later, and these are its heads."""
        self._log, self.decision, self._taken_at = log, decision, decided_at
        self.since: dict[QueueId, int] = dict(heads or {})
        """The records with which it began."""

    def take(self) -> None:
        """Say that we are at it, unless we have said so just now.

        Raises RocketMQError, and as one ReplayError: somebody else has begun since.
        """
        now = time.monotonic()
        if self._taken_at is not None and now - self._taken_at <= _TURN_SECONDS:
            return
        records = self._log.store_turn(self.decision)
        if not self.since:
            self.since = records
        elif self._log.is_taken_over(self.decision, self.since, records):
            query, batch = self.decision.query, self.decision.batch
            raise ReplayError(query, batch, "is being finished by another driver")
        self._taken_at = now


def wait_for_others(
    brokers: Iterable[str], turns: Mapping[str, int], now: Mapping[str, int], seconds_max: float
) -> float:
    """How long what a dead driver asked of these may be under way, by their clocks in ms."""
    wait = _AWAKE_SECONDS
    for broker in brokers:
        if broker not in turns or broker not in now:
            return seconds_max
        wait = max(wait, _UNDER_WAY_SECONDS - (now[broker] - turns[broker]) / 1_000)
    return min(wait, seconds_max)
