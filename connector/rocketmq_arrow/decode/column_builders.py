"""Builds the Arrow array of each column from the rows of a layout."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketmq_arrow.decode.layout import (
    BORN_HOST_AT,
    BORN_MS_AT,
    CRC_AT,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    PREPARED_OFFSET_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_MS_AT,
    SYS_FLAG_AT,
    Layout,
)
from rocketmq_arrow.decode.property_scan import PropertyScan
from rocketmq_arrow.decode.property_template import RowTemplate
from rocketmq_arrow.decode.uniform_records import UniformRecords
from rocketmq_arrow.kernels.gather import Positions, overlapping, replace_rows
from rocketmq_arrow.kernels.numpy_arrays import array_of, text_array
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6, HOST_V6_EXTRA

# 0001-01-01 and the last microsecond of 9999 in microseconds: what Python's datetime can show.
# Times come from the producer; a hostile one is cut to these, or it would break `collect()`.
_TIME_US_MIN: Final = -62_135_596_800_000_000
_TIME_US_MAX: Final = 253_402_300_799_999_999
_TIME_MS_MIN: Final = _TIME_US_MIN // 1000
_TIME_MS_MAX: Final = _TIME_US_MAX // 1000
_HOST_V6_SIZE: Final = 20
_HEX_DIGITS: Final = np.frombuffer(
    b"".join(b"%02X" % byte for byte in range(256)), np.uint16
).copy()


@dataclass
class ColumnValues:
    """The columns of some rows, each built when it is asked for."""

    queue: QueueId
    layout: Layout
    bodies: pa.BinaryArray | None
    """As users get them: inflated; None when nobody asked for the column."""
    reasons: pa.StringArray | None = None
    template: RowTemplate | None = None
    uniform: UniformRecords | None = None
    """The rows as uniform records, if they are."""

    @cached_property
    def scan(self) -> PropertyScan | UniformRecords:
        layout = self.layout
        if self.uniform is not None:
            return self.uniform
        return PropertyScan(layout.data, layout.text_start, layout.text_end, self.template)

    def column(self, name: str, arrow_type: pa.DataType) -> pa.Array:
        """One column; `arrow_type` decides how a map names its fields."""
        if name == "properties":
            return self.scan.map_array(arrow_type)
        return _BUILDERS[name](self)

    @cached_property
    def sys_flags(self) -> NDArray[np.int32]:
        return self.layout.int32(SYS_FLAG_AT)


def _body(values: ColumnValues) -> pa.Array:
    assert values.bodies is not None
    return values.bodies


def _reason(values: ColumnValues) -> pa.Array:
    if values.reasons is None:
        return pa.nulls(len(values.layout), pa.string())
    return values.reasons


# Constant columns are made once and sliced: 16,384 rows hold any chunk of the default size.
_CONSTANT_ROWS: Final = 16_384


@lru_cache(maxsize=16)
def _constant_rows(value: str | int | None) -> pa.Array:
    return _repeated(value, _CONSTANT_ROWS)


def _constant(value: str | int | None, count: int) -> pa.Array:
    """A column of one text or int32."""
    return _repeated(value, count) if count > _CONSTANT_ROWS else _constant_rows(value)[:count]


def _repeated(value: str | int | None, count: int) -> pa.Array:
    if isinstance(value, int):
        return array_of(np.full(count, value, np.int32))
    return pa.repeat(text_array([value])[0], count)


def _time(layout: Layout, at: int) -> pa.Array:
    times_ms = layout.int64(at)
    if len(times_ms) and (times_ms.min() < _TIME_MS_MIN or times_ms.max() > _TIME_MS_MAX):
        np.clip(times_ms, _TIME_MS_MIN, _TIME_MS_MAX, out=times_ms)
    times_ms *= 1000
    return array_of(times_ms).view(pa.timestamp("us", tz="UTC"))


def _delivery_attempt(values: ColumnValues) -> pa.Array:
    # Computed in 64 bits: a hostile 2^31 - 1 must not turn negative.
    attempts = values.layout.int32(RECONSUME_TIMES_AT).astype(np.int64) + 1
    return array_of(np.minimum(attempts, 2**31 - 1).astype(np.int32))


def _hex_text(data: NDArray[np.uint8]) -> pa.StringArray:
    """Each row of bytes as upper-case hexadecimal text."""
    count, size = data.shape
    digits = _HEX_DIGITS[data]
    offsets = np.arange(0, 2 * size * (count + 1), 2 * size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))


def _offset_message_id(values: ColumnValues) -> pa.Array:
    """Store host and physical offset; IPv6 hosts make a longer id."""
    layout = values.layout
    host_and_offset = np.empty((len(layout), 16), np.uint8)
    host_and_offset[:, :8] = layout.header[:, STORE_HOST_AT : STORE_HOST_AT + 8]
    host_and_offset[:, 8:] = layout.header[:, PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8]
    ids = _hex_text(host_and_offset)
    rows = _rows_v6(values, STORE_HOST_AT, FLAG_STORE_HOST_V6)
    if not len(rows):
        return ids
    long = [
        host + layout.header[row, PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8].tobytes()
        for row, host in zip(rows, _hosts_v6(values, rows, STORE_HOST_AT), strict=True)
    ]
    return replace_rows(ids, rows, [text.hex().upper() for text in long])


def _message_id(values: ColumnValues) -> pa.Array:
    unique = values.scan.find("UNIQ_KEY")
    if not unique.null_count:
        return unique
    return pc.coalesce(unique, _offset_message_id(values))


def _rows_v6(values: ColumnValues, at: int, flag_v6: int) -> Positions:
    """The rows that have an IPv6 host: a damaged record may have the flag and be too short."""
    rows = np.flatnonzero(values.sys_flags & flag_v6)
    if len(rows):
        layout = values.layout
        ends = _starts_v6(values, rows, at) + _HOST_V6_SIZE
        rows = rows[ends <= layout.starts[rows] + layout.sizes[rows]]
    return rows


def _starts_v6(values: ColumnValues, rows: Positions, at: int) -> Positions:
    starts = values.layout.starts[rows] + at
    if at == STORE_HOST_AT:
        starts = starts + HOST_V6_EXTRA * ((values.sys_flags[rows] & FLAG_BORN_HOST_V6) != 0)
    return starts


def _hosts_v6(values: ColumnValues, rows: Positions, at: int) -> list[bytes]:
    """Address and port of rows whose host is an IPv6 one."""
    hosts = overlapping(values.layout.data, f"V{_HOST_V6_SIZE}")[_starts_v6(values, rows, at)]
    return [host.tobytes() for host in hosts]


def _hosts(values: ColumnValues, at: int, flag_v6: int) -> pa.Array:
    """`ip:port`, `[ip]:port` for IPv6. A chunk has few hosts: each text is made once."""
    packed = values.layout.field("V8", at).copy().view(np.uint64)
    known, codes = np.unique(packed, return_inverse=True)
    texts = text_array([_host_text(host.tobytes()) for host in known])
    hosts = texts.take(array_of(codes.astype(np.int32)))
    rows = _rows_v6(values, at, flag_v6)
    if not len(rows):
        return hosts
    return replace_rows(hosts, rows, [_host_text(host) for host in _hosts_v6(values, rows, at)])


def _host_text(host: bytes) -> str:
    address = ipaddress.ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


_BUILDERS: Final[dict[str, Callable[[ColumnValues], pa.Array]]] = {
    "topic": lambda v: _constant(v.queue.topic, len(v.layout)),
    "brokerName": lambda v: _constant(v.queue.broker, len(v.layout)),
    "queueId": lambda v: _constant(v.queue.index, len(v.layout)),
    "queueOffset": lambda v: array_of(v.layout.int64(QUEUE_OFFSET_AT)),
    "body": _body,
    "tags": lambda v: v.scan.find("TAGS"),
    "keys": lambda v: v.scan.find("KEYS"),
    "bornTimestamp": lambda v: _time(v.layout, BORN_MS_AT),
    "storeTimestamp": lambda v: _time(v.layout, STORE_MS_AT),
    "msgId": _message_id,
    "offsetMsgId": _offset_message_id,
    "flag": lambda v: array_of(v.layout.int32(FLAG_AT)),
    "sysFlag": lambda v: array_of(v.sys_flags),
    "reconsumeTimes": lambda v: array_of(v.layout.int32(RECONSUME_TIMES_AT)),
    "bornHost": lambda v: _hosts(v, BORN_HOST_AT, FLAG_BORN_HOST_V6),
    "storeHost": lambda v: _hosts(v, STORE_HOST_AT, FLAG_STORE_HOST_V6),
    "physicalOffset": lambda v: array_of(v.layout.int64(PHYSICAL_OFFSET_AT)),
    "bodyCrc": lambda v: array_of(v.layout.int32(CRC_AT)),
    "storeSize": lambda v: array_of(v.layout.sizes.astype(np.int32)),
    "preparedTransactionOffset": lambda v: array_of(v.layout.int64(PREPARED_OFFSET_AT)),
    "deliveryAttempt": _delivery_attempt,
    "receiptHandle": lambda v: _constant(None, len(v.layout)),
    "corruptReason": _reason,
}
