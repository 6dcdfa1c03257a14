"""The measurements by name, and how large they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.bed import Bed
    from bench.machine import Figures

Measure = Callable[["Bed"], Iterator["Figures"]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is loaded and how often it is read."""

    messages_100b: int
    messages_1kb: int
    per_batch: int
    runs: int
    seconds: float
    """Length of measurements that run against the clock."""

    def messages(self, body_size: int) -> int:
        return self.messages_100b if body_size < 1024 else self.messages_1kb

    def batch(self, body_size: int) -> int:
        """Messages of a large micro-batch: fewer of large ones, so that there are several."""
        return self.per_batch if body_size < 1024 else self.per_batch // 4


FULL = Scale(messages_100b=2_000_000, messages_1kb=300_000, per_batch=200_000, runs=5, seconds=20.0)
# For CI: shows that every measurement works. Its figures are mostly Spark's fixed costs.
SHORT = Scale(messages_100b=40_000, messages_1kb=8_000, per_batch=20_000, runs=1, seconds=3.0)


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    about: str
    measure: Measure
    is_extra: bool = False
    """Runs only when it is named."""


REGISTRY: dict[str, Measurement] = {}


def measurement(name: str, about: str, *, is_extra: bool = False) -> Callable[[Measure], Measure]:
    """Enter a function under a name; it yields one dict of figures for each line."""

    def enter(measure: Measure) -> Measure:
        assert name not in REGISTRY
        REGISTRY[name] = Measurement(name, about, measure, is_extra)
        return measure

    return enter
