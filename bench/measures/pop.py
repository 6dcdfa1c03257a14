"""Pop consumption without Spark: pops of 32 messages, each acknowledged in one batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.bed import Bed
from bench.load import load_topic
from bench.machine import Figures, cpu_seconds, rates, repeat
from bench.measures.pushing import consume
from bench.registry import measurement
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings, PopSettings
from rocketmq_client.consumer.pop import PopConsumer
from rocketmq_wire.model import Subscription
from rocketmq_wire.requests.groups import ConsumeMode, PutGroup

_BATCH = 32
_BODY_SIZE = 100
_SHARE_OF_MESSAGES = 20
_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class _Popped:
    count: int
    broker_s: float


@measurement("pop", "pops of 32 with batch acks: one consumer by hand, and a push consumer")
def pop(bed: Bed) -> Iterator[Figures]:
    count = max(bed.scale.messages_100b // _SHARE_OF_MESSAGES, _BATCH)
    topic = "popped"
    load_topic(bed.settings("endpoints"), topic, count, _BODY_SIZE)
    for name, work in (("by hand", _by_hand), ("push consumer", _pushed)):
        runs = repeat(_runs(bed, topic, count, name, work), runs=min(bed.scale.runs, 3))
        assert all(run.value.count >= count for run in runs)
        yield {
            "what": name,
            "batch": _BATCH,
            "messages": count,
            **rates(count, runs),
            "broker_ns": round(min(run.value.broker_s for run in runs) / count * 1e9),
        }


_Work = Callable[[Bed, str, str, int], int]


def _runs(bed: Bed, topic: str, count: int, name: str, work: _Work) -> Callable[[], _Popped]:
    """Each run is a group of its own, which begins with the oldest message."""
    numbers = iter(range(100))

    def run() -> _Popped:
        broker = bed.broker_process()
        before = cpu_seconds(broker)
        found = work(bed, topic, f"{name.replace(' ', '-')}-{next(numbers)}", count)
        return _Popped(found, cpu_seconds(broker) - before)

    return run


def _by_hand(bed: Bed, topic: str, group: str, count: int) -> int:
    found = 0
    with bed.open_cluster("nameServer") as cluster:
        consumer = PopConsumer(cluster, group, topic)
        end = time.monotonic() + _SECONDS_MAX
        while found < count and time.monotonic() < end:
            popped = consumer.receive(_BATCH, wait_ms=1_000)
            assert consumer.ack(popped) == []
            found += len(popped)
    return found


def _pushed(bed: Bed, topic: str, group: str, count: int) -> int:
    with bed.open_cluster("nameServer") as cluster:
        cluster.ask_masters(PutGroup({"groupName": group}))
        cluster.set_consume_mode(group, topic, ConsumeMode.POP)
    settings = ConsumerSettings(
        group,
        {topic: Subscription()},
        consume_from=ConsumeFrom.FIRST,
        consume_batch_size=_BATCH,
        threads=4,
    )
    return consume(bed, settings, count, PopSettings())
