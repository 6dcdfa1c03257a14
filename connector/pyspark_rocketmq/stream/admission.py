"""Decides how much the next micro-batch takes: limits, the minimum wait, triggers.

With AvailableNow it takes no more than `available_now` has frozen. The trigger `Once` has no limits
(`is_unlimited`). The first batch of a run does not wait for the minimum, as with Spark's Kafka
source: Spark 4.0 and 4.1 name no trigger, and it may be the run's only one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.compute as pc

from pyspark_rocketmq.client_settings import read_spec
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.micro_batch import GUESSED_BYTES, Limits, admit, backlogs
from pyspark_rocketmq.stream.available_now import FrozenCount, FrozenEnds
from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_arrow.source_columns import arrow_schema
from rocketmq_client.cluster import Cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_client.retry_schedules import SAMPLE_LIMIT_MS
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import OffsetRange, QueueId

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """Spark before 4.2 has no limits."""

        class ReadAllAvailable(ReadLimit):
            """A batch without a limit."""

        class ReadMaxRows(ReadLimit):
            """A batch of at most `max_rows` rows."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """Spark before 4.2 runs AvailableNow as one batch."""


_log = logging.getLogger("pyspark_rocketmq")

# Spark asks the sources of a query one after the other: a source that waits delays the others.
WAIT_MS: Final = 100
# Two calls closer together than this mean that the whole query is idle, so a wait delays no other
# source. The first call after a batch answers at once.
_IDLE_CALL_MS: Final = 60
_NO_LIMIT: Final = 2**62
# The limits of a popped batch unless the options say others.
_POP_ROWS_MAX: Final = 10_000
_POP_BYTES_MAX: Final = 32 * 1024 * 1024
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


def default_read_limit(options: ReadOptions) -> ReadLimit:
    if options.consumer.consume_mode == "pop":
        return ReadMaxRows(options.max_offsets_per_trigger or _POP_ROWS_MAX)
    if not options.has_limits:
        return ReadAllAvailable()
    return ReadMaxRows(options.max_offsets_per_trigger or _NO_LIMIT)


def warn_of_one_batch(options: ReadOptions) -> None:
    """Warn on Spark 4.0 and 4.1 that a limit ends a run with AvailableNow or Once."""
    limits = [
        name for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger") if name in options.given
    ]
    if limits and options.consumer.consume_mode != "pop":
        _log.warning(
            "this Spark passes neither trigger nor limits to a Python source: a run with "
            "AvailableNow or Once ends after one batch, of what %s allows. Leave it out to "
            "read all there is, run again, or use Spark 4.2",
            " and ".join(limits),
        )


class Backlog(NamedTuple):
    """What a micro-batch may take from."""

    offsets: Mapping[QueueId, int]
    """The next offset to read of each queue."""
    waiting: Mapping[QueueId, int]
    """The number of messages that wait there."""


class OffsetAdmission:
    """Decides what a micro-batch takes from queues that are read by offset."""

    def __init__(
        self,
        options: ReadOptions,
        cluster: Cluster,
        *,
        now_ms: Callable[[], int],
        sleep_ms: Callable[[int], None],
    ) -> None:
        self._limits = Limits(
            options.max_offsets_per_trigger,
            options.min_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.max_trigger_delay,
        )
        self._message_size = MessageSize(options)
        self._cluster = cluster
        self._now_ms = now_ms
        self._sleep_ms = sleep_ms
        self.available_now = FrozenEnds()
        self._last_batch_ms: int | None = None
        self._last_answer_ms = 0

    def backlog(self, offsets: Mapping[QueueId, int], ends: Mapping[QueueId, int]) -> Backlog:
        """Return what waits behind `offsets`, up to the frozen ends if there are any."""
        return Backlog(offsets, backlogs(offsets, self.available_now.of(ends)))

    def take(self, backlog: Backlog, *, is_unlimited: bool) -> dict[QueueId, int]:
        """Return how many messages of each queue the next batch takes; empty: none yet."""
        limits = self._limits_of(is_unlimited=is_unlimited)
        bytes_per_message = GUESSED_BYTES
        if limits.bytes_max is not None and backlog.waiting:
            bytes_per_message = self._message_size.estimate(
                self._cluster, backlog.offsets, backlog.waiting, now_ms=self._now_ms()
            )
        return admit(
            backlog.waiting,
            limits,
            waited_ms=self._waited_ms(),
            bytes_per_message=bytes_per_message,
        )

    @property
    def is_idle(self) -> bool:
        """True if the whole query is idle, so that a short wait delays no other source."""
        return self._now_ms() - self._last_answer_ms < _IDLE_CALL_MS

    def wait(self, watcher: EndOffsetWatcher, backlog: Backlog, *, is_unlimited: bool) -> None:
        """Wait a little for the first message, or for as many as a batch must have."""
        if not backlog.waiting:
            watcher.wait(backlog.offsets, WAIT_MS)
            return
        # A wait for messages asks the broker again after each one. One message is seldom enough
        # here, so the driver sleeps, and asks for the ends once afterwards.
        left_ms = self._limits_of(is_unlimited=is_unlimited).delay_ms_max - self._waited_ms()
        self._sleep_ms(min(WAIT_MS, max(1, left_ms)))

    def note_batch(self) -> None:
        self._last_batch_ms = self._now_ms()

    def note_answer(self) -> None:
        """Note when Spark got its answer: see `is_idle`."""
        self._last_answer_ms = self._now_ms()

    def _limits_of(self, *, is_unlimited: bool) -> Limits:
        if is_unlimited:
            return Limits()
        if self.available_now.is_frozen:
            # This run will never see more messages than now: it does not wait for a minimum.
            return Limits(self._limits.messages_max, None, self._limits.bytes_max)
        return self._limits

    def _waited_ms(self) -> int:
        """Return how long the next batch has waited; before the first one, long enough."""
        if self._last_batch_ms is None:
            return self._limits.delay_ms_max
        return self._now_ms() - self._last_batch_ms


class PopAdmission:
    """Decides how many messages a micro-batch pops: it has limits, as its rows are in memory."""

    def __init__(self, options: ReadOptions) -> None:
        self._rows_max = options.max_offsets_per_trigger or _POP_ROWS_MAX
        self._bytes_max = options.max_bytes_per_trigger or _POP_BYTES_MAX
        self.available_now = FrozenCount()

    def room(self, rows: int, size: int) -> int:
        """Return how many rows still fit into a batch that has `rows` rows and `size` bytes."""
        return max(0, self._rows_max - rows) if size < self._bytes_max else 0
