"""What a user wrote as options -> ReadOptions, checked once and for all.

Keys are case-insensitive. An unknown key is refused with the nearest known one, a value outside its
range with what the option takes, and an option of later work with a clear "not supported yet":
nothing is ever silently ignored, but for what Spark itself adds.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.options.definition import OptionDefinition, Use
from pyspark_rocketmq.options.join_checks import check_join
from pyspark_rocketmq.options.kinds import Assigned, PerQueue, Secret
from pyspark_rocketmq.options.pop_checks import check_pop
from pyspark_rocketmq.options.read_table import DEFINITIONS, SPARKS_OWN
from pyspark_rocketmq.options.sink_table import SENDING_OPTIONS, WriteName
from rocketmq_wire.model import Subscription

_BY_KEY: Final[dict[str, OptionDefinition]] = {
    spelling.lower(): definition
    for definition in DEFINITIONS
    for spelling in (definition.name, *definition.aliases)
}
_SELECTORS: Final = ("subscribe", "subscribePattern", "assign", "deadLettersOf")
# Options of Spark's CSV, which are given along with bodyFormat=csv.
_OF_FROM_CSV: Final = ("delimiter", "sep", "nullvalue")
# Spark repeats the options of a stored table under this prefix.
_STORED_PREFIX: Final = "option."
# The group named in pulls of a query without a group, the client's own: it commits nothing.
NO_GROUP: Final = "pyspark-rocketmq-reader"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Every option of a read or a write; the fields are documented in `option_table`."""

    given: frozenset[str]
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
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int | None
    pulls_in_flight: int
    suspend_timeout_ms: int
    pull_timeout_ms: int
    group: str | None
    commit_offsets: str
    join_group: bool
    allocate_strategy: str
    consume_mode: str
    invisible_time_ms: int
    include_properties: bool
    corrupt_messages: str
    check_crc: bool
    fail_on_data_loss: bool
    log_batches: bool
    body_format: str | None
    body_mode: str
    column_name_of_corrupt_record: str
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
    def subscription(self) -> Subscription:
        if self.sql:
            return Subscription(self.sql, "SQL92")
        return Subscription(self.tags) if self.tags else Subscription()

    @property
    def may_be_absent(self) -> bool:
        """True when what is selected need not exist."""
        return self.assign is not None or self.dead_letters_of is not None

    @property
    def place(self) -> str:
        """Where the cluster is, as the user said it."""
        if self.endpoints is not None:
            return f"endpoints={self.endpoints}"
        return "nameServer=" + ";".join(self.name_server)

    @property
    def pull_group(self) -> str:
        """The group named in pulls."""
        return self.group or NO_GROUP

    @property
    def has_limits(self) -> bool:
        """True when a micro-batch may be smaller than all there is."""
        return any(
            limit is not None
            for limit in (
                self.max_offsets_per_trigger,
                self.min_offsets_per_trigger,
                self.max_bytes_per_trigger,
            )
        )


# What becomes of a table's options is Spark's doing; all that we see is that there are none, or
# only those of this use.
_TABLES: Final = (
    "Spark forgets the OPTIONS of CREATE TABLE, and insertInto those of a frame: name them where "
    "the table is used, as in SELECT * FROM t WITH (nameServer='host:port', subscribe='orders'), "
    "INSERT INTO t WITH (...), spark.read.options(...).table('t') or "
    "df.writeTo('t').options(...).append(), or make it a view: CREATE TEMPORARY VIEW t USING "
    "rocketmq OPTIONS (...), which keeps them"
)
_TABLE_IN_PART: Final = (
    "For a table give all options where it is used, as in df.writeTo('t').options(...).append() or "
    "spark.read.options(...).table('t')"
)
# What Spark hands over of a stored table, beside its place.
_TABLE_FACTS: Final = ("provider", "owner")
_FIELDS: Final = frozenset(ReadOptions.__slots__)


def parse_options(raw: Mapping[str, str]) -> ReadOptions:
    """Check every name and value. What depends on the use is checked by `require`.

    Raises OptionError and UnsupportedError.
    """
    values: dict[str, Any] = {
        definition.field: definition.default
        for definition in DEFINITIONS
        if definition.field in _FIELDS
    }
    spelled: dict[str, str] = {}
    for key, text in raw.items():
        lowered = key.lower()
        if lowered in SPARKS_OWN or _is_stored_copy(lowered, raw):
            continue
        definition = _definition(key)
        # Spark hands keys on in lower case.
        spelling = _spelling(lowered)
        value = _value(definition, spelling, text)
        earlier = spelled.setdefault(definition.name, key)
        if earlier != key and values.get(definition.field) != value:
            told = f"contradicts option '{_spelling(earlier.lower())}': give one of them"
            raise OptionError(spelling, told, "CONFLICT")
        if definition.field in _FIELDS:
            values[definition.field] = value
    options = ReadOptions(given=frozenset(spelled), **values)
    _check_together(options)
    return options


def _is_stored_copy(lowered: str, raw: Mapping[str, str]) -> bool:
    return lowered.startswith(_STORED_PREFIX) and any(
        key.lower() == lowered[len(_STORED_PREFIX) :] for key in raw
    )


def _definition(key: str) -> OptionDefinition:
    definition = _BY_KEY.get(key.lower())
    if definition is not None:
        return definition
    near = difflib.get_close_matches(key.lower(), _BY_KEY, n=1, cutoff=0.6)
    if key.lower() == "kafka.bootstrap.servers":
        hint = "give the name server's address as 'nameServer'; docs/from-kafka.md has the others"
    elif key.lower().startswith("kafka."):
        hint = "docs/from-kafka.md says what takes the place of Kafka's options"
    elif key.lower() in _OF_FROM_CSV:
        hint = "Spark's from_csv takes it, which reads CSV bodies from the column 'body'"
    elif near:
        hint = f"did you mean '{_spelling(near[0])}'?"
    else:
        hint = "the options reference lists every option"
    raise OptionError(key, f"is unknown: {hint}", "UNKNOWN")


def _spelling(lowered: str) -> str:
    definition = _BY_KEY[lowered]
    spellings = (definition.name, *definition.aliases)
    return next(spelling for spelling in spellings if spelling.lower() == lowered)


def _value(definition: OptionDefinition, key: str, text: str) -> object:
    if definition.supported == ():
        raise UnsupportedError("OPTION", f"option '{key}' is not supported yet: leave it out")
    try:
        value = definition.kind(text)
    except ValueError as error:
        got = "" if isinstance(definition.kind, Secret) else f", got {_shown(text)}"
        raise OptionError(key, f"{error}{got}") from error
    if definition.supported is not None and value not in definition.supported:
        only = ", ".join(str(known).lower() for known in definition.supported)
        raise UnsupportedError(
            "OPTION", f"option '{key}' = {text.strip()} is not supported yet: use {only}"
        )
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _check_together(options: ReadOptions) -> None:
    if options.name_server and options.endpoints:
        raise OptionError(
            "endpoints", "excludes 'nameServer': give the one that the query shall use", "CONFLICT"
        )
    _check_security(options)
    chosen = [name for name in _SELECTORS if name in options.given]
    if len(chosen) > 1:
        raise OptionError(chosen[1], f"excludes '{chosen[0]}': give one of them", "CONFLICT")
    if options.sql and options.tags:
        raise OptionError("sql", "excludes 'tags': write TAGS = '...' in it instead", "CONFLICT")
    low, high = options.min_partitions, options.max_partitions
    if low is not None and high is not None and high < low:
        raise OptionError("maxPartitions", f"= {high} is below minPartitions = {low}", "CONFLICT")
    fewest, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if fewest is not None and most is not None and most < fewest:
        raise OptionError(
            "minOffsetsPerTrigger", f"= {fewest} is above maxOffsetsPerTrigger = {most}", "CONFLICT"
        )


def _check_security(options: ReadOptions) -> None:
    has = options.given
    for name, needed in (
        ("accessKey", "secretKey"),
        ("secretKey", "accessKey"),
        ("securityToken", "accessKey"),
        ("tls.keyFile", "tls.certFile"),
    ):
        if name in has and needed not in has:
            raise OptionError(name, f"needs the option '{needed}'", "MISSING")
    for name in sorted(has):
        if name.startswith("tls.") and not options.tls:
            raise OptionError(name, "has no effect: set tls=true as well", "CONFLICT")
    for name in ("tls.caFile", "tls.serverName"):
        if name in has and not options.tls_verify:
            raise OptionError(name, "has no effect under tls.verify=false", "CONFLICT")


def require(options: ReadOptions, raw: Mapping[str, str], use: Use) -> ReadOptions:
    """Check what a read needs, and that every option given belongs to this use of it."""
    require_connection(options)
    require_selection(options, raw)
    _check_uses(options, use)
    if use is Use.BATCH:
        _check_batch(options)
    check_join(options)
    check_pop(options, use)
    starts_at_group = str(options.starting_offsets).startswith("group")
    if starts_at_group and options.group is None:
        raise OptionError("startingOffsets", "= group needs the option 'group'", "MISSING")
    return options


def require_sink(options: ReadOptions, raw: Mapping[str, str] | None = None) -> ReadOptions:
    """Check what a write needs, and that every option given belongs to writes."""
    require_connection(options)
    if _has_path(raw or {}):
        raise OptionError(
            "path",
            "has no meaning in a write: name the topic with .option('topic', ...), and call "
            "save(), saveAsTable() or start() without a path",
            "CONFLICT",
        )
    _check_uses(options, Use.SINK)
    if options.subscribe is not None and len(options.subscribe) > 1:
        raise OptionError(
            "topic",
            "must name one topic for a write: leave it out and give every row a column 'topic'",
        )
    _check_send_back(options)
    if "compressionThreshold" in options.given and options.compression == "none":
        raise OptionError(
            "compressionThreshold", "has no effect: set compression=zlib, lz4 or zstd", "CONFLICT"
        )
    _check_delivery(options)
    return options


def _check_delivery(options: ReadOptions) -> None:
    if options.delivery != "transactional":
        for name in ("transactionTimeoutMs", "decisionTopic"):
            if name in options.given:
                raise OptionError(name, "has no meaning without delivery=transactional", "NOT_HERE")
        return
    if options.endpoints is not None:
        raise OptionError(
            "delivery", "transactional needs 'nameServer': our gRPC service has none", "CONFLICT"
        )
    if options.send_back:
        raise OptionError("delivery", "has no meaning with sendBack", "CONFLICT")
    if options.subscribe == (options.decision_topic,):
        raise OptionError(
            "decisionTopic", "must be another topic than the one that is written to", "CONFLICT"
        )


def _check_send_back(options: ReadOptions) -> None:
    if not options.send_back:
        for name in ("group", "maxReconsumeTimes"):
            if name in options.given:
                raise OptionError(name, "has no meaning in a write without sendBack", "NOT_HERE")
        return
    if options.group is None:
        raise OptionError("sendBack", "needs the option 'group': who shall get them", "MISSING")
    if options.endpoints is not None:
        raise OptionError("sendBack", "needs 'nameServer': gRPC has no such request", "CONFLICT")
    if options.subscribe is not None:
        raise OptionError(
            "topic", "has no meaning with sendBack: messages go to %RETRY%<group>", "CONFLICT"
        )
    if options.write_id is not None:
        raise OptionError(
            "writeId",
            "has no meaning with sendBack: what runs again is sent back again",
            "CONFLICT",
        )
    for name in SENDING_OPTIONS:
        if name in options.given:
            raise OptionError(
                name,
                "has no meaning with sendBack, as brokers copy their own messages: leave it out",
                "CONFLICT",
            )


def _check_uses(options: ReadOptions, use: Use) -> None:
    for name in sorted(options.given):
        definition = _BY_KEY[name.lower()]
        if use not in definition.uses:
            belongs = " or ".join(sorted(known.value for known in definition.uses))
            raise OptionError(
                name, f"is for {belongs} and has no meaning in a {use.value} query", "NOT_HERE"
            )


def require_connection(options: ReadOptions) -> None:
    """Raise OptionError when no cluster is named."""
    if not options.name_server and not options.endpoints:
        hint = "is missing: give it (host:port), or 'endpoints' for gRPC"
        table = _TABLE_IN_PART if options.given else _TABLES
        raise OptionError("nameServer", f"{hint}. {table}", "MISSING")


def require_selection(options: ReadOptions, raw: Mapping[str, str]) -> None:
    """Raise OptionError when nothing is selected, or a path as well."""
    has_path = _has_path(raw)
    if any(name in options.given for name in _SELECTORS):
        if has_path:
            raise OptionError(
                "path",
                "has no meaning in a read: call load() without a path, topics are named by "
                ".option('subscribe', ...)",
                "CONFLICT",
            )
        return
    hint = (
        "name the topics, or give 'subscribePattern', 'assign' or 'deadLettersOf'. "
        f"{_TABLE_IN_PART}"
    )
    if has_path:
        hint = "load() takes no path here: name the topics with .option('subscribe', ...)"
    raise OptionError("subscribe", f"is missing: {hint}", "MISSING")


def _has_path(raw: Mapping[str, str]) -> bool:
    """Whether the user gave a path; a stored table has one of its own."""
    keys = {key.lower() for key in raw}
    if keys.intersection(_TABLE_FACTS) or any(key.startswith(_STORED_PREFIX) for key in keys):
        return False
    return not keys.isdisjoint(("path", "paths"))


def _check_lookup(options: ReadOptions, name: str) -> None:
    if options.endpoints is not None:
        raise OptionError(name, "needs 'nameServer': our gRPC service has no key index", "CONFLICT")
    unfit = {"subscribePattern", "assign", "tags", "sql", "pushDown"} & options.given
    unfit |= {given for given in options.given if given.startswith(("starting", "ending"))}
    if options.message_key is not None and options.message_id is not None:
        unfit.add("messageId")
    for other in sorted(unfit - {name}):
        raise OptionError(other, f"has no meaning beside '{name}': leave it out", "CONFLICT")


def _check_batch(options: ReadOptions) -> None:
    for name, given in (("messageKey", options.message_key), ("messageId", options.message_id)):
        if given is not None:
            _check_lookup(options, name)
    if options.starting_offsets == "latest":
        raise OptionError("startingOffsets", "= latest makes no sense in a batch read")
    if _has_value(options.starting_offsets, -1):
        raise OptionError("startingOffsets", "has -1 (latest), which a batch cannot start at")
    if _has_value(options.ending_offsets, -2):
        raise OptionError("endingOffsets", "has -2 (earliest), which a batch cannot end at")


def _has_value(setting: object, value: int) -> bool:
    return isinstance(setting, PerQueue) and any(
        value in queues.values()
        for brokers in setting.values.values()
        for queues in brokers.values()
    )
