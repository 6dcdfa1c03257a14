"""The contract of downloads: the ranges' purpose, their limits, and the chunks of records."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketmq_client.loss import Loss, LossPolicy
from rocketmq_wire.model import Buffer, QueueId, Subscription


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of one download. The first three count requested data, or data not yet taken."""

    messages_max: int = 32_768
    """The limit of messages."""
    bytes_max: int = 100 * 1024 * 1024
    """The limit of bytes."""
    span_max: int | None = None
    """The limit of the offsets' span."""
    count_per_pull: int = 10_000
    """Messages per pull; a real broker gives at most 32."""
    pulls_in_flight: int = 64
    """Per queue and connection."""
    pull_timeout_ms: int = 30_000
    """The longest silence of a broker; a pull takes longer while bytes arrive."""
    slow_pull_ms: int = 1_800_000
    """The longest time of a pull: at 18 KiB/s all requested bytes arrive within it."""
    outage_ms: int = 60_000
    """The longest time without an answer from the broker."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The group named in a download's pulls, its filter, its limits, and its policy for losses."""

    group: str
    """The group that pulls name."""
    subscription: Subscription = field(default_factory=Subscription)
    """The filter."""
    limits: ReadLimits = field(default_factory=ReadLimits)
    """The limits of the download."""
    loss_policy: LossPolicy = LossPolicy.RAISE
    """If offsets are gone: RangeLostError, or (SKIP) a chunk with `loss` set instead of them."""


@dataclass(frozen=True, slots=True)
class RangeChunk:
    """Whole records covering the offsets `[start, end)` of a queue.

    The body may hold records outside `[start, end)`; the decoder drops them by their offset. Chunks
    of one queue follow each other without a gap: together they cover the whole range. The body is
    empty if nothing matched a filter, and if offsets are lost.
    """

    queue: QueueId
    """The queue of the records."""
    start: int
    """The first offset that the chunk covers."""
    end: int
    """The offset behind the last one that it covers."""
    body: Buffer
    """The records as stored, one behind the other."""
    sizes: Buffer | None = None
    """The sizes of the records in `body`, if known."""
    expected_count: int | None = None
    """Records with an offset in `[start, end)`; fewer in `body` are data loss. None: filtered."""
    loss: Loss | None = None
    """Set under `LossPolicy.SKIP` when these offsets are gone."""
