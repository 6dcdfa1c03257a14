"""Samples the size of a few waiting messages: maxBytesPerTrigger counts with their mean.

The planner waits for the sample, so it takes a second at most. An error is only logged: then the
last mean counts, or a guess.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import pyarrow.compute as pc

from pyspark_rocketmq.client_settings import read_spec
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.micro_batch import GUESSED_BYTES
from rocketmq_arrow.columns import arrow_schema
from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_client.cluster import Cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.retry import SAMPLE_LIMIT_MS
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import OffsetRange, QueueId

_log = logging.getLogger("pyspark_rocketmq")

SAMPLE_QUEUES: Final = 4
SAMPLE_MESSAGES: Final = 16
_AGE_MS_MAX: Final = 5_000


class MessageSize:
    """The mean stored size of the next few messages of the fullest queues."""

    def __init__(self, options: ReadOptions) -> None:
        limits = read_spec(options).limits
        self._spec = ReadSpec(
            group=options.pull_group,
            limits=ReadLimits(
                messages_max=SAMPLE_MESSAGES * SAMPLE_QUEUES,
                count_per_pull=SAMPLE_MESSAGES,
                pulls_in_flight=1,
                pull_timeout_ms=min(limits.pull_timeout_ms, SAMPLE_LIMIT_MS),
                slow_pull_ms=SAMPLE_LIMIT_MS,
                outage_ms=min(limits.outage_ms, SAMPLE_LIMIT_MS),
            ),
        )
        self._mean = GUESSED_BYTES
        self._sampled_ms: int | None = None

    def estimate(
        self,
        cluster: Cluster,
        offsets: Mapping[QueueId, int],
        waiting: Mapping[QueueId, int],
        *,
        now_ms: int,
    ) -> float:
        """Return the bytes per message: sampled, or the best guess. Raises nothing."""
        if self._sampled_ms is not None and now_ms - self._sampled_ms < _AGE_MS_MAX:
            return self._mean
        fullest = sorted(waiting, key=lambda queue: (-waiting[queue], queue))[:SAMPLE_QUEUES]
        ranges = [
            OffsetRange(
                queue, offsets[queue], offsets[queue] + min(waiting[queue], SAMPLE_MESSAGES)
            )
            for queue in fullest
        ]
        self._mean = self._sample(cluster, ranges) or self._mean
        self._sampled_ms = now_ms
        return self._mean

    def _sample(self, cluster: Cluster, ranges: list[OffsetRange]) -> float | None:
        decoder = Decoder(
            DecodeOptions(
                schema=arrow_schema(["storeSize"]), check_crc=False, corrupt=CorruptPolicy.SKIP
            )
        )
        total, count = 0, 0
        try:
            for chunk in cluster.read_ranges(ranges, self._spec):
                for batch in decoder.decode(
                    chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes
                ):
                    total += pc.sum(batch.column(0)).as_py() or 0
                    count += batch.num_rows
        except RocketMQError as error:
            # If the error lasts, the read itself raises it.
            _log.warning("cannot sample the size of messages: %s", error)
        return total / count if count else None
