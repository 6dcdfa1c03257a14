"""Concurrent push consumption without Spark: an empty listener, RocketMQ's limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.bed import Bed
from bench.load import load_topic
from bench.machine import Figures, cpu_seconds, rates, repeat
from bench.measures.pushing import consume
from bench.registry import measurement
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_wire.model import Subscription

_BODY_SIZE = 100
_SHARES = {32: 4, 1: 20}
"""Of the messages that are usual, by `consumeMessageBatchMaxSize`."""


@dataclass(frozen=True, slots=True)
class _Pushed:
    consumer_s: float
    broker_s: float


@measurement("push", "concurrent push consumption, an empty listener, batches of 32 and of 1")
def push(bed: Bed) -> Iterator[Figures]:
    topic = "pushed"
    most = bed.scale.messages_100b // min(_SHARES.values())
    load_topic(bed.settings("endpoints"), topic, most, _BODY_SIZE)
    for batch, share in _SHARES.items():
        count = min(bed.scale.messages_100b // share, most)
        runs = repeat(_runs(bed, topic, batch, count), runs=min(bed.scale.runs, 3))
        yield {
            "batch": batch,
            "messages": count,
            **rates(count, runs),
            "consumer_ns": round(min(run.value.consumer_s for run in runs) / count * 1e9),
            "broker_ns": round(min(run.value.broker_s for run in runs) / count * 1e9),
        }


def _runs(bed: Bed, topic: str, batch: int, count: int) -> Callable[[], _Pushed]:
    """Each run is a group of its own, which begins with the oldest message."""
    numbers = iter(range(100))

    def run() -> _Pushed:
        broker = bed.broker_process()
        ours, theirs = time.process_time(), cpu_seconds(broker)
        consume(bed, _settings(topic, f"push-{batch}-{next(numbers)}", batch), count)
        return _Pushed(time.process_time() - ours, cpu_seconds(broker) - theirs)

    return run


def _settings(topic: str, group: str, batch: int) -> ConsumerSettings:
    """Settings of a group that begins with the oldest message and takes batches of this size."""
    return ConsumerSettings(
        group,
        {topic: Subscription()},
        consume_from=ConsumeFrom.FIRST,
        consume_batch_size=batch,
    )
