"""Files of accounts: what they may hold, and what each account may do."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketmq_broker_sim.security.accounts import AccountFileError
from rocketmq_broker_sim.security.addresses import address_pattern
from rocketmq_broker_sim.security.auth_file import parse_auth_file
from rocketmq_broker_sim.security.guard import Guard
from rocketmq_broker_sim.security.needs import Needs, needs_of
from rocketmq_broker_sim.security.plain_acl import parse_plain_acl
from rocketmq_broker_sim.security.plain_yaml import YamlError, parse_yaml
from rocketmq_wire import admin_requests, consumption_requests, remoting_requests, requests
from rocketmq_wire.errors import NotAuthorizedError
from rocketmq_wire.headers import Header
from rocketmq_wire.model import ConsumerInfo, QueueId, TopicConfig
from rocketmq_wire.requests import (
    CommitProgress,
    CreateTopic,
    GetMaxOffset,
    GetProgress,
    GetRoute,
    Heartbeat,
    PullMessages,
    Request,
    SearchOffset,
    SendMessage,
)

HOST = "10.0.0.9"
QUEUE = QueueId("orders", "broker-a", 0)
PULL = PullMessages(group="readers", queue=QUEUE, start=0, count_max=1)
SEND = SendMessage(group="p", queue=QUEUE, born_ms=0, body=b"")

PLAIN = """
# The file of RocketMQ's own distribution, shortened.
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def test_the_file_of_the_distribution_is_read() -> None:
    accounts = parse_plain_acl(PLAIN)
    assert set(accounts.by_key) == {"RocketMQ", "rocketmq2"}
    assert accounts.by_key["RocketMQ"].secret_key == "12345678"
    assert accounts.trusts("10.10.103.7")
    assert not accounts.trusts("10.10.104.7")
    assert accounts.by_key["rocketmq2"].trusts("192.168.1.200")
    assert not accounts.by_key["RocketMQ"].trusts("192.168.1.200")
    assert "12345678" not in repr(accounts) + repr(accounts.by_key)


@pytest.mark.parametrize(
    ("needs", "allowed"),
    [
        (Needs(subscribe=("topicB",)), True),
        (Needs(publish=("topicB",)), True),
        (Needs(subscribe=("topicC",)), True),
        (Needs(publish=("topicC",)), False),
        (Needs(subscribe=("topicA",)), False),
        (Needs(subscribe=("unnamed",)), False),
        (Needs(groups=("unnamed",)), True),
        (Needs(groups=("groupA",)), False),
        (Needs(groups=("groupC",)), True),
        (Needs(subscribe=("topicB",), groups=("groupA",)), False),
        (Needs(is_admin=True), False),
        (Needs(looks_at=("topicA",)), True),
        (Needs(), True),
    ],
)
def test_a_plain_account_has_the_rights_that_it_names_or_its_defaults(
    needs: Needs, allowed: bool
) -> None:
    accounts = parse_plain_acl(PLAIN).by_key
    assert (accounts["RocketMQ"].refusal(needs, HOST) is None) is allowed
    assert accounts["rocketmq2"].refusal(needs, HOST) is None


def test_an_admin_with_rights_of_its_own_has_those_only() -> None:
    text = (
        "accounts:\n- accessKey: admin-one\n  secretKey: 1234567\n  admin: true\n"
        "  topicPerms: [orders=SUB]\n"
    )
    admin = parse_plain_acl(text).by_key["admin-one"]
    assert admin.refusal(Needs(is_admin=True), HOST) is None
    assert admin.refusal(Needs(subscribe=("orders",)), HOST) is None
    assert "topic:orders" in str(admin.refusal(Needs(publish=("orders",)), HOST))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("accounts:\n- accessKey: short\n  secretKey: 12345678", "at least 7 letters"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: 123456", "at least 7 letters"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  amdin: true", "'amdin'"),
        ("accounts: none", "accounts is no list"),
        ("- a", "the file is no map"),
        ("accounts:\n\t- a", "line 2: tabs"),
        ("globalWhiteRemoteAddresses: [10.0.0.300]", "no pattern of addresses"),
        (
            "accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  topicPerms: [a=READ]",
            "'READ' is none of",
        ),
        (
            "accounts:" + 2 * "\n- accessKey: RocketMQ\n  secretKey: 12345678",
            "there twice",
        ),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_without_any_key(
    text: str, complaint: str
) -> None:
    with pytest.raises(AccountFileError, match=complaint) as refused:
        parse_plain_acl(text)
    assert "12345678" not in str(refused.value)


def test_yaml_of_this_kind_is_read() -> None:
    text = "a: 'it''s'\nb: \"x # y\"  # why\nc: [1, two]\nd: []\ne:\n  f:\n    - g\n    -\nh: ~\n"
    assert parse_yaml(text) == {
        "a": "it's",
        "b": "x # y",
        "c": ["1", "two"],
        "d": [],
        "e": {"f": ["g", ""]},
        "h": "",
    }
    assert parse_yaml("- a\n- b: 1\n  c: 2\n") == ["a", {"b": "1", "c": "2"}]
    assert parse_yaml("# nothing\n") == {}


@pytest.mark.parametrize(
    "text",
    ["a: &x 1", "a: |\n  b", "a: 1\n  b: 2", "a: 1\na: 2", "just text", "a: [1", "a: 'b", "a: {}"],
)
def test_yaml_beyond_that_is_refused_by_line(text: str) -> None:
    with pytest.raises(YamlError, match=r"^line \d"):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", "1.2.3.4", None),
        ("*.*.*.*", "1.2.3.4", None),
        ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
        ("10.1.*", "10.1.200.3", "10.2.1.1"),
        ("10.1.2.{3,5}", "10.1.2.5", "10.1.2.4"),
        ("10.1.2.3-9", "10.1.2.9", "10.1.2.10"),
        ("10.0.0.1, 10.0.0.{2,3}", "10.0.0.3", "10.0.0.4"),
        ("10.1.0.0/16", "10.1.9.9", "10.2.0.1"),
        ("::1", "::1", "::2"),
        ("10.1.2.3", "10.1.2.3", "::1"),
    ],
)
def test_patterns_of_addresses(pattern: str, inside: str, outside: str | None) -> None:
    matches = address_pattern(pattern)
    assert matches is not None
    assert matches(inside)
    assert outside is None or not matches(outside)


@pytest.mark.parametrize("pattern", ["", " , "])
def test_no_pattern_trusts_nobody(pattern: str) -> None:
    assert address_pattern(pattern) is None


@pytest.mark.parametrize("pattern", ["10", "10.1.2", "a.b.c.d", "10.1.2.{x}", ".", "1.2.3.4.5"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no pattern of addresses"):
        address_pattern(pattern)


# --- what requests need -----------------------------------------------------------------------


def test_requests_need_what_rocketmq_asks_for() -> None:
    assert needs_of(SEND) == Needs(publish=("orders",))
    assert needs_of(PULL) == Needs(subscribe=("orders",), groups=("readers",))
    assert needs_of(CommitProgress("g", QUEUE, 1)) == Needs(subscribe=("orders",), groups=("g",))
    assert needs_of(CreateTopic(TopicConfig("x"))) == Needs(is_admin=True)
    assert needs_of(GetMaxOffset(QUEUE)) == Needs(looks_at=("orders",))
    assert needs_of(SearchOffset(QUEUE, 1)) == Needs(looks_at=("orders",))
    assert needs_of(GetRoute("orders")) == Needs(routes=("orders",))
    progress = Needs(progress_topics=("orders",), progress_groups=("g",))
    assert needs_of(GetProgress("g", QUEUE)) == progress


def test_only_an_admin_changes_what_is_not_messages_or_progress() -> None:
    """Every request that there is, so that a new one is thought about."""
    modules = (requests, admin_requests, consumption_requests, remoting_requests)
    kinds = [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Request) and is_dataclass(kind)
    ]
    admins = {kind.__name__ for kind in kinds if needs_of(_sample(kind)).is_admin}
    assert admins == {
        *("AddWritePermission", "ChangeBrokerSettings", "CleanConsumeQueues", "CreateTopic"),
        *("DeleteGroup", "DeleteNameServerEntry", "DeleteTopic", "DeleteTopicFromNameServer"),
        *("PutGroup", "ResetOffsets", "ResetProgress", "ViewMessage", "WipeWritePermission"),
    }


def _sample(kind: type[Request[Any]]) -> Request[Any]:
    """A request with names where it has fields for them, and nothing else."""
    sample = object.__new__(kind)
    values = {"group": "g", "topic": "t", "queue": QUEUE, "consumers": (), "consumer_group": "g"}
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in values:
            object.__setattr__(sample, field.name, values[field.name])
    return sample


def test_the_name_server_is_free_but_for_changes(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN)
    guard = Guard(str(path), parse_plain_acl)
    guard.check_request(HOST, Header(105), b"", requests.GetRoute("orders"))
    change = requests.DeleteTopicFromNameServer("orders")
    with pytest.raises(NotAuthorizedError, match="MISSING_KEY"):
        guard.check_request(HOST, Header(216), b"", change)


def test_a_retry_topic_is_its_groups_own() -> None:
    retry = QueueId("%RETRY%readers", "broker-a", 0)
    pull = PullMessages(group="readers", queue=retry, start=0, count_max=1)
    assert needs_of(pull) == Needs(groups=("readers",))
    subscriptions = (("orders", "*", "TAG", 1), ("%RETRY%readers", "*", "TAG", 1))
    consumer = ConsumerInfo("readers", "CONSUME_PASSIVELY", "CLUSTERING", "x", subscriptions)
    beat = Heartbeat("c", consumers=(consumer,))
    assert needs_of(beat) == Needs(subscribe=("orders",), groups=("readers",))


# --- the users of 5.3 ---------------------------------------------------------------------------


def auth_text(*entries: dict[str, object]) -> str:
    return json.dumps(
        {
            "users": [
                {"username": "boss", "password": "boss-password", "userType": "Super"},
                {"username": "reader", "password": "reader-password", "userType": "Normal"},
                {"username": "left", "password": "left-password", "userStatus": "disable"},
            ],
            "acls": [{"subject": "User:reader", "policies": [{"entries": list(entries)}]}],
        }
    )


def entry(
    resource: str, actions: str = "Sub", decision: str = "Allow", **more: object
) -> dict[str, object]:
    return {"resource": [resource], "actions": actions.split(","), "decision": decision, **more}


READS_ORDERS = auth_text(
    entry("Topic:orders*"),
    entry("Topic:orders-secret", decision="Deny"),
    entry("Topic:own", "Pub,Sub"),
    entry("Topic:seen", "Get"),
    entry("Topic:sent", "Pub"),
    entry("Group:*"),
    entry("Topic:inside", sourceIps=["10.0.0.0/8"]),
)


@pytest.mark.parametrize(
    ("needs", "allowed"),
    [
        (Needs(subscribe=("orders-1",), groups=("g",)), True),
        (Needs(subscribe=("orders-secret",)), False),
        (Needs(publish=("orders-1",)), False),
        (Needs(publish=("own",)), True),
        (Needs(subscribe=("other",)), False),
        (Needs(subscribe=("inside",)), True),
        (Needs(looks_at=("seen",)), True),
        (Needs(looks_at=("orders-1",)), False),
        (Needs(looks_at=("own",)), False),
        (Needs(looks_at=("other",)), False),
        (Needs(subscribe=("seen",)), False),
        (Needs(progress_topics=("seen",), progress_groups=("g",)), True),
        (Needs(progress_topics=("orders-1",)), True),
        (Needs(progress_topics=("sent",)), False),
        (Needs(routes=("orders-1", "sent", "seen", "own")), True),
        (Needs(routes=("other",)), False),
        (Needs(is_admin=True), False),
    ],
)
def test_the_closest_entry_decides_for_a_user(needs: Needs, allowed: bool) -> None:
    users = parse_auth_file(READS_ORDERS).by_key
    assert (users["reader"].refusal(needs, HOST) is None) is allowed
    assert users["boss"].refusal(needs, HOST) is None
    assert "left" not in users
    assert "reader-password" not in repr(users)


def test_an_entry_for_other_addresses_grants_nothing() -> None:
    reader = parse_auth_file(READS_ORDERS).by_key["reader"]
    refusal = reader.refusal(Needs(subscribe=("inside",)), "192.168.0.1")
    assert refusal == (
        "User:reader has no permission to access Topic:inside from 192.168.0.1 (sub)"
    )


def test_a_denial_goes_before_a_grant_of_the_same_thing() -> None:
    text = auth_text(entry("Topic:a"), entry("Topic:a", decision="Deny"))
    assert parse_auth_file(text).by_key["reader"].refusal(Needs(subscribe=("a",)), HOST)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "must be an object"),
        ('{"users": [{"username": "a"}]}', "user 1: password is missing"),
        ('{"acls": [{"subject": "a"}]}', "acl 1: its subject"),
        (auth_text(entry("orders")), "Topic:, Group: or Cluster:"),
        (auth_text(entry("Topic:a", "Read")), "acl 1: actions are some of"),
        (auth_text(entry("Topic:a", decision="Maybe")), "Allow or Deny"),
        (auth_text(entry("Topic:a", sourceIps=["nowhere"])), "no pattern of addresses"),
    ],
)
def test_a_bad_file_of_users_is_refused_without_any_password(text: str, complaint: str) -> None:
    with pytest.raises(AccountFileError, match=complaint) as refused:
        parse_auth_file(text)
    assert "password" not in str(refused.value) or "missing" in str(refused.value)
