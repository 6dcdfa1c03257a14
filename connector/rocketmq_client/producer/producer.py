"""Sends messages and batches: many on their way at once, in order within a queue, none unanswered.

What was certainly not stored is sent again: a refusal for being busy, a connection that never came
about. What may have been stored never is: a broken connection or a late answer leaves the outcome
unknown, and the caller is told so (`SendOutcomeUnknownError`). A producer that `repeats_unknown`
sends that again too, unchanged: nothing is lost, and a message may be there twice under one unique
key.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer.column_batches import MessageColumns, batch_request, records_request
from rocketmq_client.producer.send_queue import CERTAINLY_NOT_STORED, SendQueue, SendRequest, Sent
from rocketmq_client.producer.timed_messages import recall
from rocketmq_client.retry import SEND
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerBusyError,
    ConnectError,
    LocalProtocolError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
    broker_error,
)
from rocketmq_wire.model import Buffer, Message, QueueId, Route
from rocketmq_wire.plural import plural
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.message_id import unique_message_id
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.messages import SendBatch, SendMessage, SendRecords, SendReply

PRODUCER_GROUP: Final = "pyspark-rocketmq-producer"
IN_FLIGHT_MAX: Final = 32
# A route is asked for again after this long, as RocketMQ's own clients do.
_ROUTE_AGE_MS_MAX: Final = 30_000
_OTHER_QUEUES_TRIED: Final = 2
_STEP_MS_MAX: Final = 1_000
# Requests of so much are handed over together; larger ones each at once.
_TOGETHER_BYTES: Final = 64 * 1024
_NO_ADDRESS: Final = bytes(4)


class SendOutcomeUnknownError(RocketMQError):
    """The messages may or may not be stored: the answer to their request was lost."""

    def __init__(self, queue: QueueId, count: int, reason: str) -> None:
        super().__init__(queue, count, reason)
        self.queue, self.count, self.reason = queue, count, reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SEND.OUTCOME_UNKNOWN] {self.queue}: {plural(self.count, 'message')} may "
            f"or may not be stored: {self.reason}. Sending them again may store them twice."
        )


class _Source:
    """Requests as they come; what goes wrong with them is kept until those before are answered."""

    def __init__(self, requests: Iterable[SendRequest]) -> None:
        self._requests = iter(requests)
        self.is_over = False
        self.failure: Exception | None = None

    def next(self) -> SendRequest | None:
        """None when there are no more."""
        try:
            return next(self._requests)
        except StopIteration:
            self.is_over = True
        except Exception as error:  # noqa: BLE001 - Raised again, later.
            self.is_over, self.failure = True, error
        return None


class Producer:
    """One owner at a time. Use it in `with`, or close it: a cluster given to it stays open."""

    def __init__(
        self,
        where: Cluster | ConnectionSettings,
        group: str = PRODUCER_GROUP,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        in_flight_per_queue_max: int = 1,
        repeats_unknown: bool = False,
    ) -> None:
        """More than one request a queue under way is faster, and gives its order up."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this producer opened."""
        if self._owns_cluster:
            self.cluster.close()

    # --- one at a time ------------------------------------------------------------------------

    def send(self, message: Message, queue: QueueId | None = None) -> SendReply:
        """Send one message; without a queue, queues take turns and a dead broker's are passed.

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
                return self._send_one(self.message_request(message, tried[-1]), is_patient=False)
            except (ConnectError, BrokerBusyError):
                tried.append(self._random.choice(others))
        return self._send_one(self.message_request(message, tried[-1]))

    def send_batch(self, queue: QueueId, messages: Sequence[Message]) -> SendReply:
        """Send messages of one topic in one request; all are stored, or none."""
        return self._send_one(self.batch_request(queue, messages))

    def recall(self, handle: str) -> str:
        """Take back a message that is delivered later (`timers`); its unique key.

        `handle` is the send reply's. Raises BrokerError: 604 when it waits no more.
        """
        return recall(self.cluster, self.group, handle)

    # --- many at once -------------------------------------------------------------------------

    def send_many(self, requests: Iterable[SendRequest]) -> Iterator[Sent]:
        """Send requests as fast as answers come, each one's outcome as it is known.

        The order within a queue is kept, also over retries. The generator must be exhausted: only
        then has every request its outcome. What `requests` raises is raised after those of the
        requests before it.
        """
        line = SendQueue(
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
            while not source.is_over and line.wants_more and gathered < _TOGETHER_BYTES:
                request = source.next()
                if request is not None:
                    gathered += line.add(request)
            now_ms = _monotonic_ms()
            started = line.next_requests(now_ms)
            asked = [(request.queue.broker, request) for _, request in started]
            if asked:
                opened = transport.submit_many(asked, timeout_ms=timeout_ms)
                tickets.update(zip(opened, (index for index, _ in started), strict=True))
            if source.is_over and line.is_empty:
                if source.failure is not None:
                    raise source.failure
                return
            # The next requests may take time to come: the first ones are on their way meanwhile.
            may_wait = source.is_over or not line.wants_more
            wait_ms = line.wait_ms(now_ms, _STEP_MS_MAX) if may_wait else 0
            for ticket, result in transport.completed(timeout_ms=wait_ms):
                index = tickets.pop(ticket, -1)
                if index < 0:
                    continue  # An answer to somebody else's request on this transport.
                sent = line.on_result(index, _judged(line.request(index), result), _monotonic_ms())
                if sent is not None:
                    yield sent

    # --- requests -----------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[QueueId, ...]:
        """The queues that can be written to, at worst as they were known last.

        Raises TopicNotFoundError, NotAuthorizedError, and what is wrong with the way there.
        """
        asked_ms, queues = self._routes.get(topic, (0, ()))
        if not queues or _monotonic_ms() - asked_ms > _ROUTE_AGE_MS_MAX:
            try:
                queues = _writable(self.cluster.route(topic), topic)
            except (TopicNotFoundError, TransportError):
                # A broker that is away takes the routes of its topics with it.
                if not queues:
                    raise
            self._routes[topic] = (_monotonic_ms(), queues)
        return queues

    def next_queue(self, topic: str) -> QueueId:
        """The queue whose turn it is. Raises TopicNotFoundError."""
        queues = self.queues(topic)
        return queues[next(self._turn) % len(queues)]

    def message_request(self, message: Message, queue: QueueId) -> SendMessage:
        """One message as a request."""
        return SendMessage(
            group=self.group,
            queue=queue,
            born_ms=_epoch_ms(),
            body=message.body,
            properties=self._properties_of(message),
            flag=message.flag,
        )

    def batch_request(self, queue: QueueId, messages: Sequence[Message]) -> SendBatch:
        """Messages of one topic as one request. Raises LocalProtocolError for several topics."""
        if any(message.topic != queue.topic for message in messages):
            raise LocalProtocolError(f"a batch for {queue} holds messages of other topics")
        if not messages:
            raise LocalProtocolError(f"a batch for {queue} holds no message")
        entries = (BatchEntry(m.flag, m.body, self._properties_of(m)) for m in messages)
        return SendBatch(
            group=self.group, queue=queue, born_ms=_epoch_ms(), body=encode_batch(entries)
        )

    def column_request(self, queue: QueueId, columns: MessageColumns) -> SendBatch | SendRecords:
        """Columns of messages as one request: no Python object a message. Order is kept.

        A batch over TCP, records over gRPC; both are stored as the broker's request limits allow
        (4 MiB by default). Raises LocalProtocolError for rows that cannot be messages.
        """
        is_grpc = self.cluster.settings.endpoints is not None
        make = records_request if is_grpc else batch_request
        first_key = self.first_unique_key(len(columns.bodies))
        return make(self.group, queue, columns, born_ms=_epoch_ms(), first_key=first_key)

    def first_unique_key(self, count: int) -> str:
        """The first of `count` unique keys: the others count on (`column_sends.count_on`)."""
        first_key = self._unique_key()
        self._counter += count - 1
        return first_key

    # --- inside -------------------------------------------------------------------------------

    def _send_one(self, request: SendMessage | SendBatch, *, is_patient: bool = True) -> SendReply:
        if not is_patient:
            reply = self.cluster.transport.call_many(
                [(request.queue.broker, request)],
                timeout_ms=self.cluster.settings.request_timeout_ms,
            )[0]
            result: SendReply | RocketMQError = _judged(request, reply)
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
        # Every message of a batch must say it: brokers compare and refuse mixtures.
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


def _writable(route: Route, topic: str) -> tuple[QueueId, ...]:
    queues = route.writable_queues(topic)
    if not queues:
        brokers = route.writable_brokers()
        if brokers:
            raise ConnectError(brokers[0], "its master is away")
        raise broker_error(
            ResponseCode.NO_PERMISSION, f"topic[{topic}] has no queue with the permission to write"
        )
    return queues


def _judged(request: SendRequest, result: Reply | RocketMQError) -> SendReply | RocketMQError:
    """An answer, a refusal, or an outcome that nobody knows."""
    if isinstance(result, SendReply):
        return result
    assert isinstance(result, RocketMQError)
    if isinstance(result, TransportError) and not isinstance(result, ConnectError):
        return SendOutcomeUnknownError(request.queue, _count_of(request), str(result))
    return result


def _count_of(request: SendRequest) -> int:
    """How many messages a request holds."""
    if isinstance(request, SendMessage):
        return 1
    if isinstance(request, SendBatch):
        return _steps(request.body)
    return len(request.sizes) // 4 if request.sizes is not None else _steps(request.records)


def _steps(body: Buffer) -> int:
    """The items of a body in which each begins with its own size."""
    count = position = 0
    while position < len(body):
        position += max(1, int.from_bytes(body[position : position + 4], "big"))
        count += 1
    return count


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000
