"""Message ids <-> their parts: a position in a broker's log, or a sender and its counter.

    offset message id   store address 4 or 16 bytes, port i32, position in the commit log i64
    unique id           address 4 or 16 bytes, process id i16, loader hash i32,
                        milliseconds since the first of the month (local time) i32, counter i16

Both are written in upper-case hexadecimal: 32 characters with IPv4, 56 with IPv6.
"""

from __future__ import annotations

import struct
from datetime import datetime, timedelta, timezone

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Host

_LOG_POSITION = struct.Struct(">iq")
_SENDER = struct.Struct(">HIIH")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)


def offset_message_id(host: Host, physical_offset: int) -> str:
    """The id by which a broker finds a message in its log."""
    return (host.address + _LOG_POSITION.pack(host.port, physical_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[Host, int]:
    """The broker's address and the log position. Raises RemoteProtocolError for anything else."""
    # bytes.fromhex skips blanks, so the length of the text is checked first.
    try:
        raw = bytes.fromhex(text) if len(text) in (32, 56) else b""
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise RemoteProtocolError(f"not an offset message id: {text!r}")
    port, physical_offset = _LOG_POSITION.unpack(raw[-_LOG_POSITION.size :])
    return Host(raw[: -_LOG_POSITION.size], port), physical_offset


def unique_message_id(
    address: bytes,
    *,
    process_id: int,
    loader_hash: int,
    now_ms: int,
    counter: int,
    utc_offset_ms: int = 0,
) -> str:
    """A sender's id for its message (property UNIQ_KEY); numbers wrap to their width as in Java.

    A sender passes a counter that grows by one per message, and one random number as the hash.
    """
    local = _EPOCH + timedelta(milliseconds=now_ms + utc_offset_ms)
    month = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    sender = _SENDER.pack(
        process_id & 0xFFFF,
        loader_hash & 0xFFFF_FFFF,
        (local - month) // _MS & 0xFFFF_FFFF,
        counter & 0xFFFF,
    )
    return (Host(address, 0).address + sender).hex().upper()
