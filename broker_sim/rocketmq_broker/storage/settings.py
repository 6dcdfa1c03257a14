"""Settings of a store, and its reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Final

from rocketmq_wire.model import Host
from rocketmq_wire.plural import plural

PLAN_NAME: Final = "repair.plan"
"""File of a repair that is not finished. The broker does not start while it exists."""

_MIB: Final = 1024 * 1024
SEGMENT_SIZE_MAX: Final = 2**31 - 1
"""Largest buffer of Java, with which RocketMQ maps the files."""

_LOOPBACK: Final = Host(b"\x7f\x00\x00\x01", 10911)


class FlushMode(enum.Enum):
    """The promise of an acknowledgement."""

    SYNC = "sync"
    """The message is on the disk."""
    ASYNC = "async"
    """The operating system has the message; a power cut may lose the last half second."""
    MEMORY = "memory"
    """The process has the message."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    flush: FlushMode = FlushMode.SYNC
    store_host: Host = _LOOPBACK
    segment_size: int = 256 * _MIB
    queue_file_entries: int = 300_000
    index_slot_count: int = 1_000_000
    index_entry_count: int = 4_000_000
    unpublished_size_max: int = 128 * _MIB
    """Most bytes that wait for the disk; then appends are refused as busy."""
    checksum_range_size: int = 16 * _MIB
    """Bytes of log that one checksum covers."""
    verified_size: int = 256 * _MIB
    """Bytes of acknowledged log that a start compares with their checksums, at least."""
    retention_ms: int = 72 * 3600 * 1000
    disk_used_ratio_max: float = 0.90
    early_size_max: int = 1024 * _MIB
    """Most bytes, but at least one file, that one cleaning deletes early because the disk is full.
    A warning comes every 10 s, so that people have time to act."""

    @property
    def is_memory(self) -> bool:
        return self.flush is FlushMode.MEMORY

    def __post_init__(self) -> None:
        if not 0 < self.segment_size <= SEGMENT_SIZE_MAX:
            raise ValueError(f"segment_size must be in (0, {SEGMENT_SIZE_MAX}]")
        if self.queue_file_entries < 1 or self.checksum_range_size < 1 or self.index_slot_count < 1:
            raise ValueError("file sizes must be positive")


@dataclass(frozen=True, slots=True)
class Appended:
    """Offsets and log positions of an appended block."""

    start: int
    """Queue offset of the first message."""
    count: int
    physical_start: int
    end_position: int
    """Log position up to which the log must be durable."""
    pieces: tuple[tuple[int, int], ...] = ()
    """First record and log position of each part; the parts are in different files of the log."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A queue that grew."""

    topic: str
    queue_index: int
    end: int


@dataclass(slots=True)
class CleanReport:
    """The files that retention deleted."""

    log_files: int = 0
    early_files: int = 0
    """Number of `log_files` deleted because the disk is too full, not for their age."""
    queue_files: int = 0
    index_files: int = 0
    log_start: int = 0
    disk_used_ratio: float = 0.0
    """Used part of the disk after the last deletion."""


@dataclass(slots=True)
class Adoption:
    """The contents of a store that was taken over from RocketMQ."""

    log_start: int
    log_end: int = 0
    records: int = 0
    """Number of messages in queues; each matches its checksum."""
    queues: int = 0
    dead_records: dict[str, int] = field(default_factory=dict)
    """Number of records of deleted topics, by topic: they are in the log, and in no queue."""
    torn_records: int = 0
    """Number of messages that RocketMQ's queues list, but a crash kept from the disk."""


@dataclass(frozen=True, slots=True)
class LiteParent:
    """A topic with lite topics, which are not served; its own messages are."""

    topic: str
    lite_topic_count: int
    message_count: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic} has {plural(self.lite_topic_count, 'lite topic')} "
            f"({plural(self.message_count, 'message')}, served as messages of {self.topic})"
        )


@dataclass(slots=True)
class RecoveryReport:
    """The state of a store when it was opened."""

    was_clean: bool
    """True if the store was closed before."""
    log_start: int = 0
    log_end: int = 0
    kept_records: int = 0
    """Number of whole records behind the durable mark: never acknowledged in sync mode."""
    cut_size: int = 0
    """Bytes of torn records behind the durable mark, which were cut."""
    scanned_records: int = 0
    """Number of records read to rebuild consume queues."""
    verified_size: int = 0
    """Bytes of acknowledged log that were compared with their checksums."""
    removed_files: tuple[str, ...] = ()
    clamped_offsets: tuple[str, ...] = ()
    """Committed offsets behind their queue's end, or of a deleted topic: `topic@group/queue`."""
    adopted: Adoption | None = None
    """Set if RocketMQ created this store, or had it open since this broker closed it."""
    lite_parents: tuple[LiteParent, ...] = ()

    def __str__(self) -> str:
        """One line for the log, with all counts that are not 0."""
        state = "closed in order" if self.was_clean else "not closed in order"
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        apart = ("was_clean", "log_start", "log_end", "lite_parents")
        rest = [f"{name}={value}" for name, value in found.items() if name not in apart and value]
        where = f"log from {self.log_start} to {self.log_end}"
        return ", ".join((where, *((state,) if self.log_end else ()), *rest))
