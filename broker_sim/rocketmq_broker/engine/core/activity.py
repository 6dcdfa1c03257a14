"""Counters of stored and pulled messages, in total and as recent rates per second."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_WINDOWS_SECONDS: Final = (10, 60, 600)
"""The windows of RocketMQ's rates."""
_DAY_MS: Final = 86_400_000


class Rate:
    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()
        """(second, count) of seconds with a count, oldest first."""

    def add(self, count: int, now_ms: int) -> None:
        second = now_ms // 1_000
        if self._seconds and self._seconds[-1][0] >= second:
            self._seconds[-1] = (self._seconds[-1][0], self._seconds[-1][1] + count)
            return
        self._seconds.append((second, count))
        while self._seconds[0][0] <= second - _WINDOWS_SECONDS[-1]:
            self._seconds.popleft()

    def text(self, now_ms: int) -> str:
        """The rates over ten seconds, a minute and ten minutes, in RocketMQ's format."""
        second = now_ms // 1_000
        return " ".join(
            str(sum(count for at, count in self._seconds if at > second - window) / window)
            for window in _WINDOWS_SECONDS
        )


@dataclass(slots=True)
class Direction:
    """Messages in one direction: into the log, or out to consumers."""

    messages: int = 0
    size: int = 0
    rate: Rate = field(default_factory=Rate)
    day: int = -1
    at_day_start: int = 0
    at_day_before: int = 0

    def add(self, messages: int, size: int, now_ms: int) -> None:
        self.begin_day(now_ms)
        self.messages += messages
        self.size += size
        self.rate.add(messages, now_ms)

    def begin_day(self, now_ms: int) -> None:
        """Begin a new day if the date changed. Days are UTC: the engine has no time zone."""
        day = now_ms // _DAY_MS
        if day == self.day:
            return
        # After days without traffic, yesterday began with today's first total.
        self.at_day_before = self.at_day_start if day == self.day + 1 else self.messages
        self.at_day_start = self.messages
        self.day = day


class Activity:
    def __init__(self) -> None:
        self.started_ms = 0
        self.stored = Direction()
        self.pulled = Direction()
        self.pulls = Rate()
        self.empty_pulls = Rate()

    def begin(self, now_ms: int) -> None:
        """Note the time of the first request: the engine has no clock to note its own start."""
        if not self.started_ms:
            self.started_ms = now_ms

    def pulled_messages(self, messages: int, size: int, now_ms: int) -> None:
        if messages:
            self.pulled.add(messages, size, now_ms)
            self.pulls.add(1, now_ms)
        else:
            self.empty_pulls.add(1, now_ms)

    def table(self, now_ms: int) -> dict[str, str]:
        self.stored.begin_day(now_ms)
        self.pulled.begin_day(now_ms)
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
            "getMissTps": self.empty_pulls.text(now_ms),
            # Tools of 4.9 look for the second spelling.
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
