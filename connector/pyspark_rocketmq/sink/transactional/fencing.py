"""Fencing: which driver may finish a decision, and how long another's requests may be in flight.

The driver that commits stores a token in the decision topic each second, before the requests that
it covers. The driver with the newest first token may commit: one that was taken for dead and wakes
up finds the other's token and stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark_rocketmq.errors import ReplayError
from pyspark_rocketmq.sink.transactional.decision_log import Decision, DecisionLog
from rocketmq_wire.model import QueueId

_TOKEN_SECONDS: Final = 1.0
_IN_FLIGHT_SECONDS: Final = 6.0
"""A driver's last request is done this long after its last token."""
_BACKLOG_SECONDS: Final = 0.3
"""A broker that was suspended first handles the requests it had received: at most 256 ends, which
take it some 30 ms."""


class FencingToken:
    """One driver's right to commit a decision, renewed at the brokers while it lasts."""

    def __init__(
        self,
        log: DecisionLog,
        decision: Decision,
        decided_at: float | None = None,
        heads: Mapping[QueueId, int] | None = None,
    ) -> None:
        """`decided_at`: when this driver stored the decision, whose heads are `heads`."""
        self._log, self.decision, self._taken_at = log, decision, decided_at
        self.since: dict[QueueId, int] = dict(heads or {})
        """The offsets of the first token."""

    def take(self) -> None:
        """Store a token, unless the last one is less than a second old.

        Raises RocketMQError, and ReplayError if another driver has taken over since.
        """
        now = time.monotonic()
        if self._taken_at is not None and now - self._taken_at <= _TOKEN_SECONDS:
            return
        records = self._log.store_token(self.decision)
        if not self.since:
            self.since = records
        elif self._log.is_taken_over(self.decision, self.since, records):
            query, batch = self.decision.query, self.decision.batch
            raise ReplayError(query, batch, "is being finished by another driver")
        self._taken_at = now


def wait_for_others(
    brokers: Iterable[str], tokens: Mapping[str, int], now: Mapping[str, int], seconds_max: float
) -> float:
    """How long a dead driver's requests to these brokers may still be in flight, in seconds."""
    wait = _BACKLOG_SECONDS
    for broker in brokers:
        if broker not in tokens or broker not in now:
            return seconds_max
        wait = max(wait, _IN_FLIGHT_SECONDS - (now[broker] - tokens[broker]) / 1_000)
    return min(wait, seconds_max)
