"""The options of reads: selection, start and end, admission, pulls, rows, bodies and the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options.definition import BATCH, READ, SINK, STREAM, Section
from pyspark_rocketmq.options.kinds import (
    Assignment,
    Choice,
    Count,
    Duration,
    Flag,
    Names,
    Offsets,
    Pattern,
    Size,
    SqlExpression,
    Text,
    Time,
    Timestamps,
    Word,
)

_select = Section("select", READ)
_start_end = Section("start and end", READ)
_admission = Section("admission", STREAM)
_pull = Section("pull", READ)
_rows = Section("rows", READ)
_safety = Section("safety", READ)
_log = Section("log", READ)
_TEXT: Final = Text()
_FLAG: Final = Flag()

_SELECT: Final = (
    _select.option(
        "subscribe",
        Names(),
        None,
        "Topics to read, or the topic to write to (instead of a column topic). A restarted stream "
        "may select others: the checkpoint keeps the offsets of topics it leaves out, and the "
        "stream reads topics it adds from their first message.",
        aliases=("topic", "topics", "consumer.topic"),
        uses=READ | SINK,
    ),
    _select.option(
        "subscribePattern",
        Pattern(),
        None,
        "Read every topic whose whole name matches; system topics never do.",
    ),
    _select.option("assign", Assignment(), None, "Queues to read, and no others."),
    _select.option(
        "deadLettersOf",
        _TEXT,
        None,
        "Read the dead letters of this consumer group: messages whose attempts are used up. If "
        "there are none yet, a batch is empty, and a stream waits for the first.",
    ),
    _select.option(
        "tags",
        _TEXT,
        None,
        "Tag expression such as 'A || B'; filtered at the broker, checked again here.",
        aliases=("subExpression", "consumer.tag"),
    ),
    _select.option(
        "sql",
        SqlExpression(),
        None,
        "SQL92 expression over message properties, instead of tags: filtered at the broker, which "
        "must allow it (enablePropertyFilter). CONTAINS, STARTSWITH, ENDSWITH: RocketMQ 5.1.3 on.",
    ),
    _select.option(
        "messageKey",
        Word("which separate the keys of a message: give one of them"),
        None,
        "Read only the messages with this key, found by the brokers' key index, without a scan. "
        "Needs nameServer and subscribe; every load() looks it up once.",
        uses=BATCH,
    ),
    _select.option(
        "messageId",
        Word("which no id has: give one id"),
        None,
        "Read only the message with this id: the producer's msgId, or offsetMsgId.",
        uses=BATCH,
    ),
    _select.option(
        "pushDown",
        Choice(("false", "once")),
        "false",
        "'once': read no more than Spark's filters on topic, brokerName, queueId, queueOffset, "
        "storeTimestamp and tags can pass (Spark 4.1 and later, with "
        "spark.sql.python.filterPushdown.enabled=true). Promises that one query uses every load() "
        "once: Spark up to 4.3 gives all uses of a load() the plan of the last one.",
        uses=BATCH,
    ),
    _select.option(
        "discoveryIntervalMs",
        Duration(100),
        10_000,
        "How often a running query looks for new queues and new matching topics.",
        uses=STREAM,
    ),
)

_START_END: Final = (
    _start_end.option(
        "startingOffsets",
        Offsets(("earliest", "latest", "group", "group:earliest", "group:latest", "group:error")),
        None,
        "Where a new query starts (default: latest; batch: earliest). 'group' is the group's "
        "committed offset, and for queues without one the word after the colon (default earliest). "
        "Brokers before 5.1 answer 0 for an unknown group, so the read starts at 0.",
        aliases=("consumer.offset.reset.to",),
    ),
    _start_end.option(
        "startingTimestamp",
        Time(),
        None,
        "Start at the first message stored at or after this time. Overrides "
        "startingOffsetsByTimestamp, which overrides startingOffsets.",
    ),
    _start_end.option(
        "startingOffsetsByTimestamp", Timestamps(), None, "The same with a time for every queue."
    ),
    _start_end.option(
        "startingOffsetsByTimestampStrategy",
        Choice(("error", "latest")),
        "error",
        "What to do when a queue has no message at or after the time.",
    ),
    _start_end.option(
        "endingOffsets",
        Offsets(("latest",)),
        "latest",
        "Where a batch read ends, exclusively. The tasks resolve 'latest' when they read, so such "
        "a read is not repeatable.",
        uses=BATCH,
    ),
    _start_end.option(
        "endingTimestamp",
        Time(),
        None,
        "End before the first message stored at or after this time.",
        uses=BATCH,
    ),
    _start_end.option(
        "endingOffsetsByTimestamp",
        Timestamps(),
        None,
        "The same with a time for every queue.",
        uses=BATCH,
    ),
)

_ADMISSION: Final = (
    _admission.option(
        "maxOffsetsPerTrigger",
        Count(1),
        None,
        "Messages per micro-batch, shared in proportion to the backlog of each queue; every queue "
        "with a backlog gets at least one. Counts offsets, also under filters. On Spark 4.0 and "
        "4.1 a run with AvailableNow or Once ends after one such batch.",
    ),
    _admission.option(
        "minOffsetsPerTrigger",
        Count(1),
        None,
        "Wait for this many messages, at most for maxTriggerDelay. On Spark 4.0 and 4.1 the "
        "first batch of a run does not wait.",
    ),
    _admission.option(
        "maxTriggerDelay",
        Duration(0, 7 * 24 * 3_600_000),
        900_000,
        "Longest wait for minOffsetsPerTrigger.",
    ),
    _admission.option(
        "maxBytesPerTrigger",
        Size(),
        None,
        "Bytes per micro-batch: an estimate from the sizes of messages sampled at the broker. On "
        "Spark 4.0 and 4.1 it ends runs as maxOffsetsPerTrigger does.",
    ),
    _admission.option(
        "minPartitions",
        Count(1, 100_000),
        None,
        "Split queues so that there are at least this many tasks.",
        uses=READ,
    ),
    _admission.option(
        "maxPartitions",
        Count(1, 100_000),
        None,
        "Pack queues into at most this many tasks.",
        uses=READ,
    ),
    _admission.option(
        "maxRecordsPerPartition",
        Count(1),
        None,
        "No task reads more messages than this, also beyond maxPartitions.",
        uses=READ,
    ),
)

PULL_DEFINITIONS: Final = (
    _pull.option(
        "pullBatchSize",
        Count(1, 100_000),
        10_000,
        "Messages requested in one pull; a RocketMQ broker returns at most 32 unless configured.",
        aliases=("pull.max.batch.size",),
    ),
    _pull.option(
        "pullThresholdForQueue",
        Count(1, 10_000_000),
        32_768,
        "Messages requested or received and not yet decoded: for each queue over nameServer, for "
        "each task over endpoints.",
    ),
    _pull.option(
        "pullThresholdSizeForQueue",
        Count(1, 4_096),
        100,
        "The same in MiB. Whatever it is, a read requests ahead at most 16 MiB for a queue and 32 "
        "MiB for a task over nameServer, and 5 MiB for a task over endpoints.",
    ),
    _pull.option(
        "consumeMaxSpan",
        Count(1),
        None,
        "Largest distance between the first and the last offset in flight.",
    ),
    _pull.option(
        "pullsInFlight",
        Count(1, 256),
        64,
        "Pulls in flight for one queue, 8 if more than 2 MiB are expected of them; "
        "a task has 128 at one broker, or this many.",
    ),
    _pull.option(
        "suspendTimeoutMs",
        Duration(100, 300_000),
        15_000,
        "How long a broker may hold the pull that waits for new messages.",
        uses=STREAM,
    ),
    _pull.option(
        "pullTimeoutMs",
        Duration(100, 600_000),
        30_000,
        "How long a pull may go unanswered while no byte arrives.",
        aliases=("pullTimeout", "pull.timeout.ms"),
    ),
)

_ROWS: Final = (
    _rows.option(
        "includeProperties",
        _FLAG,
        False,
        "Append the column properties to the default schema.",
        aliases=("includeHeaders",),
    ),
    _rows.option(
        "corruptMessages",
        Choice(("fail", "skip", "emit")),
        "fail",
        "What to do with a message that fails its checks: fail, skip it (the log counts it), or "
        "emit it with the reason in the column corruptReason.",
    ),
    _rows.option("checkCrc", _FLAG, True, "Compare every body with its checksum."),
    _safety.option(
        "failOnDataLoss",
        _FLAG,
        True,
        "Fail if messages to read are gone; false reads the surviving ones and logs how many are "
        "gone.",
    ),
)

_LOG: Final = (
    _log.option(
        "logBatches",
        _FLAG,
        False,
        "Write a line for every batch to the driver's standard error: how many messages of which "
        "topics it reads, before filters.",
    ),
)

_JSON: Final = "json"
# JSON is twice as fast as from_json (docs/benchmarks.md). A format ships only if it is clearly
# faster than Spark's own: CSV was not. For Avro and Protobuf Python makes an object per row, which
# alone takes longer than Spark's whole read (core-microseconds a body of the same orders, up to
# columns): Avro 4.3 by fastavro, 0.25 by from_avro; Protobuf 2.4 by upb, where from_json takes 1.3
# for JSON. from_protobuf was not measured: its jar was not available.
_FROM_CSV: Final = (
    "must be json: leave it out, give the read no schema, and read CSV by Spark's own from_csv: "
    "from pyspark.sql.functions import col, from_csv; "
    'df.select(from_csv(col("body").cast("string"), schema_ddl).alias("f")).select("f.*"); '
    "schema_ddl is such as 'order_id LONG, note STRING'"
)
_SPARKS_WAY: Final = {
    "avro": "from_avro(body, schema)",
    "protobuf": "from_protobuf(body, message, descriptor)",
}


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """The format of bodies that workers can read."""

    takes: str = _JSON

    def __call__(self, text: str) -> str:
        word = text.strip().lower()
        if word == "csv":
            raise ValueError(_FROM_CSV)
        if word in _SPARKS_WAY:
            raise ValueError(
                f"must be json: leave it out, and read {word} by Spark's own {_SPARKS_WAY[word]}"
            )
        if word != _JSON:
            raise ValueError("must be json")
        return word


_BODIES: Final = (
    _rows.option(
        "bodyFormat",
        BodyFormat(),
        None,
        "Read the fields of JSON bodies as columns, in the workers: .schema('order_id LONG, "
        "amount DOUBLE, __tags STRING, __offset LONG'). Columns of messages have two underscores "
        "before their names. For other formats use Spark's from_csv, from_avro and from_protobuf.",
    ),
    _rows.option(
        "bodyMode",
        Choice(("permissive", "dropmalformed", "failfast")),
        "permissive",
        "With bodyFormat: what to do with a body that is not one JSON object with values of these "
        "types. permissive: its fields are null, and its text is in the column _corrupt_record if "
        "the schema has one; dropmalformed: the row is dropped; failfast: the query fails.",
        aliases=("mode",),
    ),
    _rows.option(
        "columnNameOfCorruptRecord",
        _TEXT,
        "_corrupt_record",
        "With bodyFormat: the STRING column for the text of bad bodies, if the schema has it.",
    ),
)

READ_DEFINITIONS: Final = (
    *_SELECT,
    *_START_END,
    *_ADMISSION,
    *PULL_DEFINITIONS,
    *_ROWS,
    *_LOG,
    *_BODIES,
)
