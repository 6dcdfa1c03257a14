"""Finds the first message stored at or after a time, the same on every broker version.

Brokers answer a search by time in different ways (nearest, first, last, any of several equal times,
the last message for a time in the future). Their answer is a guess: it is checked by the store
times of the messages around it, and replaced by a binary search if it is wrong. Store times follow
the broker's clock; if that was set back, one of the possible boundaries is found.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.model import Bounds


@dataclass(slots=True)
class TimeSearch:
    """The search in one queue. Report the store time at `probe` until there is an `answer`.

    Messages below `low` are too early, messages from `high` on are late enough.
    """

    timestamp_ms: int
    low: int
    high: int
    probe: int
    _guess_is_open: bool = True

    @classmethod
    def start(cls, timestamp_ms: int, bounds: Bounds, guess: int) -> TimeSearch:
        """Start at a broker's guess."""
        guess = min(max(guess, bounds.start), bounds.end)
        # If the guess is late enough and the message before it too early, two store times are
        # enough.
        probe = min(guess, bounds.end - 1)
        return cls(timestamp_ms, bounds.start, bounds.end, probe)

    @property
    def answer(self) -> int | None:
        """The first offset whose message is late enough, or the queue's end."""
        return self.low if self.low >= self.high else None

    def on_store_time(self, offset: int, store_ms: int) -> None:
        """Note the store time of the message at `offset`, at or behind the probe."""
        if store_ms < self.timestamp_ms:
            self.low = max(self.low, offset + 1)
        else:
            self.high = min(self.high, self.probe)
        self._choose(store_ms)

    def on_bounds(self, bounds: Bounds) -> None:
        """Note that the queue's bounds have moved past the probe."""
        self.low = max(self.low, bounds.start)
        self.high = max(self.low, min(self.high, bounds.end))
        self._guess_is_open = False
        self._choose(0)

    def _choose(self, store_ms: int) -> None:
        """Probe beside the guess once, then halve the rest."""
        if self._guess_is_open:
            self._guess_is_open = False
            is_late = store_ms >= self.timestamp_ms
            self.probe = self.high - 1 if is_late else self.low
        else:
            self.probe = (self.low + self.high) // 2
        if self.low < self.high:
            self.probe = min(max(self.probe, self.low), self.high - 1)
