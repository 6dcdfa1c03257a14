"""RocketMQ's configuration files as dicts: each save replaces the file whole and durably.

`topics.json` carries one member more than RocketMQ writes, `deadBefore`: for each topic that was
deleted, the log position before which its records are dead. It is in the same file so that the
deletion and the position reach the disk in one step; RocketMQ ignores members it does not know.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Final, cast

from rocketmq_broker_sim.storage.errors import StorageError
from rocketmq_broker_sim.storage.files import Files, join, read_file, write_file
from rocketmq_wire import lenient_json
from rocketmq_wire.errors import RemoteProtocolError

CONFIG_DIRECTORY: Final = "config"
TOPICS: Final = "topics.json"
PROGRESS: Final = "consumerOffset.json"
GROUPS: Final = "subscriptionGroup.json"
TOPIC_TABLE: Final = "topicConfigTable"
PROGRESS_TABLE: Final = "offsetTable"
_DEAD_BEFORE: Final = "deadBefore"


class Configs:
    """The `config` directory. Saves of several threads follow each other."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        dead = self.load(TOPICS).get(_DEAD_BEFORE, {})
        if not isinstance(dead, dict):
            raise StorageError(join(CONFIG_DIRECTORY, TOPICS), 0, f"{_DEAD_BEFORE} is not a table")
        self._dead_before = {str(topic): int(position) for topic, position in dead.items()}

    @property
    def dead_before(self) -> Mapping[str, int]:
        """Topic -> the log position before which its records are dead."""
        return self._dead_before

    def load(self, name: str) -> dict[str, object]:
        """The file's content, `{}` if there is none. Raises StorageError if it is not JSON."""
        path = join(CONFIG_DIRECTORY, name)
        data = read_file(self._files, path)
        if data is None:
            return {}
        try:
            value = lenient_json.loads(data)
        except RemoteProtocolError as error:
            raise StorageError(path, 0, f"not JSON: {error}") from error
        if not isinstance(value, dict):
            raise StorageError(path, 0, "a JSON object was expected")
        return cast("dict[str, object]", value)

    def save(self, name: str, content: Mapping[str, object]) -> None:
        """Return once the new content is on the disk."""
        with self._lock:
            if name == TOPICS:
                content = {**content, _DEAD_BEFORE: self._dead_before}
            text = json.dumps(content, ensure_ascii=False, indent="\t")
            write_file(self._files, join(CONFIG_DIRECTORY, name), text.encode())

    def set_dead(self, dead_before: Mapping[str, int]) -> None:
        """Return once `topics.json` says which records are dead; it is left alone if it does."""
        if dict(dead_before) != self._dead_before:
            self._dead_before = dict(dead_before)
            self.save(TOPICS, self.load(TOPICS))

    def bury_topic(self, topic: str, position: int) -> None:
        """Return once the topic is gone from `topics.json` and its records so far are dead."""
        topics = self.load(TOPICS)
        table = topics.get(TOPIC_TABLE)
        if isinstance(table, dict):
            topics[TOPIC_TABLE] = {name: value for name, value in table.items() if name != topic}
        self._dead_before = {**self._dead_before, topic: position}
        self.save(TOPICS, topics)

    def settle_dead(self, *, log_start: int, log_end: int) -> None:
        """After a crash: forget positions that no record is before, and none may be past the log.

        A dead position past the end of a shortened log would kill what is written there next.
        """
        settled = {
            topic: min(position, log_end)
            for topic, position in self._dead_before.items()
            if position > log_start
        }
        if settled != self._dead_before:
            self._dead_before = settled
            self.save(TOPICS, self.load(TOPICS))
