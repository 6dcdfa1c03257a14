"""What stands in the log where damaged bytes were set aside: records that belong to no queue.

They are sound records of a topic whose name RocketMQ refuses to create, so everything that walks
the log goes on behind them. Only `rmq fsck --repair` writes them, over what it has copied.
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
"""The key index takes the log a few MiB at a time, and no record may be longer than that."""
_NOBODY: Final = Host(b"\x00\x00\x00\x00", 0)
_IS_BLANK: Final = bytes((len(BLANK_TOPIC),)) + BLANK_TOPIC.encode()


def blank(position: int, size: int, *, ends_file: bool, store_ms: int) -> bytes:
    """What to write over `[position, position + size)` of the log, exactly so many bytes.

    Raises ValueError where nothing fits: no damage is that small, as no record is.
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
    """Whether a blank stretch begins with a record, which has a time, and not with a filler."""
    return size >= BLANK_SIZE_MIN + (FILLER.size if ends_file else 0)


def is_blank(record: memoryview) -> bool:
    """True for a record of ours: it has short hosts and no properties."""
    body_size = int.from_bytes(record[BODY_SIZE_AT:HEADER_SIZE], "big")
    end = HEADER_SIZE + body_size
    return len(record) == end + 4 and bytes(record[end : end + 2]) == _IS_BLANK


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
            born_host=_NOBODY,
            store_ms=store_ms,
            store_host=_NOBODY,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
            store_size=size,
        )
    )
