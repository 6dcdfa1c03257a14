"""A clock for `Retry`: time passes only while something sleeps, and sleeping takes no time."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_client.retry import Clock


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 0
        self.sleeps: list[int] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep_ms(self, ms: int) -> None:
        self.sleeps.append(ms)
        self.now_ms += ms
        self.on_sleep()

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_ms, self.sleep_ms)
