"""What each request class needs from its sender, and requests about given names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from rocketmq_wire.model import ConsumerInfo, QueueId, Subscription, TopicConfig
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.requests.contract import Request
from rocketmq_wire.requests.groups import ConsumeMode
from rocketmq_wire.requests.pop import ack_spans
from rocketmq_wire.requests.registration import BrokerNode, DataVersion
from rocketmq_wire.requests.transactions import Resolution
from rocketmq_wire.signing import Credentials
from support.accounts import ADMIN, GROUP, NOBODY, TOPIC
from support.request_kinds import request_kinds

KINDS: Final = request_kinds()
SIDES: Final = (
    (TOPIC, GROUP),
    ("secret", GROUP),
    (TOPIC, "others"),
    ("secret", "others"),
    ("%RETRY%others", GROUP),
    ("%RETRY%others+mine", GROUP),
    ("%DLQ%others", GROUP),
    ("%RETRY%mygroup", GROUP),
)
"""The topics and groups that the accounts ask about."""
OWN: Final = ((TOPIC, GROUP), ("%RETRY%mygroup", GROUP))
# T, G: a right to the topic, to the group; t, g: the same, but acl_file lets every signed account
# look. A: administrators only; a: so, but acl_file lets every signed account look. -: any signed
# account.
NEEDS: Final = {
    "AckMessage": "TG",
    "AckMessages": "TG",
    "AddWritePermission": "A",
    "AwaitMessages": "TG",
    "ChangeBrokerSettings": "A",
    "ChangeInvisibleTime": "TG",
    "CheckSubscription": "tg",
    "CheckTransaction": "t",
    "CleanConsumeQueues": "A",
    "CommitOffset": "TG",
    "CompareVersion": "A",
    "ConsumeDirectly": "G",
    "CreateTopic": "A",
    "DeleteGroup": "A",
    "DeleteNameServerEntry": "A",
    "DeleteTopic": "A",
    "DeleteTopicFromNameServer": "A",
    "EndTransaction": "T",
    "GetAllCommittedOffsets": "a",
    "GetBrokerSettings": "-",
    "GetClientOffsets": "tg",
    "GetCluster": "-",
    "GetCommittedOffset": "tg",
    "GetConsumeStats": "tg",
    "GetConsumers": "g",
    "GetEarliestStoreTime": "t",
    "GetMaxOffset": "t",
    "GetMembersOffsets": "tg",
    "GetMinOffset": "t",
    "GetNameServerSettings": "-",
    "GetPollingCount": "TG",
    "GetProducers": "a",
    "GetRoute": "-",
    "GetRunningInfo": "g",
    "GetRuntimeInfo": "-",
    "GetStatistic": "a",
    "GetTopicConfig": "t",
    "GetTopicStats": "t",
    "Heartbeat": "TG",
    "ListGroupClients": "G",
    "ListGroups": "-",
    "ListTopicConfigs": "-",
    "ListTopicGroups": "t",
    "ListTopics": "-",
    "LockQueues": "TG",
    "NotifyMembersChanged": "G",
    "PeekMessages": "TG",
    "PopMessages": "TG",
    "PullMessages": "TG",
    "PutGroup": "A",
    "QueryAssignment": "TG",
    "QueryMessages": "T",
    "RecallMessage": "T",
    "ResetClientOffsets": "A",
    "RegisterBroker": "A",
    "RegisterTopic": "A",
    "ReportBroker": "A",
    "ResetOffsets": "A",
    "SearchOffset": "t",
    "SendBack": "G",
    "SendBatch": "T",
    "SendMessage": "T",
    "SendRecords": "T",
    "SetConsumeMode": "A",
    "UnlockQueues": "TG",
    "UnregisterBroker": "A",
    "UnregisterClient": "G",
    "ViewMessage": "T",
    "WipeWritePermission": "A",
}


def request_about(name: str, topic: str, group: str) -> Request[Any]:
    """A request of a class that names the topic and the group wherever it can."""
    queue = QueueId(topic, "broker-a", 0)
    handle = ReceiptHandle(0, 1, 1, 0, RetryKind.NONE, "broker-a", 0, 0)
    values = {
        "group": group,
        "consumer_group": group,
        "topic": topic,
        "queue": queue,
        "queues": (queue,),
        "config": TopicConfig(topic, 1, 1),
        "consumers": (consumer_of(topic, group),),
        "spans": ack_spans(group, [(topic, handle)]),
        "handle": handle.text(),
        "client_id": "stranger@1",
        "broker": "elsewhere",
        "settings": {"groupName": group},
        "offsets": {queue: 0},
        "subscription": Subscription(),
        "mode": ConsumeMode.PULL,
        "resolution": Resolution.ROLLBACK,
        "message_id": "00" * 16,
        "key": "invoice",
        "namespace": "orders",
        "name": "GROUP_GET_NUMS",
        "node": BrokerNode("DefaultCluster", "elsewhere", 0, "127.0.0.1:1"),
        "version": DataVersion(),
        "configs": (),
        "queue_sets": (),
        "body": b"body",
        "records": b"records",
        "record": b"record",
        "count_max": 1,
        "invisible_ms": 60_000,
        # No record is there.
        "physical_offset": 1 << 40,
        **dict.fromkeys(("begin_ms", "end_ms", "born_ms", "start", "offset"), 0),
        **dict.fromkeys(("half_offset", "position", "timestamp_ms"), 0),
    }
    kind: Any = KINDS[name]
    wanted = {one.name for one in fields(kind)} & values.keys()
    made: Request[Any] = kind(**{field: values[field] for field in wanted})
    return made


def consumer_of(topic: str, group: str) -> ConsumerInfo:
    subscriptions = ((topic, "*", "TAG", 1),)
    return ConsumerInfo(group, "CONSUME_PASSIVELY", "CLUSTERING", "x", subscriptions)


def is_allowed(scheme: str, account: Credentials, needs: str, topic: str, group: str) -> bool:
    if account == ADMIN or needs == "-":
        return True
    if needs.islower() and scheme == "acl_file":
        return True
    if account == NOBODY or needs in "Aa":
        return False
    may_topic = topic in (TOPIC, "%RETRY%mygroup") or "T" not in needs.upper()
    return may_topic and (group == GROUP or "G" not in needs.upper())
