"""One of every request with an answer to it, and ways to take them over the wire."""

from __future__ import annotations

from hypothesis import strategies as st

from rocketmq_wire.errors import (
    BrokerError,
)
from rocketmq_wire.model import (
    BrokerAddresses,
    ClusterInfo,
    CommittedOffset,
    ConsumerInfo,
    QueueId,
    QueueSet,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.remoting.codec import decode_reply, encode_reply
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.brokers import (
    AddWritePermission,
    ChangeBrokerSettings,
    CleanConsumeQueues,
    ClusterReply,
    DeleteNameServerEntry,
    GetBrokerSettings,
    GetCluster,
    GetNameServerSettings,
    GetRuntimeInfo,
    GetStatistic,
    SettingsReply,
    Statistic,
    StatisticReply,
    WipeWritePermission,
)
from rocketmq_wire.requests.contract import CountReply, Done, Reply, Request
from rocketmq_wire.requests.groups import (
    CheckSubscription,
    ClientsReply,
    Connection,
    ConsumersReply,
    DeleteGroup,
    GetConsumers,
    GetProducers,
    GroupsReply,
    Heartbeat,
    ListGroupClients,
    ListGroups,
    ListTopicGroups,
    LockQueues,
    NotifyMembersChanged,
    ProducersReply,
    PutGroup,
    QueuesReply,
    UnlockQueues,
    UnregisterClient,
)
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    ConsumeRates,
    ConsumeResult,
    GetClientOffsets,
    GetMembersOffsets,
    GetRunningInfo,
    MembersOffsetsReply,
    QueueInfo,
    ResetOffsets,
    RunningInfoReply,
)
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    QueryMessages,
    RecallMessage,
    RecallReply,
    RecordsReply,
    SendBack,
    SendBatch,
    SendMessage,
    SendReply,
    SendStatus,
    ViewMessage,
)
from rocketmq_wire.requests.offsets import (
    AllCommittedOffsetsReply,
    Boundary,
    CommitOffset,
    ConsumeStatsReply,
    GetAllCommittedOffsets,
    GetCommittedOffset,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    OffsetsReply,
    ResetClientOffsets,
    SearchOffset,
)
from rocketmq_wire.requests.registration import (
    BrokerNode,
    CompareVersion,
    DataVersion,
    RegisterBroker,
    RegisterReply,
    ReportBroker,
    UnregisterBroker,
    VersionReply,
)
from rocketmq_wire.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNameServer,
    GetRoute,
    GetTopicConfig,
    GetTopicStats,
    ListTopicConfigs,
    ListTopics,
    RegisterTopic,
    RouteReply,
    TopicConfigsReply,
    TopicsReply,
    TopicStatsReply,
)
from rocketmq_wire.requests.transactions import CheckTransaction, EndTransaction, Resolution

QUEUE = QueueId("orders", "broker-a", 3)
NAMELESS = QueueId("orders", "", 3)
PULL = PullMessages(group="g", queue=QUEUE, start=42, count_max=32)
SEND = SendMessage(
    group="p",
    queue=QUEUE,
    born_ms=1_700_000_000_000,
    body=b"hello",
    properties=encode_properties({"TAGS": "TagA"}),
    flag=7,
    sys_flag=1,
)
BATCH = SendBatch(group="p", queue=QUEUE, born_ms=5, body=b"entries", properties=b"k\x01v\x02")
BROKER_A = BrokerAddresses("broker-a", "DefaultCluster", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
ROUTE = Route((QueueSet("broker-a", 8, 4, 6, 2),), (BROKER_A,), "broker-a:4")
NODE = BrokerNode("DefaultCluster", "broker-b", 0, "10.0.0.2:10911")
VERSION = DataVersion(7, 1_700_000_000_000, 1)
CONFIG = TopicConfig("orders", 8, 4, 6, "MULTI_TAG", 1, True, {"message.type": "FIFO"})

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
QUEUES = st.builds(QueueId, TEXTS, TEXTS, st.integers(-(2**31), 2**31 - 1))
INT64 = st.integers(-(2**63), 2**63 - 1)

EXCHANGES: list[tuple[Request[Reply], int, Reply]] = [
    (GetRoute("orders"), 105, RouteReply(ROUTE)),
    (GetRoute("orders"), 105, RouteReply(Route((), ()))),
    (
        GetCluster(),
        106,
        ClusterReply(ClusterInfo((BROKER_A,), {"DefaultCluster": ("broker-a", "broker-b")})),
    ),
    (ListTopics(), 206, TopicsReply(("a", "b"))),
    (DeleteTopicFromNameServer("orders"), 216, Done()),
    (RegisterTopic("orders", (QueueSet("broker-b", 8, 4, 6, 2),)), 217, Done()),
    (RegisterBroker(NODE, VERSION, (CONFIG,), "10.0.0.2:10912"), 103, RegisterReply()),
    (
        RegisterBroker(BrokerNode("c", "broker-b", 1, "10.0.0.3:1"), VERSION, (), "", 5_000),
        103,
        RegisterReply("10.0.0.2:10912", "10.0.0.2:10911"),
    ),
    (UnregisterBroker(NODE), 104, Done()),
    (ReportBroker(NODE), 904, Done()),
    (CompareVersion(NODE, VERSION), 322, VersionReply(False, VERSION)),
    (CompareVersion(NODE, VERSION), 322, VersionReply(True, None)),
    (
        Heartbeat(
            "10.0.0.1@7",
            ("p1", "p2"),
            (
                ConsumerInfo(
                    "g",
                    "CONSUME_ACTIVELY",
                    "CLUSTERING",
                    "CONSUME_FROM_FIRST_OFFSET",
                    (("orders", "TagA || TagB", "TAG", 5), ("other", "a > 1", "SQL92", 6)),
                    True,
                ),
            ),
        ),
        34,
        Done(),
    ),
    (UnregisterClient("10.0.0.1@7", "p", "g"), 35, Done()),
    (UnregisterClient("10.0.0.1@7"), 35, Done("bye")),
    (NotifyMembersChanged("g"), 40, Done()),
    (CheckSubscription("c", "g", "orders", Subscription("a > 1", "SQL92")), 46, Done()),
    (CheckSubscription("c", "g", "orders", Subscription("TagA")), 46, Done()),
    (ListGroupClients("g"), 38, ClientsReply(("a@1", "b@2"))),
    (ListGroupClients("g"), 38, ClientsReply(())),
    (GetCommittedOffset("g", QUEUE), 14, OffsetReply(2**62)),
    (GetCommittedOffset("g", QUEUE, zero_if_absent=True), 14, OffsetReply(0)),
    (CommitOffset("g", QUEUE, 17), 15, Done()),
    (CommitOffset("g", QUEUE, -1), 15, Done("Offset has been previously reset")),
    (SearchOffset(QUEUE, 1_700_000_000_000), 29, OffsetReply(5)),
    (SearchOffset(QUEUE, -1, Boundary.UPPER), 29, OffsetReply(5)),
    (GetMaxOffset(QUEUE), 30, OffsetReply(9)),
    (GetMinOffset(QUEUE), 31, OffsetReply(1)),
    (GetEarliestStoreTime(QUEUE), 32, OffsetReply(-1)),
    (PULL, 11, PullReply(PullStatus.FOUND, 43, 1, 99, (b"records",), None, 1, "FOUND")),
    (
        PullMessages(
            group="g",
            queue=NAMELESS,
            start=0,
            count_max=10_000,
            bytes_max=4_000_000,
            subscription=Subscription("TagA || TagB"),
            subscription_version=7,
            commit=41,
            suspend_ms=15_000,
        ),
        11,
        PullReply(PullStatus.NO_NEW_MESSAGE, 42, 0, 42, remark="OFFSET_OVERFLOW_ONE"),
    ),
    (
        PullMessages(
            group="g", queue=QUEUE, start=0, count_max=1, uses_registered_subscription=True
        ),
        11,
        PullReply(PullStatus.OFFSET_ILLEGAL, 7, 7, 42, remark="OFFSET_TOO_SMALL"),
    ),
    (
        PullMessages(
            group="g", queue=QUEUE, start=0, count_max=1, subscription=Subscription("a>1", "SQL92")
        ),
        11,
        PullReply(PullStatus.NO_MATCHED_MESSAGE, 800, 0, 999, remark="NO_MATCHED_MESSAGE"),
    ),
    (SEND, 310, SendReply(SendStatus.OK, "0A00", 3, 42, "UNIQ")),
    (SEND, 310, SendReply(SendStatus.FLUSH_DISK_TIMEOUT, "0A00", 3, 42)),
    (
        SendMessage(
            group="p",
            queue=QueueId("orders", "", -1),
            born_ms=0,
            body=b"",
            reconsume_times=3,
            reconsume_times_max=16,
            default_queue_count=8,
        ),
        310,
        SendReply(SendStatus.SLAVE_NOT_AVAILABLE, "0A00", 0, 0),
    ),
    (BATCH, 320, SendReply(SendStatus.OK, "0A00,0A01,0A02", 3, 42, count=3)),
    (CreateTopic(CONFIG), 17, Done()),
    (CreateTopic(TopicConfig("plain"), "other"), 17, Done()),
    (DeleteTopic("orders"), 215, Done()),
    (ListTopicConfigs(), 21, TopicConfigsReply((CONFIG, TopicConfig("plain")))),
    (GetTopicConfig("orders"), 351, TopicConfigsReply((CONFIG,))),
    (
        GetTopicStats("orders"),
        202,
        TopicStatsReply({QUEUE: QueueStats(1, 9, 77), NAMELESS: QueueStats(0, 0, 0)}),
    ),
    (GetConsumeStats("g"), 208, ConsumeStatsReply({}, 0.0)),
    (
        GetConsumeStats("g", "orders"),
        208,
        ConsumeStatsReply({QUEUE: CommittedOffset(9, 4, 77, 5)}, 1.5),
    ),
    (ListGroups(), 201, GroupsReply(("a", "b"))),
    (GetBrokerSettings(), 26, SettingsReply({"brokerName": "a", "path": "/x=y", "empty": ""})),
    (GetNameServerSettings(), 319, SettingsReply({"listenPort": "9876"})),
    (ChangeBrokerSettings({"enablePropertyFilter": "true", "a": ""}), 25, Done()),
    (GetRuntimeInfo(), 28, SettingsReply({"putTps": "0.0 0.0", "brokerActive": "true"})),
    (
        GetStatistic("GROUP_GET_NUMS", "orders@g"),
        315,
        StatisticReply(Statistic(6, 0.1, 2.0), Statistic(7, 0.5, 1.0), Statistic(8, 0.25, 4.0)),
    ),
    (CleanConsumeQueues(), 306, Done()),
    (DeleteNameServerEntry("ORDER_TOPIC_CONFIG", "orders"), 102, Done()),
    (WipeWritePermission("broker-a"), 205, CountReply(17)),
    (AddWritePermission("broker-a"), 327, CountReply(0)),
    (PutGroup({"groupName": "g", "retryMaxTimes": 3, "consumeEnable": False}), 200, Done()),
    (DeleteGroup("g"), 207, Done()),
    (DeleteGroup("g", forgets_offsets=True), 207, Done()),
    (ListTopicGroups("orders"), 300, GroupsReply(("a", "b"))),
    (
        GetConsumers("g"),
        203,
        ConsumersReply(
            (Connection("c@1", "10.0.0.9:5555", "JAVA", 479),),
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
            {
                "orders": (Subscription("TagA || TagB"), 5),
                "other": (Subscription("a > 1", "SQL92"), 6),
            },
        ),
    ),
    (GetProducers("p"), 204, ProducersReply((Connection("c@1", "10.0.0.9:5555", "GO", 1),))),
    (ResetClientOffsets("g", "orders", -1), 222, OffsetsReply({QUEUE: 7})),
    (
        ResetClientOffsets("g", "orders", 1_700_000_000_000, False, 3, 42),
        222,
        OffsetsReply({}),
    ),
    (
        GetAllCommittedOffsets(),
        317,
        AllCommittedOffsetsReply(
            {"g": (ConsumeStatsReply({QUEUE: CommittedOffset(9, 4, 77, 5)}, 1.5),), "idle": ()},
            "10.0.0.1:10911",
        ),
    ),
    (GetAllCommittedOffsets(only_ordered=True), 317, AllCommittedOffsetsReply({})),
    (ViewMessage(2**40, "orders"), 33, RecordsReply((b"record",))),
    (ViewMessage(0), 33, RecordsReply((b"record",))),
    (QueryMessages("orders", "key 1", 32, 0, 2**62), 12, RecordsReply((b"two records",), 5, 77)),
    (
        QueryMessages("orders", "0A", 64, 1, 2, is_unique_key=True),
        12,
        RecordsReply((b"record",), 0, 0),
    ),
    (SendBack("g", 1_000), 36, Done()),
    (SendBack("g", 2**62, -1, "0A00", "orders", 16), 36, Done()),
    (LockQueues("g", "c@1", (QUEUE,)), 41, QueuesReply((QUEUE,))),
    (LockQueues("g", "c@1", (NAMELESS, QUEUE)), 41, QueuesReply(())),
    (UnlockQueues("g", "c@1", (QUEUE,)), 42, Done()),
    (ResetOffsets("g", "orders", {QUEUE: 42, NAMELESS: 0}), 220, Done()),
    (
        ConsumeDirectly("g", "c@1", "0A00", "broker-a", b"record"),
        309,
        ConsumeDirectlyReply(ConsumeResult.LATER, 7, True, False, "why"),
    ),
    (EndTransaction("p", 7, 2**40, Resolution.COMMIT, "0A00", "0B", "orders"), 37, Done()),
    (
        EndTransaction("p", 0, 0, Resolution.ROLLBACK, is_from_check=True, broker="broker-a"),
        37,
        Done(),
    ),
    (CheckTransaction(7, 2**40, b"record", "orders", "0B", "0B", "0A00"), 39, Done()),
    (CheckTransaction(0, 0, b"record"), 39, Done()),
    (RecallMessage("orders", "djEgYQ==", "p", "broker-a"), 370, RecallReply("0B")),
    (RecallMessage("orders", "djEgYQ=="), 370, RecallReply("0B")),
    (SEND, 310, SendReply(SendStatus.OK, "0A00", 3, 42, "UNIQ", recall_handle="djEgYQ==")),
    (GetClientOffsets("g", "orders"), 221, OffsetsReply({QUEUE: 42})),
    (
        GetMembersOffsets("g", "orders", "c@1"),
        223,
        MembersOffsetsReply({"c@1": {QUEUE: 42}, "c@2": {}}),
    ),
    (
        GetRunningInfo("g", "c@1"),
        307,
        RunningInfoReply(
            {"PROP_CONSUMEORDERLY": "false"},
            {QUEUE: QueueInfo(41, 3, 41, 43, 1 << 20, True, 5, False, 6, 7)},
            {"orders": ConsumeRates(1.0, 2.0, 3.0, 4.0, 5.0, 6)},
            (("orders", "TagA", "TAG", 7),),
        ),
    ),
]


def header_of(code: int, fields: dict[str, str], *, version: int = 401) -> Header:
    return Header(code, version=version, ext_fields=fields)


def body_of(request: Request[Reply], reply: Reply) -> str:
    """The text of a reply's body."""
    (body,) = encode_reply(request, reply).body
    return bytes(body).decode()


def ask(request: Request[Reply], reply: Reply | BrokerError) -> Reply:
    """Take a reply over the wire and back."""
    encoded = encode_reply(request, reply)
    header = Header(encoded.code, flag=1, remark=encoded.remark, ext_fields=encoded.ext_fields)
    return decode_reply(request, header, b"".join(encoded.body))
