"""Visibility: which half messages of a decision readers see. Reads each message once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from pyspark_rocketmq.sink.transactional.decision_log import Decision
from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_client.cluster import Cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.loss import LossPolicy
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_wire.errors import raise_first
from rocketmq_wire.model import OffsetRange, QueueId

READER_GROUP: Final = "pyspark-rocketmq-sink"
_SCHEMA: Final = pa.schema([pa.field("msgId", pa.string())])


class Visibility:
    """The half messages of a decision that were seen so far. The caller owns `cluster`."""

    def __init__(self, cluster: Cluster, decision: Decision) -> None:
        self._cluster = cluster
        self._keys = frozenset(half.transaction_id for half in decision.half_messages)
        self._next = dict(decision.starts)
        """The next offset to read; a visible message stays visible."""
        self._seen: set[str] = set()

    def invisible(self, half_messages: Iterable[HalfMessage]) -> list[HalfMessage]:
        """The half messages that readers do not see yet.

        Raises RocketMQError; may be called again.
        """
        unseen = self._unseen(half_messages)
        self._read_new({half.queue for half in unseen})
        return self._unseen(unseen)

    def _unseen(self, half_messages: Iterable[HalfMessage]) -> list[HalfMessage]:
        return [half for half in half_messages if half.transaction_id not in self._seen]

    def _read_new(self, queues: set[QueueId]) -> None:
        ranges = []
        wanted = sorted(queues & self._next.keys())
        for queue, bounds in raise_first(self._cluster.bounds(wanted)).items():
            start = max(self._next[queue], bounds.start)
            if start < bounds.end:
                ranges.append(OffsetRange(queue, start, bounds.end))
        if not ranges:
            return
        decoder = Decoder(DecodeOptions(_SCHEMA, check_crc=False))
        spec = ReadSpec(READER_GROUP, loss_policy=LossPolicy.SKIP)
        for chunk in self._cluster.read_ranges(ranges, spec):
            if chunk.loss is None:
                for batch in decoder.decode(
                    chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes
                ):
                    self._seen.update(self._keys.intersection(batch.column(0).to_pylist()))
            self._next[chunk.queue] = chunk.end
