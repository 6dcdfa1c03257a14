"""The access control of RocketMQ 4.9: `plain_acl.yml` -> accounts with rights to topics and groups.

A right is DENY, PUB, SUB or PUB|SUB. If an account names neither the topic nor the group, its
default right applies, which is DENY unless the file sets it. An admin without rights of its own may
do everything. Read-only permissions (`Permission.is_read_only`) need no right.

Every scalar is a text, so that a secret key of digits stays as it is written. Duplicate keys,
anchors, aliases and tags are refused; RocketMQ's own files have none of them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

from rocketmq_broker.errors import ConfigError
from rocketmq_broker.security.accounts import Accounts, address_pattern
from rocketmq_wire.requests.permissions import Action, Permission, ResourceKind


class Right(enum.IntFlag):
    DENY = 1
    PUB = 4
    SUB = 8


_WORDS: Final = {
    "DENY": Right.DENY,
    "PUB": Right.PUB,
    "SUB": Right.SUB,
    "PUB|SUB": Right.PUB | Right.SUB,
    "SUB|PUB": Right.PUB | Right.SUB,
}
_ACCOUNT_KEYS: Final = frozenset(
    {
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin"),
        *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),
    }
)
# As RocketMQ: shorter keys are refused.
_KEY_LENGTH_MIN: Final = 7
# 300 KB take a second, in which the broker serves no request; an account takes 200 bytes.
_TEXT_SIZE_MAX: Final = 1 << 20
_NULLS: Final = ("~", "null", "Null", "NULL")

Yaml = str | list["Yaml"] | dict[str, "Yaml"]


@dataclass(frozen=True, slots=True)
class PlainAccount:
    access_key: str
    secret_key: str = field(repr=False)
    is_admin: bool = False
    default_topic: Right = Right.DENY
    default_group: Right = Right.DENY
    topics: Mapping[str, Right] = field(default_factory=dict)
    groups: Mapping[str, Right] = field(default_factory=dict)
    white: Callable[[str], bool] | None = None

    def trusts(self, host: str) -> bool:
        return self.white is not None and self.white(host)

    def refusal(self, permissions: Sequence[Permission], host: str) -> str | None:
        del host
        wanted = [one for one in permissions if not one.is_read_only]
        is_for_admins = any(one.kind is ResourceKind.CLUSTER for one in wanted)
        if is_for_admins and not self.is_admin:
            return f"Need admin permission, but accessKey={self.access_key} is not"
        if self.is_admin and not self.topics and not self.groups:
            return None
        for permission in wanted:
            reason = self._refusal_of(permission)
            if reason is not None:
                return reason
        return None

    def _refusal_of(self, permission: Permission) -> str | None:
        if permission.kind is ResourceKind.CLUSTER:
            return None
        is_topic = permission.kind is ResourceKind.TOPIC
        named = self.topics if is_topic else self.groups
        default = self.default_topic if is_topic else self.default_group
        right = Right.PUB if Action.PUB in permission.actions else Right.SUB
        owned = named.get(permission.name, default)
        if not owned & Right.DENY and owned & right:
            return None
        which = "permission" if permission.name in named else "default permission"
        resource = f"{permission.kind.value.lower()}:{permission.name}"
        return f"No {which} for {resource}, accessKey={self.access_key}"


def parse_plain_acl(text: str) -> Accounts:
    """The accounts of a file. Raises ConfigError."""
    root = parse_yaml(text)
    try:
        if not isinstance(root, dict):
            raise ConfigError("the file is no map")
        patterns = [address_pattern(one) for one in _texts(root, "globalWhiteRemoteAddresses")]
        entries = root.get("accounts") or []
        if not isinstance(entries, list):
            raise ConfigError("accounts is no list")
        accounts = [_account(entry, number) for number, entry in enumerate(entries, 1)]
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error
    by_key = {account.access_key: account for account in accounts}
    if len(by_key) < len(accounts):
        raise ConfigError("an accessKey is there twice")
    white = [pattern for pattern in patterns if pattern is not None]
    return Accounts(by_key, lambda host: any(matches(host) for matches in white))


def parse_yaml(text: str) -> Yaml:
    """The document in a text. Raises ConfigError, which names the line and shows no value."""
    if len(text) > _TEXT_SIZE_MAX:
        raise ConfigError(f"the file has more than {_TEXT_SIZE_MAX} characters")
    try:
        root: Yaml | None = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        parts = ((error.context_mark, error.context), (error.problem_mark, error.problem))
        reasons = [f"line {mark.line + 1}: {text}" for mark, text in parts if mark and text]
        # PyYAML's own text shows the line, which may hold a secret key.
        raise ConfigError(", ".join(reasons)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"line {line}: {error.reason}") from None
    except RecursionError:
        raise ConfigError("the file is nested too deeply") from None
    return {} if root is None else root


class _Loader(yaml.BaseLoader):
    """PyYAML's loader of texts, lists and maps, without features that hide or repeat entries."""

    def construct_scalar(self, node: yaml.ScalarNode) -> str:
        is_null = node.style is None and node.value in _NULLS
        return "" if is_null else str(super().construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(None, None, "a key is no text", key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    None, None, f"{key.value} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def fetch_anchor(self) -> NoReturn:
        self._refuse("&")

    def fetch_alias(self) -> NoReturn:
        self._refuse("*")

    def fetch_tag(self) -> NoReturn:
        self._refuse("!")

    def _refuse(self, sign: str) -> NoReturn:
        reason = f"a text that begins with {sign} must be quoted"
        raise yaml.MarkedYAMLError(None, None, reason, self.get_mark())


def _account(entry: Yaml, number: int) -> PlainAccount:
    where = f"account {number}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is no map")
    unknown = set(entry) - _ACCOUNT_KEYS
    if unknown:
        raise ConfigError(f"{where} has the unknown key {min(unknown)!r}")
    access_key, secret_key = _text(entry, "accessKey"), _text(entry, "secretKey")
    if min(len(access_key), len(secret_key)) < _KEY_LENGTH_MIN:
        raise ConfigError(
            f"{where}: accessKey and secretKey must have at least {_KEY_LENGTH_MIN} characters"
        )
    return PlainAccount(
        access_key,
        secret_key,
        _text(entry, "admin").lower() == "true",
        _right(_text(entry, "defaultTopicPerm") or "DENY", where),
        _right(_text(entry, "defaultGroupPerm") or "DENY", where),
        _rights(_texts(entry, "topicPerms"), where),
        _rights(_texts(entry, "groupPerms"), where),
        address_pattern(_text(entry, "whiteRemoteAddress")),
    )


def _rights(entries: Iterable[str], where: str) -> dict[str, Right]:
    found = {}
    for entry in entries:
        name, equals, word = entry.partition("=")
        if not equals:
            raise ConfigError(f"{where}: {entry!r} is not name=right")
        found[name.strip()] = _right(word.strip(), where)
    return found


def _right(word: str, where: str) -> Right:
    if word not in _WORDS:
        raise ConfigError(f"{where}: {word!r} is none of {', '.join(_WORDS)}")
    return _WORDS[word]


def _text(entry: Mapping[str, Yaml], name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str):
        raise ConfigError(f"{name} is no text")
    return value


def _texts(entry: Mapping[str, Yaml], name: str) -> list[str]:
    value = entry.get(name) or []
    if isinstance(value, str):
        return [value]
    texts = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    if len(texts) != len(value):
        raise ConfigError(f"{name} is no list of texts")
    return texts
