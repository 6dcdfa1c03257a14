"""The table of topics, its rules, and its file `topics.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.storage.disk.config_files import TOPICS
from rocketmq_broker.storage.queues.lite_queues import is_lite_parent
from rocketmq_wire import model
from rocketmq_wire.limits import TOPIC_QUEUES_MAX
from rocketmq_wire.requests.transactions import END_TOPIC, HALF_TOPIC, UNRESOLVED_TOPIC

# INHERIT: new topics may copy the settings of this one.
_PERMISSION_INHERIT: Final = 1
_PERMISSIONS: Final = model.PERMISSION_READ | model.PERMISSION_WRITE
_PERMISSION_BITS: Final = 15
# In a data directory of RocketMQ the table lists them like other topics.
_BROKERS_OWN: Final = frozenset({"SCHEDULE_TOPIC_XXXX", HALF_TOPIC, END_TOPIC, UNRESOLVED_TOPIC})

_NOT_FOR_SENDS: Final = _BROKERS_OWN | {"SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}
_SCHEDULE_QUEUES: Final = 18
_BENCHMARK_QUEUES: Final = 1_024
_CLUSTER_QUEUES: Final = 16

Save = Callable[[str, Mapping[str, object]], None]


def check_topic_name(topic: str) -> None:
    """Refuse (29) a name that RocketMQ's topic validator rejects."""
    if not topic.strip():
        raise refusals.topic_illegal(topic, "the specified topic is blank")
    if not model.NAME_PATTERN.fullmatch(topic):
        raise refusals.topic_illegal(
            topic, f"contains illegal characters, allowing only {model.NAME_PATTERN.pattern}"
        )
    size_max = model.SYSTEM_NAME_SIZE_MAX if is_group_topic(topic) else model.NAME_SIZE_MAX
    if len(topic) > size_max:
        raise refusals.topic_illegal(topic, f"is longer than topic max length {size_max}")


def is_group_topic(topic: str) -> bool:
    """True for the retry and dead-letter topics of groups, which the broker itself creates."""
    return topic.startswith((model.RETRY_PREFIX, model.DEAD_LETTER_PREFIX))


def built_in_topics(cluster: str, broker: str) -> dict[str, model.TopicConfig]:
    """The topics that every RocketMQ broker has, with its numbers of queues and permissions."""
    counts = {
        "SELF_TEST_TOPIC": 1,
        "BenchmarkTest": _BENCHMARK_QUEUES,
        "OFFSET_MOVED_EVENT": 1,
        "SCHEDULE_TOPIC_XXXX": _SCHEDULE_QUEUES,
        HALF_TOPIC: 1,
        f"{cluster}_REPLY_TOPIC": 1,
    }
    inherited = {broker: 1, cluster: _CLUSTER_QUEUES}
    return {
        **{name: model.TopicConfig(name, n, n, _PERMISSIONS) for name, n in counts.items()},
        **{
            name: model.TopicConfig(name, n, n, _PERMISSIONS | _PERMISSION_INHERIT)
            for name, n in inherited.items()
        },
    }


class Topics:
    """Every topic by name. A change takes effect once it is saved.

    The built-in ones can be asked for by name, and are not listed until a message is stored there.
    """

    def __init__(
        self,
        stored: Mapping[str, Any],
        save: Save,
        *,
        auto_create: bool,
        auto_create_queues: int,
        built_in: Mapping[str, model.TopicConfig] = {},
    ) -> None:
        self._save = save
        self._built_in = built_in
        self.auto_create = auto_create
        self._auto_queues = auto_create_queues
        self._table = {
            name: _config_from_json(name, value)
            for name, value in (stored.get("topicConfigTable") or {}).items()
        }
        self.version = int((stored.get("dataVersion") or {}).get("counter", 0))
        """Grows with every change."""
        if auto_create:
            # Producers fetch this topic's route to learn the number of queues of new topics.
            self._table[model.DEFAULT_TOPIC] = model.TopicConfig(
                model.DEFAULT_TOPIC,
                auto_create_queues,
                auto_create_queues,
                _PERMISSIONS | _PERMISSION_INHERIT,
            )
        else:
            self._table.pop(model.DEFAULT_TOPIC, None)

    def get(self, topic: str) -> model.TopicConfig | None:
        return self._table.get(topic) or self._built_in.get(topic)

    def all(self) -> tuple[model.TopicConfig, ...]:
        return tuple(self._table[name] for name in sorted(self._table))

    def with_built_in(self) -> tuple[model.TopicConfig, ...]:
        """All topics that have a route, the built-in ones too."""
        return tuple({**self._built_in, **self._table}.values())

    def require(self, topic: str) -> model.TopicConfig:
        """The topic. Refuses (17) an unknown one."""
        config = self.get(topic)
        if config is None:
            raise refusals.topic_missing(topic)
        return config

    def require_readable(self, queue: model.QueueId) -> model.TopicConfig:
        """The topic of a queue that may be pulled from. Refusals: 16, 17, 29."""
        config = self.require(queue.topic)
        if not config.permission & model.PERMISSION_READ:
            raise refusals.not_readable(queue.topic)
        if not 0 <= queue.index < config.read_queue_count:
            raise refusals.queue_illegal(queue.index, queue.topic, config.read_queue_count)
        return config

    def require_writable(self, queue: model.QueueId, default_queue_count: int) -> model.TopicConfig:
        """The topic that a send goes to, created if allowed. Refusals: 13, 16, 17, 29."""
        config = self.get(queue.topic)
        if config is None:
            config = self._create_for_send(queue.topic, default_queue_count)
        elif queue.topic == model.DEFAULT_TOPIC or config.name.startswith("rmq_sys_"):
            raise refusals.topic_illegal(queue.topic, "is forbidden to send to: a system topic")
        elif config.name in _NOT_FOR_SENDS:
            raise refusals.not_writable(queue.topic)
        if not config.permission & model.PERMISSION_WRITE or not config.write_queue_count:
            raise refusals.not_writable(queue.topic)
        if is_lite_parent(config.attributes):
            raise refusals.message_illegal(
                f"topic {queue.topic} has message.type=LITE: lite topics are not supported"
            )
        # As in RocketMQ, a send that names a queue may write to one that routes show as read-only.
        count = max(config.read_queue_count, config.write_queue_count)
        if queue.index >= count:
            raise refusals.queue_illegal(queue.index, queue.topic, count)
        if queue.topic not in self._table:
            self._put(config)  # Recovery takes files of unknown topics for deleted ones.
        return config

    def _create_for_send(self, topic: str, default_queue_count: int) -> model.TopicConfig:
        check_topic_name(topic)
        if not self.auto_create or (model.is_system_topic(topic) and not is_group_topic(topic)):
            raise refusals.topic_missing(topic)
        count = 1 if is_group_topic(topic) else min(max(default_queue_count, 1), self._auto_queues)
        return self._put(model.TopicConfig(topic, count, count, _PERMISSIONS))

    def ensure_group_topic(self, topic: str, queue_count: int) -> int:
        """Create a retry or dead-letter topic if it is missing; returns its number of queues."""
        self.ensure_group_topics((topic,), queue_count)
        return max(self._table[topic].write_queue_count, 1)

    def ensure_group_topics(self, topics: Iterable[str], queue_count: int) -> None:
        """Create the retry or dead-letter topics that are missing, in one write."""
        created = {
            topic: model.TopicConfig(topic, queue_count, queue_count, _PERMISSIONS)
            for topic in topics
            if topic not in self._table
        }
        if created:
            self._write({**self._table, **created})

    def put(self, config: model.TopicConfig) -> None:
        """Create or change a topic for an administrator. Refusals: 29."""
        check_topic_name(config.name)
        self._refuse_system_topic(config.name)
        for count in (config.read_queue_count, config.write_queue_count):
            if not 0 <= count <= TOPIC_QUEUES_MAX:
                raise refusals.topic_illegal(
                    config.name, f"cannot have {count} queues: 0 to {TOPIC_QUEUES_MAX} are possible"
                )
        if config.permission & ~_PERMISSION_BITS:
            raise refusals.topic_illegal(
                config.name, f"perm {config.permission} is not a permission"
            )
        known = self._table.get(config.name)
        if is_lite_parent(config.attributes) and not (
            known is not None and is_lite_parent(known.attributes)
        ):
            raise refusals.topic_illegal(
                config.name, "cannot have message.type=LITE: lite topics are not supported"
            )
        if known is not None:
            config = replace(config, attributes={**known.attributes, **config.attributes})
        if config != known:
            self._put(config)

    def check_deletable(self, topic: str) -> None:
        """Refuse (29) to delete a system topic."""
        if not topic.strip():
            raise refusals.topic_illegal(topic, "the specified topic is blank")
        self._refuse_system_topic(topic)

    def _refuse_system_topic(self, topic: str) -> None:
        is_system = model.is_system_topic(topic) and not is_group_topic(topic)
        # A topic that was created before its name was the cluster's or the broker's stays usable.
        if is_system or (topic in self._built_in and topic not in self._table):
            raise refusals.topic_illegal(topic, "is conflict with system topic.")

    def forget(self, topic: str) -> None:
        """Forget a topic that the store has deleted, and taken out of the file."""
        self.version += 1
        self._table = {name: config for name, config in self._table.items() if name != topic}

    def _put(self, config: model.TopicConfig) -> model.TopicConfig:
        self._write({**self._table, config.name: config})
        return config

    def _write(self, table: dict[str, model.TopicConfig]) -> None:
        """Save a table, then use it: the broker never serves a change that a restart forgets."""
        self.version += 1
        content = {name: _config_to_json(table[name]) for name in sorted(table)}
        version = {"counter": self.version, "stateVersion": 0, "timestamp": 0}
        self._save(TOPICS, {"dataVersion": version, "topicConfigTable": content})
        self._table = table


def _config_to_json(config: model.TopicConfig) -> dict[str, Any]:
    return {
        "attributes": dict(config.attributes),
        "order": config.is_ordered,
        "perm": config.permission,
        "readQueueNums": config.read_queue_count,
        "topicFilterType": config.filter_kind,
        "topicName": config.name,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queue_count,
    }


def _config_from_json(name: str, value: Mapping[str, Any]) -> model.TopicConfig:
    return model.TopicConfig(
        name,
        int(value.get("readQueueNums", 16)),
        int(value.get("writeQueueNums", 16)),
        int(value.get("perm", _PERMISSIONS)),
        str(value.get("topicFilterType", "SINGLE_TAG")),
        int(value.get("topicSysFlag", 0)),
        bool(value.get("order", False)),
        dict(value.get("attributes") or {}),
    )
