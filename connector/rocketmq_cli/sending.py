"""Lines of text -> message batches -> the queues of a topic, many batches on their way at once."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from rocketmq_cli.pipeline import SendPipeline
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.batch import BatchEntry, encode_batch
from rocketmq_wire.message_id import unique_message_id
from rocketmq_wire.properties import encode_properties
from rocketmq_wire.requests import SendBatch

GROUP = "rmq-produce"
_BATCH_MAX = 1_000
# A broker takes 4 MiB in one request by default; entries carry properties beside their bodies.
_BATCH_BYTES_MAX = 1 << 20
_IN_FLIGHT_MAX = 32
_LOOPBACK = bytes((127, 0, 0, 1))


class LineSender:
    """Sends each line as a message; queues take turns batch by batch."""

    def __init__(
        self,
        settings: ConnectionSettings,
        topic: str,
        *,
        tags: str | None = None,
        keys: str | None = None,
        queue_index: int | None = None,
        batch_max: int = _BATCH_MAX,
    ) -> None:
        self._cluster = open_cluster(settings)
        queues = [
            queue
            for queue in self._cluster.route(topic).writable_queues(topic)
            if queue_index in (None, queue.index)
        ]
        if not queues:
            raise UsageError(f"topic {topic} has no queue to write to")
        self._queues = itertools.cycle(queues)
        self._pipeline = SendPipeline(self._cluster, _IN_FLIGHT_MAX)
        self._properties = {"TAGS": tags} if tags else {}
        if keys:
            self._properties["KEYS"] = keys
        self._batch_max = batch_max
        self._hash = random.getrandbits(32)
        self._counter = itertools.count()

    def __enter__(self) -> LineSender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.close()

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines; returns when most of them are on their way. Raises the first refusal."""
        for batch in split_lines(lines, self._batch_max, _BATCH_BYTES_MAX):
            now_ms = time.time_ns() // 1_000_000
            entries = (BatchEntry(0, line, self._encoded(now_ms)) for line in batch)
            self._pipeline.send(
                SendBatch(GROUP, next(self._queues), born_ms=now_ms, body=encode_batch(entries))
            )

    def flush(self) -> None:
        """Wait until all that was sent is stored."""
        self._pipeline.finish()

    def _encoded(self, now_ms: int) -> bytes:
        unique_key = unique_message_id(
            _LOOPBACK,
            process_id=os.getpid(),
            loader_hash=self._hash,
            now_ms=now_ms,
            counter=next(self._counter),
        )
        return encode_properties({**self._properties, "UNIQ_KEY": unique_key})


def split_lines(
    lines: Sequence[bytes], count_max: int, bytes_max: int
) -> Iterator[Sequence[bytes]]:
    """Runs of lines within both limits; a line that is too long by itself stands alone."""
    start = size = 0
    for index, line in enumerate(lines):
        if index > start and (index - start >= count_max or size + len(line) > bytes_max):
            yield lines[start:index]
            start, size = index, 0
        size += len(line)
    if start < len(lines):
        yield lines[start:]
