"""Blank records: they replace damaged bytes of the log, and belong to no queue.

They are sound records of a topic whose name RocketMQ refuses to create, so every reader of the log
continues behind them. Only `rmq fsck --repair` writes them, over bytes that it has copied.
"""

from __future__ import annotations

from typing import Final

from rocketmq_arrow.decode.layout import BODY_SIZE_AT, HEADER_SIZE
from rocketmq_broker.storage.log.commit_log import FILLER, FILLER_MAGIC
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.records.record import RECORD_SIZE_MIN, encode_record

BLANK_TOPIC: Final = "~"
BLANK_SIZE_MIN: Final = RECORD_SIZE_MIN + len(BLANK_TOPIC)
_BLANK_SIZE_MAX: Final = 1024 * 1024
"""The key index reads the log in steps of a few MiB, which must hold a whole record."""
_NO_HOST: Final = Host(b"\x00\x00\x00\x00", 0)
_TOPIC_FIELD: Final = bytes((len(BLANK_TOPIC),)) + BLANK_TOPIC.encode()


def blank(position: int, size: int, *, ends_file: bool, store_ms: int) -> bytes:
    """The bytes to write over `[position, position + size)` of the log.

    Raises ValueError if no record fits; damage is never smaller than a record.
    """
    if size == 0:
        return b""
    if ends_file:
        filler = FILLER.size if size >= BLANK_SIZE_MIN + FILLER.size else size
        if filler < FILLER.size:
            raise ValueError(f"no filler record fits {size} bytes")
        front = blank(position, size - filler, ends_file=False, store_ms=store_ms)
        return front + FILLER.pack(filler, FILLER_MAGIC).ljust(filler, b"\x00")
    if size < BLANK_SIZE_MIN:
        raise ValueError(f"no record fits {size} bytes")
    records = []
    while size:
        taken = size if size <= _BLANK_SIZE_MAX else min(_BLANK_SIZE_MAX, size - BLANK_SIZE_MIN)
        records.append(_record(position, taken, store_ms))
        position, size = position + taken, size - taken
    return b"".join(records)


def has_blank_record(size: int, *, ends_file: bool) -> bool:
    """True if a blank range begins with a record, which has a store time, and not with a filler."""
    return size >= BLANK_SIZE_MIN + (FILLER.size if ends_file else 0)


def is_blank(record: memoryview) -> bool:
    """True for a blank record: it has IPv4 hosts and no properties."""
    body_size = int.from_bytes(record[BODY_SIZE_AT:HEADER_SIZE], "big")
    end = HEADER_SIZE + body_size
    return len(record) == end + 4 and bytes(record[end : end + 2]) == _TOPIC_FIELD


def _record(position: int, size: int, store_ms: int) -> bytes:
    return encode_record(
        StoredMessage(
            topic=BLANK_TOPIC,
            body=bytes(size - BLANK_SIZE_MIN),
            properties={},
            flag=0,
            queue_index=0,
            queue_offset=0,
            physical_offset=position,
            sys_flag=0,
            born_ms=store_ms,
            born_host=_NO_HOST,
            store_ms=store_ms,
            store_host=_NO_HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
            store_size=size,
        )
    )
