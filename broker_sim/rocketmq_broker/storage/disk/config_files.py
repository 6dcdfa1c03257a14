"""RocketMQ's configuration files as dicts: each save replaces the file whole and durably.

`topics.json` carries one member more than RocketMQ writes, `deadBefore`: for each topic that was
deleted, the log position before which its records are dead. It is in the same file so that the
deletion and the position reach the disk in one step; RocketMQ ignores members it does not know.

RocketMQ keeps what a file held before as `<name>.bak`, and reads that when the file cannot be read.
So does a start here. The first save of a file removes it: it is RocketMQ's last word, never ours.

A RocketMQ with lite topics keeps the progress of all topics in a file of another name. Where that
file exists, progress is saved under both names: a RocketMQ of either kind resumes where we were.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Mapping
from typing import Final, cast

from rocketmq_broker.storage.disk.files import Files, join, read_file, write_file
from rocketmq_broker.storage.errors import ConfigFileError, StorageError
from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError

_LOG = logging.getLogger(__name__)

CONFIG_DIRECTORY: Final = "config"
TOPICS: Final = "topics.json"
CONSUMER_OFFSETS: Final = "consumerOffset.json"
LMQ_OFFSETS: Final = "lmqConsumerOffset.json"
GROUPS: Final = "subscriptionGroup.json"
TIMERS: Final = "timers.json"
TOPIC_TABLE: Final = "topicConfigTable"
OFFSET_TABLE: Final = "offsetTable"
GROUP_TABLE: Final = "subscriptionGroupTable"
_DEAD_BEFORE: Final = "deadBefore"
_TABLES: Final = {
    TOPICS: TOPIC_TABLE,
    CONSUMER_OFFSETS: OFFSET_TABLE,
    LMQ_OFFSETS: OFFSET_TABLE,
    GROUPS: GROUP_TABLE,
}
_BACKUP: Final = ".bak"


class Configs:
    """The `config` directory. Saves of several threads follow each other."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._saved: set[str] = set()
        dead = self.load(TOPICS).get(_DEAD_BEFORE, {})
        if not isinstance(dead, dict):
            raise ConfigFileError(TOPICS, f"{_DEAD_BEFORE} is not a table")
        self._dead_before = {str(topic): int(position) for topic, position in dead.items()}

    @property
    def dead_before(self) -> Mapping[str, int]:
        """Topic -> the log position before which its records are dead."""
        return self._dead_before

    def load(self, name: str) -> dict[str, object]:
        """The file's content, `{}` if there is none. Raises ConfigFileError if it is damaged."""
        try:
            content = _read(self._files, name)
            if content:
                return content
            damage = None
        except ConfigFileError as error:
            content, damage = {}, error
        try:
            before = _read(self._files, name, _BACKUP)
        except ConfigFileError:
            before = None
        if before:
            path = join(CONFIG_DIRECTORY, name)
            reason = "missing or empty" if damage is None else damage.reason
            _LOG.warning("file=%s: %s. As RocketMQ does, %s%s is used", path, reason, path, _BACKUP)
            return before
        if damage is not None:
            raise damage
        return content or {}

    def save(self, name: str, content: Mapping[str, object]) -> None:
        """Return once the new content is on the disk."""
        with self._lock:
            if name == TOPICS:
                content = {**content, _DEAD_BEFORE: self._dead_before}
            self._write(name, content)
            if name == CONSUMER_OFFSETS and self._has_lite_progress():
                self._write(LMQ_OFFSETS, {**content, "lmqOffsetTable": {}})

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        text = json.dumps(content, ensure_ascii=False, indent="\t")
        path = join(CONFIG_DIRECTORY, name)
        write_file(self._files, path, text.encode())
        if name not in self._saved:
            self._files.unlink(path + _BACKUP)
            self._saved.add(name)

    def _has_lite_progress(self) -> bool:
        if LMQ_OFFSETS in self._saved:
            return True
        return LMQ_OFFSETS in self._files.names(CONFIG_DIRECTORY)

    def adopt_lmq_offsets(self) -> None:
        """Take over progress that a RocketMQ with lite topics has kept since we had this store."""
        kept = self.load(LMQ_OFFSETS)
        version, table = kept.get("dataVersion"), kept.get(OFFSET_TABLE)
        if not isinstance(version, dict) or not isinstance(table, dict):
            return
        if not version.get("timestamp"):
            return  # It is as we wrote it: RocketMQ would have said when.
        content = self.load(CONSUMER_OFFSETS)
        own = content.get(OFFSET_TABLE)
        own = own if isinstance(own, dict) else {}
        ours = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self.save(
            CONSUMER_OFFSETS, {**content, "dataVersion": ours, OFFSET_TABLE: {**own, **table}}
        )

    def set_dead(self, dead_before: Mapping[str, int]) -> None:
        """Return once `topics.json` says which records are dead; it is left alone if it does."""
        if dict(dead_before) != self._dead_before:
            self._dead_before = dict(dead_before)
            self.save(TOPICS, self.load(TOPICS))

    def mark_topics_deleted(self, gone: Collection[str], position: int) -> None:
        """Return once topics are gone from `topics.json` and their records so far are dead."""
        topics = self.load(TOPICS)
        table = topics.get(TOPIC_TABLE)
        if isinstance(table, dict):
            topics[TOPIC_TABLE] = {name: at for name, at in table.items() if name not in gone}
        self._dead_before = {**self._dead_before, **dict.fromkeys(gone, position)}
        self.save(TOPICS, topics)

    def clamp_dead(self, *, log_start: int, log_end: int) -> None:
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


def damaged_configs(files: Files) -> list[ConfigFileError]:
    """Why files of the `config` directory cannot be used, where a start would say so."""
    found = []
    for name in files.names(CONFIG_DIRECTORY):
        if name.endswith(".json"):
            try:
                _read(files, name)
            except ConfigFileError as error:
                found.append(error)
    return found


def _read(files: Files, name: str, ending: str = "") -> dict[str, object] | None:
    """A file's content; None if there is no such file. Raises ConfigFileError."""
    try:
        data = read_file(files, join(CONFIG_DIRECTORY, name + ending))
    except StorageError as error:
        raise ConfigFileError(name, error.reason) from error
    if data is None:
        return None
    try:
        value = fastjson.loads(data)
    except RemoteProtocolError as error:
        raise ConfigFileError(name, str(error) if data.strip(b"\0 \r\n\t") else "empty") from error
    if not isinstance(value, dict):
        raise ConfigFileError(name, "a JSON object was expected")
    _check_tables(name, value)
    return cast("dict[str, object]", value)


def _check_tables(name: str, content: Mapping[str, object]) -> None:
    """What a start looks into is of the kind that it takes."""
    table, version = content.get(_TABLES.get(name, "")), content.get("dataVersion")
    if not isinstance(table, dict | None) or not isinstance(version, dict | None):
        raise ConfigFileError(name, f"{_TABLES.get(name)} and dataVersion must be objects")
    for key, value in (table or {}).items():
        if not isinstance(value, dict):
            raise ConfigFileError(name, f"{key} is no object")
        numbers = (*value, *value.values()) if name in (CONSUMER_OFFSETS, LMQ_OFFSETS) else ()
        if not all(_is_number(one) for one in numbers):
            raise ConfigFileError(name, f"{key} has offsets that are no numbers")
    if version is not None and not _is_number(version.get("counter", 0)):
        raise ConfigFileError(name, "the counter of dataVersion is no number")


def _is_number(value: object) -> bool:
    """What `int` takes: numbers, and texts of digits, as keys are."""
    return isinstance(value, int) or (
        isinstance(value, str) and value.removeprefix("-").isdecimal()
    )
