"""Files of accounts: their syntax, and the rights of each account."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketmq_broker.errors import ConfigError
from rocketmq_broker.security.accounts import address_pattern
from rocketmq_broker.security.acl_4_9 import parse_plain_acl, parse_yaml
from rocketmq_broker.security.auth_5_3 import parse_auth_file
from rocketmq_broker.security.guard import Guard, make_guard
from rocketmq_wire.errors import NotAuthorizedError
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.permissions import (
    ADMIN,
    CONSUME,
    GET_CONSUMPTION,
    GET_ROUTE,
    GET_TOPIC,
    JOIN_GROUP,
    NOTHING,
    PUBLISH,
    AccessRight,
    Permission,
    Resources,
)

HOST = "10.0.0.9"


def asked(right: AccessRight, *topics: str, groups: tuple[str, ...] = ()) -> Sequence[Permission]:
    return right.on(Resources(topics, groups))


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
    ("permissions", "allowed"),
    [
        (asked(CONSUME, "topicB"), True),
        (asked(PUBLISH, "topicB"), True),
        (asked(CONSUME, "topicC"), True),
        (asked(PUBLISH, "topicC"), False),
        (asked(CONSUME, "topicA"), False),
        (asked(CONSUME, "unnamed"), False),
        (asked(JOIN_GROUP, groups=("unnamed",)), True),
        (asked(JOIN_GROUP, groups=("groupA",)), False),
        (asked(JOIN_GROUP, groups=("groupC",)), True),
        (asked(CONSUME, "topicB", groups=("groupA",)), False),
        (asked(ADMIN), False),
        (asked(GET_TOPIC, "topicA"), True),
        (asked(NOTHING), True),
    ],
)
def test_a_plain_account_has_the_rights_that_it_names_or_its_defaults(
    permissions: Sequence[Permission], allowed: bool
) -> None:
    accounts = parse_plain_acl(PLAIN).by_key
    assert (accounts["RocketMQ"].refusal(permissions, HOST) is None) is allowed
    assert accounts["rocketmq2"].refusal(permissions, HOST) is None


def test_an_admin_with_rights_of_its_own_has_those_only() -> None:
    text = (
        "accounts:\n- accessKey: admin-one\n  secretKey: 1234567\n  admin: true\n"
        "  topicPerms: [orders=SUB]\n"
    )
    admin = parse_plain_acl(text).by_key["admin-one"]
    assert admin.refusal(asked(ADMIN), HOST) is None
    assert admin.refusal(asked(CONSUME, "orders"), HOST) is None
    assert "topic:orders" in str(admin.refusal(asked(PUBLISH, "orders"), HOST))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("accounts:\n- accessKey: short\n  secretKey: 12345678", "at least 7 characters"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: 123456", "at least 7 characters"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  amdin: true", "'amdin'"),
        ("accounts: none", "accounts is no list"),
        ("- a", "the file is no map"),
        ("accounts:\n\t- a", r"line 2: found character '\\t'"),
        ("globalWhiteRemoteAddresses: [10.0.0.300]", "no pattern of addresses"),
        (
            "accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  topicPerms: [a=READ]",
            "'READ' is none of",
        ),
        ("accounts:" + 2 * "\n- accessKey: RocketMQ\n  secretKey: 12345678", "there twice"),
    ],
)
def test_a_bad_file_is_refused_by_entry_and_without_any_key(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        parse_plain_acl(text)
    assert "12345678" not in str(refused.value)


def test_every_scalar_is_the_text_that_is_written() -> None:
    text = (
        "a: 'it''s'\nb: \"x # \\u0079\"  # why\nc: [1, two]\nd: []\ne:\n  f:\n    - g\n    -\n"
        "h: ~\ni: null\nj: 'null'\nk: 0012345678\nl: 1e10\nm: TRUE\nn: no\no: 2026-01-31\np: 0x1F\n"
        "q: |\n  a\n  b\nr: {s: 1_000}\nt: a\n  b\n"
    )
    assert parse_yaml(text) == {
        "a": "it's",
        "b": "x # y",
        "c": ["1", "two"],
        "d": [],
        "e": {"f": ["g", ""]},
        "h": "",
        "i": "",
        "j": "null",
        "k": "0012345678",
        "l": "1e10",
        "m": "TRUE",
        "n": "no",
        "o": "2026-01-31",
        "p": "0x1F",
        "q": "a\nb\n",
        "r": {"s": "1_000"},
        "t": "a b",
    }
    assert parse_yaml("- a\n- b: 1\n  c: 2\n") == ["a", {"b": "1", "c": "2"}]
    assert parse_yaml("# nothing\n") == {}
    assert parse_yaml("\ufeffa: 1\r\nb: 2\r\n") == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: &x 1", "line 1: a text that begins with & must be quoted"),
        ("a: 1\nb: *secret-key", r"line 2: a text that begins with \* must be quoted"),
        ("- *.*.*.*", r"line 1: a text that begins with \* must be quoted"),
        ("a: !secret!key 1", "line 1: a text that begins with ! must be quoted"),
        ("a: !!python/object/apply:os.getcwd []", "line 1: a text that begins with !"),
        ("a: 1\n  b: 2", "line 2: mapping values are not allowed here"),
        ("a: 1\na: 2", "line 2: a is there twice"),
        ("- b: 1\n  c: 2\n  b: 3", "line 3: b is there twice"),
        ("r: {s: 1, s: 2}", "line 1: s is there twice"),
        ("? [a]\n: 1", "line 1: a key is no text"),
        ("a: [1", "line 1: while parsing a flow sequence, line 1: expected ',' or ']'"),
        (
            "a: 'secret-key\nb: 1",
            "line 1: while scanning a quoted scalar, line 2: found unexpected",
        ),
        ("a: 1\nb: \0", "line 2: special characters are not allowed"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
        ("[" * 100_000, "nested too deeply"),
        ("a: 1\n" * 300_000, "more than 1048576 characters"),
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_hides_or_multiplies_entries_is_refused_by_line(
    text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        parse_yaml(text)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_aliases_that_double_at_every_line_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    with pytest.raises(ConfigError, match="line 1: a text that begins with &"):
        parse_yaml("\n".join(lines))


def test_a_broker_without_pyyaml_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "accounts.yml"
    path.write_text(PLAIN)
    monkeypatch.setitem(sys.modules, "rocketmq_broker.security.acl_4_9", None)
    with pytest.raises(ConfigError, match=r"needs PyYAML: pip install .*\[broker\]"):
        make_guard(str(path), "")
    assert make_guard("", "") is None


def test_an_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    path = tmp_path / "accounts.yml"
    path.write_text(PLAIN + "accounts: []\n")
    line = len(PLAIN.splitlines()) + 1
    complaint = f"^{re.escape(str(path))}: line {line}: accounts is there twice$"
    with pytest.raises(ConfigError, match=complaint):
        make_guard(str(path), "")


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
        ("10.1.2.3", "::ffff:10.1.2.3", "::ffff:10.1.2.4"),
        ("10.1.0.0/16", "::ffff:10.1.9.9", "::ffff:10.2.0.1"),
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


# --- the permissions of requests ----------------------------------------------------------------


def test_the_name_server_is_free_but_for_changes(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN)
    guard = Guard(str(path), parse_plain_acl)
    assert guard.identify_request(HOST, Header(105), b"") is None
    with pytest.raises(NotAuthorizedError, match="MISSING_KEY"):
        guard.identify_request(HOST, Header(216), b"")


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
    ("permissions", "allowed"),
    [
        (asked(CONSUME, "orders-1", groups=("g",)), True),
        (asked(CONSUME, "orders-secret"), False),
        (asked(PUBLISH, "orders-1"), False),
        (asked(PUBLISH, "own"), True),
        (asked(CONSUME, "other"), False),
        (asked(CONSUME, "inside"), True),
        (asked(GET_TOPIC, "seen"), True),
        (asked(GET_TOPIC, "orders-1"), False),
        (asked(GET_TOPIC, "own"), False),
        (asked(GET_TOPIC, "other"), False),
        (asked(CONSUME, "seen"), False),
        (asked(GET_CONSUMPTION, "seen", groups=("g",)), True),
        (asked(GET_CONSUMPTION, "orders-1"), True),
        (asked(GET_CONSUMPTION, "sent"), False),
        (asked(GET_ROUTE, "orders-1", "sent", "seen", "own"), True),
        (asked(GET_ROUTE, "other"), False),
        (asked(ADMIN), False),
    ],
)
def test_the_closest_entry_decides_for_a_user(
    permissions: Sequence[Permission], allowed: bool
) -> None:
    users = parse_auth_file(READS_ORDERS).by_key
    assert (users["reader"].refusal(permissions, HOST) is None) is allowed
    assert users["boss"].refusal(permissions, HOST) is None
    assert "left" not in users
    assert "reader-password" not in repr(users)


def test_an_entry_for_other_addresses_grants_nothing() -> None:
    reader = parse_auth_file(READS_ORDERS).by_key["reader"]
    refusal = reader.refusal(asked(CONSUME, "inside"), "192.168.0.1")
    assert refusal == (
        "User:reader has no permission to access Topic:inside from 192.168.0.1 (sub)"
    )


def test_a_denial_goes_before_a_grant_of_the_same_thing() -> None:
    text = auth_text(entry("Topic:a"), entry("Topic:a", decision="Deny"))
    assert parse_auth_file(text).by_key["reader"].refusal(asked(CONSUME, "a"), HOST)


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
    with pytest.raises(ConfigError, match=complaint) as refused:
        parse_auth_file(text)
    assert "password" not in str(refused.value) or "missing" in str(refused.value)
