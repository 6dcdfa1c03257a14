"""Runs of a stream driver over a cluster in memory, asked as Spark asks them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.stream.offset_driver import Ports
from pyspark_rocketmq.stream.pull.driver import PullDriver
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import QueueId
from support.fake_cluster import FakeWatch, FakeWorld


class Query:
    """One run of a query: a driver, asked as Spark asks it."""

    def __init__(self, world: FakeWorld, **options: str) -> None:
        self.now_ms = 1_000_000
        self.watches: list[FakeWatch] = []
        self.sleeps: list[int] = []
        raw = {"nameServer": "h:1", "subscribe": "orders", "discoveryIntervalMs": "100", **options}
        raw = {name.replace("__", "."): text for name, text in raw.items()}
        if {"subscribePattern", "assign", "deadLettersOf"} & options.keys():
            del raw["subscribe"]

        def watch(
            settings: ConnectionSettings, queues: tuple[QueueId, ...], *, hold_ms: int
        ) -> FakeWatch:
            self.watches.append(world.open_watch(settings, queues, hold_ms=hold_ms))
            return self.watches[-1]

        ports = Ports(
            world.open_cluster,  # type: ignore[arg-type]
            watch,  # type: ignore[arg-type]
            lambda: self.now_ms,
            self.sleep_ms,
        )
        self.driver = PullDriver(read_options(raw), ports)

    def sleep_ms(self, ms: int) -> None:
        self.sleeps.append(ms)
        self.now_ms += ms

    def latest(self, start: dict[str, Any], *, is_unlimited: bool = False) -> dict[str, Any]:
        # As Spark does it: every offset goes through text.
        end = self.driver.latest_offset(json.loads(json.dumps(start)), is_unlimited=is_unlimited)
        return dict(json.loads(json.dumps(end)))

    def until(self, start: dict[str, Any], reached: Callable[[dict[str, Any]], bool]) -> Any:
        """Ask as a running query does until discovery has come round."""
        for _ in range(200):
            end = self.latest(start)
            if reached(end):
                return end
            self.driver._discovery._stop.wait(0.02)  # type: ignore[union-attr]
        raise AssertionError(f"not reached from {start}")


Run = Callable[..., Query]
"""Starts a run with the given options; `__` stands for the dot in a name."""


def offsets(value: dict[str, Any]) -> dict[QueueId, int]:
    return dict(SourceOffset.from_json(value).offsets)
