"""The one table of options: parsing, error messages and the reference page all come from it."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import (
    ALL,
    BATCH,
    READ,
    SINK,
    STREAM,
    OptionDefinition,
    later,
)
from pyspark_rocketmq.options.group_table import GROUP_DEFINITIONS
from pyspark_rocketmq.options.kinds import (
    Addresses,
    AddressMap,
    Assignment,
    Choice,
    Count,
    Duration,
    Flag,
    Names,
    Offsets,
    Pattern,
    Secret,
    Size,
    SqlExpression,
    Text,
    Time,
    Timestamps,
    Word,
)
from pyspark_rocketmq.options.log_table import LOG_DEFINITIONS
from pyspark_rocketmq.options.sink_table import SINK_DEFINITIONS
from pyspark_rocketmq.options.typed_table import TYPED_DEFINITIONS

_O = OptionDefinition
_TEXT: Final = Text()
_FLAG: Final = Flag()

_CONNECT: Final = (
    _O(
        "nameServer",
        Addresses(),
        (),
        ALL,
        "connect",
        "Name servers of the cluster: RocketMQ's own TCP protocol. Or one http:// address of a web "
        "server that names them, asked again every two minutes.",
        ("nameServers", "namesrvAddr", "nameserver.addr"),
    ),
    _O(
        "endpoints",
        _TEXT,
        None,
        ALL,
        "connect",
        "Address of the bundled broker's gRPC service, instead of nameServer.",
    ),
    _O(
        "addressMap",
        AddressMap(),
        (),
        ALL,
        "connect",
        "Reachable addresses for the ones that brokers advertise (brokers behind NAT, containers).",
    ),
    _O(
        "connectTimeoutMs",
        Duration(1, 600_000),
        3_000,
        ALL,
        "connect",
        "How long making a connection may take, and how long the start of a read goes on asking "
        "for a cluster that is away.",
    ),
    _O(
        "requestTimeoutMs",
        Duration(1, 600_000),
        5_000,
        ALL,
        "connect",
        "How long a request that is no pull may go unanswered, its repetitions included.",
    ),
    _O(
        "retry.delayMs",
        Duration(1, 600_000),
        100,
        ALL,
        "connect",
        "The first pause before a request is sent again; it doubles each time.",
    ),
    _O(
        "retry.maxDelayMs",
        Duration(1, 600_000),
        3_000,
        ALL,
        "connect",
        "The longest pause before a request is sent again.",
    ),
    _O(
        "retry.outageMs",
        Duration(0),
        60_000,
        ALL,
        "connect",
        "How long a task waits for a broker that is away before it fails, and its query with it; a "
        "query that only waits for new messages goes on waiting. The start of a read is not as "
        "patient: see connectTimeoutMs.",
    ),
    _O(
        "accessKey",
        Secret(),
        None,
        ALL,
        "connect",
        "Access key of the account to read as, where the cluster asks who reads.",
    ),
    _O("secretKey", Secret(), None, ALL, "connect", "Secret key of the account; signs requests."),
    _O("securityToken", Secret(), None, ALL, "connect", "Token of a temporary account."),
    _O("tls", _FLAG, False, ALL, "connect", "Encrypt the connections."),
    _O(
        "tls.caFile",
        _TEXT,
        None,
        ALL,
        "connect",
        "Certificates to trust (PEM), instead of the system's. This and the other files are read "
        "on the driver and on every worker.",
    ),
    _O("tls.certFile", _TEXT, None, ALL, "connect", "Certificate to show, with its chain (PEM)."),
    _O("tls.keyFile", _TEXT, None, ALL, "connect", "Key of the certificate to show (PEM)."),
    _O(
        "tls.serverName",
        _TEXT,
        None,
        ALL,
        "connect",
        "Name that every server's certificate must show (default: the host it is reached by).",
    ),
    _O(
        "tls.verify",
        _FLAG,
        True,
        ALL,
        "connect",
        "false takes any certificate, as RocketMQ's own clients do: whoever is in the way can read "
        "along. For clusters with the generated test certificate.",
    ),
    later("namespace", _TEXT, ALL, "connect", "Namespace of topics and groups."),
    later("instanceName", _TEXT, ALL, "connect", "Instance part of the client id."),
    later("unitName", _TEXT, ALL, "connect", "Unit part of the client id."),
)

_SELECT: Final = (
    _O(
        "subscribe",
        Names(),
        None,
        READ | SINK,
        "select",
        "Topics to read, or the topic to write to (instead of a column topic). A restarted stream "
        "may select others: those it leaves out keep their places in the checkpoint, those it adds "
        "are read from their first message.",
        ("topic", "topics", "consumer.topic"),
    ),
    _O(
        "subscribePattern",
        Pattern(),
        None,
        READ,
        "select",
        "Read every topic whose whole name matches; system topics never do.",
    ),
    _O("assign", Assignment(), None, READ, "select", "Queues to read, and no others."),
    _O(
        "deadLettersOf",
        _TEXT,
        None,
        READ,
        "select",
        "Read the dead letters of this consumer group: messages whose attempts are used up. That "
        "there are none yet is no error: a batch is empty then, a stream waits for the first.",
    ),
    _O(
        "tags",
        _TEXT,
        None,
        READ,
        "select",
        "Tag expression such as 'A || B'; filtered at the broker, checked again here.",
        ("subExpression", "consumer.tag"),
    ),
    _O(
        "sql",
        SqlExpression(),
        None,
        READ,
        "select",
        "SQL92 expression over message properties, instead of tags: filtered at the broker, which "
        "must allow it (enablePropertyFilter). CONTAINS, STARTSWITH, ENDSWITH: RocketMQ 5.1.3 on.",
    ),
    _O(
        "messageKey",
        Word("which separate the keys of a message: give one of them"),
        None,
        BATCH,
        "select",
        "Read only the messages with this key, found by the brokers' key index, without a scan. "
        "Needs nameServer and subscribe; looked up once for every load().",
    ),
    _O(
        "messageId",
        Word("which no id has: give one id"),
        None,
        BATCH,
        "select",
        "Read only the message with this id: the msgId that its producer gave, or offsetMsgId.",
    ),
    _O(
        "pushDown",
        Choice(("false", "once")),
        "false",
        BATCH,
        "select",
        "'once': read no more than Spark's filters on topic, brokerName, queueId, queueOffset, "
        "storeTimestamp and tags can pass (Spark 4.1 and later, with "
        "spark.sql.python.filterPushdown.enabled=true). Promises that every load() is used once, "
        "in one place of one query: Spark up to 4.3 gives all uses of one the last one's plan.",
    ),
    _O(
        "discoveryIntervalMs",
        Duration(100),
        10_000,
        STREAM,
        "select",
        "How often a running query looks for new queues and new matching topics.",
    ),
)

_START_END: Final = (
    _O(
        "startingOffsets",
        Offsets(("earliest", "latest", "group", "group:earliest", "group:latest", "group:error")),
        None,
        READ,
        "start and end",
        "Where a new query starts (default: latest; batch: earliest). 'group' is the group's "
        "progress, and for queues without one the word after the colon (default earliest). "
        "Brokers before 5.1 answer 0 for a group that they do not know: reading starts there then.",
        ("consumer.offset.reset.to",),
    ),
    _O(
        "startingTimestamp",
        Time(),
        None,
        READ,
        "start and end",
        "Start at the first message stored at or after this time. Goes before "
        "startingOffsetsByTimestamp, and that before startingOffsets.",
    ),
    _O(
        "startingOffsetsByTimestamp",
        Timestamps(),
        None,
        READ,
        "start and end",
        "The same with a time for every queue.",
    ),
    _O(
        "startingOffsetsByTimestampStrategy",
        Choice(("error", "latest")),
        "error",
        READ,
        "start and end",
        "What to do when a queue has no message at or after the time.",
    ),
    _O(
        "endingOffsets",
        Offsets(("latest",)),
        "latest",
        BATCH,
        "start and end",
        "Where a batch read ends, exclusively. 'latest' is resolved when the data is read: such a "
        "read is not repeatable.",
    ),
    _O(
        "endingTimestamp",
        Time(),
        None,
        BATCH,
        "start and end",
        "End before the first message stored at or after this time.",
    ),
    _O(
        "endingOffsetsByTimestamp",
        Timestamps(),
        None,
        BATCH,
        "start and end",
        "The same with a time for every queue.",
    ),
)

_ADMISSION: Final = (
    _O(
        "maxOffsetsPerTrigger",
        Count(1),
        None,
        STREAM,
        "admission",
        "Messages per micro-batch, shared in proportion to what each queue has; every queue with "
        "a backlog gets at least one. Counts offsets, also under filters. On Spark 4.0 and 4.1 a "
        "run with AvailableNow or Once ends after one such batch.",
    ),
    _O(
        "minOffsetsPerTrigger",
        Count(1),
        None,
        STREAM,
        "admission",
        "Wait for this many messages, but no longer than maxTriggerDelay. On Spark 4.0 and 4.1 the "
        "first batch of a run does not wait.",
    ),
    _O(
        "maxTriggerDelay",
        Duration(0, 7 * 24 * 3_600_000),
        900_000,
        STREAM,
        "admission",
        "Longest wait for minOffsetsPerTrigger.",
    ),
    _O(
        "maxBytesPerTrigger",
        Size(),
        None,
        STREAM,
        "admission",
        "Bytes per micro-batch: an estimate from the sizes of messages sampled at the broker. On "
        "Spark 4.0 and 4.1 it ends runs as maxOffsetsPerTrigger does.",
    ),
    _O(
        "minPartitions",
        Count(1, 100_000),
        None,
        READ,
        "admission",
        "Split queues so that there are at least this many tasks.",
    ),
    _O(
        "maxPartitions",
        Count(1, 100_000),
        None,
        READ,
        "admission",
        "Pack queues into at most this many tasks.",
    ),
    _O(
        "maxRecordsPerPartition",
        Count(1),
        None,
        READ,
        "admission",
        "No task reads more messages than this, whatever maxPartitions says.",
    ),
)

_PULL: Final = (
    _O(
        "pullBatchSize",
        Count(1, 100_000),
        10_000,
        READ,
        "pull",
        "Messages asked for in one pull; a RocketMQ broker gives at most 32 unless configured.",
        ("pull.max.batch.size",),
    ),
    _O(
        "pullThresholdForQueue",
        Count(1, 10_000_000),
        32_768,
        READ,
        "pull",
        "Messages requested or received and not yet decoded: for each queue over nameServer, for "
        "each task over endpoints.",
    ),
    _O(
        "pullThresholdSizeForQueue",
        Count(1, 4_096),
        100,
        READ,
        "pull",
        "The same in MiB. However high it is, no more is asked for ahead than 16 MiB for a queue "
        "and 32 MiB for a task over nameServer, and 5 MiB for a task over endpoints.",
    ),
    _O(
        "consumeMaxSpan",
        Count(1),
        None,
        READ,
        "pull",
        "Largest distance between the first and the last offset in flight.",
    ),
    _O(
        "pullsInFlight",
        Count(1, 256),
        64,
        READ,
        "pull",
        "Pulls under way at a time for one queue, 8 where more than 2 MiB are expected of them; "
        "a task has 128 at one broker, or this many.",
    ),
    _O(
        "suspendTimeoutMs",
        Duration(100, 300_000),
        15_000,
        STREAM,
        "pull",
        "How long a broker may hold the pull that waits for news.",
    ),
    _O(
        "pullTimeoutMs",
        Duration(100, 600_000),
        30_000,
        READ,
        "pull",
        "How long a pull may be without an answer while nothing arrives at all.",
        ("pullTimeout", "pull.timeout.ms"),
    ),
)

_ROWS: Final = (
    _O(
        "includeProperties",
        _FLAG,
        False,
        READ,
        "rows",
        "Append the column properties to the default schema.",
        ("includeHeaders",),
    ),
    _O(
        "corruptMessages",
        Choice(("fail", "skip", "emit")),
        "fail",
        READ,
        "rows",
        "What to do with a message that fails its checks: fail, leave it out (counted in the "
        "log), or deliver it with the reason in the column corruptReason.",
    ),
    _O("checkCrc", _FLAG, True, READ, "rows", "Compare every body with its checksum."),
    _O(
        "failOnDataLoss",
        _FLAG,
        True,
        READ,
        "safety",
        "Fail when wanted messages are gone; false goes on with the surviving ones and logs how "
        "many are gone.",
    ),
)

DEFINITIONS: Final = (
    *_CONNECT,
    *_SELECT,
    *_START_END,
    *_ADMISSION,
    *_PULL,
    *GROUP_DEFINITIONS,
    *_ROWS,
    *LOG_DEFINITIONS,
    *TYPED_DEFINITIONS,
    *SINK_DEFINITIONS,
)

# What Spark puts among the options by itself: places of its own, and a table's stored facts.
# (A `path` is refused where it is a user's own: see options.require_selection.)
SPARKS_OWN: Final = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "serialization.format",
        "provider",
        "location",
        "owner",
        "comment",
        "external",
        "is_managed_location",
        "collation",
        "transient_lastddltime",
    }
)
