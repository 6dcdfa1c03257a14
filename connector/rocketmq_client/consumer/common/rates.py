"""What a consumer does in each topic: counts since its start, and rates over the last minute.

Tools show both (`mqadmin consumerStatus`). As in RocketMQ, a round trip counts if its pull found
messages, and consumption by calls of the listener.
"""

from __future__ import annotations

from collections import deque
from dataclasses import astuple, dataclass
from typing import Final

from rocketmq_wire.requests.members import ConsumeRates

_SAMPLE_MS: Final = 10_000
_MINUTE: Final = 6
_HOUR: Final = 360


@dataclass(slots=True)
class ConsumeCounts:
    """Counts since the start; threads add without a lock, so a few may be missing."""

    pulls: int = 0
    pull_ms: int = 0
    pulled: int = 0
    calls: int = 0
    spent_ns: int = 0
    succeeded: int = 0
    failed: int = 0

    def minus(self, other: ConsumeCounts) -> ConsumeCounts:
        return ConsumeCounts(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Rates:
    """The counts of one consumer by topic, with a sample of each every ten seconds."""

    def __init__(self, now_ms: int) -> None:
        self.started_ms = now_ms
        self._counts: dict[str, ConsumeCounts] = {}
        self._samples: deque[tuple[int, dict[str, ConsumeCounts]]] = deque(
            [(now_ms, {})], maxlen=_HOUR
        )

    def of(self, topic: str) -> ConsumeCounts:
        """The counts of a topic, to which its caller adds."""
        counts = self._counts.get(topic)
        return self._counts.setdefault(topic, ConsumeCounts()) if counts is None else counts

    def total(self) -> ConsumeCounts:
        """The counts of all topics together."""
        columns = zip(*map(astuple, list(self._counts.values())), strict=True)
        return ConsumeCounts(*map(sum, columns))

    def sample(self, now_ms: int) -> None:
        """Keep the counts of now, if the last ones are ten seconds old."""
        if now_ms - self._samples[-1][0] >= _SAMPLE_MS:
            counts = {topic: one.minus(ConsumeCounts()) for topic, one in self._counts.items()}
            self._samples.append((now_ms, counts))

    def rates(self, topic: str, now_ms: int) -> ConsumeRates:
        """The topic's rates over the last minute."""
        since_ms, minute = self._since(topic, _MINUTE)
        _, hour = self._since(topic, _HOUR)
        seconds = max(now_ms - since_ms, 1) / 1_000
        # As in RocketMQ: a listener that was not called for a minute shows its last hour.
        called = minute if minute.calls else hour
        return ConsumeRates(
            pull_ms=minute.pull_ms / max(minute.pulls, 1),
            pulled=minute.pulled / seconds,
            consume_ms=called.spent_ns / 1e6 / max(called.calls, 1),
            succeeded=minute.succeeded / seconds,
            failed=minute.failed / seconds,
            failed_in_hour=hour.failed,
        )

    def _since(self, topic: str, count: int) -> tuple[int, ConsumeCounts]:
        """When the sample of `count` samples ago was taken, and what was counted since."""
        since_ms, sample = self._samples[max(len(self._samples) - count, 0)]
        return since_ms, self.of(topic).minus(sample.get(topic) or ConsumeCounts())
