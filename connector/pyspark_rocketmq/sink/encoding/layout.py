"""What the driver hands its tasks to write with: plain values.

Apart from all that writes, for Spark plans every batch in a process that does nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketmq.options.sink_table import WriteName
from pyspark_rocketmq.sink.encoding.schema import SinkColumns
from rocketmq_client.settings import ConnectionSettings


@dataclass(frozen=True, slots=True)
class WriteId:
    """The task that writes, the same when it runs again."""

    query: str
    batch: str
    partition: int

    def __str__(self) -> str:
        return f"{self.query}/{self.batch}/{self.partition}"


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """How rows become requests; the same for all tasks of a write."""

    columns: SinkColumns
    topic: str | None
    """For every row; None: the column says it."""
    bytes_max: int
    is_grpc: bool
    compression: str | None = None
    compression_threshold: int = 4_096
    """Bodies of so many bytes and more are compressed."""
    immunity_seconds: int | None = None
    """Rows are sent as half messages, and nobody is asked about one for so long; None: they
    are not."""
    decision_topic: str | None = None
    """No row goes there."""


@dataclass(frozen=True, slots=True)
class SendBackPlan:
    """Which group gets its messages again, and where the columns are that name them."""

    group: str
    attempts_max: int | None
    places: dict[str, int]


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """What a transactional write needs beside the rest of its plan."""

    decision_topic: str
    in_order: bool = False
    """Rows have groups: what one queue gets is ended one by one, so that brokers keep its order."""
    is_named: bool = False
    """The user says which write it is, and may be wrong."""
    is_fresh: bool = False
    """Nobody else can have this write's id: it is neither a stream's nor named."""
    checked_seconds: float = 120.0
    """How long to wait to be asked about what we end too late: brokers ask every 30 s."""
    settle_seconds: float = 3.0
    """After an end whose answer was lost, or whose driver died just now, a broker may be at it."""


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What a task needs to write; the same for all tasks of a write."""

    settings: ConnectionSettings
    layout: SinkLayout
    group: str
    in_flight_max: int
    write: str
    """Names this write, unless a stream's query and batch do."""
    send_back: SendBackPlan | None = None
    """Rows are not sent: the messages they were read from are given back."""
    transaction: TransactionPlan | None = None
    """Rows are sent as half messages, which the driver commits."""
    named: WriteName | None = None
    """What the user calls a batch write; None: it cannot be told when it runs again."""
