"""Messages of one send -> the body of a batch (request code 320).

Entries follow each other; no count precedes them:

    0 SIZE i32 (this entry)   4 MAGIC i32 = 0   8 CRC i32 = 0   12 FLAG i32
   16 BODY i32 length, bytes     .. PROPERTIES i16 length, bytes (see `properties`)

Brokers do not read magic and checksum; they compute their own when they store the messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.model import PROPERTIES_SIZE_MAX
from rocketmq_wire.records.record import HOST_V6_EXTRA, RECORD_SIZE_MIN

ENTRY_SIZE_MIN: Final = 22
ENTRY_FLAG_AT: Final = 12
ENTRY_BODY_SIZE_AT: Final = 16
ENTRY_BODY_AT: Final = 20
# The sender's and the broker's address may be IPv6.
_WIDER_HOSTS_SIZE: Final = 2 * HOST_V6_EXTRA
# CLUSTER, MSG_REGION and TRACE_ON, which brokers before 5.4 add to every message of a batch.
_ADDED_PROPERTIES_SIZE: Final = 128

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    flag: int
    body: bytes
    properties: bytes = b""
    """As encoded by `properties.encode_properties`."""


def stored_growth(topic: str) -> int:
    """The most bytes by which a message's record is longer than its entry.

    Brokers compare a batch's records, not its entries, with `maxMessageSize`.
    """
    fields = RECORD_SIZE_MIN - ENTRY_SIZE_MIN + len(topic.encode())
    return fields + _WIDER_HOSTS_SIZE + _ADDED_PROPERTIES_SIZE


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    """Join entries to a body. Raises LocalProtocolError if one does not fit."""
    parts: list[bytes] = []
    for entry in entries:
        if len(entry.properties) > PROPERTIES_SIZE_MAX:
            raise LocalProtocolError(f"properties of {len(entry.properties)} bytes do not fit")
        size = ENTRY_SIZE_MIN + len(entry.body) + len(entry.properties)
        try:
            parts.append(_HEAD.pack(size, 0, 0, entry.flag, len(entry.body)))
        except struct.error as error:
            raise LocalProtocolError(f"a batch entry's field does not fit: {error}") from error
        parts += (entry.body, _SHORT.pack(len(entry.properties)), entry.properties)
    return b"".join(parts)
