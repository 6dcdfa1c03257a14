"""Sends lines of text or JSON in batches to the queues of a topic in rotation, from any on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from rocketmq_arrow.kernels.text_hashes import sip_hashes
from rocketmq_cli.connection import queue_numbers
from rocketmq_cli.errors import LinesRefusedError
from rocketmq_cli.messages.lines import (
    MessageDefaults,
    Outgoing,
    QueueTarget,
    batches,
    outgoing_lines,
)
from rocketmq_cli.usage import UsageError
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.send_queue import SendRequest
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId

GROUP = "rmq-produce"
_BATCH_MAX = 1_000
# Brokers accept requests of 4 MiB by default.
_BATCH_BYTES_MAX = 1 << 20


class LineSender:
    """Sends each line as a message to the queues in rotation, batch by batch for many lines.

    `stored` counts the messages that a broker has acknowledged.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        topic: str,
        *,
        defaults: MessageDefaults | None = None,
        is_json: bool = False,
        queue_index: int | None = None,
        batch_max: int = _BATCH_MAX,
    ) -> None:
        self._producer = Producer(settings, GROUP)
        self._topic = topic
        self._defaults = defaults or MessageDefaults()
        self._is_json = is_json
        self._batch_max = batch_max
        self.stored = 0
        self._taken = 0
        self._rotations: dict[QueueTarget, Iterator[QueueId]] = {}
        try:
            self._known = self._writable(queue_index)
        except BaseException:
            self._producer.close()
            raise

    def _writable(self, index: int | None) -> list[QueueId]:
        queues = sorted(self._producer.queues(self._topic))
        wanted = [queue for queue in queues if index in (None, queue.index)]
        if not wanted:
            raise UsageError(
                f"topic {self._topic} has no queue {index} to write to: {queue_numbers(queues)}"
            )
        return wanted

    def __enter__(self) -> LineSender:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines and wait until they are stored.

        Raises LinesRefusedError for the first batch that was not stored.
        """
        numbers: list[Sequence[int]] = []
        failures = []
        for sent in self._producer.send_many(self._requests(lines, numbers)):
            if isinstance(sent.result, RocketMQError):
                failures.append(LinesRefusedError(numbers[sent.index], sent.result))
            else:
                self.stored += len(numbers[sent.index])
        if failures:
            raise min(failures, key=lambda failure: failure.lines[0])

    def _requests(
        self, lines: Sequence[bytes], numbers: list[Sequence[int]]
    ) -> Iterator[SendRequest]:
        """Yield requests for lines, and append the line numbers of each request to `numbers`."""
        first = self._taken + 1
        self._taken += len(lines)
        messages = outgoing_lines(
            lines, self._topic, self._defaults, first=first, is_json=self._is_json
        )
        is_grouped = self._defaults.group is not None
        if is_grouped or len(lines) < self._batch_max * len(self._known):
            yield from self._dealt_requests(messages, first, numbers)
            return
        for batch in batches(messages, self._batch_max, _BATCH_BYTES_MAX):
            numbers.append(range(first, first + len(batch)))
            yield self._request(batch, self._queue(batch[0], first))
            first += len(batch)

    def _dealt_requests(
        self, messages: Iterable[Outgoing], first: int, numbers: list[Sequence[int]]
    ) -> Iterator[SendRequest]:
        """Assign the next queue message by message, as producers do that send one by one."""
        dealt: dict[QueueId, list[tuple[int, Outgoing]]] = {}
        for number, each in enumerate(messages, first):
            dealt.setdefault(self._queue(each, number), []).append((number, each))
        for queue, numbered in dealt.items():
            left = [number for number, _ in numbered]
            own = (each for _, each in numbered)
            for batch in batches(own, self._batch_max, _BATCH_BYTES_MAX):
                numbers.append(left[: len(batch)])
                left = left[len(batch) :]
                yield self._request(batch, queue)

    def _request(self, batch: Sequence[Outgoing], queue: QueueId) -> SendRequest:
        if batch[0].is_alone:
            return self._producer.message_request(batch[0].message, queue)
        return self._producer.batch_request(queue, [each.message for each in batch])

    def _queue(self, first: Outgoing, number: int) -> QueueId:
        """The next queue that fits the message's target. Raises UsageError."""
        if first.target.group is not None:
            hashed = int(sip_hashes(pa.array([first.target.group]))[0])
            return self._known[hashed % len(self._known)]
        if first.target not in self._rotations:
            fitting = self._fitting(first.target, number)
            # A loop that sends one message a command must not fill the first queue alone.
            start = random.randrange(len(fitting))
            self._rotations[first.target] = itertools.cycle([*fitting[start:], *fitting[:start]])
        return next(self._rotations[first.target])

    def _fitting(self, target: QueueTarget, number: int) -> Sequence[QueueId]:
        fitting = [
            queue
            for queue in self._known
            if target.queue in (None, queue.index) and target.broker in (None, queue.broker)
        ]
        if not fitting:
            index = "" if target.queue is None else f" {target.queue}"
            broker = "" if target.broker is None else f" at broker {target.broker}"
            raise UsageError(
                f"line {number}: topic {self._topic} has no queue{index}{broker} to write to:"
                f" {queue_numbers(self._known)}"
            )
        return fitting
