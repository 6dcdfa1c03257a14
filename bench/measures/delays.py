"""How late an idle broker delivers what waits for its time; below 0 would be too early."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from bench.bed import Bed
from bench.load import GROUP, create_topic
from bench.machine import Figures, percentile
from bench.registry import measurement
from rocketmq_client.cluster import Cluster
from rocketmq_client.producer.producer import Producer, delayed
from rocketmq_wire.model import Message, QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import PullMessages

_PAUSE_SECONDS = 0.0373
"""Between two messages: no multiple of the broker's turns, and few enough to leave it idle."""
_SUSPEND_MS = 5_000
_TIMEOUT_MS = 15_000
_PULLS_EMPTY_MAX = 4

Delay = Callable[[Message, int], Message]
"""Makes a message one that is delivered later, about at the time given."""

_KINDS: Final[dict[str, tuple[int, Delay]]] = {
    "time of delivery": (1_500, lambda message, due_ms: delayed(message, at_ms=due_ms)),
    # The broker counts its second from when it has the message, which is a little later.
    "level 1": (1_000, lambda message, _: delayed(message, level=1)),
}


@measurement("delays", "how late delayed messages come from an idle broker, in ms")
def delays(bed: Bed) -> Iterator[Figures]:
    count = round(bed.scale.seconds / 2 / _PAUSE_SECONDS)
    for what, (ahead_ms, delay) in _KINDS.items():
        topic = what.replace(" ", "-")
        create_topic(bed.settings("nameServer"), topic, queues=1)
        with bed.open_cluster("nameServer") as cluster:
            (queue,) = cluster.route(topic).writable_queues(topic)
            with _sending(bed, queue, count, ahead_ms, delay):
                late_ms = list(_lateness_ms(cluster, queue, count))
        yield {
            "what": what,
            "messages": len(late_ms),
            "p50_ms": round(percentile(late_ms, 0.5), 1),
            "max_ms": round(max(late_ms), 1),
            "min_ms": round(min(late_ms), 1),
        }


@contextmanager
def _sending(bed: Bed, queue: QueueId, count: int, ahead_ms: int, delay: Delay) -> Iterator[None]:
    """Send meanwhile messages whose bodies say when they are due."""
    failures: list[Exception] = []

    def send() -> None:
        try:
            with Producer(bed.settings("nameServer"), GROUP) as producer:
                for _ in range(count):
                    due_ms = time.time_ns() // 1_000_000 + ahead_ms
                    producer.send(delay(Message(queue.topic, b"%d" % due_ms), due_ms), queue)
                    time.sleep(_PAUSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame
            failures.append(error)

    thread = threading.Thread(target=send, name="bench-delays")
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


def _lateness_ms(cluster: Cluster, queue: QueueId, count: int) -> Iterator[float]:
    """How long after they were due messages have come. Raises RuntimeError if some do not."""
    start, empty = 0, 0
    while start < count:
        pull = PullMessages(GROUP, queue, start, count, suspend_ms=_SUSPEND_MS)
        reply = cluster.transport.call(pull, broker=queue.broker, timeout_ms=_TIMEOUT_MS)
        now_ms = time.time_ns() / 1e6
        empty = 0 if reply.next_begin > start else empty + 1
        if empty > _PULLS_EMPTY_MAX:
            raise RuntimeError(f"{count - start} of {count} delayed messages never came")
        content, position = memoryview(b"".join(reply.records)), 0
        while position < len(content):
            message, position = decode_record(content, position)
            yield now_ms - int(message.body)
        start = reply.next_begin
