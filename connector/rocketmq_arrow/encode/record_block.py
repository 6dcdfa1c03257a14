"""What a broker stores: laid-out records of one queue in one buffer, checked, patched in place.

Records come from a sender that laid them out itself, from a batch of the TCP protocol (code 320),
whose entries carry no record header, or from a single message. What only the broker knows (queue,
offsets, store time and host) is written by `RecordBlock.patch`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2, entry_bounds, record_bounds
from rocketmq_arrow.decode.checksums import crcs_at, wrong_bodies
from rocketmq_arrow.decode.layout import (
    CRC_AT,
    FLAG_AT,
    QUEUE_AT,
    QUEUE_OFFSET_AT,
    STORE_MS_AT,
    SYS_FLAG_AT,
    Layout,
    describe_damage,
    read_layout,
)
from rocketmq_arrow.decode.property_scan import PropertyScan
from rocketmq_arrow.encode.small_batches import FewRecords, lay_out_few, patch_record
from rocketmq_arrow.kernels.assemble import Constant, Piece, Ranges, Rows, assemble
from rocketmq_arrow.kernels.gather import Bytes, Positions, numbers_at, overlapping
from rocketmq_arrow.kernels.java_hashes import java_hashes
from rocketmq_wire.errors import CorruptRecordError, LocalProtocolError
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.limits import BATCH_MESSAGES_MAX
from rocketmq_wire.model import BODY_SIZE_MAX, PROPERTIES_SIZE_MAX, Buffer, Host
from rocketmq_wire.records.batch import ENTRY_BODY_AT, ENTRY_FLAG_AT
from rocketmq_wire.records.properties import TAGS, decode_properties
from rocketmq_wire.records.record import (
    FLAG_BORN_HOST_V6,
    FLAG_INNER_BATCH,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_MASK,
    HOST_V6_EXTRA,
    body_crc,
)

_TOPIC_SIZE_V1_MAX: Final = 127
_TOPIC_SIZE_MAX: Final = 255
# Where an error says that the damage is.
_RECORDS: Final = "records"
_BATCH: Final = "batch"
_FIXED: Final = struct.Struct(">iIiiiqqiq")


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records back to back in a writable buffer; the first one starts at byte 0."""

    buffer: Bytes
    starts: Positions
    sizes: NDArray[np.int32]
    tag_hashes: NDArray[np.int64]
    """Java's hash of the tag, 0 without one: what consume queues hold."""
    topic: str
    text_starts: Positions
    """Where each record's properties begin; they last to its end."""

    def __len__(self) -> int:
        return len(self.starts)

    def piece(self, start: int, end: int) -> RecordBlock:
        """The records `[start, end)` as a block over the same bytes."""
        if start >= end:
            raise ValueError(f"a block has at least one record, not [{start}, {end})")
        base = int(self.starts[start])
        stop = int(self.starts[end - 1] + self.sizes[end - 1])
        return RecordBlock(
            self.buffer[base:stop],
            self.starts[start:end] - base,
            self.sizes[start:end],
            self.tag_hashes[start:end],
            self.topic,
            self.text_starts[start:end] - base,
        )

    def patch(
        self,
        queue_index: int | Positions,
        queue_offset: int | Positions,
        physical_start: int,
        store_ms: int,
        store_host: Host,
    ) -> None:
        """Writes queue, offsets, positions, store time and store host.

        Offsets are consecutive from a number on, or given for each record, as queues may be. Raises
        LocalProtocolError if the host's address is longer or shorter than the records' ones.
        """
        starts, buffer = self.starts, self.buffer
        if len(starts) == 1 and isinstance(queue_index, int) and isinstance(queue_offset, int):
            position = queue_index, queue_offset, physical_start
            if not patch_record(buffer.data, int(starts[0]), position, store_ms, store_host):
                raise _unfit_host(store_host)
            return
        flags = buffer[starts + (SYS_FLAG_AT + 3)]
        is_v6 = (flags & FLAG_STORE_HOST_V6) != 0
        if (is_v6 != (len(store_host.address) == 16)).any():
            raise _unfit_host(store_host)
        count = len(starts)
        _put(buffer, starts + QUEUE_AT, np.full(count, queue_index, ">i4"))
        # Queue offset and physical offset stand side by side, and so do store time and host.
        offsets = np.empty((count, 2), ">i8")
        if isinstance(queue_offset, int):
            queue_offset = np.arange(queue_offset, queue_offset + count)
        offsets[:, 0] = queue_offset
        offsets[:, 1] = starts + physical_start
        _put(buffer, starts + QUEUE_OFFSET_AT, offsets.view("V16")[:, 0])
        stored = struct.pack(">q", store_ms) + _host_bytes(store_host)
        positions = starts + STORE_MS_AT
        if (flags & FLAG_BORN_HOST_V6).any():
            positions += HOST_V6_EXTRA * ((flags & FLAG_BORN_HOST_V6) != 0)
        _put(buffer, positions, np.frombuffer(stored, f"V{len(stored)}"))


class BatchPart(NamedTuple):
    """One batch (code 320) of those that become a block together."""

    body: Buffer
    queue_index: int
    born_ms: int
    born_host: Host
    sys_flag: int


def join_records(parts: Sequence[tuple[Buffer, Buffer]]) -> tuple[bytearray, bytes]:
    """Several senders' records and sizes as one buffer of records, writable, and its sizes.

    Raises CorruptRecordError if one sender's sizes do not add up to what it sent: taken together
    they might, and a record would be half of one sender's, half of the other's.
    """
    for records, sizes in parts:
        sizes_size = memoryview(sizes).nbytes
        given = np.frombuffer(sizes, "<i4", sizes_size // 4)
        if not sizes_size:
            raise CorruptRecordError(_RECORDS, 0, "there is no record")
        if sizes_size % 4 or int(given.sum(dtype=np.int64)) != memoryview(records).nbytes:
            raise CorruptRecordError(_RECORDS, 0, "the given sizes do not add up")
    return bytearray().join(part[0] for part in parts), b"".join(part[1] for part in parts)


def block_from_records(
    buffer: Buffer,
    sizes: Buffer | None = None,
    *,
    topic: str | None = None,
    body_size_max: int = BODY_SIZE_MAX,
    takes_over: bool = False,
) -> RecordBlock:
    """A block of records that a sender laid out, checked. The buffer is copied, or with
    `takes_over`, if it can be written to, becomes the block's own.

    All records must be of one topic: `topic` where it is known, else that of the first. Raises
    CorruptRecordError if the framing is torn, or a record is not one that may be stored.
    """
    starts, record_sizes = record_bounds(buffer, sizes, where=_RECORDS)
    if not len(starts):
        raise CorruptRecordError(_RECORDS, 0, "there is no record")
    data = np.frombuffer(buffer, np.uint8)
    if not (takes_over and data.flags.writeable):
        data = data.copy()
    name = _first_topic(data, int(record_sizes[0])) if topic is None else topic
    layout, damaged = read_layout(data, starts, record_sizes, name.encode())
    if len(damaged):
        position, size = int(starts[damaged[0]]), int(record_sizes[damaged[0]])
        reason = describe_damage(data, position, size, name.encode())
        raise CorruptRecordError(_RECORDS, position, reason)
    _check_flags(layout)
    largest = int(np.argmax(layout.body_end - layout.body_start))
    body_size = int(layout.body_end[largest] - layout.body_start[largest])
    if body_size > body_size_max:
        reason = f"message body size {body_size} is over the limit of {body_size_max}"
        raise CorruptRecordError(_RECORDS, int(starts[largest]), reason)
    wrong = wrong_bodies(data, layout.body_start, layout.body_end, layout.int32(CRC_AT))
    if len(wrong):
        position = int(starts[wrong[0]])
        raise CorruptRecordError(_RECORDS, position, "the body fails its checksum")
    return _block(data, starts, record_sizes, name, layout.text_start)


def block_from_batches(
    parts: Sequence[BatchPart], *, topic: str, store_host: Host
) -> tuple[RecordBlock, list[int]]:
    """One block of the messages of several batches, and how many each has.

    Their records' fixed fields must be of one size: born hosts of one kind.

    Raises CorruptRecordError if one of the bodies is torn, hostile or empty, and LocalProtocolError
    if topic, properties or the whole do not fit into records.
    """
    templates = [
        fixed_fields(topic, p.born_host, store_host, p.queue_index, p.sys_flag, p.born_ms)
        for p in parts
    ]
    few = lay_out_few([part.body for part in parts], templates, topic_field(topic))
    if few is not None:
        return _block_of_few(few, topic), few.counts
    starts, sizes, counts, base = [], [], [], 0
    for part in parts:
        part_starts, part_sizes = entry_bounds(part.body, where=_BATCH)
        if not len(part_starts):
            raise CorruptRecordError(_BATCH, 0, "the batch is empty")
        if len(part_starts) > BATCH_MESSAGES_MAX:
            reason = f"it has {len(part_starts)} messages, over {BATCH_MESSAGES_MAX}"
            raise CorruptRecordError(_BATCH, 0, reason)
        starts.append(part_starts + base)
        sizes.append(part_sizes)
        counts.append(len(part_starts))
        base += len(part.body)
    bodies = parts[0].body if len(parts) == 1 else b"".join(part.body for part in parts)
    data = np.frombuffer(bodies, np.uint8)
    header = np.repeat(
        np.frombuffer(b"".join(templates), np.uint8).reshape(len(parts), -1), counts, axis=0
    )
    entries = np.concatenate(starts), np.concatenate(sizes)
    return _block_of_entries(data, *entries, header, topic), counts


def _block_of_entries(
    data: Bytes, starts: Positions, entry_sizes: Positions, header: NDArray[np.uint8], topic: str
) -> RecordBlock:
    """Entries of batches as records; `header` is a record up to and with its body's size."""
    topic_bytes, fixed_size = topic_field(topic), header.shape[1]
    ends = starts + entry_sizes
    body_starts = starts + ENTRY_BODY_AT
    body_ends = body_starts + numbers_at(data, body_starts - 4, ">i4").astype(np.int64)
    is_wrong = (body_ends < body_starts) | (body_ends + 2 > ends)
    _refuse_entry(starts, is_wrong, "the body does not fit in its entry")
    text_sizes = numbers_at(data, body_ends, ">i2").astype(np.int64)
    is_wrong = body_ends + 2 + text_sizes != ends
    _refuse_entry(starts, is_wrong, "the properties do not fill their entry")
    sizes = fixed_size + (body_ends - body_starts) + len(topic_bytes) + 2 + text_sizes
    crcs = crcs_at(data, body_starts, body_ends)
    put_column(header, 0, ">i4", sizes)
    put_column(header, CRC_AT, ">i4", crcs)
    put_column(header, FLAG_AT, ">i4", numbers_at(data, starts + ENTRY_FLAG_AT, ">i4"))
    put_column(header, fixed_size - 4, ">i4", body_ends - body_starts)
    pieces: list[Piece] = [
        Rows(header),
        Ranges(data, body_starts, body_ends),
        Constant(topic_bytes),
        Ranges(data, body_ends, ends),
    ]
    rows, row_starts, row_sizes = assemble(pieces, len(starts))
    assert np.array_equal(row_sizes, sizes)
    if not rows.flags.writeable:
        # Patched later, so it must be our own: 10 ns a record.
        rows = rows.copy()
    return _block(rows, row_starts, row_sizes, topic, row_starts + row_sizes - text_sizes)


def block_from_message(
    *,
    topic: str,
    queue_index: int,
    body: Buffer,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: Host,
    store_host: Host,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> RecordBlock:
    """A block of one message. Raises LocalProtocolError if topic or properties do not fit."""
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"the properties take {len(properties)} bytes, more than {PROPERTIES_SIZE_MAX}"
        )
    fixed = bytearray(fixed_fields(topic, born_host, store_host, queue_index, sys_flag, born_ms))
    tail = topic_field(topic) + struct.pack(">h", len(properties)) + properties
    size = len(fixed) + len(body) + len(tail)
    struct.pack_into(">i", fixed, 0, size)
    struct.pack_into(">i", fixed, CRC_AT, body_crc(body))
    struct.pack_into(">i", fixed, FLAG_AT, flag)
    struct.pack_into(
        ">iqi", fixed, len(fixed) - 16, reconsume_times, prepared_transaction_offset, len(body)
    )
    tag = decode_properties(properties).get(TAGS)
    return RecordBlock(
        np.frombuffer(bytearray(b"".join((fixed, body, tail))), np.uint8),
        np.zeros(1, np.int64),
        np.array([size], np.int32),
        np.array([java_hash(tag) if tag else 0], np.int64),
        topic,
        np.array([size - len(properties)], np.int64),
    )


# --- parts ----------------------------------------------------------------------------------


def _block(
    data: Bytes, starts: Positions, sizes: Positions, topic: str, text_starts: Positions
) -> RecordBlock:
    scan = PropertyScan(data, text_starts, starts + sizes)
    text, tag_starts, tag_ends, missing = scan.find_bounds(TAGS)
    tag_hashes = java_hashes(text, tag_starts, tag_ends).astype(np.int64)
    tag_hashes[missing] = 0
    return RecordBlock(data, starts, sizes.astype(np.int32), tag_hashes, topic, text_starts)


def _block_of_few(few: FewRecords, topic: str) -> RecordBlock:
    data = np.frombuffer(bytearray().join(few.parts), np.uint8)
    sizes = np.array(few.sizes, np.int32)
    ends = np.cumsum(sizes, dtype=np.int64)
    text_starts = ends - np.array(few.text_sizes, np.int64)
    return RecordBlock(
        data, ends - sizes, sizes, np.array(few.tag_hashes, np.int64), topic, text_starts
    )


def _put(buffer: Bytes, positions: Positions, values: NDArray[np.generic]) -> None:
    overlapping(buffer, values.dtype.str)[positions] = values


def put_column(
    header: NDArray[np.uint8], at: int, dtype: str, values: NDArray[np.generic] | int
) -> None:
    """Writes one field of every row of a matrix of bytes."""
    header[:, at : at + np.dtype(dtype).itemsize].view(dtype)[:, 0] = values


def _unfit_host(host: Host) -> LocalProtocolError:
    return LocalProtocolError(
        f"a store host of {len(host.address)} bytes does not fit into the records"
    )


def _host_bytes(host: Host) -> bytes:
    return host.address + struct.pack(">i", host.port)


def _first_topic(data: Bytes, size: int) -> str:
    first, damaged = read_layout(data, np.zeros(1, np.int64), np.array([size]), None)
    if len(damaged):
        raise CorruptRecordError(_RECORDS, 0, describe_damage(data, 0, size, None))
    is_v2 = numbers_at(data, np.array([4]), ">u4")[0] == MAGIC_V2
    start, end = int(first.body_end[0]) + 1 + is_v2, int(first.text_start[0]) - 2
    topic = data[start:end].tobytes()
    try:
        return topic.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError(_RECORDS, 0, f"the topic is no text: {topic!r}") from error


def _check_flags(layout: Layout) -> None:
    """Refuses what a broker must not take as an ordinary message."""
    flags = layout.header[:, SYS_FLAG_AT + 3]
    refused = (FLAG_INNER_BATCH, "an inner batch"), (FLAG_TRANSACTION_MASK, "transactional")
    for bits, what in refused:
        found = np.flatnonzero(flags & bits)
        if len(found):
            raise CorruptRecordError(
                _RECORDS, int(layout.starts[found[0]]), f"the record is {what}, which is not taken"
            )
    is_v6 = flags & FLAG_STORE_HOST_V6 != 0
    if is_v6.any() and not is_v6.all():
        raise CorruptRecordError(_RECORDS, 0, "the records' store hosts are of IPv4 and of IPv6")


def _refuse_entry(starts: Positions, is_wrong: NDArray[np.bool_], reason: str) -> None:
    if is_wrong.any():
        raise CorruptRecordError(_BATCH, int(starts[np.argmax(is_wrong)]), reason)


def topic_field(topic: str) -> bytes:
    """The topic with its size in front, as records hold it."""
    name = topic.encode()
    if not 0 < len(name) <= _TOPIC_SIZE_MAX:
        raise LocalProtocolError(f"a topic has 1 to {_TOPIC_SIZE_MAX} bytes, not {len(name)}")
    return struct.pack(">b" if len(name) <= _TOPIC_SIZE_V1_MAX else ">h", len(name)) + name


def fixed_fields(
    topic: str,
    born_host: Host,
    store_host: Host,
    queue_index: int = 0,
    sys_flag: int = 0,
    born_ms: int = 0,
) -> bytes:
    """A record up to and with the body's size; what differs between records is zero."""
    magic = MAGIC_V1 if len(topic.encode()) <= _TOPIC_SIZE_V1_MAX else MAGIC_V2
    sys_flag &= ~(FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6)
    if len(born_host.address) == 16:
        sys_flag |= FLAG_BORN_HOST_V6
    if len(store_host.address) == 16:
        sys_flag |= FLAG_STORE_HOST_V6
    head = _FIXED.pack(0, magic, 0, queue_index, 0, 0, 0, sys_flag, born_ms)
    store_ms, reconsume_times_to_body_size = bytes(8), bytes(16)
    hosts = _host_bytes(born_host) + store_ms + _host_bytes(store_host)
    return head + hosts + reconsume_times_to_body_size
