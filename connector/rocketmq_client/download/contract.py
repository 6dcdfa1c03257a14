"""The contract of downloads: what is read, within which limits, and the chunks that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketmq_client.loss import Loss, LossPolicy
from rocketmq_wire.model import Buffer, QueueId, Subscription


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of one download. The first three limit what is requested or received and not taken."""

    messages_max: int = 32_768
    bytes_max: int = 100 * 1024 * 1024
    span_max: int | None = None
    count_per_pull: int = 10_000
    """Asked of the broker in one pull; a real broker gives at most 32."""
    pulls_in_flight: int = 64
    """Per queue and connection."""
    pull_timeout_ms: int = 30_000
    """How long a broker may be silent; a pull takes longer while bytes arrive."""
    slow_pull_ms: int = 1_800_000
    """What a pull takes at most: at 18 KiB/s all that a download asks for ahead has come."""
    outage_ms: int = 60_000
    """A broker may be away this long, counted from its last answer."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What a download is for: the group named in its pulls, and what it filters by."""

    group: str
    subscription: Subscription = field(default_factory=Subscription)
    limits: ReadLimits = field(default_factory=ReadLimits)
    loss_policy: LossPolicy = LossPolicy.RAISE
    """Where offsets are gone: RangeLostError, or (SKIP) a chunk with `loss` set in their place."""


@dataclass(frozen=True, slots=True)
class RangeChunk:
    """Whole records covering the offsets `[start, end)` of a queue.

    Records outside `[start, end)` may be in `body`; the decoder drops them by their offset. Chunks
    of one queue follow each other without a gap: together they cover the whole range. The body is
    empty where nothing matched a filter, and where offsets are lost.
    """

    queue: QueueId
    start: int
    end: int
    body: Buffer
    sizes: Buffer | None = None
    expected_count: int | None = None
    """Records with an offset in `[start, end)`; fewer in `body` are data loss. None: filtered."""
    loss: Loss | None = None
    """Set under `LossPolicy.SKIP` when these offsets are gone."""
