"""Rows to write as Arrow -> send requests, whole batches at once, by topic and by queue."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketmq.errors import SinkRowError
from pyspark_rocketmq.sink.encoding.plan import SinkLayout, WriteId
from pyspark_rocketmq.sink.encoding.queue_choice import (
    ANY,
    assign_queues,
    has_text,
    indices_of,
    numbers_of,
)
from rocketmq_arrow.encode.deflate import compress_bodies, compressed_flag
from rocketmq_arrow.encode.rows import (
    OutgoingRows,
    encode_entries,
    encode_record_rows,
    map_texts,
    texts_of,
)
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions
from rocketmq_arrow.kernels.numpy_arrays import mask_of, text_array
from rocketmq_arrow.kernels.text_hashes import Hashes, content_hashes
from rocketmq_client.producer.producer import ROWS_MAX, count_on
from rocketmq_client.producer.send_queue import SendRequest
from rocketmq_wire.errors import LocalProtocolError, RowRefusedError
from rocketmq_wire.model import Host, QueueId
from rocketmq_wire.records.batch import stored_growth
from rocketmq_wire.records.properties import (
    LITE_TOPIC,
    MESSAGE_GROUP,
    ROW_PROPERTY,
    WRITE_PROPERTY,
    encode_properties,
)
from rocketmq_wire.records.record import FLAG_TRANSACTION_PREPARED
from rocketmq_wire.requests.messages import SendBatch, SendMessage, SendRecords
from rocketmq_wire.requests.transactions import CHECK_IMMUNITY, PRODUCER_GROUP, TRANSACTIONAL

# Encoded at a time: a task holds this, and the requests in flight.
_PIECE_ROWS_MAX: Final = min(16_384, ROWS_MAX)
_PIECE_BYTES_MAX: Final = 16 * 1024 * 1024
# Brokers close the connection on a frame of 16 MiB, which looks like an outage; the header needs
# some.
_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024 - 64 * 1024
_NO_HOST: Final = Host(bytes(4), 0)
_ENTRY_BODY_AT: Final = 20
_DELAY: Final = "DELAY"
_DELIVER_AT: Final = "TIMER_DELIVER_MS"
# RocketMQ acts on these properties: a copied message must not be delayed or half once more.
_ACTING: Final = (
    *("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"),
    *("TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "INNER_NUM", MESSAGE_GROUP),
    *(CHECK_IMMUNITY, "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", LITE_TOPIC),
)
_HEX_PAIRS: Final = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint16)
_ROW_ID_SIZE: Final = 32
_LARGE: Final = ((pa.large_string(), pa.string()), (pa.large_binary(), pa.binary()))


class Queues(Protocol):
    group: str

    def queues(self, topic: str) -> Sequence[QueueId]: ...

    def first_unique_key(self, count: int) -> str: ...


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns by message part, and each row's number in its partition."""

    columns: dict[str, pa.Array]
    numbers: Positions
    packed: pa.Array | None = None
    """The compressed bodies, if any body is compressed."""
    is_packed: Mask | None = None

    def get(self, name: str) -> pa.Array | None:
        return self.columns.get(name)

    def take(self, rows: Positions) -> _Rows:
        indices = indices_of(rows)
        taken = {name: column.take(indices) for name, column in self.columns.items()}
        if self.packed is None or self.is_packed is None:
            return _Rows(taken, self.numbers[rows])
        return _Rows(taken, self.numbers[rows], self.packed.take(indices), self.is_packed[rows])


@dataclass(frozen=True, slots=True)
class _Target:
    """A topic's queues, as a task knows them."""

    topic: str
    live: tuple[QueueId, ...]
    """The current queues, for rows that may go to any."""
    queues: tuple[QueueId, ...]
    """Also the queues of brokers that became unavailable: rows bound to them wait."""
    group_queues_count: int
    """The number of queues at the start of the task; message groups are spread over these."""


class SinkRequests:
    """The requests of one task, in the order of its rows within every queue."""

    def __init__(
        self,
        layout: SinkLayout,
        producer: Queues,
        write_id: WriteId,
        first_queue: int = 0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._layout, self._producer, self._write_id = layout, producer, write_id
        self._next_queue, self._now_ms = first_queue, now_ms
        # WAIT must be the same in every message of a batch.
        shared = {WRITE_PROPERTY: str(write_id), "WAIT": "true"}
        if layout.immunity_seconds is not None:
            named = TRANSACTIONAL, PRODUCER_GROUP, CHECK_IMMUNITY
            values = "true", producer.group, str(layout.immunity_seconds)
            shared.update(zip(named, values, strict=True))
        self._shared = encode_properties(shared)
        self._targets: dict[str, _Target] = {}
        self.row_count = 0

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[SendRequest]:
        """The requests of the next rows. Raises SinkRowError."""
        for piece in _pieces(batch, self._layout.columns):
            numbers = np.arange(self.row_count, self.row_count + piece.num_rows)
            self.row_count += piece.num_rows
            rows = _Rows(_columns(piece, self._layout.columns), numbers)
            with self._numbered(rows):
                _check(rows)
                for topic, of_topic in self._by_topic(self._packed(rows)):
                    with self._numbered(of_topic):
                        yield from self._of_topic(topic, of_topic)

    @contextmanager
    def _numbered(self, rows: _Rows) -> Iterator[None]:
        """Errors about one of these rows name its number in the task."""
        numbers, partition = rows.numbers, self._write_id.partition
        try:
            yield
        except RowRefusedError as error:
            row = f"row {numbers[error.row]} (counted from 0)"
            raise SinkRowError(partition, row, error.reason) from error
        except LocalProtocolError as error:
            some = f"rows {numbers[0]} to {numbers[-1]}:"
            raise SinkRowError(partition, some, str(error)) from error

    def _packed(self, rows: _Rows) -> _Rows:
        if self._layout.compression is None:
            return rows
        packed, is_packed = compress_bodies(
            rows.columns["body"], self._layout.compression, self._layout.compression_threshold
        )
        return rows if is_packed is None else replace(rows, packed=packed, is_packed=is_packed)

    def _by_topic(self, rows: _Rows) -> Iterator[tuple[str, _Rows]]:
        column = rows.get("topic")
        if self._layout.topic is not None:
            yield self._layout.topic, rows
            return
        assert column is not None
        _refuse(~has_text(column), "has no topic")
        encoded = column.dictionary_encode()
        codes = numbers_of(encoded.indices)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            yield topic, rows if len(chosen) == len(codes) else rows.take(chosen)

    def _of_topic(self, topic: str, rows: _Rows) -> Iterator[SendRequest]:
        if topic == self._layout.decision_topic:
            raise LocalProtocolError(f"{topic} is the decisionTopic, which takes no rows")
        target = self._target(topic)
        queue_indices = assign_queues(
            target.queues,
            len(rows.numbers),
            rows.get("queueId"),
            rows.get("brokerName"),
            rows.get("messageGroup"),
            target.group_queues_count,
        )
        named, is_delayed = _delays(rows)
        if self._layout.immunity_seconds is not None:
            if is_delayed is not None:
                _refuse(is_delayed, "has a delay, which a transactional message cannot have")
            yield from self._single(target, rows, queue_indices, (), FLAG_TRANSACTION_PREPARED)
            return
        if is_delayed is not None:
            delayed, prompt = np.flatnonzero(is_delayed), np.flatnonzero(~is_delayed)
            _refuse_delayed_groups(rows, is_delayed)
            columns = tuple((name, column.take(indices_of(delayed))) for name, column in named)
            delayed_rows = rows.take(delayed)
            with self._numbered(delayed_rows):
                yield from self._single(target, delayed_rows, queue_indices[delayed], columns)
            rows, queue_indices = rows.take(prompt), queue_indices[prompt]
        if len(queue_indices) == 0:
            return
        order = rows_by_queue(queue_indices, rows.is_packed)
        if order is not None:
            rows, queue_indices = rows.take(order), queue_indices[order]
        with self._numbered(rows):
            yield from self._bulk(target, rows, queue_indices)

    def _target(self, topic: str) -> _Target:
        """A topic's queues. A task never forgets one: a message group stays in its queue."""
        live = tuple(self._producer.queues(topic))
        known = self._targets.get(topic) or _Target(topic, live, live, len(live))
        if live != known.live:
            added = tuple(queue for queue in live if queue not in known.queues)
            known = replace(known, live=live, queues=(*known.queues, *added))
        self._targets[topic] = known
        return known

    def _bulk(
        self, target: _Target, rows: _Rows, queue_indices: Positions
    ) -> Iterator[SendRequest]:
        topic = target.topic
        outgoing = self._outgoing(topic, rows)
        born_ms = self._now_ms()
        flags = self._flags(rows)
        # Records have their own flags; the messages of a batch share the request's.
        is_separate = None if self._layout.is_grpc else rows.is_packed
        if self._layout.is_grpc:
            data, sizes = encode_record_rows(
                topic, outgoing, born_ms=born_ms, born_host=_NO_HOST, sys_flag=flags
            )
            stored_sizes = sizes
        else:
            data, sizes = encode_entries(outgoing)
            stored_sizes = sizes + stored_growth(topic)
        _refuse_giants(sizes)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        for queue_index, first, end in cut_batches(
            queue_indices, stored_sizes, self._layout.bytes_max, is_separate
        ):
            queue = self._queue(target, queue_index)
            part = data[starts[first] : starts[end]].data
            if self._layout.is_grpc:
                lengths = sizes[first:end].astype("<i4").tobytes()
                yield SendRecords(self._producer.group, queue, part, lengths)
            else:
                flag = int(flags[first])
                yield SendBatch(self._producer.group, queue, born_ms, part, sys_flag=flag)

    def _flags(self, rows: _Rows) -> NDArray[np.int32]:
        flags = np.zeros(len(rows.numbers), np.int32)
        if rows.is_packed is not None and self._layout.compression is not None:
            flags[rows.is_packed] = compressed_flag(self._layout.compression)
        return flags

    def _single(
        self,
        target: _Target,
        rows: _Rows,
        queue_indices: Positions,
        named: tuple[tuple[str, pa.Array], ...],
        sys_flag: int = 0,
    ) -> Iterator[SendRequest]:
        """One request a row: brokers refuse batches of delayed or transactional messages."""
        data, sizes = encode_entries(self._outgoing(target.topic, rows, named))
        _refuse_giants(sizes)
        start = 0
        flags = self._flags(rows).tolist()
        for queue_index, size, flag in zip(
            queue_indices.tolist(), sizes.tolist(), flags, strict=True
        ):
            body, properties = _entry_parts(data, start, start + size)
            start += size
            queue = self._queue(target, queue_index)
            group, now_ms = self._producer.group, self._now_ms()
            yield SendMessage(group, queue, now_ms, body, properties, sys_flag=flag | sys_flag)

    def _outgoing(
        self, topic: str, rows: _Rows, named: tuple[tuple[str, pa.Array], ...] = ()
    ) -> OutgoingRows:
        bodies = rows.columns["body"]
        keys, tags, properties = (rows.get(name) for name in ("keys", "tags", "properties"))
        groups = rows.get("messageGroup")
        row_ids = _row_ids(rows.numbers, digests(topic, bodies, keys, tags, properties, groups))
        if groups is not None:
            named = (*named, (MESSAGE_GROUP, groups))
        return OutgoingRows(
            bodies if rows.packed is None else rows.packed,
            tags,
            keys,
            properties,
            count_on(self._producer.first_unique_key(len(bodies)), len(bodies)),
            self._shared,
            named=(*named, (ROW_PROPERTY, row_ids)),
        )

    def _queue(self, target: _Target, queue_index: int) -> QueueId:
        if queue_index != ANY:
            return target.queues[queue_index]
        self._next_queue += 1
        return target.live[(self._next_queue - 1) % len(target.live)]


def _pieces(batch: pa.RecordBatch, columns: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """Slices with a bounded number of rows and bytes of bodies."""
    body = _plain(batch.column(columns["body"]))
    sizes = numbers_of(pc.fill_null(pc.binary_length(body), 0))
    ends = np.cumsum(sizes)
    first = 0
    while first < batch.num_rows:
        taken = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, taken + _PIECE_BYTES_MAX, "right"))
        end = min(max(fitting, first + 1), first + _PIECE_ROWS_MAX, batch.num_rows)
        yield batch.slice(first, end - first)
        first = end


def _columns(batch: pa.RecordBatch, columns: Mapping[str, int]) -> dict[str, pa.Array]:
    return {name: _plain(batch.column(index)) for name, index in columns.items()}


def _plain(column: pa.Array) -> pa.Array:
    for large, plain in _LARGE:
        if column.type == large:
            return column.cast(plain)
    return column


def _check(rows: _Rows) -> None:
    body = rows.columns["body"]
    if body.null_count:
        _refuse(mask_of(body.is_null()), "has no body")
    properties = rows.get("properties")
    if properties is not None:
        names = pc.unique(properties.keys)
        acting = names.filter(pc.is_in(names, value_set=text_array(_ACTING)))
        if len(acting):
            raise LocalProtocolError(
                f"the property {acting[0].as_py()} is RocketMQ's own and would act once more: "
                "remove it with map_filter, and use the columns delayLevel, deliveryTimestamp and "
                "messageGroup"
            )


def _delays(rows: _Rows) -> tuple[list[tuple[str, pa.Array]], Mask | None]:
    """The properties that delay messages, and the rows that have one; None if no row has."""
    named: list[tuple[str, pa.Array]] = []
    is_delayed: Mask | None = None
    level, at = rows.get("delayLevel"), rows.get("deliveryTimestamp")
    if level is not None:
        level = level.cast(pa.int64())
        _refuse(mask_of(pc.fill_null(pc.less(level, 0), False)), "has a negative delayLevel")
        named.append((_DELAY, pc.if_else(pc.greater(level, 0), level, None).cast(pa.string())))
    if at is not None:
        # Timestamps are microseconds.
        milliseconds = pc.divide(at.cast(pa.int64()), 1_000)
        named.append((_DELIVER_AT, milliseconds.cast(pa.string())))
    for _, column in named:
        given = mask_of(column.is_valid())
        if is_delayed is not None:
            _refuse(is_delayed & given, "has both a delayLevel and a deliveryTimestamp")
        is_delayed = given if is_delayed is None else is_delayed | given
    if is_delayed is None or not is_delayed.any():
        return [], None
    return named, is_delayed


def rows_by_queue(queue_indices: Positions, is_separate: Mask | None = None) -> Positions | None:
    """The rows sorted by queue, in their order within each; None if they are sorted already.

    Rows for any queue need no order: the separate ones come together.
    """
    if is_separate is not None:
        queue_indices = np.where((queue_indices == ANY) & is_separate, ANY - 1, queue_indices)
    if (queue_indices[1:] >= queue_indices[:-1]).all():
        return None
    return np.argsort(queue_indices, kind="stable")


def cut_batches(
    queue_indices: Positions, sizes: Positions, bytes_max: int, is_separate: Mask | None = None
) -> Iterator[tuple[int, int, int]]:
    """(queue index, first row, end) of each request: one queue, at most `bytes_max` or one row.

    Separate rows share no request with others.
    """
    ends = np.cumsum(sizes)
    is_boundary = queue_indices[1:] != queue_indices[:-1]
    if is_separate is not None:
        is_boundary = is_boundary | (is_separate[1:] != is_separate[:-1])
    boundaries = np.flatnonzero(is_boundary) + 1
    bounds = [0, *boundaries.tolist(), len(queue_indices)]
    for run_start, run_end in itertools.pairwise(bounds):
        first = run_start
        while first < run_end:
            taken = int(ends[first - 1]) if first else 0
            fitting = int(np.searchsorted(ends, taken + bytes_max, "right"))
            end = min(max(fitting, first + 1), run_end)
            yield int(queue_indices[first]), first, end
            first = end


def _refuse_delayed_groups(rows: _Rows, is_delayed: Mask) -> None:
    groups = rows.get("messageGroup")
    if groups is not None:
        _refuse(
            has_text(groups) & is_delayed, "has a messageGroup, whose order a delay would break"
        )


def _refuse_giants(sizes: Positions) -> None:
    _refuse(sizes > _MESSAGE_BYTES_MAX, f"takes more than {_MESSAGE_BYTES_MAX} bytes")


def _refuse(is_wrong: Mask, reason: str) -> None:
    if is_wrong.any():
        raise RowRefusedError(int(np.argmax(is_wrong)), reason)


def _entry_parts(data: Bytes, start: int, end: int) -> tuple[bytes, bytes]:
    entry = data[start:end].tobytes()
    body_end = _ENTRY_BODY_AT + int.from_bytes(entry[_ENTRY_BODY_AT - 4 : _ENTRY_BODY_AT], "big")
    return entry[_ENTRY_BODY_AT:body_end], entry[body_end + 2 :]


def digests(
    topic: str,
    bodies: pa.Array,
    keys: pa.Array | None,
    tags: pa.Array | None,
    properties: pa.Array | None,
    groups: pa.Array | None = None,
) -> Hashes:
    """64 bits of each row's content; empty counts as absent, as in messages.

    A task that runs again may see its rows in another order: only a row whose number and digest
    both repeat is a replay.
    """
    name = np.frombuffer(topic.encode(), np.uint8)
    whole = np.array([0], np.int64), np.array([len(name)], np.int64)
    seed = content_hashes(name, *whole, np.zeros(1, np.uint64))
    hashes = np.repeat(seed, len(bodies))
    for number, column in enumerate((keys, tags, properties, groups)):
        if column is not None:
            texts = map_texts(column) if column is properties else texts_of(column)
            # The same text in another column is another message.
            hashes = content_hashes(*texts, hashes + np.uint64(number + 1))
    return content_hashes(*texts_of(bodies), hashes)


def _row_ids(rows: Positions, hashes: Hashes) -> pa.Array:
    """Each row's number in its partition and its digest, 16 hexadecimal digits each."""
    numbers = np.empty((len(rows), 2), ">u8")
    numbers[:, 0] = rows
    numbers[:, 1] = hashes
    digits: NDArray[np.uint16] = _HEX_PAIRS[numbers.view(np.uint8)]
    ends = np.arange(0, _ROW_ID_SIZE * (len(rows) + 1), _ROW_ID_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)
