"""Lines of text or JSON -> message batches -> the queues of a topic in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import TracebackType

from rocketmq_cli.message_lines import Outgoing, Place, Sending, batches, outgoing_lines
from rocketmq_cli.usage import UsageError
from rocketmq_client.producer import Producer
from rocketmq_client.send_line import SendRequest
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId

GROUP = "rmq-produce"
_BATCH_MAX = 1_000
# A broker takes 4 MiB in one request by default.
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
        defaults: Sending | None = None,
        is_json: bool = False,
        queue_index: int | None = None,
        batch_max: int = _BATCH_MAX,
    ) -> None:
        self._producer = Producer(settings, GROUP)
        self._topic = topic
        self._defaults = defaults or Sending()
        self._is_json = is_json
        self._batch_max = batch_max
        self.stored = 0
        self._taken = 0
        queues = [
            queue for queue in self._producer.queues(topic) if queue_index in (None, queue.index)
        ]
        if not queues:
            raise UsageError(f"topic {topic} has no queue {queue_index} to write to")
        self._known = queues
        self._turns: dict[Place, Iterator[QueueId]] = {}

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
        numbers: list[tuple[int, int]] = []

        def requests() -> Iterator[SendRequest]:
            messages = outgoing_lines(
                lines, self._topic, self._defaults, first=self._taken + 1, is_json=self._is_json
            )
            for batch in batches(messages, self._batch_max, _BATCH_BYTES_MAX):
                first = self._taken + 1
                self._taken += len(batch)
                numbers.append((first, self._taken))
                yield self._request(batch, first)

        failures = []
        for sent in self._producer.send_many(requests()):
            first, last = numbers[sent.index]
            if isinstance(sent.result, RocketMQError):
                failures.append(LinesRefusedError(first, last, sent.result))
            else:
                self.stored += last - first + 1
        if failures:
            raise min(failures, key=lambda failure: failure.first)

    def _request(self, batch: Sequence[Outgoing], number: int) -> SendRequest:
        queue = self._queue(batch[0].place, number)
        if batch[0].is_delayed:
            return self._producer.message_request(batch[0].message, queue)
        return self._producer.batch_request(queue, [each.message for each in batch])

    def _queue(self, place: Place, number: int) -> QueueId:
        """The next queue that fits. Raises UsageError."""
        if place not in self._turns:
            fitting = [
                queue
                for queue in self._known
                if place.queue in (None, queue.index) and place.broker in (None, queue.broker)
            ]
            if not fitting:
                index = "" if place.queue is None else f" {place.queue}"
                broker = "" if place.broker is None else f" at broker {place.broker}"
                raise UsageError(
                    f"line {number}: topic {self._topic} has no queue{index}{broker} to write to"
                )
            self._turns[place] = itertools.cycle(fitting)
        return next(self._turns[place])
