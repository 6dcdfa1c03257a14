"""Counters of stored and pulled messages, in total and as recent rates per second."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rocketmq_wire.requests.brokers import Statistic

_WINDOWS_SECONDS: Final = (10, 60, 600)
"""The windows of RocketMQ's rates."""
_DAY_MS: Final = 86_400_000
_STEPS: Final = ((10_000, 6), (600_000, 6), (3_600_000, 24))
"""The milliseconds of a step, and the steps of a minute, an hour and a day, as in RocketMQ."""
_TRAFFIC_MAX: Final = 10_000
"""The topics, or groups in topics, that are counted; then the first one is forgotten."""


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


@dataclass(frozen=True, slots=True)
class Period:
    """What was counted over one of the periods."""

    messages: int
    size: int
    requests: int
    seconds: int

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


class Traffic:
    """Messages of a topic, or of a group in a topic, over the last minute, hour and day."""

    def __init__(self) -> None:
        self._periods = [deque[list[int]](maxlen=count) for _, count in _STEPS]
        """By period, each step with its messages, their size and the requests; oldest first."""

    def add(self, messages: int, size: int, now_ms: int) -> None:
        for (step_ms, _), steps in zip(_STEPS, self._periods, strict=True):
            step = now_ms // step_ms
            if not steps or steps[-1][0] < step:
                steps.append([step, 0, 0, 0])
            newest = steps[-1]
            newest[1] += messages
            newest[2] += size
            newest[3] += 1

    def periods(self, now_ms: int) -> list[Period]:
        found = []
        for (step_ms, count), steps in zip(_STEPS, self._periods, strict=True):
            recent = [step for step in steps if step[0] > now_ms // step_ms - count]
            messages, size, requests = (sum(step[at] for step in recent) for at in (1, 2, 3))
            found.append(Period(messages, size, requests, step_ms * count // 1_000))
        return found


class Activity:
    def __init__(self) -> None:
        self.started_ms = 0
        self._topics: dict[str, Traffic] = {}
        self._groups: dict[str, Traffic] = {}
        self.stored = Direction()
        self.pulled = Direction()
        self.pulls = Rate()
        self.empty_pulls = Rate()

    def begin(self, now_ms: int) -> None:
        """Note the time of the first request: the engine has no clock to note its own start."""
        if not self.started_ms:
            self.started_ms = now_ms

    def stored_in(self, topic: str, messages: int, size: int, now_ms: int) -> None:
        self.stored.add(messages, size, now_ms)
        _add(self._topics, topic, messages, size, now_ms)

    def given_to(self, group: str, topic: str, messages: int, size: int, now_ms: int) -> None:
        """Count messages of a topic that a group pulled or popped."""
        _add(self._groups, f"{topic}@{group}", messages, size, now_ms)

    def group_rate(self, group: str, topic: str, now_ms: int) -> float:
        """Messages per second that a group got of a topic in the last minute."""
        traffic = self._groups.get(f"{topic}@{group}")
        return 0.0 if traffic is None else traffic.periods(now_ms)[0].messages_per_second

    def statistic(self, name: str, key: str, now_ms: int) -> list[Statistic] | None:
        """A statistic of RocketMQ over minute, hour and day; None if nothing was counted."""
        tables = {"TOPIC_PUT": self._topics, "GROUP_GET": self._groups}
        kind, _, unit = name.rpartition("_")
        traffic = tables.get(kind, {}).get(key)
        if traffic is None or unit not in ("NUMS", "SIZE"):
            return None
        found = []
        for one in traffic.periods(now_ms):
            total = one.messages if unit == "NUMS" else one.size
            average = total / one.requests if one.requests else 0.0
            found.append(Statistic(total, total / one.seconds, average))
        return found

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


def _add(table: dict[str, Traffic], key: str, messages: int, size: int, now_ms: int) -> None:
    traffic = table.get(key)
    if traffic is None:
        if len(table) >= _TRAFFIC_MAX:
            del table[next(iter(table))]
        traffic = table[key] = Traffic()
    traffic.add(messages, size, now_ms)
