"""Queries that join their group: they share its queues with each other and with consumers."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame

from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_wire.model import Subscription
from support.consuming import Collector
from support.loader import Loader
from support.queries import Batches, Queries


def test_queries_and_a_consumer_share_queues_and_take_over(
    loader: Loader, topic: str, queries: Queries
) -> None:
    group, queues = f"group-{topic}", loader.create(topic, 4)
    one, two = Batches(), Batches()
    consumed = Collector()

    def put(count: int) -> None:
        for queue in queues:
            loader.put(queue, count)

    def load() -> DataFrame:
        return queries.load(group=group, joinGroup="true", startingOffsets="earliest")

    def seen() -> Counter[tuple[int, int]]:
        rows = Counter((r[1], r[2]) for batches in (one, two) for r in batches.rows)
        return rows + Counter((m.queue_index, m.queue_offset) for m in consumed.messages)

    def is_read() -> bool:
        """Everything sent is read, and the broker knows it."""
        ends = {queue: len(loader.sent[queue]) for queue in queues}
        return dict(loader.cluster.committed_offsets(group, queues)) == ends

    put(5)
    first = queries.start(load(), one, "one")
    queries.until(first, lambda: len(one.rows) == 20)
    second = queries.start(load(), two, "two")

    def second_reads() -> bool:
        put(1)
        return bool(two.rows)

    queries.until(second, second_reads)
    queries.until(second, is_read)
    second.stop()
    put(5)
    queries.until(first, is_read)
    settings = ConsumerSettings(group, {topic: Subscription()}, persist_ms=100, threads=2)
    with PushConsumer(loader.cluster.settings, settings, consumed) as consumer:
        queries.until(first, lambda: sum(q.topic == topic for q in consumer.queues) == 2)
        put(5)
        queries.until(first, is_read)
    first.stop()
    every = {(queue.index, n) for queue in queues for n in range(len(loader.sent[queue]))}
    assert seen() == Counter(dict.fromkeys(every, 1)), "handed over at rest: nothing comes twice"
    assert len(consumed.messages) == 10
