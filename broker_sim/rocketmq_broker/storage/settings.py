"""What can be set on a store, and what it reports."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from rocketmq_wire.model import Host
from rocketmq_wire.plural import plural

PLAN_NAME: Final = "repair.plan"
"""A repair that was not finished. The broker does not start on a store that has one."""

_MIB: Final = 1024 * 1024
SEGMENT_SIZE_MAX: Final = 2**31 - 1
"""RocketMQ's files are mapped by Java, whose buffers end there."""

_LOOPBACK: Final = Host(b"\x7f\x00\x00\x01", 10911)


class FlushMode(enum.Enum):
    """What an acknowledgement promises."""

    SYNC = "sync"
    """The message is on the disk."""
    ASYNC = "async"
    """The message is in the operating system's hands; a power cut may take the last half second."""
    MEMORY = "memory"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Sizes and limits of a store."""

    flush: FlushMode = FlushMode.SYNC
    store_host: Host = _LOOPBACK
    segment_size: int = 256 * _MIB
    queue_file_entries: int = 300_000
    index_slot_count: int = 1_000_000
    index_entry_count: int = 4_000_000
    unpublished_size_max: int = 128 * _MIB
    """Appends are refused as "busy" while this much waits for the disk."""
    checksum_range_size: int = 16 * _MIB
    """A checksum is closed and a new one begun after this much log."""
    verified_size: int = 256 * _MIB
    """At the start at least this much acknowledged log is compared with its checksums."""
    retention_ms: int = 72 * 3600 * 1000
    disk_used_ratio_max: float = 0.90
    early_size_max: int = 1024 * _MIB
    """So much log, but at least a file, goes at once where the disk is too full: whoever reads the
    warnings, which come every 10 s, can do something about it."""

    @property
    def is_memory(self) -> bool:
        """True if nothing has to reach a disk."""
        return self.flush is FlushMode.MEMORY

    def __post_init__(self) -> None:
        if not 0 < self.segment_size <= SEGMENT_SIZE_MAX:
            raise ValueError(f"segment_size must be in (0, {SEGMENT_SIZE_MAX}]")
        if self.queue_file_entries < 1 or self.checksum_range_size < 1 or self.index_slot_count < 1:
            raise ValueError("file sizes must be positive")


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a block went."""

    start: int
    """The first message's offset in its queue."""
    count: int
    physical_start: int
    end_position: int
    """The block is durable once the log is up to here."""
    pieces: tuple[tuple[int, int], ...] = ()
    """(first record, log position) of each run of records; the log rolled between two."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A queue that grew."""

    topic: str
    queue_index: int
    end: int


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What retention removed."""

    log_files: int = 0
    early_files: int = 0
    """Of these, those that went because the disk is too full, and not for their age."""
    queue_files: int = 0
    index_files: int = 0
    log_start: int = 0
    disk_used_ratio: float = 0.0
    """How full the disk was when the last file had gone."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was taken over from a store that RocketMQ itself has written to."""

    log_start: int
    log_end: int
    records: int
    """Messages in queues, each compared with its checksum."""
    queues: int
    dead_records: Mapping[str, int]
    """Records of deleted topics, by topic: they stay in the log, and in no queue."""
    torn_records: int = 0
    """Messages that RocketMQ's queues list, and that a crash kept from the disk."""


@dataclass(frozen=True, slots=True)
class LiteParent:
    """A topic with lite topics, which are not served: its messages are, as any topic's."""

    topic: str
    lite_topic_count: int
    message_count: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic} has {plural(self.lite_topic_count, 'lite topic')} "
            f"({plural(self.message_count, 'message')}, served as messages of {self.topic})"
        )


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What an opening found."""

    was_clean: bool
    """The store had been closed."""
    log_start: int
    log_end: int
    kept_records: int = 0
    """Whole records behind the durable mark: in sync mode they were never acknowledged."""
    cut_size: int = 0
    """Bytes of torn records behind the durable mark that were cut away."""
    scanned_records: int = 0
    """Records read again to rebuild consume queues."""
    verified_size: int = 0
    """Bytes of acknowledged log that were compared with their checksums."""
    removed_files: tuple[str, ...] = ()
    clamped_offsets: tuple[str, ...] = ()
    """Progress past its queue's end, or of a deleted topic: `topic@group/queue`."""
    adopted: Adoption | None = None
    """Set if RocketMQ itself made this store, or had it open since we closed it."""
    lite_parents: tuple[LiteParent, ...] = ()

    def __str__(self) -> str:
        """One line for the log: what it always says, and of the rest what there was."""
        state = "closed in order" if self.was_clean else "not closed in order"
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        apart = ("was_clean", "log_start", "log_end", "lite_parents")
        rest = [f"{name}={value}" for name, value in found.items() if name not in apart and value]
        where = f"log from {self.log_start} to {self.log_end}"
        return ", ".join((where, *((state,) if self.log_end else ()), *rest))
