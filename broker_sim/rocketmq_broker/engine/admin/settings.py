"""The broker's settings under RocketMQ's names: tools read them all, and may change some.

A change lasts until the next start: the broker never writes its configuration file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.routes import Identity
from rocketmq_broker.engine.messages.pulling import Pulling
from rocketmq_broker.engine.tables import Tables

_ENTRY_SIZE: Final = 20
_FLUSH_NAMES: Final = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH", "memory": "ASYNC_FLUSH"}
_CHANGEABLE: Final = (
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "enablePropertyFilter",
    "longPollingEnable",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
)
_COUNT_MAX: Final = 10_000_000
_SIZE_MAX: Final = 15 * 1024 * 1024
"""Such a reply to a pull still fits a frame."""


def _flag_of(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise refusals.setting_illegal(name, f"{text[:40]!r} is neither true nor false")
    return text.lower() == "true"


def _number_of(name: str, text: str, high: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and 1 <= int(text) <= high):
        raise refusals.setting_illegal(name, f"{text[:40]!r} is no number from 1 to {high}")
    return int(text)


class Settings:
    """The settings as tools read and change them."""

    def __init__(self, config: BrokerConfig, *, pulling: Pulling, tables: Tables) -> None:
        self._config = config
        self._pulling = pulling
        self._topics = tables.topics
        self._groups = tables.groups

    def broker_table(self, identity: Identity) -> dict[str, str]:
        """Every RocketMQ setting that this broker has a counterpart of."""
        config, limits = self._config, self._pulling.limits
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
            "slaveReadEnable": False,
            "transientStorePoolEnable": False,
            "useServerSideResetOffset": True,
        }
        return {
            **texts,
            **{name: str(number) for name, number in numbers.items()},
            **{name: "true" if is_on else "false" for name, is_on in flags.items()},
        }

    def name_server_table(self, identity: Identity) -> dict[str, str]:
        """The settings that the broker answers as its own name server."""
        return {
            "listenPort": str(identity.port),
            "serverChannelMaxIdleTimeSeconds": str(self._config.idle_seconds),
            "clusterTest": "false",
            "enableAllTopicList": "true",
            "enableTopicList": "true",
            "orderMessageEnable": "false",
        }

    def change(self, settings: Mapping[str, str], identity: Identity) -> None:
        """Change all of them or none. As in RocketMQ, unknown names are ignored.

        Refuses (1) a value, and a setting that needs a restart.
        """
        known = self.broker_table(identity)
        for name, text in settings.items():
            if name in known and name not in _CHANGEABLE and text != known[name]:
                raise refusals.setting_illegal(
                    name, f"a running broker can only change {', '.join(_CHANGEABLE)}"
                )
        limits = self._pulling.limits
        creates_topics = self._topics.auto_create
        creates_groups = self._groups.auto_create
        try:
            for name, text in settings.items():
                self._change(name, text)
        except BaseException:
            self._pulling.limits = limits
            self._topics.auto_create = creates_topics
            self._groups.auto_create = creates_groups
            raise

    def _change(self, name: str, text: str) -> None:
        pulling = self._pulling
        if name == "enablePropertyFilter":
            pulling.limits = replace(pulling.limits, allows_sql=_flag_of(name, text))
        elif name == "longPollingEnable":
            suspend_ms = self._config.suspend_ms_max if _flag_of(name, text) else 0
            pulling.limits = replace(pulling.limits, suspend_ms_max=suspend_ms)
        elif name == "maxTransferCountOnMessageInMemory":
            count = _number_of(name, text, _COUNT_MAX)
            pulling.limits = replace(pulling.limits, count_max=count)
        elif name == "maxTransferBytesOnMessageInMemory":
            size = _number_of(name, text, _SIZE_MAX)
            pulling.limits = replace(pulling.limits, bytes_max=size)
        elif name == "autoCreateTopicEnable":
            self._topics.auto_create = _flag_of(name, text)
        elif name == "autoCreateSubscriptionGroup":
            self._groups.auto_create = _flag_of(name, text)
