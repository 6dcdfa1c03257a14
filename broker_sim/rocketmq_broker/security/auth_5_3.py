"""The access control of RocketMQ 5.3: users and their acls in a JSON file -> accounts.

    {"users": [{"username": "reader", "password": "…", "userType": "Normal"}],
     "acls": [{"subject": "User:reader", "policies": [{"entries": [
        {"resource": ["Topic:orders*", "Group:*"], "actions": ["Sub", "Get"],
         "sourceIps": ["10.0.0.0/8"], "decision": "Allow"}]}]}]}

A super user may do everything. For other users the most specific entry of a resource decides, and
among equally specific ones a denial. A resource without an entry is denied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketmq_broker.errors import ConfigError
from rocketmq_broker.security.accounts import Accounts, address_pattern
from rocketmq_wire.requests.permissions import Permission

_KINDS: Final = ("Topic", "Group", "Cluster")
_ACTIONS: Final = frozenset(
    {"pub", "sub", "create", "update", "delete", "get", "list", "all", "any"}
)
_DECISIONS: Final = ("allow", "deny")
_EXACT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule of an acl, for one resource."""

    kind: str
    """Topic, Group, Cluster, or * for all of them."""
    name: str
    """A name, a prefix followed by *, or *."""
    actions: frozenset[str]
    allows: bool
    source: Callable[[str], bool] | None = None

    def specificity(self, kind: str, name: str, action: str, host: str) -> int:
        """The specificity of the match with a request; negative without a match."""
        if self.kind not in ("*", kind) or not self.actions & {action, "all", "any"}:
            return -1
        if self.source is not None and not self.source(host):
            return -1
        if self.name == name:
            return _EXACT
        prefix = self.name[:-1]
        if self.name.endswith("*") and name.startswith(prefix):
            return len(prefix) + (self.kind != "*")
        return -1


@dataclass(frozen=True, slots=True)
class AuthUser:
    username: str
    secret_key: str = field(repr=False)
    is_super: bool = False
    entries: tuple[Entry, ...] = ()

    def trusts(self, host: str) -> bool:
        del host
        return False

    def refusal(self, permissions: Sequence[Permission], host: str) -> str | None:
        if self.is_super:
            return None
        for permission in permissions:
            kind, name = permission.kind.value, permission.name
            actions = [action.value for action in permission.actions]
            if not self._may(kind, name, actions, host):
                return (
                    f"User:{self.username} has no permission to access {kind}:{name} from {host}"
                    f" ({' or '.join(actions)})"
                )
        return None

    def _may(self, kind: str, name: str, actions: Sequence[str], host: str) -> bool:
        best, allows = -1, False
        for entry in self.entries:
            found = max(entry.specificity(kind, name, one, host) for one in actions)
            if found > best:
                best, allows = found, entry.allows
            elif found == best and found >= 0:
                allows = allows and entry.allows
        return allows


def parse_auth_file(text: str) -> Accounts:
    """The users of a file. Raises ConfigError."""
    try:
        root = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the file is no JSON: {error}") from error
    if not isinstance(root, dict) or set(root) - {"users", "acls"}:
        raise ConfigError("the file must be an object with the members users and acls")
    entries: dict[str, list[Entry]] = {}
    for number, acl in enumerate(_objects(root, "acls"), 1):
        where = f"acl {number}"
        kind, _, username = _text(acl, "subject", where).partition(":")
        if kind != "User":
            raise ConfigError(f"{where}: its subject must be User:<name>")
        for policy in _objects(acl, "policies"):
            for entry in _objects(policy, "entries"):
                entries.setdefault(username, []).extend(_entries(entry, where))
    users: dict[str, AuthUser] = {}
    for number, user in enumerate(_objects(root, "users"), 1):
        where = f"user {number}"
        username = _text(user, "username", where)
        if str(user.get("userStatus", "enable")).lower() != "enable":
            continue
        if username in users:
            raise ConfigError(f"{where}: the name is there twice")
        is_super = str(user.get("userType", "Normal")).lower() == "super"
        password = _text(user, "password", where)
        users[username] = AuthUser(username, password, is_super, tuple(entries.get(username, ())))
    return Accounts(users)


def _entries(entry: Mapping[str, object], where: str) -> list[Entry]:
    actions = frozenset(one.lower() for one in _texts(entry, "actions", where))
    if not actions or actions - _ACTIONS:
        raise ConfigError(f"{where}: actions are some of {', '.join(sorted(_ACTIONS))}")
    decision = _text(entry, "decision", where).lower()
    if decision not in _DECISIONS:
        raise ConfigError(f"{where}: a decision is Allow or Deny")
    try:
        source = address_pattern(",".join(_texts(entry, "sourceIps", where)))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    found = []
    for resource in _texts(entry, "resource", where):
        kind, colon, name = resource.partition(":")
        if resource == "*":
            kind, name = "*", "*"
        elif not colon or kind not in _KINDS or not name:
            raise ConfigError(f"{where}: {resource!r} is not Topic:, Group: or Cluster:<name>")
        found.append(Entry(kind, name, actions, decision == "allow", source))
    return found


def _objects(owner: Mapping[str, object], name: str) -> list[dict[str, object]]:
    value = owner.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ConfigError(f"{name} is no list of objects")
    return value


def _texts(owner: Mapping[str, object], name: str, where: str) -> list[str]:
    value = owner.get(name, [])
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{where}: {name} is no list of texts")
    return value


def _text(owner: Mapping[str, object], name: str, where: str) -> str:
    value = owner.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: {name} is missing")
    return value
