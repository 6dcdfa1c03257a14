"""The plan of a write, which the driver gives its tasks: plain values.

Apart from the code that writes, because Spark plans every batch in a process that does nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketmq.options.sink_table import WriteName
from rocketmq_client.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class WriteId:
    """The identity of a task, the same when it runs again."""

    query: str
    batch: str
    partition: int

    def __str__(self) -> str:
        return f"{self.query}/{self.batch}/{self.partition}"


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """How rows become requests; the same for all tasks of a write."""

    columns: Mapping[str, int]
    """The index of each message part's column."""
    topic: str | None
    """The topic of every row; None: the column `topic` names it."""
    bytes_max: int
    is_grpc: bool
    compression: str | None = None
    compression_threshold: int = 4_096
    """Bodies of at least this size are compressed."""
    immunity_seconds: int | None = None
    """How long brokers check no half message of the write; None: it sends none."""
    decision_topic: str | None = None
    """The topic that no row may go to."""


@dataclass(frozen=True, slots=True)
class SendBackPlan:
    """The group that gets its messages again, and the columns that name them."""

    group: str
    attempts_max: int | None
    column_indices: dict[str, int]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """The settings of a transactional write."""

    decision_topic: str
    in_order: bool = False
    """True if rows have message groups: each queue is committed in order, one by one."""
    is_named: bool = False
    """True if the user named the write, and may have reused the name."""
    is_fresh: bool = False
    """True if the id is new: the write is neither a stream's nor named."""
    checked_seconds: float = 120.0
    """How long to wait for brokers' checks of late half messages; brokers check every 30 s."""
    visibility_wait_seconds: float = 3.0
    """How long a broker may still work on a commit whose answer was lost or whose driver died."""


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The plan of a write, the same for all of its tasks."""

    settings: ConnectionSettings
    layout: SinkLayout
    group: str
    in_flight_max: int
    write: str
    """The name of this write, unless a stream's query and batch name it."""
    send_back: SendBackPlan | None = None
    """Set if rows are not sent, but their messages sent back."""
    transaction: TransactionPlan | None = None
    """Set if rows are sent as half messages, which the driver commits."""
    named: WriteName | None = None
    """The user's name of a batch write; None: a rerun cannot be recognised."""
