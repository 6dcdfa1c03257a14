"""What the broker stores a second: acknowledged means on disk, and the key index keeps up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.bed import Bed, say
from bench.load import BATCH, GROUP, batch_request, create_topic, records_request
from bench.machine import Figures, cpu_seconds, rates, repeat
from bench.registry import measurement
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.messages import SendBatch, SendRecords

_BODY_SIZE = 100
_BATCHES = (BATCH, 32)
# Different bodies to send in turn: nothing may profit from seeing one batch again and again.
_DISTINCT = 32
_SHARE_OF_SMALL_BATCHES = 8
_RUNS_MAX = 3
# The index is behind no longer when its files have not changed for this long.
_QUIET_S = 0.5
_INDEX_TIMEOUT_S = 60.0


@measurement("append", "appending with sync flush, batches of 1,000 and 32, index caught up")
def append(bed: Bed) -> Iterator[Figures]:
    for transport in ("endpoints", "nameServer"):
        for batch in _BATCHES:
            count = bed.scale.messages_100b // 2
            if batch != BATCH:
                count //= _SHARE_OF_SMALL_BATCHES
            count -= count % batch
            topic = f"append-{transport}-{batch}"
            create_topic(bed.settings("endpoints"), topic)
            work = _Append(bed, transport, topic, batch, count)
            runs = repeat(work, runs=min(bed.scale.runs, _RUNS_MAX))
            lags = [run.value[0] for run in runs]
            yield {
                "transport": transport,
                "batch": batch,
                "messages": count,
                # The index's seconds are waited for after the last acknowledgement.
                **rates(count, [replace(run, seconds=run.value[1]) for run in runs]),
                "index_behind_s": round(max(lags), 2),
                "broker_ns": round(min(run.value[2] for run in runs) / count * 1e9),
            }


class _Append:
    """One run: (seconds the index was behind, seconds to the last answer, broker CPU seconds)."""

    def __init__(self, bed: Bed, transport: str, topic: str, batch: int, count: int) -> None:
        self._settings = bed.settings(transport)
        self._broker = bed.broker_process()
        self._index = bed.broker_data / "index"
        self._batch, self._count = batch, count
        with Producer(self._settings, GROUP) as producer:
            self._queues = producer.queues(topic)
        make = records_request if transport == "endpoints" else batch_request
        self._made: list[SendRecords | SendBatch] = [
            make(self._queues[0], index * batch, batch, _BODY_SIZE) for index in range(_DISTINCT)
        ]

    def __call__(self) -> tuple[float, float, float]:
        cpu = cpu_seconds(self._broker)
        began = time.perf_counter()
        acknowledged = 0
        with Producer(
            self._settings, GROUP, in_flight_max=32, in_flight_per_queue_max=4
        ) as producer:
            for sent in producer.send_many(self._requests()):
                if isinstance(sent.result, RocketMQError):
                    raise sent.result
                acknowledged += self._batch
        seconds = time.perf_counter() - began
        assert acknowledged == self._count
        ended = time.time()
        behind = max(_last_change(self._index) - ended, 0.0)
        return behind, seconds, cpu_seconds(self._broker) - cpu

    def _requests(self) -> Iterator[SendRecords | SendBatch]:
        for number in range(self._count // self._batch):
            queue = self._queues[number % len(self._queues)]
            yield replace(self._made[number % _DISTINCT], queue=queue)


def _last_change(index: Path) -> float:
    """When the index was written last, once it is complete (seconds since 1970)."""
    give_up_at = time.monotonic() + _INDEX_TIMEOUT_S
    while time.monotonic() < give_up_at:
        changed = max((path.stat().st_mtime for path in index.iterdir()), default=0.0)
        if changed and time.time() - changed > _QUIET_S:
            return changed
        time.sleep(_QUIET_S / 10)
    say("the key index is not complete yet")
    return time.time()
