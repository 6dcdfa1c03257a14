"""Access rights: every request class has one, and each is what it was."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import pytest

from rocketmq_wire.model import ConsumerInfo, QueueId
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.requests.contract import Request
from rocketmq_wire.requests.groups import Heartbeat, LockQueues, UnregisterClient
from rocketmq_wire.requests.messages import (
    PullMessages,
    SendBatch,
    SendMessage,
    SendRecords,
    SendRequest,
)
from rocketmq_wire.requests.offsets import CommitOffset
from rocketmq_wire.requests.permissions import NOTHING, AccessRight, Action, Resources
from rocketmq_wire.requests.pop import PopMessages, ack_spans
from rocketmq_wire.requests.transactions import EndTransaction, Resolution
from support.request_kinds import request_kinds

ADMIN: Final = "Cluster:* update"
QUEUE = QueueId("orders", "broker-a", 0)
RETRY = QueueId("%RETRY%readers", "broker-a", 0)
# What each class takes if it names the topic orders and the group readers where it has fields
# for them. A changed line here changes who may do what.
PERMISSIONS: Final = {
    "AckMessage": "Topic:orders sub, Group:readers sub",
    "AckMessages": "Topic:orders sub, Group:readers sub",
    "AddWritePermission": ADMIN,
    "AwaitMessages": "Topic:orders sub, Group:readers sub",
    "ChangeBrokerSettings": ADMIN,
    "ChangeInvisibleTime": "Topic:orders sub, Group:readers sub",
    "CheckSubscription": "Topic:orders sub|get, Group:readers sub|get",
    "CheckTransaction": "Topic:orders get",
    "CleanConsumeQueues": ADMIN,
    "CommitOffset": "Topic:orders sub, Group:readers sub",
    "CompareVersion": ADMIN,
    "ConsumeDirectly": "Group:readers sub",
    "CreateTopic": ADMIN,
    "DeleteGroup": ADMIN,
    "DeleteNameServerEntry": ADMIN,
    "DeleteTopic": ADMIN,
    "DeleteTopicFromNameServer": ADMIN,
    "EndTransaction": "Topic:orders pub",
    "GetAllCommittedOffsets": "Cluster:* get",
    "GetBrokerSettings": "",
    "GetClientOffsets": "Topic:orders get, Group:readers sub|get",
    "GetCluster": "",
    "GetConsumeStats": "Topic:orders get, Group:readers sub|get",
    "GetConsumers": "Group:readers sub|get",
    "GetEarliestStoreTime": "Topic:orders get",
    "GetMaxOffset": "Topic:orders get",
    "GetMembersOffsets": "Topic:orders get, Group:readers sub|get",
    "GetMinOffset": "Topic:orders get",
    "GetNameServerSettings": "",
    "GetPollingCount": "Topic:orders sub, Group:readers sub",
    "GetProducers": "Cluster:* get",
    "GetCommittedOffset": "Topic:orders sub|get, Group:readers sub|get",
    "GetRoute": "Topic:orders pub|sub|get",
    "GetRunningInfo": "Group:readers sub|get",
    "GetRuntimeInfo": "",
    "GetStatistic": "Cluster:* get",
    "GetTopicConfig": "Topic:orders get",
    "GetTopicStats": "Topic:orders get",
    "Heartbeat": "Topic:orders sub, Group:readers sub",
    "ListGroupClients": "Group:readers sub",
    "ListGroups": "",
    "ListTopicConfigs": "",
    "ListTopicGroups": "Topic:orders get",
    "ListTopics": "",
    "LockQueues": "Topic:orders sub, Group:readers sub",
    "NotifyMembersChanged": "Group:readers sub",
    "PeekMessages": "Topic:orders sub, Group:readers sub",
    "PopMessages": "Topic:orders sub, Group:readers sub",
    "PullMessages": "Topic:orders sub, Group:readers sub",
    "PutGroup": ADMIN,
    "QueryAssignment": "Topic:orders sub, Group:readers sub",
    "QueryMessages": "Topic:orders sub",
    "RecallMessage": "Topic:orders pub",
    "RegisterBroker": ADMIN,
    "RegisterTopic": ADMIN,
    "ReportBroker": ADMIN,
    "ResetOffsets": ADMIN,
    "ResetClientOffsets": ADMIN,
    "SearchOffset": "Topic:orders get",
    "SendBack": "Group:readers sub",
    "SendBatch": "Topic:orders pub",
    "SendMessage": "Topic:orders pub",
    "SendRecords": "Topic:orders pub",
    "SetConsumeMode": ADMIN,
    "UnlockQueues": "Topic:orders sub, Group:readers sub",
    "UnregisterBroker": ADMIN,
    "UnregisterClient": "Group:readers sub",
    "ViewMessage": "Topic:orders sub",
    "WipeWritePermission": ADMIN,
}


KINDS: Final = request_kinds()


def _sample(kind: type[Request[Any]], topic: str = "orders") -> Request[Any]:
    """A request with names where it has fields for them, and nothing else."""
    handle = ReceiptHandle(0, 1, 1, 0, RetryKind.NONE, "broker-a", 0, 0)
    subscriptions = ((topic, "*", "TAG", 1),)
    consumer = ConsumerInfo("readers", "CONSUME_PASSIVELY", "CLUSTERING", "x", subscriptions)
    values = {
        "group": "readers",
        "consumer_group": "readers",
        "topic": topic,
        "queue": QUEUE._replace(topic=topic),
        "queues": (QUEUE._replace(topic=topic),),
        "consumers": (consumer,),
        "spans": ack_spans("readers", [(topic, handle)]),
    }
    sample = object.__new__(kind)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in values:
            object.__setattr__(sample, field.name, values[field.name])
    return sample


def _words(request: Request[Any]) -> str:
    return ", ".join(
        f"{one.kind.value}:{one.name} {'|'.join(action.value for action in one.actions)}"
        for one in request.permissions()
    )


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_request_class_declares_its_own_access_right(name: str) -> None:
    assert isinstance(vars(KINDS[name]).get("access"), AccessRight), (
        f"{KINDS[name].__module__}.{name} declares no access right: "
        "see rocketmq_wire.requests.permissions"
    )


def test_the_permissions_of_every_request_class_are_what_they_were() -> None:
    assert {name: _words(_sample(kind)) for name, kind in KINDS.items()} == PERMISSIONS


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_right_to_topics_or_groups_finds_some_in_its_request(name: str) -> None:
    kind = KINDS[name]
    assert _sample(kind).resources().topics or not kind.access.topic
    assert _sample(kind, "%RETRY%others").resources().groups or not kind.access.group


# --- retry topics and missing names -----------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        PullMessages(group="readers", queue=RETRY, start=0, count_max=1),
        CommitOffset("readers", RETRY, 1),
        PopMessages("readers", QueueId("%RETRY%readers_orders", "a", 0), 1, 1),
        SendMessage(group="readers", queue=RETRY, born_ms=0, body=b""),
        SendBatch(group="readers", queue=RETRY, born_ms=0, body=b""),
        SendRecords(group="readers", queue=RETRY, records=b""),
    ],
)
def test_a_retry_topic_takes_the_right_of_its_group(request_: Request[Any]) -> None:
    assert "Group:readers sub" in _words(request_)
    assert "RETRY" not in _words(request_)
    assert "pub" not in _words(request_)


def test_a_retry_topic_of_another_group_takes_the_right_of_that_group_too() -> None:
    pull = PullMessages(group="others", queue=RETRY, start=0, count_max=1)
    send = SendMessage(group="producers", queue=RETRY, born_ms=0, body=b"")
    assert _words(pull) == "Group:others sub, Group:readers sub"
    assert _words(send) == "Group:producers sub, Group:readers sub"


# Requests about a group, whatever their topics.
NAMES_NO_TOPIC: Final = frozenset(
    {
        *("ConsumeDirectly", "GetConsumers", "GetRunningInfo", "ListGroupClients"),
        *("NotifyMembersChanged", "SendBack", "UnregisterClient"),
    }
)


@pytest.mark.parametrize("topic", ["%RETRY%others", "%RETRY%others+orders", "%DLQ%others"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_request_reads_the_topic_of_a_group_without_a_right_to_the_group(
    name: str, topic: str
) -> None:
    sample, right = _sample(KINDS[name], topic), KINDS[name].access
    if not (right.topic or right.group) or name in NAMES_NO_TOPIC:
        return
    taken = [f"{one.kind.value}:{one.name}" for one in sample.permissions()]
    if issubclass(KINDS[name], SendRequest) and topic.startswith("%DLQ%"):
        assert taken == [f"Topic:{topic}"]
    elif right.group:
        assert "Group:others" in taken
    assert all(not name.startswith("Topic:%RETRY%") for name in taken)


def test_a_heartbeat_takes_the_rights_of_all_its_subscriptions() -> None:
    subscriptions = tuple((topic, "*", "TAG", 1) for topic in ("orders", "%RETRY%a", "%RETRY%b"))
    consumers = [
        ConsumerInfo(group, "CONSUME_PASSIVELY", "CLUSTERING", "x", subscriptions)
        for group in ("a", "c")
    ]
    beat = Heartbeat("client", ("producers",), tuple(consumers))
    assert _words(beat) == "Topic:orders sub, Group:a sub, Group:c sub, Group:b sub"


def test_producers_unregister_and_old_clients_end_transactions_as_before() -> None:
    assert _words(UnregisterClient("client", "producers")) == ""
    assert _words(EndTransaction("producers", 1, 2, Resolution.COMMIT)) == ""


def test_a_request_without_names_needs_the_administrators_right_if_its_class_requires_it() -> None:
    assert _words(LockQueues("", "client", ())) == ADMIN


def test_any_of_several_actions_is_needed_on_all_of_several_resources() -> None:
    right = AccessRight(topic=(Action.SUB, Action.GET), group=(Action.SUB,))
    topics, group = ("a", "b"), ("g",)
    asked = right.on(Resources(topics, group))
    assert [(one.name, one.is_read_only) for one in asked] == [
        ("a", True),
        ("b", True),
        ("g", False),
    ]
    assert NOTHING.on(Resources(topics, group)) == ()
