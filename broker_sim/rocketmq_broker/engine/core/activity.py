"""What the broker counts of itself: messages stored and handed out, in all and a second lately."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_WINDOWS_SECONDS: Final = (10, 60, 600)
"""Over which RocketMQ gives its rates."""
_DAY_MS: Final = 86_400_000


class Rate:
    """A count a second over the last seconds and minutes."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()
        """(second, count) of the seconds in which something was counted, oldest first."""

    def add(self, count: int, now_ms: int) -> None:
        second = now_ms // 1_000
        if self._seconds and self._seconds[-1][0] >= second:
            self._seconds[-1] = (self._seconds[-1][0], self._seconds[-1][1] + count)
            return
        self._seconds.append((second, count))
        while self._seconds[0][0] <= second - _WINDOWS_SECONDS[-1]:
            self._seconds.popleft()

    def text(self, now_ms: int) -> str:
        """The rates over ten seconds, a minute and ten minutes, as brokers write them."""
        second = now_ms // 1_000
        return " ".join(
            str(sum(count for at, count in self._seconds if at > second - window) / window)
            for window in _WINDOWS_SECONDS
        )


@dataclass(slots=True)
class Direction:
    """Messages going one way: into the log, or out to consumers."""

    messages: int = 0
    size: int = 0
    rate: Rate = field(default_factory=Rate)
    day: int = -1
    at_day_start: int = 0
    at_day_before: int = 0

    def add(self, messages: int, size: int, now_ms: int) -> None:
        self.turn_to(now_ms)
        self.messages += messages
        self.size += size
        self.rate.add(messages, now_ms)

    def turn_to(self, now_ms: int) -> None:
        """Begin a new day, if it is one. Days are UTC's: the engine knows no other clock."""
        day = now_ms // _DAY_MS
        if day == self.day:
            return
        # A day without any traffic in between began with what the one before ended with.
        self.at_day_before = self.at_day_start if day == self.day + 1 else self.messages
        self.at_day_start, self.day = self.messages, day


class Activity:
    """The counters since the broker's start."""

    def __init__(self) -> None:
        self.started_ms = 0
        self.stored = Direction()
        self.pulled = Direction()
        self.pulls = Rate()
        self.pulls_in_vain = Rate()

    def begin(self, now_ms: int) -> None:
        """Note the time of the first request, which is the nearest to a start that is known."""
        if not self.started_ms:
            self.started_ms = now_ms

    def pulled_messages(self, messages: int, size: int, now_ms: int) -> None:
        if messages:
            self.pulled.add(messages, size, now_ms)
            self.pulls.add(1, now_ms)
        else:
            self.pulls_in_vain.add(1, now_ms)

    def table(self, now_ms: int) -> dict[str, str]:
        """The counters under RocketMQ's names."""
        self.stored.turn_to(now_ms)
        self.pulled.turn_to(now_ms)
        stored, pulled = self.stored, self.pulled
        seconds = max(0, now_ms - self.started_ms) // 1_000
        runtime = (
            f"[ {seconds // 86_400} days, {seconds // 3_600 % 24} hours, "
            f"{seconds // 60 % 60} minutes, {seconds % 60} seconds ]"
        )
        return {
            "bootTimestamp": str(self.started_ms),
            "runtime": runtime,
            "putTps": stored.rate.text(now_ms),
            "getFoundTps": self.pulls.text(now_ms),
            "getMissTps": self.pulls_in_vain.text(now_ms),
            # The second spelling is that of 4.9, whose tools look for it.
            "getTransferredTps": pulled.rate.text(now_ms),
            "getTransferedTps": pulled.rate.text(now_ms),
            "putMessageTimesTotal": str(stored.messages),
            "putMessageSizeTotal": str(stored.size),
            "putMessageAverageSize": str(stored.size / max(stored.messages, 1)),
            "msgPutTotalTodayNow": str(stored.messages),
            "msgPutTotalTodayMorning": str(stored.at_day_start),
            "msgPutTotalYesterdayMorning": str(stored.at_day_before),
            "msgGetTotalTodayNow": str(pulled.messages),
            "msgGetTotalTodayMorning": str(pulled.at_day_start),
            "msgGetTotalYesterdayMorning": str(pulled.at_day_before),
        }
