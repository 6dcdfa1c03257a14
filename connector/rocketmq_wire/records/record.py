"""Stored message <-> record bytes: the scalar reference of the vectorised codec.

    0 TOTALSIZE i32   4 MAGIC i32          8 BODYCRC i32     12 QUEUEID i32      16 FLAG i32
   20 QUEUEOFFSET i64    28 PHYSICALOFFSET i64    36 SYSFLAG i32    40 BORNTIMESTAMP i64
   48 BORNHOST       4 or 16 address bytes, then the port as i32
   .. STORETIMESTAMP i64   STOREHOST as above   RECONSUMETIMES i32   PREPARED_OFFSET i64
   .. BODY           i32 length, bytes
   .. TOPIC          i8 length (V1) or i16 length (V2), UTF-8
   .. PROPERTIES     i16 length, see `properties`

Everything is big-endian and signed. The lengths inside must add up to TOTALSIZE.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_wire.errors import CorruptRecordError, LocalProtocolError
from rocketmq_wire.model import Buffer, Host, StoredMessage
from rocketmq_wire.records.properties import decode_properties, encode_properties

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
"""Fills the end of a log file; size and magic only, never sent to clients."""

FLAG_COMPRESSED: Final = 0x1
FLAG_TRANSACTION_MASK: Final = 0xC
"""Both transaction bits; a message with both is rolled back."""
FLAG_TRANSACTION_PREPARED: Final = 0x4
FLAG_TRANSACTION_COMMIT: Final = 0x8
FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20
FLAG_INNER_BATCH: Final = 0x80
FLAG_COMPRESSION_MASK: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

RECORD_SIZE_MIN: Final = 91
"""A V1 record with IPv4 hosts and no body, topic or properties."""
HOST_V6_EXTRA: Final = 12
"""How much longer a record is for each IPv6 host."""
_TOPIC_SIZE_V1_MAX: Final = 127
_TOPIC_SIZE_V2_MAX: Final = 32_767
_CRC_MASK: Final = 0x7FFF_FFFF

_HEAD = struct.Struct(">iiiiiqqiq")
_HOST_V4 = struct.Struct(">4si")
_HOST_V6 = struct.Struct(">16si")
_FRAME = struct.Struct(">ii")
_INT = struct.Struct(">i")
_BYTE = struct.Struct(">b")
_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">q")
_AFTER_HOSTS = struct.Struct(">iq")

_Corrupt = Callable[[str], CorruptRecordError]
"""Makes the error of one record from the reason."""

GZIP_MAGIC: Final = b"\x1f\x8b"


def body_crc(body: Buffer) -> int:
    """The checksum of a body as stored: CRC-32 without its top bit."""
    return zlib.crc32(body) & _CRC_MASK


def encode_record(message: StoredMessage) -> bytes:
    """Lay a message out; size and checksum are computed, the message's own are ignored.

    Raises LocalProtocolError when a field does not fit the layout.
    """
    _check_host(message.born_host, message.sys_flag, FLAG_BORN_HOST_V6)
    _check_host(message.store_host, message.sys_flag, FLAG_STORE_HOST_V6)
    topic = message.topic.encode("utf-8", "replace")
    if len(topic) > _TOPIC_SIZE_V2_MAX:
        raise LocalProtocolError(f"a topic of {len(topic)} bytes does not fit a record")
    is_v1 = len(topic) <= _TOPIC_SIZE_V1_MAX
    properties = encode_properties(message.properties)
    try:
        head_rest = b"".join(
            (
                _encode_host(message.born_host),
                _LONG.pack(message.store_ms),
                _encode_host(message.store_host),
                _AFTER_HOSTS.pack(message.reconsume_times, message.prepared_transaction_offset),
                _INT.pack(len(message.body)),
                message.body,
                bytes((len(topic),)) if is_v1 else _SHORT.pack(len(topic)),
                topic,
                _SHORT.pack(len(properties)),
                properties,
            )
        )
        head = _HEAD.pack(
            _HEAD.size + len(head_rest),
            MAGIC_V1 if is_v1 else MAGIC_V2,
            body_crc(message.body),
            message.queue_index,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            message.sys_flag,
            message.born_ms,
        )
    except struct.error as error:
        raise LocalProtocolError(f"a field does not fit a record: {error}") from error
    return head + head_rest


def decode_record(
    buffer: Buffer, position: int = 0, *, check_crc: bool = True, where: str = "record"
) -> tuple[StoredMessage, int]:
    """Read the record at `position`: the message, body as stored, and the next record's position.

    Raises CorruptRecordError when it is torn, does not add up, or fails its checksum.
    """
    view = memoryview(buffer)
    corrupt = partial(CorruptRecordError, where, position)
    size, magic = _check_frame(view, position, corrupt)
    fixed = _HEAD.unpack_from(view, position)
    (_, _, crc, queue_index, flag, queue_offset, physical_offset, sys_flag, born_ms) = fixed
    # With IPv6 hosts the fixed part is longer than the least record.
    v6_count = bool(sys_flag & FLAG_BORN_HOST_V6) + bool(sys_flag & FLAG_STORE_HOST_V6)
    if size < RECORD_SIZE_MIN + HOST_V6_EXTRA * v6_count:
        raise corrupt(f"a size of {size} is less than its fixed fields take")
    at = position + _HEAD.size
    born_host, at = _decode_host(view, at, is_v6=bool(sys_flag & FLAG_BORN_HOST_V6))
    (store_ms,) = _LONG.unpack_from(view, at)
    store_host, at = _decode_host(view, at + 8, is_v6=bool(sys_flag & FLAG_STORE_HOST_V6))
    (reconsume_times, prepared_offset) = _AFTER_HOSTS.unpack_from(view, at)
    body, topic, properties = _split_tail(view[: position + size], at + 12, magic, corrupt)
    if check_crc and body_crc(body) != crc:
        raise corrupt(f"the body's checksum is {body_crc(body):#010x}, stored is {crc:#010x}")
    message = StoredMessage(
        topic=str(topic, "utf-8", "replace"),
        body=bytes(body),
        properties=decode_properties(properties),
        flag=flag,
        queue_index=queue_index,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        store_ms=store_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body_crc=crc,
        store_size=size,
    )
    return message, position + size


def _check_frame(view: memoryview, position: int, corrupt: _Corrupt) -> tuple[int, int]:
    left = len(view) - position
    if left < 8:
        raise corrupt(f"{left} bytes are no record")
    size, magic = _FRAME.unpack_from(view, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise corrupt(f"magic {magic & 0xFFFF_FFFF:#010x} is not a record's")
    if size < RECORD_SIZE_MIN:
        raise corrupt(f"a size of {size} is less than a record takes")
    if size > left:
        raise corrupt(f"a record of {size} bytes is cut off after {left}")
    return size, magic


def _split_tail(
    view: memoryview, at: int, magic: int, corrupt: _Corrupt
) -> tuple[memoryview, memoryview, memoryview]:
    """Body, topic and properties, which must fill the view from `at` to its end exactly."""
    topic_length = _BYTE if magic == MAGIC_V1 else _SHORT
    left = len(view) - at - _INT.size - topic_length.size - _SHORT.size
    (body_size,) = _INT.unpack_from(view, at)
    if not 0 <= body_size <= left:
        raise corrupt(f"a body of {body_size} bytes does not fit the {left} that are left")
    at += _INT.size
    body = view[at : at + body_size]
    at += body_size
    left -= body_size
    (topic_size,) = topic_length.unpack_from(view, at)
    if not 0 <= topic_size <= left:
        raise corrupt(f"a topic of {topic_size} bytes does not fit the {left} that are left")
    at += topic_length.size
    topic = view[at : at + topic_size]
    at += topic_size
    left -= topic_size
    (properties_size,) = _SHORT.unpack_from(view, at)
    if properties_size != left:
        raise corrupt(f"properties of {properties_size} bytes do not fill the {left} left")
    return body, topic, view[at + _SHORT.size :]


def _check_host(host: Host, sys_flag: int, bit: int) -> None:
    if (len(host.address) == 16) != bool(sys_flag & bit):
        raise LocalProtocolError(
            f"sysFlag {sys_flag:#x} contradicts an address of {len(host.address)} bytes"
        )


def _encode_host(host: Host) -> bytes:
    codec = _HOST_V4 if len(host.address) == 4 else _HOST_V6
    return codec.pack(host.address, host.port)


def _decode_host(view: memoryview, at: int, *, is_v6: bool) -> tuple[Host, int]:
    codec = _HOST_V6 if is_v6 else _HOST_V4
    address, port = codec.unpack_from(view, at)
    return Host(address, port), at + codec.size
