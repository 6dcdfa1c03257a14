"""The options of connections, reads and writes, section by section."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options import kinds
from pyspark_rocketmq.options.definition import ALL, BATCH, READ, SINK, STREAM, Section
from rocketmq_wire.model import DECISION_TOPIC

_connect = Section("connect", ALL)
_select = Section("select", READ)
_start_end = Section("start and end", READ)
_admission = Section("admission", STREAM)
_pull = Section("pull", READ)
_rows = Section("rows", READ)
_safety = Section("safety", READ)
_log = Section("log", READ)
_group = Section("group", STREAM)
_sink = Section("sink", SINK)

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


def _parse_body_format(text: str) -> str:
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


_BODY_FORMAT: Final = kinds.Kind(_JSON, _parse_body_format)


@dataclass(frozen=True, slots=True)
class WriteName:
    """The user's name for a write, and a number that grows from write to write."""

    name: str
    number: int | None
    """None: the batch of the stream whose foreachBatch writes."""


def _parse_write_name(text: str) -> WriteName:
    # The name becomes a tag, whose expressions have characters of their own.
    found = re.fullmatch(r"([\w.:-]{1,100})(?:/([0-9]{1,18}))?", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(
            "must be a name, or name/number, such as nightly or nightly/17; the name has letters, "
            "digits, . _ : and -"
        )
    return WriteName(found[1], None if found[2] is None else int(found[2]))


_WRITE_NAME: Final = kinds.Kind("a name, or name/number: nightly, nightly/17", _parse_write_name)

CONNECTION_DEFINITIONS: Final = (
    _connect.option(
        "nameServer", kinds.ADDRESSES, (), aliases=("nameServers", "namesrvAddr", "nameserver.addr")
    ).with_help(
        "Name servers of the cluster: RocketMQ's own TCP protocol. The port is 9876 unless given, "
        "and http:// in front is ignored, as by RocketMQ's Java clients. Or one URL with a path: a "
        "web server that lists the name servers, asked every two minutes."
    ),
    _connect.option("endpoints", kinds.TEXT).with_help(
        "Address of a gRPC service (or several: host:8081;host2:8081), instead of nameServer: the "
        "bundled broker's or, with consumeMode=pop, a RocketMQ proxy's."
    ),
    _connect.option("addressMap", kinds.ADDRESS_MAP, ()).with_help(
        "Reachable addresses for the ones that brokers advertise (brokers behind NAT, containers)."
    ),
    _connect.option("connectTimeoutMs", kinds.duration(1, 600_000), 3_000).with_help(
        "How long making a connection may take, and how long the start of a read waits for a "
        "cluster that is unavailable."
    ),
    _connect.option("requestTimeoutMs", kinds.duration(1, 600_000), 5_000).with_help(
        "How long a request other than a pull may go unanswered, its retries included."
    ),
    _connect.option("retry.delayMs", kinds.duration(1, 600_000), 100).with_help(
        "The first pause before a retry; it doubles each time."
    ),
    _connect.option("retry.maxDelayMs", kinds.duration(1, 600_000), 3_000).with_help(
        "The longest pause before a retry."
    ),
    _connect.option("retry.outageMs", kinds.duration(0), 60_000).with_help(
        "How long a task waits for an unavailable broker before it fails, and its query with it; a "
        "query that only waits for new messages keeps waiting. The start of a read waits for "
        "connectTimeoutMs."
    ),
    _connect.option("accessKey", kinds.SECRET).with_help(
        "Access key of the account, if the cluster checks access."
    ),
    _connect.option("secretKey", kinds.SECRET).with_help(
        "Secret key of the account; signs requests."
    ),
    _connect.option("securityToken", kinds.SECRET).with_help("Token of a temporary account."),
    _connect.option("tls", kinds.FLAG, False).with_help("Encrypt the connections."),
    _connect.option("tls.caFile", kinds.TEXT).with_help(
        "Certificates to trust (PEM), instead of the system's. The driver and every worker read "
        "this and the other files."
    ),
    _connect.option("tls.certFile", kinds.TEXT).with_help(
        "The client's certificate with its chain (PEM), for servers that require one."
    ),
    _connect.option("tls.keyFile", kinds.TEXT).with_help("The private key of tls.certFile (PEM)."),
    _connect.option("tls.serverName", kinds.TEXT).with_help(
        "Name that the certificate of every server must have (default: the host of its address)."
    ),
    _connect.option("tls.verify", kinds.FLAG, True).with_help(
        "false accepts any certificate, as RocketMQ's own clients do: a man in the middle can read "
        "the traffic. For clusters with the generated test certificate."
    ),
    _connect.later("namespace", kinds.TEXT, "Namespace of topics and groups."),
    _connect.later("instanceName", kinds.TEXT, "Instance part of the client id."),
    _connect.later("unitName", kinds.TEXT, "Unit part of the client id."),
)

READ_DEFINITIONS: Final = (
    _select.option(
        "subscribe", kinds.NAMES, aliases=("topic", "topics", "consumer.topic"), uses=READ | SINK
    ).with_help(
        "Topics to read. For a write: the topic of all rows, instead of a column `topic`. A "
        "restarted stream may select other topics: it reads new ones from their first message, and "
        "the checkpoint keeps the offsets of those that are left out."
    ),
    _select.option("subscribePattern", kinds.PATTERN).with_help(
        "Read every topic whose whole name matches; system topics never do."
    ),
    _select.option("assign", kinds.ASSIGNMENT).with_help("Queues to read, and no others."),
    _select.option("deadLettersOf", kinds.TEXT).with_help(
        "Read the dead letters of this consumer group: messages whose attempts are used up. If "
        "there are none yet, a batch is empty, and a stream waits for the first."
    ),
    _select.option("tags", kinds.TAGS, aliases=("subExpression", "consumer.tag")).with_help(
        "Tag expression such as 'A || B'; filtered at the broker, checked again here."
    ),
    _select.option("sql", kinds.SQL_EXPRESSION).with_help(
        "Selects messages by an SQL92 expression over properties. The broker filters, and must "
        "allow it. Excludes `tags`."
    ),
    _select.option(
        "messageKey",
        kinds.word("which separate the keys of a message: give one of them"),
        uses=BATCH,
    ).with_help(
        "Read only the messages with this key, found by the brokers' key index, without a scan. "
        "Needs nameServer and subscribe; every load() looks it up once."
    ),
    _select.option("messageId", kinds.word("which no id has: give one id"), uses=BATCH).with_help(
        "Read only the message with this id: the producer's msgId, or offsetMsgId."
    ),
    _select.option("pushDown", kinds.choice("false", "once"), "false", uses=BATCH).with_help(
        "'once': read no more than Spark's filters on topic, brokerName, queueId, queueOffset, "
        "storeTimestamp and tags can pass (Spark 4.1 and later, with "
        "spark.sql.python.filterPushdown.enabled=true). Promises that one query uses every load() "
        "once: Spark up to 4.3 gives all uses of a load() the plan of the last one."
    ),
    _select.option("discoveryIntervalMs", kinds.duration(100), 10_000, uses=STREAM).with_help(
        "How often a running query looks for new queues and new matching topics."
    ),
    _start_end.option(
        "startingOffsets",
        kinds.offsets(
            "earliest", "latest", "group", "group:earliest", "group:latest", "group:error"
        ),
        aliases=("consumer.offset.reset.to",),
    ).with_help(
        "Where a new query starts (default: latest; batch: earliest). 'group' is the group's "
        "committed offset, and for queues without one the word after the colon (default earliest). "
        "Brokers before 5.1 answer 0 for an unknown group, so the read starts at 0."
    ),
    _start_end.option("startingTimestamp", kinds.TIME).with_help(
        "Start at the first message stored at or after this time. Overrides "
        "startingOffsetsByTimestamp, which overrides startingOffsets."
    ),
    _start_end.option("startingOffsetsByTimestamp", kinds.TIMESTAMPS).with_help(
        "startingTimestamp, with a time for every queue."
    ),
    _start_end.option(
        "startingOffsetsByTimestampStrategy", kinds.choice("error", "latest"), "error"
    ).with_help("The action if a queue has no message at or after the time."),
    _start_end.option("endingOffsets", kinds.offsets("latest"), "latest", uses=BATCH).with_help(
        "Where a batch read ends, exclusively. The tasks resolve 'latest' when they read, so such "
        "a read is not repeatable."
    ),
    _start_end.option("endingTimestamp", kinds.TIME, uses=BATCH).with_help(
        "End before the first message stored at or after this time."
    ),
    _start_end.option("endingOffsetsByTimestamp", kinds.TIMESTAMPS, uses=BATCH).with_help(
        "endingTimestamp, with a time for every queue."
    ),
    _admission.option("maxOffsetsPerTrigger", kinds.count(1)).with_help(
        "Messages per micro-batch, shared in proportion to the backlog of each queue; every queue "
        "with a backlog gets at least one. Counts offsets, also under filters. On Spark 4.0 and "
        "4.1 a run with AvailableNow or Once ends after one such batch."
    ),
    _admission.option("minOffsetsPerTrigger", kinds.count(1)).with_help(
        "Wait for this many messages, at most for maxTriggerDelay. The first batch of a run "
        "does not wait."
    ),
    _admission.option("maxTriggerDelay", kinds.duration(0, 7 * 24 * 3_600_000), 900_000).with_help(
        "Longest wait for minOffsetsPerTrigger."
    ),
    _admission.option("maxBytesPerTrigger", kinds.SIZE).with_help(
        "Bytes per micro-batch: an estimate from the sizes of messages sampled at the broker. On "
        "Spark 4.0 and 4.1 it ends runs as maxOffsetsPerTrigger does."
    ),
    _admission.option("minPartitions", kinds.count(1, 100_000), uses=READ).with_help(
        "Split queues so that there are at least this many tasks."
    ),
    _admission.option("maxPartitions", kinds.count(1, 100_000), uses=READ).with_help(
        "Pack queues into at most this many tasks."
    ),
    _admission.option("maxRecordsPerPartition", kinds.count(1), uses=READ).with_help(
        "No task reads more messages than this, even if that makes more tasks than maxPartitions."
    ),
    _pull.option(
        "pullBatchSize", kinds.count(1, 100_000), 10_000, aliases=("pull.max.batch.size",)
    ).with_help(
        "Messages requested in one pull; a RocketMQ broker returns at most 32 unless configured."
    ),
    _pull.option("pullThresholdForQueue", kinds.count(1, 10_000_000), 32_768).with_help(
        "Messages requested or received and not yet decoded: for each queue over nameServer, for "
        "each task over endpoints."
    ),
    _pull.option("pullThresholdSizeForQueue", kinds.count(1, 4_096), 100).with_help(
        "pullThresholdForQueue in MiB. In any case a read requests ahead at most 16 MiB for a "
        "queue and 32 MiB for a task over nameServer, and 5 MiB for a task over endpoints."
    ),
    _pull.option("consumeMaxSpan", kinds.count(1)).with_help(
        "Largest distance between the first and the last offset in flight in one queue."
    ),
    _pull.option("pullsInFlight", kinds.count(1, 256), 64).with_help(
        "Pulls in flight for one queue; 8 if more than 2 MiB are expected of them. A task has at "
        "most 128 at one broker, or this number if it is larger."
    ),
    _pull.option("suspendTimeoutMs", kinds.duration(100, 300_000), 15_000, uses=STREAM).with_help(
        "How long a broker may hold the pull that waits for new messages."
    ),
    _pull.option(
        "pullTimeoutMs",
        kinds.duration(100, 600_000),
        30_000,
        aliases=("pullTimeout", "pull.timeout.ms"),
    ).with_help("How long a pull may go unanswered while no byte arrives."),
    _rows.option("includeProperties", kinds.FLAG, False, aliases=("includeHeaders",)).with_help(
        "Append the column properties to the default schema."
    ),
    _rows.option("corruptMessages", kinds.choice("fail", "skip", "emit"), "fail").with_help(
        "The action for a message that fails its checks: fail, skip it (the log counts it), or "
        "emit it with the reason in the column corruptReason."
    ),
    _rows.option("checkCrc", kinds.FLAG, True).with_help("Compare every body with its checksum."),
    _safety.option("failOnDataLoss", kinds.FLAG, True).with_help(
        "Fail if messages to read are gone; false reads the surviving ones and logs how many are "
        "gone."
    ),
    _log.option("logBatches", kinds.FLAG, False).with_help(
        "Write a line for every batch to the driver's standard error: how many messages of which "
        "topics it reads, before filters."
    ),
    _rows.option("bodyFormat", _BODY_FORMAT).with_help(
        "Read the fields of JSON bodies as columns, in the workers: .schema('order_id LONG, "
        "amount DOUBLE, __tags STRING, __offset LONG'). Columns of messages have two underscores "
        "before their names. For other formats use Spark's from_csv, from_avro and from_protobuf."
    ),
    _rows.option(
        "bodyMode",
        kinds.choice("permissive", "dropmalformed", "failfast"),
        "permissive",
        aliases=("mode",),
    ).with_help(
        "With bodyFormat: what to do with a body that is not one JSON object with values of these "
        "types. permissive: its fields are null, and its text is in the column _corrupt_record if "
        "the schema has one; dropmalformed: the row is dropped; failfast: the query fails."
    ),
    _rows.option("columnNameOfCorruptRecord", kinds.TEXT, "_corrupt_record").with_help(
        "With bodyFormat: the STRING column for the text of bad bodies, if the schema has it."
    ),
    _group.option(
        "group", kinds.GROUP_NAME, aliases=("consumerGroup", "consumer.group"), uses=READ | SINK
    ).with_help(
        "Consumer group whose committed offsets the brokers keep. Without one the query commits "
        "nothing. In a write: the group that gets the messages of sendBack again."
    ),
    _group.option("commitOffsets", kinds.choice("true", "false", "confirmed"), "true").with_help(
        "Commit the end of each finished batch for the group; 'confirmed' commits only what Spark "
        "confirms, one batch late (for asynchronous progress tracking)."
    ),
    _group.option("joinGroup", kinds.FLAG, False).with_help(
        "Be a member of the group: share its topics' queues with its other queries and consumers, "
        "take over the queues of members that leave or die, and hand queues over by the group's "
        "committed offsets. startingOffsets applies to topics in which the group has none: with "
        "latest, the default, the first member commits their ends, and the group begins there. "
        "RocketMQ's own consumers read a young topic from its start: set earliest for that. The "
        "group's redeliveries are shared, too: as rows of the topic %RETRY%<group>. Needs "
        "nameServer and subscribe."
    ),
    _group.option(
        "allocateStrategy", kinds.choice("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"), "AVG"
    ).with_help(
        "How the members of a joined group share the queues: every member must use the same."
    ),
    _group.option(
        "messageModel",
        kinds.choice("CLUSTERING", "BROADCASTING"),
        "CLUSTERING",
        uses=READ,
        supported=("CLUSTERING",),
    ).with_help("Where committed offsets are kept."),
    _group.option("consumeMode", kinds.choice("pull", "pop"), "pull", uses=READ).with_help(
        "'pull' reads by offset. 'pop' (streams, RocketMQ 5) has the brokers hand messages out to "
        "the group: each micro-batch holds up to 10,000 of them and 32 MiB in memory (or "
        "maxOffsetsPerTrigger, maxBytesPerTrigger), and acknowledges them once it is durable. At "
        "least once: if a query dies, its popped messages come again after invisibleTimeMs."
    ),
    _group.option("invisibleTimeMs", kinds.duration(2_000, 12 * 3_600_000), 300_000).with_help(
        "How long popped messages stay invisible; the query renews it after half of that time."
    ),
)

SENDING_OPTIONS: Final = (
    "compression",
    "compressionThreshold",
    "maxBatchBytes",
    "sendsInFlight",
    "producerGroup",
)
"""The options that say how messages are sent, not which."""

SINK_DEFINITIONS: Final = (
    _sink.option(
        "delivery", kinds.choice("at-least-once", "transactional"), "at-least-once"
    ).with_help(
        "at-least-once: a task or query that runs again sends its rows again; `drop_replays` "
        "recognises them. transactional: rows are sent as half messages and become visible when "
        "their batch is committed, each exactly once, though not all in one instant; needs "
        "nameServer. The query's next start finishes a decided batch, if that comes before "
        "transactionTimeoutMs and the broker's checks are over."
    ),
    _sink.option(
        "transactionTimeoutMs", kinds.duration(10_000, 24 * 3_600_000), 3_600_000
    ).with_help(
        "With delivery=transactional: how long a batch may take from its first row to its commit, "
        "a restart of the query included. Then the broker checks, by default 15 times in 7.5 "
        "minutes, and discards half messages that no producer answers for."
    ),
    _sink.option("decisionTopic", kinds.TOPIC_NAME, DECISION_TOPIC).with_help(
        "With delivery=transactional: the topic that stores the decisions about batches. The sink "
        "creates it if necessary, with two queues on every broker; several queries may share it."
    ),
    _sink.option("writeId", _WRITE_NAME).with_help(
        "The name by which the sink recognises a batch write that runs again: with "
        "delivery=transactional it sends nothing twice, with at-least-once `drop_replays` "
        "recognises it. NAME in foreachBatch, where the sink adds the query's and the batch's ids: "
        "give each write a name of its own. Elsewhere give NAME/NUMBER, such as nightly/17, and "
        "raise the number with each write."
    ),
    # With messages of 1 KB, 1 MiB costs the broker and the task a fifth more.
    _sink.option("maxBatchBytes", kinds.SIZE, 2 * 1024 * 1024).with_help(
        "Bytes in one send as a broker stores them, its own fields of each message included; a "
        "larger message is sent alone. Brokers accept 4 MiB unless configured."
    ),
    _sink.option("sendsInFlight", kinds.count(1, 256), 8).with_help(
        "Sends in flight for each task, one at a time for each queue."
    ),
    _sink.option("producerGroup", kinds.GROUP_NAME, "pyspark-rocketmq-producer").with_help(
        "The producer group that the sends name."
    ),
    _sink.option("compression", kinds.choice("none", "zlib", "lz4", "zstd"), "none").with_help(
        "Codec of large bodies, each by itself. Every reader of the topic must support it: all "
        "support zlib, RocketMQ's clients from 4.9.4 on lz4 and zstd. Bodies that would not shrink "
        "are sent uncompressed."
    ),
    _sink.option("compressionThreshold", kinds.SIZE, 4_096).with_help(
        "Bodies of this many bytes and more are compressed."
    ),
    _sink.option("sendBack", kinds.FLAG, False).with_help(
        "Instead of sending rows as messages, send the messages that they were read from back to "
        "the consumer group of the option group: they come again in the topic %RETRY%<group>, "
        "after the delay of their attempt or of a column delayLevel, and after the last attempt in "
        "%DLQ%<group>. Needs nameServer, and the columns topic, brokerName and physicalOffset. A "
        "task that runs again sends its messages back again."
    ),
    _sink.option("maxReconsumeTimes", kinds.count(0, 1_000)).with_help(
        "With sendBack: the number of attempts after which a message becomes a dead letter "
        "(default: the group's configuration at the broker, 16 unless changed)."
    ),
)
