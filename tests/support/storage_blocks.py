"""Blocks of small records for storage tests, built without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.store import Store
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import Host, StoredMessage
from support.records import BORN_HOST, BORN_MS, STORE_HOST, lay_out


@dataclass(frozen=True)
class SimpleBlock:
    """A block patched one record at a time."""

    buffer: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    tag_hashes: npt.NDArray[np.int64]

    def piece(self, start: int, end: int) -> SimpleBlock:
        begin = int(self.starts[start])
        finish = int(self.starts[end - 1] + self.sizes[end - 1])
        return SimpleBlock(
            self.buffer[begin:finish],
            self.starts[start:end] - begin,
            self.sizes[start:end],
            self.tag_hashes[start:end],
        )

    def patch(
        self,
        queue_index: int | npt.NDArray[np.int64],
        queue_offset: int | npt.NDArray[np.int64],
        physical_start: int,
        store_ms: int,
        store_host: Host,
    ) -> None:
        data = self.buffer.data
        host = struct.pack(">4si", store_host.address, store_host.port)
        total = len(self.starts)
        indices = np.broadcast_to(queue_index, total).tolist()
        offsets = np.broadcast_to(queue_offset, total).tolist()
        if isinstance(queue_offset, int):
            offsets = list(range(queue_offset, queue_offset + total))
        for index, offset, start in zip(indices, offsets, self.starts.tolist(), strict=True):
            struct.pack_into(">i", data, start + 12, index)
            struct.pack_into(">qq", data, start + 20, offset, physical_start + start)
            struct.pack_into(">q8s", data, start + 56, store_ms, host)


def make_message(topic: str, body: bytes, tags: str = "", keys: str = "") -> StoredMessage:
    """A message whose broker-side fields are still to be patched."""
    properties = {"TAGS": tags} if tags else {}
    if keys:
        properties["KEYS"] = keys
    return StoredMessage(
        topic=topic,
        body=body,
        properties=properties,
        flag=7,
        queue_index=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_ms=BORN_MS,
        born_host=BORN_HOST,
        store_ms=0,
        store_host=STORE_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
    )


def make_block(messages: Sequence[StoredMessage]) -> SimpleBlock:
    """One block of these messages."""
    records = [lay_out(message) for message in messages]
    sizes = np.array([len(record) for record in records], np.int32)
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    hashes = [java_hash(message.properties.get("TAGS", "")) for message in messages]
    return SimpleBlock(
        np.frombuffer(bytearray(b"".join(records)), np.uint8),
        starts,
        sizes,
        np.array(hashes, np.int64),
    )


def block_of(topic: str, *bodies: bytes, tags: str = "", keys: str = "") -> SimpleBlock:
    """One block of messages with these bodies."""
    return make_block([make_message(topic, body, tags, keys) for body in bodies])


def bodies_of(parts: Sequence[memoryview]) -> list[bytes]:
    """The bodies of records back to back."""
    data = b"".join(parts)
    bodies = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        (body_size,) = struct.unpack_from(">i", data, position + 84)
        bodies.append(data[position + 88 : position + 88 + body_size])
        position += size
    return bodies


def read_all(store: Store, topic: str, queue_index: int = 0) -> list[bytes]:
    """The bodies of all readable messages of a queue; checks their offsets."""
    bounds = store.bounds(topic, queue_index)
    offset, bodies = bounds.start, []
    while offset < bounds.end:
        result = store.read(topic, queue_index, offset, count_max=100, bytes_max=1 << 20)
        data = b"".join(result.parts)
        sizes = np.frombuffer(result.sizes, "<i4")
        starts = np.cumsum(sizes) - sizes
        found = [struct.unpack_from(">q", data, start + 20)[0] for start in starts.tolist()]
        assert found == list(range(offset, offset + result.count)), (found, offset)
        assert result.next_begin == offset + result.count
        bodies += bodies_of(result.parts)
        offset = result.next_begin
    return bodies
