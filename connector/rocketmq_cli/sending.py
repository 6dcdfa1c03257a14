"""Lines of text -> message batches -> the queues of a topic in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import TracebackType

from rocketmq_cli.usage import UsageError
from rocketmq_client.producer import Producer
from rocketmq_client.send_line import SendRequest
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Message

GROUP = "rmq-produce"
_BATCH_MAX = 1_000
# A broker takes 4 MiB in one request by default; entries carry properties beside their bodies.
_BATCH_BYTES_MAX = 1 << 20


class LinesRefusedError(RocketMQError):
    """Some lines were not stored; what came before and behind them may be."""

    def __init__(self, first: int, last: int, error: RocketMQError) -> None:
        super().__init__(first, last, error)
        self.first, self.last, self.error = first, last, error

    def __str__(self) -> str:
        lines = f"{self.first} to {self.last}" if self.last > self.first else f"{self.first}"
        return f"{self.error}. Not stored, not counting empty ones: line {lines}"


class LineSender:
    """Sends each line as a message; queues take turns batch by batch.

    `stored` counts the messages that a broker has acknowledged.
    """

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
        self._producer = Producer(settings, GROUP)
        self._topic, self._tags, self._keys = topic, tags, keys
        self._batch_max = batch_max
        self.stored = 0
        self._taken = 0
        queues = [
            queue for queue in self._producer.queues(topic) if queue_index in (None, queue.index)
        ]
        if not queues:
            raise UsageError(f"topic {topic} has no queue {queue_index} to write to")
        self._queues = itertools.cycle(queues)

    def __enter__(self) -> LineSender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer.close()

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines and wait until they are stored.

        Raises LinesRefusedError for the first batch of them that was not.
        """
        batches: list[tuple[int, int]] = []

        def requests() -> Iterator[SendRequest]:
            for batch in split_lines(lines, self._batch_max, _BATCH_BYTES_MAX):
                batches.append((self._taken + 1, self._taken + len(batch)))
                self._taken += len(batch)
                messages = [Message(self._topic, line, self._tags, self._keys) for line in batch]
                yield self._producer.batch_request(next(self._queues), messages)

        failures = []
        for sent in self._producer.send_many(requests()):
            first, last = batches[sent.index]
            if isinstance(sent.result, RocketMQError):
                failures.append(LinesRefusedError(first, last, sent.result))
            else:
                self.stored += last - first + 1
        if failures:
            raise min(failures, key=lambda failure: failure.first)


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
