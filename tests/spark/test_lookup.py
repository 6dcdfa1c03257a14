"""Messages by key and by id, through Spark."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from rocketmq_client.lookup import find_by_id
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import SendBatch
from support.loader import Loader

Read = Callable[..., DataFrame]


def send(loader: Loader, queue: QueueId, keys: list[str], start: int) -> None:
    entries = [
        BatchEntry(
            0, b"%d" % (start + n), encode_properties({"KEYS": key, "UNIQ_KEY": f"U{start + n}"})
        )
        for n, key in enumerate(keys)
    ]
    request = SendBatch("loader", queue, 1_700_000_000_000, encode_batch(entries))
    loader.cluster.transport.call(request, broker=queue.broker, timeout_ms=10_000)
    loader.sent[queue] = [*loader.sent.get(queue, []), *(entry.body for entry in entries)]
    loader.await_end(queue, len(loader.sent[queue]))
    # The index follows the log, here as in RocketMQ.
    last, deadline = f"U{start + len(keys) - 1}", time.monotonic() + 20
    while not find_by_id(loader.cluster, queue.topic, last, 1):
        assert time.monotonic() < deadline


def found(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


@pytest.mark.short
def test_all_messages_with_a_key_and_no_others_are_read(
    loader: Loader, topic: str, read: Read
) -> None:
    queues = loader.create(topic, 2)
    send(loader, queues[0], ["order-42", "order-43", "a order-42 b", "order-4"], 0)
    send(loader, queues[1], ["order-42"] * 3, 4)
    assert found(read(messageKey="order-42")) == [0, 2, 4, 5, 6]
    row = read("body BINARY, msgId STRING, offsetMsgId STRING").where("body = '3'").first()
    assert row is not None
    assert row.msgId == "U3"
    assert found(read(messageId="U3")) == [3]
    assert found(read(messageId=row.offsetMsgId)) == [3]
