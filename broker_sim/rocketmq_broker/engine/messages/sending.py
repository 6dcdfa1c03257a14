"""Sends: refusals, the choice of the queue, and the records that are stored."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np

from rocketmq_arrow.encode.record_block import (
    BatchPart,
    block_from_batches,
    block_from_message,
    block_from_records,
    join_records,
)
from rocketmq_arrow.kernels.gather import Positions
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import Outcome, Peer
from rocketmq_broker.engine.core.routes import record_host
from rocketmq_broker.engine.core.topics import is_group_topic
from rocketmq_broker.engine.messages.delays import DELAY, delayed, level_of
from rocketmq_broker.engine.messages.timers import DELAY_MS, DELAY_SECONDS, Timers, due_of
from rocketmq_broker.engine.tables import Tables
from rocketmq_broker.storage.settings import Appended
from rocketmq_wire.errors import ProtocolError
from rocketmq_wire.model import PROPERTIES_SIZE_MAX, Host, QueueId
from rocketmq_wire.records.handles import RECEIPT
from rocketmq_wire.records.message_id import offset_message_id, unique_message_id
from rocketmq_wire.records.properties import (
    DELIVER_MS,
    LITE_TOPIC,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from rocketmq_wire.records.record import FLAG_TRANSACTION_MASK
from rocketmq_wire.requests.messages import (
    SendBatch,
    SendMessage,
    SendRecords,
    SendReply,
    SendStatus,
)
from rocketmq_wire.requests.transactions import TRANSACTIONAL, is_half

_TIMER_PROPERTIES: Final = (DELAY_SECONDS, DELAY_MS, DELIVER_MS)
_DISPATCH_PROPERTIES: Final = frozenset({"INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"})
"""RocketMQ would list the message in more queues if it took the data directory over."""
_CLUSTER_PROPERTY: Final = "CLUSTER"
_SEPARATOR: Final = b"\x02"
# An offset message id ends with the position in the log, as 16 hexadecimal digits.
_POSITION_DIGITS: Final = 16
_SIZE_SIZE: Final = 4
_DAY_MS: Final = 24 * 3_600_000


class HalfMessages(Protocol):
    def prepare(
        self, queue: QueueId, properties: Mapping[str, str], group: str
    ) -> tuple[QueueId, dict[str, str]]:
        """The queue that stores a half message for `queue`, and its properties there."""
        ...

    def note_half(self, appended: Appended, properties: Mapping[str, str], now_ms: int) -> None: ...


class Sending:
    def __init__(self, tables: Tables, *, timers: Timers, half_messages: HalfMessages) -> None:
        self._body_size_max = tables.config.message_bytes_max
        self._delay_ms_max = tables.config.timer_days_max * _DAY_MS
        self._tables = tables
        self._store = tables.store
        self._store_host = tables.identity.store_host
        self._timers = timers
        self._half_messages = half_messages
        self._next_queue = itertools.count()
        self._unique_counter = itertools.count()

    def send_message(self, request: SendMessage, peer: Peer, now_ms: int) -> Outcome:
        """Codes 10 and 310. Refusals: 3, 13, 16, 17, 29."""
        queue = self._send_queue(request.queue, request.default_queue_count)
        self._check_body(request.body)
        if len(request.properties) > PROPERTIES_SIZE_MAX:
            raise refusals.message_illegal(
                f"the properties take {len(request.properties)} bytes, "
                f"more than {PROPERTIES_SIZE_MAX}"
            )
        names = decode_properties(request.properties)
        _refuse_lite(queue.topic, names)
        kind = _kind_of(names, request.sys_flag)
        due_ms = None
        if kind is _Kind.TIMER:
            due_ms = due_of(
                names,
                now_ms=now_ms,
                delay_ms_max=self._delay_ms_max,
                ahead_ms=self._tables.ahead_ms(),
            )
        properties, unique_key = self._normalised(request.properties, names, now_ms)
        stored_in = queue
        named = names
        with _refused_if_broken("the message"):
            if kind is not _Kind.PLAIN or names.keys() & _DISPATCH_PROPERTIES:
                named = decode_properties(properties)
            if kind is _Kind.LEVEL:
                stored_in, named = delayed(queue, named, level_of(names))
            elif kind is _Kind.HALF:
                stored_in, named = self._half_messages.prepare(queue, named, request.group)
            elif due_ms is not None:
                stored_in, named = self._timers.wait(queue, named, due_ms)
            if named is not names:
                named = {name: v for name, v in named.items() if name not in _DISPATCH_PROPERTIES}
                properties = encode_properties(named)
            block = block_from_message(
                topic=stored_in.topic,
                queue_index=stored_in.index,
                body=request.body,
                properties=properties,
                flag=request.flag,
                sys_flag=request.sys_flag & ~FLAG_TRANSACTION_MASK,
                born_ms=request.born_ms,
                born_host=record_host(peer.host, peer.port),
                store_host=self._store_host,
                reconsume_times=request.reconsume_times,
            )
        appended = self._store.append(stored_in.topic, stored_in.index, block, now_ms)
        recall_handle = None
        if kind is _Kind.HALF:
            self._half_messages.note_half(appended, named, now_ms)
        elif due_ms is not None:
            recall_handle = self._timers.note(appended.start, named)
        return self._acknowledge(queue, appended, unique_key, recall_handle=recall_handle)

    def send_batch(self, request: SendBatch, peer: Peer, now_ms: int) -> Outcome:
        """Code 320. Refusals: 3, 13, 16, 17, 29."""
        queue = self._batch_queue(request)
        part = _part_of(request, queue, peer)
        with _refused_if_broken("the batch"):
            block, _ = block_from_batches([part], topic=queue.topic, store_host=self._store_host)
        appended = self._store.append(queue.topic, queue.index, block, now_ms)
        return self._acknowledge_batch(request, queue, appended, block.starts)

    def send_records(self, request: SendRecords, now_ms: int) -> Outcome:
        """Records laid out by the sender. Refusals: 3, 13, 16, 17, 29."""
        queue = self._send_queue(request.queue, default_queue_count=4)
        with _refused_if_broken("the block of records"):
            block = block_from_records(
                request.records, request.sizes, topic=queue.topic, body_size_max=self._body_size_max
            )
            # The append fails, too, for records with an IPv6 store host.
            appended = self._store.append(queue.topic, queue.index, block, now_ms)
        return self._acknowledge(queue, appended)

    def send_batches(
        self, requests: Sequence[tuple[SendBatch, Peer]], now_ms: int
    ) -> list[Outcome] | None:
        """Store several batches of one topic as one block.

        Raises the refusal of any batch, or returns None if the batches do not fit into one block;
        in both cases nothing was stored.
        """
        queues = [self._batch_queue(request) for request, _ in requests]
        parts = [
            _part_of(request, queue, peer)
            for (request, peer), queue in zip(requests, queues, strict=True)
        ]
        if len({(len(part.born_host.address), part.sys_flag) for part in parts}) > 1:
            return None
        topic = queues[0].topic
        with _refused_if_broken("the batch"):
            block, counts = block_from_batches(parts, topic=topic, store_host=self._store_host)
        indices = [(queue.index, count) for queue, count in zip(queues, counts, strict=True)]
        appended = self._store.append_parts(topic, block, indices, now_ms)
        if appended is None:
            return None
        outcomes, first = [], 0
        for (request, _), queue, each in zip(requests, queues, appended, strict=True):
            starts = block.starts[first : first + each.count]
            outcomes.append(self._acknowledge_batch(request, queue, each, starts))
            first += each.count
        return outcomes

    def send_all_records(
        self, requests: Sequence[SendRecords], now_ms: int
    ) -> list[Outcome] | None:
        """Store the records of several requests for one topic as one block, like `send_batches`."""
        queues = [self._send_queue(request.queue, default_queue_count=4) for request in requests]
        topic = queues[0].topic
        parts = [(each.records, each.sizes) for each in requests if each.sizes is not None]
        if len(parts) < len(requests):
            return None
        with _refused_if_broken("the block of records"):
            records, sizes = join_records(parts)
            block = block_from_records(
                records, sizes, topic=topic, body_size_max=self._body_size_max, takes_over=True
            )
            indices = [
                (queue.index, len(each) // _SIZE_SIZE)
                for queue, (_, each) in zip(queues, parts, strict=True)
            ]
            appended = self._store.append_parts(topic, block, indices, now_ms)
        if appended is None:
            return None
        return [
            self._acknowledge(queue, each) for queue, each in zip(queues, appended, strict=True)
        ]

    def _batch_queue(self, request: SendBatch) -> QueueId:
        queue = self._send_queue(request.queue, request.default_queue_count)
        self._check_body(request.body)
        _check_properties(request.properties, request.sys_flag)
        return queue

    def _send_queue(self, queue: QueueId, default_queue_count: int) -> QueueId:
        """The queue that a send names, or the next one by round robin."""
        config = self._tables.topics.require_writable(queue, default_queue_count)
        if queue.index >= 0:
            return queue
        return queue._replace(index=next(self._next_queue) % config.write_queue_count)

    def _check_body(self, body: bytes | bytearray | memoryview) -> None:
        size = len(body)
        if not size:
            raise refusals.message_illegal("the body is empty")
        if size > self._body_size_max:
            raise refusals.message_illegal(
                f"message body size {size} is over the limit of {self._body_size_max}"
            )

    def _normalised(
        self, properties: bytes, names: dict[str, str], now_ms: int
    ) -> tuple[bytes, str]:
        """The properties to store, and the unique key, as a 5.x broker makes them."""
        if RECEIPT in names:
            receipt = RECEIPT.encode() + b"\x01"
            items = properties.split(_SEPARATOR)
            properties = _SEPARATOR.join(item for item in items if not item.startswith(receipt))
        if properties and not properties.endswith(_SEPARATOR):
            properties += _SEPARATOR
        added = ""
        unique_key = names.get(UNIQUE_KEY)
        if unique_key is None:
            counter = next(self._unique_counter)
            unique_key = unique_message_id(
                self._store_host.address,
                process_id=self._tables.identity.port,
                loader_hash=counter >> 16,
                now_ms=now_ms,
                counter=counter,
            )
            added = f"{UNIQUE_KEY}\x01{unique_key}\x02"
        if _CLUSTER_PROPERTY not in names:
            added += f"{_CLUSTER_PROPERTY}\x01{self._tables.identity.cluster_name}\x02"
        whole = properties + added.encode()
        # The added properties must not make a legal message too large.
        return (whole if len(whole) <= PROPERTIES_SIZE_MAX else properties), unique_key

    def _acknowledge_batch(
        self, request: SendBatch, queue: QueueId, appended: Appended, starts: Positions
    ) -> Outcome:
        message_ids = _joined_ids(self._store_host, appended, starts)
        unique_key = decode_properties(request.properties).get(UNIQUE_KEY)
        return self._acknowledge(queue, appended, unique_key, message_ids=message_ids)

    def _acknowledge(
        self,
        queue: QueueId,
        appended: Appended,
        unique_key: str | None = None,
        *,
        message_ids: str | None = None,
        recall_handle: str | None = None,
    ) -> Outcome:
        reply = SendReply(
            SendStatus.OK,
            message_ids or offset_message_id(self._store_host, appended.physical_start),
            queue.index,
            appended.start,
            unique_key,
            appended.count,
            recall_handle,
        )
        return self._tables.acknowledge(reply, appended.end_position)


@contextmanager
def _refused_if_broken(what: str) -> Iterator[None]:
    """Refuse (13) a message that cannot be read or encoded as a record."""
    try:
        yield
    except ProtocolError as error:
        raise refusals.message_illegal(f"{what} cannot be stored: {error.detail}") from error


class _Kind(enum.Enum):
    """How a message that is sent alone is stored."""

    PLAIN = "in its queue"
    LEVEL = "until its delay level is over"
    TIMER = "until its delivery time"
    HALF = "until its transaction is committed"


def _kind_of(names: Mapping[str, str], sys_flag: int) -> _Kind:
    """Refuse (13) properties that exclude each other."""
    has_timer = any(name in names for name in _TIMER_PROPERTIES)
    if is_half(names, sys_flag):
        if has_timer or level_of(names):
            raise refusals.message_illegal("a transactional message cannot be a delayed one, too")
        return _Kind.HALF
    if sys_flag & FLAG_TRANSACTION_MASK:
        raise refusals.message_illegal(f"sysFlag {sys_flag} without {TRANSACTIONAL}=true")
    # A delay level wins over a delivery time, even over an illegal one.
    if level_of(names):
        return _Kind.LEVEL
    return _Kind.TIMER if has_timer else _Kind.PLAIN


def _check_properties(properties: bytes, sys_flag: int) -> None:
    """Refuse (13) in a batch what brokers take only as single messages."""
    names = decode_properties(properties)
    if sys_flag & FLAG_TRANSACTION_MASK or names.get(TRANSACTIONAL, "").lower() == "true":
        raise refusals.message_illegal("transactional messages cannot be sent in batches")
    for name in (DELAY, *_TIMER_PROPERTIES):
        if names.get(name, "0") != "0":
            raise refusals.message_illegal(f"delayed messages cannot be batched (property {name})")


def _part_of(request: SendBatch, queue: QueueId, peer: Peer) -> BatchPart:
    # As brokers from 5.4 on, which do not change the inner messages. Older ones appended the
    # batch's UNIQ_KEY to each, so that all had the same id.
    born_host = record_host(peer.host, peer.port)
    return BatchPart(request.body, queue.index, request.born_ms, born_host, request.sys_flag)


def _joined_ids(store_host: Host, appended: Appended, starts: Positions) -> str:
    """The offset message ids of records, joined by commas as in replies to batches."""
    positions = starts.copy()
    for (first, position), (end, _) in itertools.pairwise((*appended.pieces, (len(positions), 0))):
        positions[first:end] += position - positions[first]
    head = offset_message_id(store_host, 0)[:-_POSITION_DIGITS].encode()
    digits = positions.astype(">i8").tobytes().hex().upper().encode()
    ids = np.empty((len(positions), len(head) + _POSITION_DIGITS + 1), np.uint8)
    ids[:, : len(head)] = np.frombuffer(head, np.uint8)
    ids[:, len(head) : -1] = np.frombuffer(digits, np.uint8).reshape(-1, _POSITION_DIGITS)
    ids[:, -1] = ord(",")
    return ids.tobytes()[:-1].decode("ascii")


def _refuse_lite(topic: str, names: Mapping[str, str]) -> None:
    """Refuse (13) a lite message, unless a consumer sends it back to its group's topics."""
    lite_topic = names.get(LITE_TOPIC)
    if lite_topic and not is_group_topic(topic):
        raise refusals.message_illegal(
            f"the message is of lite topic {lite_topic[:80]!r}: lite topics are not supported"
        )
