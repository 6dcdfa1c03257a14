"""Sends messages and batches: many in flight, in order within a queue, each with an outcome.

What was certainly not stored is sent again: a busy broker's refusal, a connection that could not be
made. What may have been stored is not: if the connection breaks or the answer is late, the caller
gets SendOutcomeUnknownError. A producer that `repeats_unknown` sends that again too, unchanged:
nothing is lost, and a message may be stored twice under one unique key.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocketmq_arrow.encode.rows import OutgoingRows, encode_entries, encode_record_rows
from rocketmq_arrow.kernels.lazy_pyarrow import pa
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.errors import SendOutcomeUnknownError
from rocketmq_client.producer.send_queue import CERTAINLY_NOT_STORED, SendQueue, SendRequest, Sent
from rocketmq_client.retry_schedules import SEND
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerBusyError,
    ConnectError,
    LocalProtocolError,
    RemoteProtocolError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
    broker_error,
)
from rocketmq_wire.model import Buffer, Host, Message, QueueId, Route
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.handles import RecallHandle
from rocketmq_wire.records.message_id import unique_message_id
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import (
    RecallMessage,
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
)

PRODUCER_GROUP: Final = "pyspark-rocketmq-producer"
IN_FLIGHT_MAX: Final = 32
_DELAY_LEVEL_MAX: Final = 18
# The age at which a route is asked for again, as in RocketMQ's own clients.
_ROUTE_AGE_MS_MAX: Final = 30_000
_OTHER_QUEUES_TRIED: Final = 2
_STEP_MS_MAX: Final = 1_000
# Requests up to this size are handed over together, larger ones one by one.
_TOGETHER_BYTES: Final = 64 * 1024
# The unique keys of one request differ by a counter of 16 bits.
ROWS_MAX: Final = 65_536
_KEY_SIZE: Final = 32
_COUNTER_DIGITS: Final = 4
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
# Every message of a batch needs it: brokers refuse batches that mix values.
_SHARED: Final = encode_properties({"WAIT": "true"})
_NO_ADDRESS: Final = bytes(4)
_NO_HOST: Final = Host(_NO_ADDRESS, 0)


def delayed(
    message: Message,
    *,
    level: int | None = None,
    at_ms: int | None = None,
    after_ms: int | None = None,
) -> Message:
    """Return the message with a delay level of RocketMQ (1 to 18), a delivery time, or a delay.

    Every broker has levels; times and delays need RocketMQ 5 or the bundled broker. Raises
    LocalProtocolError.

    Args:
        message: The message to delay.
        level: A delay level, 1 (one second) to 18 (two hours).
        at_ms: The delivery time, in milliseconds since 1970.
        after_ms: The delay in milliseconds.
    """
    given = [value for value in (level, at_ms, after_ms) if value is not None]
    if len(given) != 1:
        raise LocalProtocolError("give one of level, at_ms and after_ms")
    if level is not None and not 1 <= level <= _DELAY_LEVEL_MAX:
        raise LocalProtocolError(f"delay levels are 1 to {_DELAY_LEVEL_MAX}, not {level}")
    name = "DELAY" if level is not None else "TIMER_DELIVER_MS" if at_ms is not None else None
    properties = {**message.properties, name or "TIMER_DELAY_MS": str(given[0])}
    return replace(message, properties=properties)


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Messages of one topic as columns of equal length. A null or empty value is no value."""

    bodies: pa.Array
    """The bodies, binary."""
    tags: pa.Array | None = None
    """The tags, text."""
    keys: pa.Array | None = None
    """The keys, text, separated by blanks."""
    properties: pa.Array | None = None
    """A map column of text to text."""

    def __post_init__(self) -> None:
        if not 0 < len(self.bodies) <= ROWS_MAX:
            raise LocalProtocolError(
                f"one request takes 1 to {ROWS_MAX} messages, not {len(self.bodies)}"
            )

    def rows(self, first_key: str) -> OutgoingRows:
        """Return the messages with unique keys that count on from `first_key`."""
        keys = count_on(first_key, len(self.bodies))
        return OutgoingRows(self.bodies, self.tags, self.keys, self.properties, keys, _SHARED)


class _Source:
    """Requests of an iterator; its exception is kept until the requests before it are answered."""

    def __init__(self, requests: Iterable[SendRequest]) -> None:
        self._requests = iter(requests)
        self.is_over = False
        self.failure: Exception | None = None

    def next(self) -> SendRequest | None:
        try:
            return next(self._requests)
        except StopIteration:
            self.is_over = True
        except Exception as error:  # noqa: BLE001 - Raised again, later.
            self.is_over, self.failure = True, error
        return None


class Producer:
    """Sends for one owner at a time; use it in `with`. A cluster given to it stays open.

    Args:
        where: An open cluster, or the settings of one that the producer opens and closes.
        group: The producer group that brokers see.
        in_flight_max: The limit of requests without an answer.
        in_flight_per_queue_max: The same for one queue; above 1 a queue's order is not kept.
        repeats_unknown: Sends a request again if its answer was lost: messages may be stored twice.
    """

    def __init__(
        self,
        where: Cluster | ConnectionSettings,
        group: str = PRODUCER_GROUP,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        in_flight_per_queue_max: int = 1,
        repeats_unknown: bool = False,
    ) -> None:
        """More than one request in flight to a queue is faster, and gives up its order."""
        self._owns_cluster = isinstance(where, ConnectionSettings)
        self.cluster = open_cluster(where) if isinstance(where, ConnectionSettings) else where
        self.group = group
        self._in_flight_max = in_flight_max
        self._in_flight_per_queue_max = in_flight_per_queue_max
        self._retried: tuple[type[RocketMQError], ...] = CERTAINLY_NOT_STORED
        if repeats_unknown:
            self._retried += (SendOutcomeUnknownError,)
        self._random = random.Random()
        self._unique_hash = self._random.getrandbits(32)
        self._counter = self._random.getrandbits(16)
        self._turn = itertools.count(self._random.getrandbits(8))
        self._routes: dict[str, tuple[int, tuple[QueueId, ...]]] = {}

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this producer opened."""
        if self._owns_cluster:
            self.cluster.close()

    # --- one at a time ------------------------------------------------------------------------

    def send(self, message: Message, queue: QueueId | None = None) -> SendReply:
        """Send one message. Without a queue, queues take turns, except those of a dead broker.

        Raises SendOutcomeUnknownError, TopicNotFoundError and what the broker refuses.
        """
        if queue is not None:
            return self._send_one(self.message_request(message, queue))
        queues = self.queues(message.topic)
        tried = [queues[next(self._turn) % len(queues)]]
        for _ in range(_OTHER_QUEUES_TRIED):
            dead = {queue.broker for queue in tried}
            others = [queue for queue in queues if queue.broker not in dead]
            if not others:
                break
            try:
                return self._send_one(self.message_request(message, tried[-1]), is_repeated=False)
            except (ConnectError, BrokerBusyError):
                tried.append(self._random.choice(others))
        return self._send_one(self.message_request(message, tried[-1]))

    def send_batch(self, queue: QueueId, messages: Sequence[Message]) -> SendReply:
        """Send messages of one topic in one request; either all are stored, or none."""
        return self._send_one(self.batch_request(queue, messages))

    def recall(self, handle: str) -> str:
        """Take back a message that is delivered later, and return its unique key.

        `handle` is in the send's reply. Raises BrokerError: 604 if the message no longer waits.
        """
        try:
            named = RecallHandle.parse(handle)
        except RemoteProtocolError as error:
            raise LocalProtocolError(str(error)) from error
        # The name server has the broker's address.
        self.cluster.route(named.topic)
        request = RecallMessage(named.topic, handle, self.group, named.broker)
        timeout_ms = self.cluster.settings.request_timeout_ms
        reply = self.cluster.transport.call(request, broker=named.broker, timeout_ms=timeout_ms)
        return reply.message_id

    # --- many at once -------------------------------------------------------------------------

    def send_many(self, requests: Iterable[SendRequest]) -> Iterator[Sent]:
        """Send requests as fast as answers come, and yield each outcome when it is known.

        The order within a queue is kept, also for requests that are sent again. Exhaust the
        generator: only then does every request have an outcome. An exception of `requests` is
        raised after the outcomes of the requests before it.
        """
        sends = SendQueue(
            in_flight_max=self._in_flight_max,
            in_flight_per_queue_max=self._in_flight_per_queue_max,
            retry=self.cluster.settings.over_outage(SEND),
            retried=self._retried,
        )
        transport = self.cluster.transport
        timeout_ms = self.cluster.settings.request_timeout_ms
        source = _Source(requests)
        tickets: dict[int, int] = {}
        while True:
            gathered = 0
            while not source.is_over and sends.wants_more and gathered < _TOGETHER_BYTES:
                request = source.next()
                if request is not None:
                    gathered += sends.add(request)
            now_ms = _monotonic_ms()
            started = sends.next_requests(now_ms)
            asked = [(request.queue.broker, request) for _, request in started]
            if asked:
                opened = transport.submit_many(asked, timeout_ms=timeout_ms)
                tickets.update(zip(opened, (index for index, _ in started), strict=True))
            if source.is_over and sends.is_empty:
                if source.failure is not None:
                    raise source.failure
                return
            # Do not wait for answers while more requests can be sent.
            may_wait = source.is_over or not sends.wants_more
            wait_ms = sends.wait_ms(now_ms, _STEP_MS_MAX) if may_wait else 0
            for ticket, result in transport.completed(timeout_ms=wait_ms):
                index = tickets.pop(ticket, -1)
                if index < 0:
                    continue  # The answer belongs to another user of this transport.
                outcome = _outcome(sends.request(index), result)
                sent = sends.on_result(index, outcome, _monotonic_ms())
                if sent is not None:
                    yield sent

    # --- requests -----------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[QueueId, ...]:
        """Return the queues that can be written to; without a route, the last known ones.

        Raises TopicNotFoundError, NotAuthorizedError, and TransportError.
        """
        asked_ms, queues = self._routes.get(topic, (0, ()))
        if not queues or _monotonic_ms() - asked_ms > _ROUTE_AGE_MS_MAX:
            try:
                queues = _writable(self.cluster.route(topic), topic)
            except (TopicNotFoundError, TransportError):
                # When a topic's only broker goes down, its route disappears.
                if not queues:
                    raise
            self._routes[topic] = (_monotonic_ms(), queues)
        return queues

    def next_queue(self, topic: str) -> QueueId:
        queues = self.queues(topic)
        return queues[next(self._turn) % len(queues)]

    def message_request(self, message: Message, queue: QueueId) -> SendMessage:
        return SendMessage(
            group=self.group,
            queue=queue,
            born_ms=_epoch_ms(),
            body=message.body,
            properties=self._properties_of(message),
            flag=message.flag,
        )

    def batch_request(self, queue: QueueId, messages: Sequence[Message]) -> SendBatch:
        """Make one request of messages of one topic. Raises LocalProtocolError for several."""
        if any(message.topic != queue.topic for message in messages):
            raise LocalProtocolError(f"a batch for {queue} holds messages of other topics")
        if not messages:
            raise LocalProtocolError(f"a batch for {queue} holds no message")
        entries = (BatchEntry(m.flag, m.body, self._properties_of(m)) for m in messages)
        return SendBatch(
            group=self.group, queue=queue, born_ms=_epoch_ms(), body=encode_batch(entries)
        )

    def column_request(self, queue: QueueId, columns: MessageColumns) -> SendBatch | SendRecords:
        """Make one request of columns of messages, in their order, without an object a message.

        It is a batch over TCP and records over gRPC, up to the broker's limit of a request (4 MiB
        by default). Raises LocalProtocolError for rows that cannot be messages.
        """
        rows = columns.rows(self.first_unique_key(len(columns.bodies)))
        if self.cluster.settings.endpoints is None:
            return SendBatch(self.group, queue, _epoch_ms(), encode_entries(rows)[0].tobytes())
        # The broker fills in offsets, times and its host.
        records, sizes = encode_record_rows(
            queue.topic, rows, born_ms=_epoch_ms(), born_host=_NO_HOST
        )
        return SendRecords(
            self.group, queue, records=records.tobytes(), sizes=sizes.astype("<i4").tobytes()
        )

    def first_unique_key(self, count: int) -> str:
        """Return the first of `count` unique keys; the others are `count_on`."""
        first_key = self._unique_key()
        self._counter += count - 1
        return first_key

    # --- inside -------------------------------------------------------------------------------

    def _send_one(self, request: SendMessage | SendBatch, *, is_repeated: bool = True) -> SendReply:
        if not is_repeated:
            reply = self.cluster.transport.call_many(
                [(request.queue.broker, request)],
                timeout_ms=self.cluster.settings.request_timeout_ms,
            )[0]
            result: SendReply | RocketMQError = _outcome(request, reply)
        else:
            (sent,) = self.send_many([request])
            result = sent.result
        if isinstance(result, RocketMQError):
            raise result
        return result

    def _properties_of(self, message: Message) -> bytes:
        properties = dict(message.properties)
        if message.tags is not None:
            properties["TAGS"] = message.tags
        if message.keys is not None:
            properties["KEYS"] = message.keys
        properties.setdefault("UNIQ_KEY", self._unique_key())
        # Every message of a batch needs it: brokers refuse batches that mix values.
        properties.setdefault("WAIT", "true")
        return encode_properties(properties)

    def _unique_key(self) -> str:
        self._counter += 1
        return unique_message_id(
            _NO_ADDRESS,
            process_id=os.getpid(),
            loader_hash=self._unique_hash,
            now_ms=_epoch_ms(),
            counter=self._counter,
        )


def count_on(first_key: str, count: int) -> pa.Array:
    """Return unique keys whose last four hexadecimal digits count on from the first."""
    first = int(first_key[-_COUNTER_DIGITS:], 16)
    counters = np.arange(first, first + count) & (ROWS_MAX - 1)
    texts = np.empty((count, _KEY_SIZE), np.uint8)
    texts[:] = np.frombuffer(first_key.encode("ascii"), np.uint8)
    for digit in range(_COUNTER_DIGITS):
        texts[:, _KEY_SIZE - 1 - digit] = _HEX[counters >> 4 * digit & 15]
    ends = np.arange(0, _KEY_SIZE * (count + 1), _KEY_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _writable(route: Route, topic: str) -> tuple[QueueId, ...]:
    queues = route.writable_queues(topic)
    if not queues:
        brokers = route.writable_brokers()
        if brokers:
            raise ConnectError(brokers[0], "its master is unavailable")
        raise broker_error(
            ResponseCode.NO_PERMISSION, f"topic[{topic}] has no queue with the permission to write"
        )
    return queues


def _outcome(request: SendRequest, result: Reply | RocketMQError) -> SendReply | RocketMQError:
    """Return the reply, the refusal, or SendOutcomeUnknownError."""
    if isinstance(result, SendReply):
        return result
    assert isinstance(result, RocketMQError)
    if isinstance(result, TransportError) and not isinstance(result, ConnectError):
        return SendOutcomeUnknownError(request.queue, _count_of(request), str(result))
    return result


def _count_of(request: SendRequest) -> int:
    if isinstance(request, SendMessage):
        return 1
    if isinstance(request, SendBatch):
        return _count_items(request.body)
    return len(request.sizes) // 4 if request.sizes is not None else _count_items(request.records)


def _count_items(body: Buffer) -> int:
    """Count the items of a body, each of which begins with its size."""
    count = position = 0
    while position < len(body):
        position += max(1, int.from_bytes(body[position : position + 4], "big"))
        count += 1
    return count


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000
