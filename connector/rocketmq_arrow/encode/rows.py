"""Turns columns of outgoing messages into batch bodies (code 320) or laid-out records.

A message's properties are, in this order: the map's items, KEYS, TAGS, UNIQ_KEY, the named columns,
then what all messages share. Readers take the last of several values of one name, so a column wins
over the map. Empty and null values are left out, as no reader would see them; a name or value that
holds a separator is refused, with its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.decode.checksums import crcs_at
from rocketmq_arrow.decode.layout import BORN_MS_AT, CRC_AT, FLAG_AT, SYS_FLAG_AT
from rocketmq_arrow.encode.record_block import fixed_fields, put_column, topic_field
from rocketmq_arrow.kernels.assemble import Constant, Piece, Ranges, Rows, assemble
from rocketmq_arrow.kernels.gather import Bytes, Mask, Positions, values_of
from rocketmq_arrow.kernels.lazy_pyarrow import pa, pc
from rocketmq_arrow.kernels.numpy_arrays import integers_of
from rocketmq_wire.errors import RowRefusedError
from rocketmq_wire.model import PROPERTIES_SIZE_MAX, Host
from rocketmq_wire.records.batch import (
    ENTRY_BODY_AT,
    ENTRY_BODY_SIZE_AT,
    ENTRY_FLAG_AT,
    ENTRY_SIZE_MIN,
)
from rocketmq_wire.records.properties import KEYS, TAGS, UNIQUE_KEY, encode_properties

_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"
# Records are sent with this in place of the broker's address, which the broker writes.
_NO_HOST: Final = Host(bytes(4), 0)


@dataclass(frozen=True, slots=True)
class OutgoingRows:
    """Columns of messages, of equal length; null and empty values mean "none"."""

    bodies: pa.Array
    tags: pa.Array | None = None
    keys: pa.Array | None = None
    properties: pa.Array | None = None
    """A map column of text to text."""
    unique_keys: pa.Array | None = None
    shared: bytes = b""
    """Properties of every message, as `encode_properties` writes them."""
    flags: NDArray[np.int32] | int = 0
    named: tuple[tuple[str, pa.Array], ...] = ()
    """More properties: a name, and the column of its values."""

    def __post_init__(self) -> None:
        if self.bodies.null_count:
            row = pc.index(self.bodies.is_null(), True).as_py()
            raise RowRefusedError(row, "has no body")
        named = [column for _, column in self.named]
        for column in (self.tags, self.keys, self.properties, self.unique_keys, *named):
            if column is not None and len(column) != len(self.bodies):
                raise ValueError(f"columns of {len(self.bodies)} and {len(column)} rows")

    def __len__(self) -> int:
        return len(self.bodies)


class EncodedProperties:
    """The pieces of every row's property text, and the text's size."""

    def __init__(self, rows: OutgoingRows) -> None:
        self.pieces: list[Piece] = []
        self.sizes: Positions = np.zeros(len(rows), np.int64)
        if rows.properties is not None:
            text, starts, ends = map_texts(rows.properties)
            self.pieces.append(Ranges(text, starts, ends))
            self.sizes += ends - starts
        usual = ((KEYS, rows.keys), (TAGS, rows.tags), (UNIQUE_KEY, rows.unique_keys))
        for name, column in (*usual, *rows.named):
            if column is not None:
                self._add(name, column)
        if rows.shared:
            self.pieces.append(Constant(rows.shared))
            self.sizes += len(rows.shared)
        if len(rows) and self.sizes.max() > PROPERTIES_SIZE_MAX:
            row = int(np.argmax(self.sizes > PROPERTIES_SIZE_MAX))
            raise RowRefusedError(
                row,
                f"has properties of {self.sizes[row]} bytes, more than the "
                f"{PROPERTIES_SIZE_MAX} that a record can hold",
            )

    def _add(self, name: str, column: pa.Array) -> None:
        """The pieces `name 0x01 value 0x02`, in rows that have a value."""
        text, starts, ends = texts_of(column)
        _refuse_separators(text, starts, name)
        sizes = ends - starts
        is_there: Mask | None = sizes > 0
        if is_there is not None and is_there.all():
            is_there = None
        around = len(name) + 2
        self.pieces += [
            Constant(name.encode() + _NAME_END, is_there),
            Ranges(text, starts, ends),
            Constant(_VALUE_END, is_there),
        ]
        self.sizes += sizes + (around if is_there is None else around * is_there)

    def size_fields(self) -> Rows:
        return Rows(self.sizes.astype(">i2").view(np.uint8).reshape(-1, 2))


def encode_batch_body(
    bodies: pa.Array,
    tags: pa.Array | None = None,
    keys: pa.Array | None = None,
    properties: pa.Array | None = None,
    *,
    unique_keys: pa.Array | None = None,
    shared: Mapping[str, str] | None = None,
) -> bytes:
    """The body of a batch send (code 320) of all the rows. Raises RowRefusedError."""
    encoded = encode_properties(shared or {})
    rows = OutgoingRows(bodies, tags, keys, properties, unique_keys, encoded)
    return encode_entries(rows)[0].tobytes()


def encode_entries(rows: OutgoingRows) -> tuple[Bytes, Positions]:
    """Batch entries of all the rows back to back, and their sizes: any cut between two entries
    gives two batch bodies. Raises RowRefusedError.
    """
    texts = EncodedProperties(rows)
    data, starts, ends = texts_of(rows.bodies)
    header = np.zeros((len(rows), ENTRY_BODY_AT), np.uint8)
    put_column(header, 0, ">i4", ENTRY_SIZE_MIN + (ends - starts) + texts.sizes)
    put_column(header, ENTRY_FLAG_AT, ">i4", rows.flags)
    put_column(header, ENTRY_BODY_SIZE_AT, ">i4", ends - starts)
    pieces = [Rows(header), Ranges(data, starts, ends), texts.size_fields(), *texts.pieces]
    entries, _, sizes = assemble(pieces, len(rows))
    return entries, sizes


def encode_records(
    topic: str,
    bodies: pa.Array,
    tags: pa.Array | None = None,
    keys: pa.Array | None = None,
    properties: pa.Array | None = None,
    *,
    born_ms: NDArray[np.int64] | int,
    born_host: Host,
    unique_keys: pa.Array | None = None,
    shared: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes]:
    """Records of all the rows with their checksums, and their sizes as little-endian int32.

    Raises RowRefusedError.
    """
    encoded = encode_properties(shared or {})
    rows = OutgoingRows(bodies, tags, keys, properties, unique_keys, encoded)
    records, sizes = encode_record_rows(topic, rows, born_ms=born_ms, born_host=born_host)
    return records.tobytes(), sizes.astype("<i4").tobytes()


def encode_record_rows(
    topic: str,
    rows: OutgoingRows,
    *,
    born_ms: NDArray[np.int64] | int,
    born_host: Host,
    sys_flag: NDArray[np.int32] | int = 0,
    store_host: Host = _NO_HOST,
) -> tuple[Bytes, Positions]:
    """Records of all the rows back to back, and their sizes: cut between two as one likes.

    `store_host` only says how long the broker's address is; the broker writes its own. Raises
    RowRefusedError.
    """
    texts = EncodedProperties(rows)
    data, starts, ends = texts_of(rows.bodies)
    template = fixed_fields(topic, born_host, store_host)
    topic_bytes = topic_field(topic)
    header = np.tile(np.frombuffer(template, np.uint8), (len(rows), 1))
    sizes = len(template) + (ends - starts) + len(topic_bytes) + 2 + texts.sizes
    put_column(header, 0, ">i4", sizes)
    put_column(header, CRC_AT, ">i4", crcs_at(data, starts, ends))
    put_column(header, FLAG_AT, ">i4", rows.flags)
    host_flags = int.from_bytes(template[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    put_column(header, SYS_FLAG_AT, ">i4", sys_flag | host_flags)
    put_column(header, BORN_MS_AT, ">i8", born_ms)
    put_column(header, len(template) - 4, ">i4", ends - starts)
    body = Ranges(data, starts, ends)
    pieces = [Rows(header), body, Constant(topic_bytes), texts.size_fields(), *texts.pieces]
    records, _, sizes = assemble(pieces, len(rows))
    return records, sizes


def texts_of(column: pa.Array) -> tuple[Bytes, Positions, Positions]:
    """The bytes of a text or binary column, and each row's place in them; empty where null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    if column.null_count:
        # Arrow allows bytes behind a null: filling it makes such a row empty for certain.
        column = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "")
    data, offsets = values_of(column)
    return data, offsets[:-1], offsets[1:]


def _refuse_separators(
    text: Bytes, starts: Positions, name: str, rows: Positions | None = None
) -> None:
    """Refuses the row of the first separator; `rows` are those of the texts if they are several."""
    is_separator = (text == _NAME_END[0]) | (text == _VALUE_END[0])
    if is_separator.any():
        index = int(np.searchsorted(starts, int(np.argmax(is_separator)), "right")) - 1
        row = index if rows is None else int(rows[index])
        raise RowRefusedError(row, f"has {name} with a character 0x01 or 0x02 inside")


def map_texts(column: pa.Array) -> tuple[Bytes, Positions, Positions]:
    """Each row's map as property text."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    item_counts = pc.fill_null(pc.list_value_length(_as_list(column)), 0)
    counts = integers_of(item_counts).astype(np.int64)
    # Flattening leaves out what lies behind null maps and outside a slice.
    items = _as_list(column).flatten()
    names, name_starts, name_ends = texts_of(items.field(0))
    values, value_starts, value_ends = texts_of(items.field(1))
    item_rows = np.repeat(np.arange(len(column)), counts)
    _refuse_separators(names, name_starts, "properties", item_rows)
    _refuse_separators(values, value_starts, "properties", item_rows)
    is_sent = value_ends > value_starts
    is_nameless = is_sent & (name_ends == name_starts)
    if is_nameless.any():
        raise RowRefusedError(int(item_rows[np.argmax(is_nameless)]), "has a property without name")
    kept = np.flatnonzero(is_sent)
    pieces: list[Piece] = [
        Ranges(names, name_starts[kept], name_ends[kept]),
        Constant(_NAME_END),
        Ranges(values, value_starts[kept], value_ends[kept]),
        Constant(_VALUE_END),
    ]
    text, _, sizes = assemble(pieces, len(kept))
    row_sizes = np.bincount(item_rows[kept], weights=sizes, minlength=len(column))
    ends = np.cumsum(row_sizes.astype(np.int64))
    return text, ends - row_sizes.astype(np.int64), ends


def _as_list(column: pa.MapArray) -> pa.ListArray:
    fields = [pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)]
    return column.cast(pa.list_(pa.struct(fields)))
