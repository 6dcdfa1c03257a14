"""The broker's settings under RocketMQ's names: tools read them all, and may change some.

A change lasts until the next start: the broker never writes its configuration file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.messages.pulling import Pulling
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.requests.brokers import (
    ChangeBrokerSettings,
    GetNameServerSettings,
    SettingsReply,
)

_ENTRY_SIZE: Final = 20
_FLUSH_NAMES: Final = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH", "memory": "ASYNC_FLUSH"}
_COUNT_MAX: Final = 10_000_000
_SIZE_MAX: Final = 15 * 1024 * 1024
"""Such a reply to a pull still fits a frame."""
_FLAG: Final = 0
_CHANGEABLE: Final = {
    "autoCreateSubscriptionGroup": _FLAG,
    "autoCreateTopicEnable": _FLAG,
    "enablePropertyFilter": _FLAG,
    "longPollingEnable": _FLAG,
    "maxTransferBytesOnMessageInMemory": _SIZE_MAX,
    "maxTransferCountOnMessageInMemory": _COUNT_MAX,
    "serverLoadBalancerEnable": _FLAG,
}
"""The settings that a running broker can change: flags, and numbers up to a maximum."""


def _value_of(name: str, text: str) -> int:
    """The value of a changeable setting: 0 or 1 for a flag."""
    high = _CHANGEABLE[name]
    if high == _FLAG:
        if text.lower() not in ("true", "false"):
            raise refusals.setting_illegal(name, f"{text[:40]!r} is neither true nor false")
        return text.lower() == "true"
    number = whole_number(text)
    if number is None or not 1 <= number <= high:
        raise refusals.setting_illegal(name, f"{text[:40]!r} is no number from 1 to {high}")
    return number


class Settings:
    def __init__(self, tables: Tables, pulling: Pulling) -> None:
        self._config = tables.config
        self._identity = tables.identity
        self._pulling = pulling
        self._topics = tables.topics
        self._groups = tables.groups

    def broker_table(self) -> dict[str, str]:
        """Every RocketMQ setting that this broker has a counterpart of."""
        config, identity = self._config, self._identity
        limits = self._pulling.limits
        texts = {
            "brokerName": identity.broker_name,
            "brokerClusterName": identity.cluster_name,
            "brokerIP1": identity.host,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": _FLUSH_NAMES[config.flush],
            "storePathRootDir": config.data_dir,
            "storePathCommitLog": f"{config.data_dir}/commitlog",
        }
        numbers = {
            "brokerId": 0,
            "brokerPermission": 6,
            "listenPort": identity.port,
            "defaultTopicQueueNums": config.auto_create_topic_queues,
            "diskMaxUsedSpaceRatio": config.disk_use_percent_max,
            "fileReservedTime": config.retention_hours,
            "flushConsumerOffsetInterval": config.progress_flush_ms,
            "flushIntervalCommitLog": config.flush_interval_ms,
            "mappedFileSizeCommitLog": config.commit_log_file_bytes,
            "mappedFileSizeConsumeQueue": config.consume_queue_file_entries * _ENTRY_SIZE,
            "maxMessageSize": config.message_bytes_max,
            "maxTransferBytesOnMessageInMemory": limits.bytes_max,
            "maxTransferCountOnMessageInMemory": limits.count_max,
            "serverChannelMaxIdleTimeSeconds": config.idle_seconds,
        }
        flags = {
            "autoCreateSubscriptionGroup": self._groups.auto_create,
            "autoCreateTopicEnable": self._topics.auto_create,
            "enablePropertyFilter": limits.allows_sql,
            "longPollingEnable": limits.suspend_ms_max > 0,
            "serverLoadBalancerEnable": self._groups.server_load_balancer,
            "slaveReadEnable": False,
            "transientStorePoolEnable": False,
            "useServerSideResetOffset": True,
        }
        return {
            **texts,
            **{name: str(number) for name, number in numbers.items()},
            **{name: "true" if is_on else "false" for name, is_on in flags.items()},
        }

    def of_name_server(self, _: GetNameServerSettings) -> SettingsReply:
        """The settings that the broker answers as its own name server."""
        table = {
            "listenPort": str(self._identity.port),
            "serverChannelMaxIdleTimeSeconds": str(self._config.idle_seconds),
            "clusterTest": "false",
            "enableAllTopicList": "true",
            "enableTopicList": "true",
            "orderMessageEnable": "false",
        }
        return SettingsReply(table)

    def change(self, request: ChangeBrokerSettings) -> None:
        """Change all of them or none. As in RocketMQ, unknown names are ignored.

        Refuses (1) a value, and a setting that needs a restart.
        """
        known = self.broker_table()
        for name, text in request.settings.items():
            if name in known and name not in _CHANGEABLE and text != known[name]:
                raise refusals.setting_illegal(
                    name, f"a running broker can only change {', '.join(_CHANGEABLE)}"
                )
        values = {
            name: _value_of(name, text)
            for name, text in request.settings.items()
            if name in _CHANGEABLE
        }
        for name, value in values.items():
            self._change(name, value)

    def _change(self, name: str, value: int) -> None:
        pulling = self._pulling
        if name == "enablePropertyFilter":
            pulling.limits = replace(pulling.limits, allows_sql=bool(value))
        elif name == "longPollingEnable":
            suspend_ms = self._config.suspend_ms_max if value else 0
            pulling.limits = replace(pulling.limits, suspend_ms_max=suspend_ms)
        elif name == "maxTransferCountOnMessageInMemory":
            pulling.limits = replace(pulling.limits, count_max=value)
        elif name == "maxTransferBytesOnMessageInMemory":
            pulling.limits = replace(pulling.limits, bytes_max=value)
        elif name == "autoCreateTopicEnable":
            self._topics.auto_create = bool(value)
        elif name == "autoCreateSubscriptionGroup":
            self._groups.auto_create = bool(value)
        elif name == "serverLoadBalancerEnable":
            self._groups.server_load_balancer = bool(value)
