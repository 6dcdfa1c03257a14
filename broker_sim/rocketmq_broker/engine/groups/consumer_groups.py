"""The table of consumer groups, its rules, and its file `subscriptionGroup.json`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.topics import Save
from rocketmq_broker.storage.disk.config_files import GROUPS
from rocketmq_broker.storage.errors import StorageError
from rocketmq_wire.model import GROUP_SIZE_MAX, NAME_PATTERN

_LOG = logging.getLogger(__name__)

# RocketMQ's settings of a group that its first use creates.
_DEFAULTS: Final[dict[str, Any]] = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
_LITE_BINDING: Final = "lite.bind.topic"
"""The attribute of a group that consumes lite topics; it names their parent topic."""


def check_group_name(group: str) -> None:
    """Refuse (26) a name that RocketMQ's validator rejects."""
    if not group.strip():
        raise refusals.group_illegal(group, "it is blank")
    if len(group) > GROUP_SIZE_MAX:
        raise refusals.group_illegal(group, f"it is longer than {GROUP_SIZE_MAX}")
    if not NAME_PATTERN.fullmatch(group):
        raise refusals.group_illegal(group, f"it has characters beyond {NAME_PATTERN.pattern}")


def _changed_attributes(known: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes after a tool's changes: `+name` or `name` sets, `-name` removes."""
    changed = dict(known)
    for name, value in changes.items():
        if name.startswith("-"):
            changed.pop(name[1:], None)
        else:
            changed[name.removeprefix("+")] = value
    return changed


class Groups:
    """Every group by name. A change takes effect once it is saved."""

    def __init__(
        self,
        stored: Mapping[str, Any],
        save: Save,
        *,
        auto_create: bool,
        server_load_balancer: bool = True,
    ) -> None:
        self._save = save
        self.auto_create = auto_create
        self.server_load_balancer = server_load_balancer
        """False: a member that asks for its queues gets all of them."""
        self._table: dict[str, dict[str, Any]] = dict(stored.get("subscriptionGroupTable") or {})
        self._version = int((stored.get("dataVersion") or {}).get("counter", 0))
        self._is_unsaved = False
        """True if the disk refused the table."""

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._table))

    def retry_limits(self, group: str) -> tuple[int, int]:
        """The group's number of retry queues, and its maximum number of attempts."""
        settings = self.settings(group)
        return int(settings["retryQueueNums"]), int(settings["retryMaxTimes"])

    def settings(self, group: str) -> dict[str, Any]:
        """A group's settings; the defaults if it does not exist yet."""
        return {**_DEFAULTS, **self._table.get(group, {})}

    def ensure(self, *groups: str) -> None:
        """Create the groups that are missing and may be created, in one write, else refuse (26)."""
        missing = [group for group in groups if group not in self._table]
        if not missing:
            return
        for group in missing:
            check_group_name(group)
            if not self.auto_create:
                raise refusals.group_missing(group)
        created = {group: {**_DEFAULTS, "groupName": group} for group in missing}
        table = {**self._table, **created}
        try:
            self._write(table)
        except StorageError as error:
            # A full disk must not keep a new group from reading. If a crash forgets the group, its
            # next use creates the same one again.
            _LOG.warning("groups=%s: created, but not saved yet: %s", ",".join(missing), error)
            self._table = table
            self._is_unsaved = True

    def save(self) -> None:
        """Return once the disk has every group. Raises StorageError."""
        if self._is_unsaved:
            self._write(self._table)

    def put(self, settings: Mapping[str, object]) -> None:
        """Create or change a group for an administrator. Refusals: 26, 29."""
        group = settings.get("groupName")
        if not isinstance(group, str):
            raise refusals.group_setting_illegal("groupName", "is missing")
        check_group_name(group)
        for name, default in _DEFAULTS.items():
            # In Python bool is an int; neither may replace the other here.
            if name in settings and type(settings[name]) is not type(default):
                raise refusals.group_setting_illegal(name, f"is {settings[name]!r}")
        config: dict[str, Any] = {**_DEFAULTS, **settings}
        known = self.settings(group)["attributes"]
        config["attributes"] = _changed_attributes(known, config["attributes"])
        binding = config["attributes"].get(_LITE_BINDING)
        if binding and binding != known.get(_LITE_BINDING):
            raise refusals.group_setting_illegal(
                _LITE_BINDING, "is set: lite topics are not supported"
            )
        if config != self._table.get(group):
            self._write({**self._table, group: config})

    def delete(self, group: str) -> None:
        """Delete a group. As in RocketMQ, an unknown group is no error."""
        if group in self._table:
            self._write({name: self._table[name] for name in self._table if name != group})

    def _write(self, table: dict[str, dict[str, Any]]) -> None:
        self._version += 1
        version = {"counter": self._version, "stateVersion": 0, "timestamp": 0}
        self._save(GROUPS, {"dataVersion": version, "subscriptionGroupTable": table})
        self._table = table
        self._is_unsaved = False
