"""What a stream that pops must be given, and must not: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.definition import Use

if TYPE_CHECKING:
    from pyspark_rocketmq.options.parse import ReadOptions

INVISIBLE_MS: Final = 300_000
ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 32 * 1024 * 1024
_PUBLIC_INVISIBLE_MS_MIN: Final = 10_000

# They speak of offsets, or of pulls: neither is there when a broker lends messages out.
_MEANINGLESS: Final = (
    *("allocateStrategy", "commitOffsets", "consumeMaxSpan", "failOnDataLoss"),
    *("maxRecordsPerPartition", "maxTriggerDelay", "minOffsetsPerTrigger", "pullBatchSize"),
    *("pullsInFlight", "pullThresholdForQueue", "pullThresholdSizeForQueue", "pullTimeoutMs"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingTimestamp"),
    "suspendTimeoutMs",
)


def check_pop(options: ReadOptions, use: Use) -> None:
    """Raise OptionError for what does not go together with popping."""
    if options.consume_mode != "pop":
        if "invisibleTimeMs" in options.given:
            raise OptionError(
                "invisibleTimeMs", "has no effect without consumeMode=pop", "CONFLICT"
            )
        return
    if use is not Use.STREAM:
        raise OptionError("consumeMode", "= pop is for streams: a batch reads by offset")
    if options.group is None:
        raise OptionError("consumeMode", "= pop needs the option 'group': whose loans", "MISSING")
    if options.subscribe is None:
        raise OptionError(
            "consumeMode", "= pop needs 'subscribe': it pops whole topics", "CONFLICT"
        )
    if options.join_group:
        raise OptionError(
            "joinGroup",
            "excludes consumeMode=pop: brokers share messages out, not queues",
            "CONFLICT",
        )
    for name in _MEANINGLESS:
        if name in options.given:
            raise OptionError(name, "has no meaning with consumeMode=pop: leave it out", "CONFLICT")
    if options.starting_offsets not in (None, "earliest", "latest"):
        raise OptionError(
            "startingOffsets",
            "is earliest or latest with consumeMode=pop: where a group without progress begins",
            "CONFLICT",
        )
    if options.endpoints is not None:
        _check_public(options)


def _check_public(options: ReadOptions) -> None:
    """What RocketMQ's public gRPC service does not do."""
    if options.starting_offsets == "earliest":
        raise OptionError(
            "startingOffsets",
            "= earliest needs 'nameServer' to pop: over 'endpoints' a new group begins at latest",
            "CONFLICT",
        )
    if options.invisible_time_ms < _PUBLIC_INVISIBLE_MS_MIN:
        raise OptionError("invisibleTimeMs", "is 10s at least over 'endpoints'", "CONFLICT")
