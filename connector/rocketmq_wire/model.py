"""Frozen values that every layer shares: queues, messages, topics, routes, groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# The types of buffers that layers hand on. They never copy bulk bytes.
Buffer = bytes | bytearray | memoryview

PERMISSION_READ: Final = 4
PERMISSION_WRITE: Final = 2
MASTER_ID: Final = 0
NAME_SIZE_MAX: Final = 127
GROUP_SIZE_MAX: Final = 120
SYSTEM_NAME_SIZE_MAX: Final = 255
BODY_SIZE_MAX: Final = 4 * 1024 * 1024
PROPERTIES_SIZE_MAX: Final = 32_767
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
_LITE_PREFIX: Final = "%LMQ%$"
DEFAULT_TOPIC: Final = "TBW102"
DECISION_TOPIC: Final = "PYSPARK_DECISIONS"
"""The topic in which transactional writes store their decisions, unless they name another."""
NAME_PATTERN: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)


def is_internal_topic(topic: str) -> bool:
    """True for topics of RocketMQ and of this project, which patterns and lists leave out.

    A user can still name each of them.
    """
    return topic == DECISION_TOPIC or is_system_topic(topic)


def is_system_topic(topic: str) -> bool:
    """True for RocketMQ's own topics."""
    return (
        topic in _SYSTEM_TOPICS
        or topic.startswith(("rmq_sys_", RETRY_PREFIX, DEAD_LETTER_PREFIX))
        or topic.endswith("_REPLY_TOPIC")
    )


def is_lite_queue(name: str) -> bool:
    """True for the queue of a lite topic, `%LMQ%$<parent>$<lite topic>`."""
    return name.startswith(_LITE_PREFIX)


def parent_of(name: str) -> str:
    """The parent topic of a lite queue; a topic's own name."""
    return name[len(_LITE_PREFIX) :].partition("$")[0] if is_lite_queue(name) else name


def buffer_size(buffer: Buffer) -> int:
    """The size of a buffer in bytes, also of a memoryview of larger items."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


class QueueId(NamedTuple):
    """RocketMQ's shard of a topic on one broker. Sorts as RocketMQ sorts queues.

    A tuple, because plans hash and compare thousands of them: it takes a tenth of the time.
    """

    topic: str
    broker: str
    index: int  # type: ignore[assignment]  # Hides the method of tuple.

    def __str__(self) -> str:
        return f"topic={self.topic} broker={self.broker} queue={self.index}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets `[start, end)` of a queue; `end` is the next offset to be written."""

    start: int
    """The first offset."""
    end: int
    """The next offset to be written."""
    is_current: bool = field(default=True, compare=False)
    """False if a replica answered: its bounds may differ from the master's."""
    has_first: bool = field(default=True, compare=False)
    """False if the log no longer has the message at `start`: the queue lags behind retention."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one queue."""

    queue: QueueId
    """The queue."""
    start: int
    """The first offset of the range."""
    end: int
    """The offset behind its last one."""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a range: [{self.start}, {self.end}) of {self.queue}")

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue} range=[{self.start},{self.end})"


@dataclass(frozen=True, slots=True)
class Subscription:
    """The messages of a topic to consume: a tag expression (`*`, `A || B`) or an SQL92 text."""

    expression: str = "*"
    """The tag expression or SQL92 text."""
    kind: str = "TAG"
    """`TAG` or `SQL92`."""

    @property
    def selects_all(self) -> bool:
        """Whether every message passes."""
        return self.kind == "TAG" and self.expression.strip() in ("", "*")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a user sends."""

    topic: str
    """The topic."""
    body: bytes
    """The body."""
    tags: str | None = None
    """The tag that filters select by."""
    keys: str | None = None
    """Keys to find the message by, separated by blanks."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the sender."""
    flag: int = 0
    """A number that RocketMQ stores and does not interpret."""

    def __post_init__(self) -> None:
        """Raises TypeError where the mistake is made, not in the middle of a frame."""
        if not isinstance(self.body, Buffer):
            found = type(self.body).__name__
            raise TypeError(f"the body of a message is bytes, not {found}: encode it")
        for name in ("topic", "tags", "keys"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                advice = ": join them with blanks" if name == "keys" else ""
                raise TypeError(f"{name} is text, not {type(value).__name__}{advice}")
        for key, value in self.properties.items():
            if not (isinstance(key, str) and isinstance(value, str)):
                raise TypeError(f"properties are text, not {key!r}: {value!r}")


@dataclass(frozen=True, slots=True)
class Host:
    """An IP address (4 or 16 bytes) with a port, as records store it."""

    address: bytes
    port: int

    def __post_init__(self) -> None:
        if len(self.address) not in (4, 16):
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(self.address)}")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the broker stored it: every field of a record, the body not inflated."""

    topic: str
    body: bytes
    properties: Mapping[str, str]
    flag: int
    queue_index: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_ms: int
    born_host: Host
    store_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configuration of a topic at a broker."""

    name: str
    """The topic's name."""
    read_queue_count: int = 4
    """The number of queues that consumers read."""
    write_queue_count: int = 4
    """The number of queues that producers write to."""
    permission: int = PERMISSION_READ | PERMISSION_WRITE
    """Readable (4), writable (2), or both (6)."""
    filter_kind: str = "SINGLE_TAG"
    """RocketMQ's kind of filter."""
    sys_flag: int = 0
    """RocketMQ's flags, as bits."""
    is_ordered: bool = False
    """Whether the topic keeps its queues in order."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """RocketMQ 5's attributes, such as the message type."""


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """The addresses of one broker name, by broker id; id 0 is the master."""

    name: str
    cluster: str
    addresses: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class QueueSet:
    """The queues of a topic at one broker."""

    broker: str
    read_queue_count: int
    write_queue_count: int
    permission: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """The brokers and queues of a topic."""

    queue_sets: tuple[QueueSet, ...]
    brokers: tuple[BrokerAddresses, ...]
    order_conf: str | None = None

    def readable_queues(self, topic: str) -> tuple[QueueId, ...]:
        """Every queue that may be read, sorted."""
        return tuple(
            QueueId(topic, queues.broker, index)
            for queues in sorted(self.queue_sets, key=lambda queues: queues.broker)
            if queues.permission & PERMISSION_READ
            for index in range(queues.read_queue_count)
        )

    def writable_queues(self, topic: str) -> tuple[QueueId, ...]:
        """Every queue that accepts writes: its broker must have a master."""
        masters = {broker.name for broker in self.brokers if MASTER_ID in broker.addresses}
        return tuple(
            QueueId(topic, queues.broker, index)
            for queues in self._open_for_writes()
            if queues.broker in masters
            for index in range(queues.write_queue_count)
        )

    def writable_brokers(self) -> tuple[str, ...]:
        """The brokers that accept writes, also those whose master is unavailable."""
        return tuple(queues.broker for queues in self._open_for_writes())

    def _open_for_writes(self) -> list[QueueSet]:
        ordered = sorted(self.queue_sets, key=lambda queues: queues.broker)
        return [
            queues
            for queues in ordered
            if queues.permission & PERMISSION_WRITE and queues.write_queue_count
        ]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The brokers a name server knows, and which cluster each belongs to."""

    brokers: tuple[BrokerAddresses, ...]
    clusters: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue's bounds and the store time of its newest message (0 when empty)."""

    start: int
    end: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset in a queue, and the end of the queue."""

    broker_offset: int
    consumer_offset: int
    updated_ms: int
    pull_offset: int = 0

    @property
    def lag(self) -> int:
        """Messages that the group has not committed."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """One group's entry in a heartbeat."""

    group: str
    consume_type: str
    message_model: str
    consume_from: str
    subscriptions: tuple[tuple[str, str, str, int], ...] = ()
    """(topic, expression, kind, version)"""
    unit_mode: bool = False
