"""Reads for pops in a queue with a damaged record."""

from __future__ import annotations

import struct

from rocketmq_broker.engine.pop.read import _offsets_in
from rocketmq_wire.model import Host, StoredMessage
from support.records import lay_out

HOST = Host(bytes(4), 1)


def record(offset: int) -> bytes:
    return lay_out(
        StoredMessage("orders", b"body", {}, 0, 0, offset, 0, 0, 0, HOST, 0, HOST, 0, 0, 0, 0)
    )


def test_a_damaged_size_hides_no_offset_behind_it() -> None:
    records = [bytearray(record(offset)) for offset in (7, 9, 12)]
    sizes = struct.pack("<3i", *map(len, records))
    records[0][:4] = struct.pack(">I", 0x7FFF_FFFF)
    assert _offsets_in([bytes(one) for one in records], sizes) == (7, 9, 12)
