"""Checks of options against each other and against their use. Each raises OptionError."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.kinds import PerQueue
from pyspark_rocketmq.options.tables import READ_DEFINITIONS, SENDING_OPTIONS
from pyspark_rocketmq.options.values import ConnectionOptions, ReadOptions, WriteOptions

SELECTORS: Final = ("subscribe", "subscribePattern", "assign", "deadLettersOf")
_PUBLIC_INVISIBLE_MS_MIN: Final = 10_000
# Options about offsets or pulls: a broker that hands messages out knows neither.
_NOT_WITH_POP: Final = (
    "allocateStrategy",
    "commitOffsets",
    "failOnDataLoss",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    *(definition.name for definition in READ_DEFINITIONS if definition.group == "pull"),
)
# Spark itself decides what becomes of a table's options: this source sees none, or only those of
# the use at hand.
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


def _conflict(name: str, reason: str) -> OptionError:
    return OptionError(name, reason, "CONFLICT")


def check_connection(connection: ConnectionOptions, given: frozenset[str]) -> None:
    if connection.name_server and connection.endpoints:
        raise _conflict("endpoints", "excludes 'nameServer': give the one that the query shall use")
    for name, needed in (
        ("accessKey", "secretKey"),
        ("secretKey", "accessKey"),
        ("securityToken", "accessKey"),
        ("tls.keyFile", "tls.certFile"),
    ):
        if name in given and needed not in given:
            raise OptionError(name, f"needs the option '{needed}'", "MISSING")
    for name in sorted(given):
        if name.startswith("tls.") and not connection.tls:
            raise _conflict(name, "has no effect: set tls=true as well")
    for name in ("tls.caFile", "tls.serverName"):
        if name in given and not connection.tls_verify:
            raise _conflict(name, "has no effect under tls.verify=false")


def check_read_together(options: ReadOptions) -> None:
    chosen = [name for name in SELECTORS if name in options.given]
    if len(chosen) > 1:
        raise _conflict(chosen[1], f"excludes '{chosen[0]}': give one of them")
    if options.sql and options.tags:
        raise _conflict("sql", "excludes 'tags': write TAGS = '...' in it instead")
    low, high = options.min_partitions, options.max_partitions
    if low is not None and high is not None and high < low:
        raise _conflict("maxPartitions", f"= {high} is below minPartitions = {low}")
    fewest, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if fewest is not None and most is not None and most < fewest:
        raise _conflict(
            "minOffsetsPerTrigger", f"= {fewest} is above maxOffsetsPerTrigger = {most}"
        )


def require_connection(options: ReadOptions | WriteOptions, *, is_table: bool = False) -> None:
    if not options.connection.name_server and not options.connection.endpoints:
        hint = "is missing: give it (host:port), or 'endpoints' for gRPC"
        if is_table:
            hint = f"{hint}. {_TABLE_IN_PART if options.given else _TABLES}"
        raise OptionError("nameServer", hint, "MISSING")


def require_selection(options: ReadOptions, *, has_path: bool, is_table: bool) -> None:
    """Check that topics are selected, and no path is given as well."""
    if any(name in options.given for name in SELECTORS):
        if has_path:
            raise _conflict(
                "path",
                "has no meaning in a read: call load() without a path, topics are named by "
                ".option('subscribe', ...)",
            )
        for topic in options.subscribe or ():
            if "*" in topic:
                raise OptionError(
                    "subscribe", f"names '{topic}': for patterns give 'subscribePattern'"
                )
        return
    hint = "name the topics, or give 'subscribePattern', 'assign' or 'deadLettersOf'"
    if is_table:
        hint = f"{hint}. {_TABLE_IN_PART}"
    if has_path:
        hint = "load() takes no path here: name the topics with .option('subscribe', ...)"
    raise OptionError("subscribe", f"is missing: {hint}", "MISSING")


def check_read(options: ReadOptions, use: Use) -> None:
    """Check what a stream or a batch needs, and what it must not be given."""
    if use is Use.BATCH:
        _check_batch(options)
    _check_join(options)
    _check_pop(options, use)
    starts_at_group = str(options.starting_offsets).startswith("group")
    if starts_at_group and options.consumer.group is None:
        raise OptionError("startingOffsets", "= group needs the option 'group'", "MISSING")


def _check_batch(options: ReadOptions) -> None:
    if options.consumer.join_group:
        raise OptionError(
            "joinGroup", "is for streams: a batch reads every selected queue", "NOT_HERE"
        )
    for name, wanted in (("messageKey", options.message_key), ("messageId", options.message_id)):
        if wanted is not None:
            _check_lookup(options, name)
    if options.starting_offsets == "latest":
        raise OptionError(
            "startingOffsets",
            "= latest makes no sense in a batch read: give earliest, offsets or startingTimestamp",
        )
    if _has_value(options.starting_offsets, -1):
        raise OptionError("startingOffsets", "has -1 (latest), which a batch cannot start at")
    first, last = options.starting_timestamp, options.ending_timestamp
    if first is not None and last is not None and last < first:
        raise _conflict("endingTimestamp", f"= {last} is before startingTimestamp = {first}")
    if _has_value(options.ending_offsets, -2):
        raise OptionError("endingOffsets", "has -2 (earliest), which a batch cannot end at")


def _check_lookup(options: ReadOptions, name: str) -> None:
    if options.connection.endpoints is not None:
        raise _conflict(name, "needs 'nameServer': our gRPC service has no key index")
    unfit = {"subscribePattern", "assign", "tags", "sql", "pushDown"} & options.given
    unfit |= {given for given in options.given if given.startswith(("starting", "ending"))}
    if options.message_key is not None and options.message_id is not None:
        unfit.add("messageId")
    for other in sorted(unfit - {name}):
        raise _conflict(other, f"has no meaning beside '{name}': leave it out")


def _has_value(setting: object, value: int) -> bool:
    return isinstance(setting, PerQueue) and any(
        value in queues.values()
        for brokers in setting.values.values()
        for queues in brokers.values()
    )


def _check_join(options: ReadOptions) -> None:
    consumer = options.consumer
    if not consumer.join_group:
        if "allocateStrategy" in options.given:
            raise _conflict("allocateStrategy", "has no effect without joinGroup")
        return
    if consumer.group is None:
        raise OptionError("joinGroup", "needs the option 'group': the group to join", "MISSING")
    if options.connection.endpoints is not None:
        raise _conflict("joinGroup", "needs 'nameServer': gRPC knows no such groups")
    if options.subscribe is None:
        raise _conflict("joinGroup", "needs 'subscribe': members share whole topics")
    if consumer.commit_offsets != "true":
        raise _conflict(
            "commitOffsets",
            f"= {consumer.commit_offsets} excludes joinGroup: a queue is handed over by its "
            "committed offset",
        )
    if (
        isinstance(options.starting_offsets, PerQueue)
        or options.starting_offsets_by_timestamp is not None
    ):
        raise _conflict(
            "startingOffsets",
            "cannot name queues with joinGroup: the queues that a member owns change",
        )
    if options.starting_offsets == "group:error":
        raise _conflict(
            "startingOffsets",
            "= group:error excludes joinGroup: a member must begin somewhere; say "
            "group:earliest or group:latest",
        )


def _check_pop(options: ReadOptions, use: Use) -> None:
    consumer = options.consumer
    if consumer.consume_mode != "pop":
        if "invisibleTimeMs" in options.given:
            raise _conflict("invisibleTimeMs", "has no effect without consumeMode=pop")
        return
    if use is not Use.STREAM:
        raise OptionError("consumeMode", "= pop is for streams: a batch reads by offset")
    if consumer.group is None:
        raise OptionError("consumeMode", "= pop needs the option 'group': who pops", "MISSING")
    if options.subscribe is None:
        raise _conflict("consumeMode", "= pop needs 'subscribe': it pops whole topics")
    if consumer.join_group:
        raise _conflict(
            "joinGroup", "excludes consumeMode=pop: brokers share messages out, not queues"
        )
    _refuse(_NOT_WITH_POP, options.given, "has no meaning with consumeMode=pop: leave it out")
    if options.starting_offsets not in (None, "earliest", "latest"):
        raise _conflict(
            "startingOffsets",
            "is earliest or latest with consumeMode=pop: where a group without committed offsets "
            "begins",
        )
    if options.connection.endpoints is not None:
        _check_public_pop(options)


def _check_public_pop(options: ReadOptions) -> None:
    """Check against what RocketMQ's public gRPC service does not do."""
    if options.starting_offsets == "earliest":
        raise _conflict(
            "startingOffsets",
            "= earliest needs 'nameServer' to pop: over 'endpoints' a new group begins at latest",
        )
    if options.consumer.invisible_time_ms < _PUBLIC_INVISIBLE_MS_MIN:
        raise _conflict("invisibleTimeMs", "is 10s at least over 'endpoints'")


def refuse_path_in_write(*, has_path: bool) -> None:
    if has_path:
        raise _conflict(
            "path",
            "has no meaning in a write: name the topic with .option('topic', ...), and call "
            "save(), saveAsTable() or start() without a path",
        )


def check_write(options: WriteOptions) -> None:
    if options.subscribe is not None and len(options.subscribe) > 1:
        raise OptionError(
            "topic",
            "must name one topic for a write: leave it out and give every row a column 'topic'",
        )
    _check_send_back(options)
    if "compressionThreshold" in options.given and options.compression == "none":
        raise _conflict("compressionThreshold", "has no effect: set compression=zlib, lz4 or zstd")
    _check_delivery(options)


def _check_delivery(options: WriteOptions) -> None:
    if options.delivery != "transactional":
        _refuse(
            ("transactionTimeoutMs", "decisionTopic"),
            options.given,
            "has no meaning without delivery=transactional",
            "NOT_HERE",
        )
        return
    if options.connection.endpoints is not None:
        raise _conflict("delivery", "transactional needs 'nameServer': our gRPC service has none")
    if options.send_back:
        raise _conflict("delivery", "has no meaning with sendBack")
    if options.topic == options.decision_topic:
        raise _conflict("decisionTopic", "must be another topic than the one that is written to")


def _check_send_back(options: WriteOptions) -> None:
    if not options.send_back:
        _refuse(
            ("group", "maxReconsumeTimes"),
            options.given,
            "has no meaning in a write without sendBack",
            "NOT_HERE",
        )
        return
    if options.group is None:
        raise OptionError("sendBack", "needs the option 'group': who shall get them", "MISSING")
    if options.connection.endpoints is not None:
        raise _conflict("sendBack", "needs 'nameServer': gRPC has no such request")
    if options.subscribe is not None:
        raise _conflict("topic", "has no meaning with sendBack: messages go to %RETRY%<group>")
    if options.write_id is not None:
        raise _conflict(
            "writeId", "has no meaning with sendBack: a task that runs again sends back again"
        )
    _refuse(
        SENDING_OPTIONS,
        options.given,
        "has no meaning with sendBack, as brokers copy their own messages: leave it out",
    )


def _refuse(
    names: Iterable[str], given: frozenset[str], reason: str, kind: str = "CONFLICT"
) -> None:
    for name in names:
        if name in given:
            raise OptionError(name, reason, kind)
