"""Lines of text or JSON -> message batches -> the queues of a topic in turn."""

from __future__ import annotations

import itertools
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rocketmq_cli.usage import UsageError
from rocketmq_client.producer import Producer
from rocketmq_client.send_line import SendRequest
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Message, QueueId

GROUP = "rmq-produce"
_BATCH_MAX = 1_000
# A broker takes 4 MiB in one request by default; entries carry properties beside their bodies.
_BATCH_BYTES_MAX = 1 << 20
# Given as fields of their own, or made anew for every message.
_OWN_FIELDS = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT")


class LinesRefusedError(RocketMQError):
    """Some lines were not stored; what came before and behind them may be."""

    def __init__(self, first: int, last: int, error: RocketMQError) -> None:
        super().__init__(first, last, error)
        self.first, self.last, self.error = first, last, error

    def __str__(self) -> str:
        lines = f"{self.first} to {self.last}" if self.last > self.first else f"{self.first}"
        return f"{self.error}. Not stored, not counting empty ones: line {lines}"


@dataclass(frozen=True, slots=True)
class Sending:
    """What a message gets when its line does not say otherwise."""

    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_delayed(self) -> bool:
        """Brokers refuse delayed messages in batches."""
        return "DELAY" in self.properties or "TIMER_DELAY_MS" in self.properties


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
        self._batch_max = 1 if self._defaults.is_delayed else batch_max
        self.stored = 0
        self._taken = 0
        queues = [
            queue for queue in self._producer.queues(topic) if queue_index in (None, queue.index)
        ]
        if not queues:
            raise UsageError(f"topic {topic} has no queue {queue_index} to write to")
        self._known = queues
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
                for queue, messages in self._messages(batch):
                    batches.append((self._taken + 1, self._taken + len(messages)))
                    self._taken += len(messages)
                    if self._defaults.is_delayed:
                        yield self._producer.message_request(messages[0], queue)
                    else:
                        yield self._producer.batch_request(queue, messages)

        failures = []
        for sent in self._producer.send_many(requests()):
            first, last = batches[sent.index]
            if isinstance(sent.result, RocketMQError):
                failures.append(LinesRefusedError(first, last, sent.result))
            else:
                self.stored += last - first + 1
        if failures:
            raise min(failures, key=lambda failure: failure.first)

    def _messages(self, lines: Sequence[bytes]) -> Iterator[tuple[QueueId, list[Message]]]:
        """Runs of messages with the queue that each goes to; order is kept."""
        if not self._is_json:
            yield next(self._queues), [self._message({}, line) for line in lines]
            return
        run: list[Message] = []
        wanted: object = None
        for number, line in enumerate(lines, self._taken + 1):
            fields = parse_line(line, number)
            if run and fields.get("queueId") != wanted:
                yield self._queue(wanted), run
                run = []
            wanted = fields.get("queueId")
            run.append(self._message(fields, body_of(fields, number)))
        if run:
            yield self._queue(wanted), run

    def _queue(self, index: object) -> QueueId:
        if index is None:
            return next(self._queues)
        for queue in self._known:
            if queue.index == index:
                return queue
        raise UsageError(f"topic {self._topic} has no queue {index!r} to write to")

    def _message(self, fields: Mapping[str, object], body: bytes) -> Message:
        defaults = self._defaults
        own = fields.get("properties")
        properties = dict(defaults.properties)
        if isinstance(own, Mapping):
            properties.update((str(name), str(value)) for name, value in own.items())
        for name in _OWN_FIELDS:
            properties.pop(name, None)
        tags, keys = fields.get("tags", defaults.tags), fields.get("keys", defaults.keys)
        return Message(
            self._topic,
            body,
            None if tags is None else str(tags),
            None if keys is None else str(keys),
            properties,
        )


def parse_line(line: bytes, number: int) -> Mapping[str, object]:
    """A line's JSON object. Raises UsageError with the line's number."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise UsageError(f"line {number} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f'line {number} is no JSON object: write {{"body": "..."}}')
    return fields


def body_of(fields: Mapping[str, object], number: int) -> bytes:
    """The body that a JSON object gives. Raises UsageError when it gives none."""
    body, encoded = fields.get("body"), fields.get("bodyBase64")
    if isinstance(body, str) and body:
        return body.encode()
    if isinstance(encoded, str) and encoded:
        try:
            return b64decode(encoded, validate=True)
        except ValueError as error:
            raise UsageError(f"line {number}: bodyBase64 is no base64: {error}") from None
    if body is not None and not isinstance(body, str):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    raise UsageError(f"line {number} has no body: RocketMQ has no empty messages")


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
