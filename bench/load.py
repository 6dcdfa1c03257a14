"""Topics filled with numbered messages, whole batches at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from rocketmq_arrow.encode.rows import encode_batch_body, encode_records
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Host, QueueId, TopicConfig
from rocketmq_wire.requests.messages import SendBatch, SendRecords

QUEUES = 8
# A body begins with its number in its queue, in this many digits.
NUMBER_SIZE = 12
GROUP = "bench-producer"
BATCH = 1_000
# Bodies of one size, numbered from the first.
Bodies = Callable[[int, int, int], pa.Array]
_HOST = Host(bytes((127, 0, 0, 1)), 0)
_TAGS = 4


def create_topic(settings: ConnectionSettings, name: str, queues: int = QUEUES) -> None:
    with open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig(name, read_queue_count=queues, write_queue_count=queues))


def load_topic(
    settings: ConnectionSettings,
    name: str,
    count: int,
    body_size: int,
    bodies: Bodies | None = None,
    *,
    spacing: int = 0,
) -> None:
    """Create a topic and send `count` messages, evenly over its queues.

    The numbers of a queue begin at its index times `spacing`.
    Raises RuntimeError if not every message was acknowledged.
    """
    create_topic(settings, name)
    with Producer(settings, GROUP) as producer:
        queues = producer.queues(name)
        acknowledged = 0
        for sent in producer.send_many(_batches(queues, count, body_size, bodies, spacing)):
            if isinstance(sent.result, RocketMQError):
                raise sent.result
            acknowledged += sent.result.count
    if acknowledged != count:
        raise RuntimeError(f"{acknowledged} of {count} messages were acknowledged")


def _batches(
    queues: tuple[QueueId, ...],
    count: int,
    body_size: int,
    bodies: Bodies | None,
    spacing: int,
) -> Iterator[SendRecords]:
    each, rest = divmod(count, len(queues))
    ends = [each + (index < rest) for index in range(len(queues))]
    for first in range(0, max(ends), BATCH):
        for queue, end in zip(queues, ends, strict=True):
            if first < end:
                number = queue.index * spacing + first
                yield records_request(queue, number, min(BATCH, end - first), body_size, bodies)


def records_request(
    queue: QueueId, first: int, count: int, body_size: int, bodies: Bodies | None = None
) -> SendRecords:
    """Messages with numbers from `first` on, laid out as records (gRPC)."""
    records, sizes = encode_records(
        queue.topic,
        (bodies or numbered_bodies)(first, count, body_size),
        tags=_tags(count),
        keys=numbered("k", first, count, 8),
        unique_keys=_unique_keys(first, count),
        born_ms=_now_ms(),
        born_host=_HOST,
    )
    return SendRecords(GROUP, queue, records, sizes)


def batch_request(queue: QueueId, first: int, count: int, body_size: int) -> SendBatch:
    """The same messages as a batch of RocketMQ's own protocol (code 320)."""
    body = encode_batch_body(
        numbered_bodies(first, count, body_size),
        tags=_tags(count),
        keys=numbered("k", first, count, 8),
        unique_keys=_unique_keys(first, count),
    )
    return SendBatch(GROUP, queue, born_ms=_now_ms(), body=body)


def numbered_bodies(first: int, count: int, size: int) -> pa.Array:
    """Bodies of `size` bytes that begin with their numbers."""
    bodies = np.full((count, size), ord("x"), np.uint8)
    bodies[:, :NUMBER_SIZE] = _digits(first, count, NUMBER_SIZE)
    return _fixed(bodies, pa.binary())


def numbered(prefix: str, first: int, count: int, digits: int) -> pa.Array:
    """Texts of a prefix and a number."""
    texts = np.empty((count, len(prefix) + digits), np.uint8)
    texts[:, : len(prefix)] = np.frombuffer(prefix.encode(), np.uint8)
    texts[:, len(prefix) :] = _digits(first, count, digits)
    return _fixed(texts, pa.string())


def _unique_keys(first: int, count: int) -> pa.Array:
    # 32 characters, as RocketMQ's own clients make them.
    return numbered("7F00000100002A139A55", first, count, 12)


def _tags(count: int) -> pa.Array:
    names = pa.array([f"Tag{index}" for index in range(_TAGS)])
    return names.take(pa.array(np.arange(count) % _TAGS))


def _digits(first: int, count: int, width: int) -> np.ndarray:
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    values = np.arange(first, first + count, dtype=np.int64)
    return (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _fixed(rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    count, size = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
