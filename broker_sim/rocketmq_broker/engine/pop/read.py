"""Reads a queue for a pop: the matching messages, their offsets, and their records to send."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from rocketmq_arrow.decode.layout import QUEUE_OFFSET_AT
from rocketmq_broker.engine.messages.filtering import (
    Filter,
    check_subscription,
    filter_of,
    read_matching,
)
from rocketmq_broker.engine.pop.in_flight import GroupQueue
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Buffer, Subscription
from rocketmq_wire.plural import plural
from rocketmq_wire.records.handles import RECEIPT, ReceiptHandle
from rocketmq_wire.records.record import decode_record, encode_record

_LOG = logging.getLogger(__name__)

_OFFSET: Final = struct.Struct(">q")
_CRC_AT: Final = slice(8, 12)
_SCAN_MAX: Final = 800
_SELECTOR_SCAN_MAX: Final = 20_000


class DamageLog:
    """Logs each damaged queue once; pops still serve the other queues.

    If the pop failed as a whole, the client would not get the messages already popped for it.
    """

    ERRORS: Final = (DamagedStoreError, CorruptRecordError)
    _LOGGED_MAX: Final = 1_000

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def report(self, topic: str, queue_index: int, error: Exception) -> None:
        text = f"topic={topic} queue={queue_index}: pops cannot read it: {error}"
        if text not in self._logged and len(self._logged) < self._LOGGED_MAX:
            self._logged.add(text)
            _LOG.error("%s", text)


@dataclass(frozen=True, slots=True)
class Found:
    """The matching messages of a queue from an offset on."""

    parts: tuple[Buffer, ...]
    sizes: bytes
    offsets: tuple[int, ...]
    end: int
    """The offset behind the last examined entry."""


@lru_cache(maxsize=1_024)
def pop_filter_of(subscription: Subscription, *, allows_sql: bool) -> Filter:
    """The filter of a pop. Refusals: 1, 23; unlike in a pull, also of an illegal expression."""
    check_subscription(subscription, allows_sql=allows_sql)
    return filter_of(subscription, allows_sql=allows_sql, is_registered=False)


def read_queue(
    store: Store,
    queue: GroupQueue,
    start: int,
    *,
    wanted: Filter,
    count_max: int,
    bytes_max: int,
) -> Found:
    """The matching messages from an offset on, which must lie within the queue's bounds."""
    read = read_matching(
        store,
        queue.topic,
        queue.queue_index,
        start,
        wanted,
        count_max=count_max,
        bytes_max=bytes_max,
        scan_max=_SCAN_MAX if wanted.selector is None else _SELECTOR_SCAN_MAX,
    )
    if read.lost:
        # A reply to a pop cannot report lost messages.
        _LOG.error(
            "topic=%s queue=%d: pops skip %s before offset %d, which a repair gave up; "
            "the read began at offset %d",
            queue.topic,
            queue.queue_index,
            plural(read.lost, "message"),
            read.next_begin,
            start,
        )
    if read.count == read.next_begin - start:
        offsets = tuple(range(start, read.next_begin))
    else:
        offsets = _offsets_in(read.parts, read.sizes)
    return Found(read.parts, read.sizes, offsets, read.next_begin)


def with_receipts(found: Found, topic: str, handles: Sequence[ReceiptHandle]) -> Found:
    """Records of a retry topic under the popped topic's name, each with its receipt handle."""
    data, at, records = b"".join(found.parts), 0, []
    for handle in handles:
        message, at = decode_record(data, at, check_crc=False)
        properties = {**message.properties, RECEIPT: handle.text()}
        record = bytearray(encode_record(replace(message, topic=topic, properties=properties)))
        # The stored checksum: the client must be able to see that the body changed.
        record[_CRC_AT] = message.body_crc.to_bytes(4, "big", signed=True)
        records.append(bytes(record))
    sizes = np.array([len(record) for record in records], "<i4").tobytes()
    return replace(found, parts=tuple(records), sizes=sizes)


def _offsets_in(parts: Sequence[Buffer], sizes: Buffer) -> tuple[int, ...]:
    """The queue offsets in the records. A record's own size may be damaged; `sizes` are not."""
    data, at, offsets = b"".join(parts), 0, []
    for size in np.frombuffer(sizes, "<i4").tolist():
        (offset,) = _OFFSET.unpack_from(data, at + QUEUE_OFFSET_AT)
        offsets.append(offset)
        at += size
    return tuple(offsets)
