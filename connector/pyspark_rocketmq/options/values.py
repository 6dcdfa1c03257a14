"""The values that options become: `ReadOptions` for a read, `WriteOptions` for a write.

A field has the name of its option in snake case; the tables say what each option is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_rocketmq.options.kinds import Assigned, PerQueue
from pyspark_rocketmq.options.tables import WriteName
from rocketmq_wire.model import Subscription

# The client's own group, named in the pulls of a query without one: it commits nothing.
NO_GROUP = "pyspark-rocketmq-reader"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    name_server: tuple[str, ...]
    endpoints: str | None
    address_map: tuple[tuple[str, str], ...]
    connect_timeout_ms: int
    request_timeout_ms: int
    retry_delay_ms: int
    retry_max_delay_ms: int
    retry_outage_ms: int
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    security_token: str | None = field(repr=False)
    tls: bool
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_server_name: str | None
    tls_verify: bool

    @property
    def address(self) -> str:
        if self.endpoints is not None:
            return f"endpoints={self.endpoints}"
        return "nameServer=" + ";".join(self.name_server)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    group: str | None
    commit_offsets: str
    join_group: bool
    allocate_strategy: str
    consume_mode: str
    invisible_time_ms: int


@dataclass(frozen=True, slots=True)
class PullOptions:
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int | None
    pulls_in_flight: int
    suspend_timeout_ms: int
    pull_timeout_ms: int


@dataclass(frozen=True, slots=True)
class BodyOptions:
    body_format: str | None
    body_mode: str
    column_name_of_corrupt_record: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    given: frozenset[str]
    """The names of the options that the user gave."""
    connection: ConnectionOptions
    consumer: ConsumerOptions
    pull: PullOptions
    bodies: BodyOptions
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: Assigned | None
    dead_letters_of: str | None
    tags: str | None
    sql: str | None
    message_key: str | None
    message_id: str | None
    push_down: str
    discovery_interval_ms: int
    starting_offsets: str | PerQueue | None
    starting_timestamp: int | None
    starting_offsets_by_timestamp: PerQueue | None
    starting_offsets_by_timestamp_strategy: str
    ending_offsets: str | PerQueue
    ending_timestamp: int | None
    ending_offsets_by_timestamp: PerQueue | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    include_properties: bool
    corrupt_messages: str
    check_crc: bool
    fail_on_data_loss: bool
    log_batches: bool

    @property
    def subscription(self) -> Subscription:
        """The messages that brokers select."""
        if self.sql:
            return Subscription(self.sql, "SQL92")
        return Subscription(self.tags) if self.tags else Subscription()

    @property
    def may_be_absent(self) -> bool:
        """True if the selected topics need not exist."""
        return self.dead_letters_of is not None

    @property
    def pull_group(self) -> str:
        return self.consumer.group or NO_GROUP

    @property
    def has_limits(self) -> bool:
        """True if a micro-batch may be smaller than all there is."""
        messages = (self.max_offsets_per_trigger, self.min_offsets_per_trigger)
        return messages != (None, None) or self.max_bytes_per_trigger is not None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    given: frozenset[str]
    """The names of the options that the user gave."""
    connection: ConnectionOptions
    subscribe: tuple[str, ...] | None
    group: str | None
    """The consumer group that gets the messages of sendBack again."""
    delivery: str
    transaction_timeout_ms: int
    decision_topic: str
    write_id: WriteName | None
    max_batch_bytes: int
    sends_in_flight: int
    producer_group: str
    compression: str
    compression_threshold: int
    send_back: bool
    max_reconsume_times: int | None

    @property
    def topic(self) -> str | None:
        """The topic to write to; None: each row names its own."""
        return self.subscribe[0] if self.subscribe else None
