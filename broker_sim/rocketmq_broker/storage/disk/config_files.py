"""RocketMQ's configuration files as dictionaries. Each save replaces one file whole and durably.

`topics.json` has one member more than RocketMQ writes: `deadBefore` maps each deleted topic to the
log position before which its records are dead. It is in this file so that the deletion and the
position reach the disk in one step. RocketMQ ignores members it does not know.

RocketMQ keeps a file's previous content as `<name>.bak`, and reads that if it cannot read the file.
So does `load`. The first save of a file removes its backup, which only RocketMQ writes.

Each file ends with the CRC-32 of its other bytes, as a member that RocketMQ ignores and its own
saves leave out. A file without it, of RocketMQ or an administrator, is not checked.

A save that the disk refuses changes nothing: the file keeps or gets back its previous content. A
topic's committed offsets are deleted after the topic. If the disk refuses that, `topics.json` is
not saved again before it has succeeded, so no new topic of this name inherits them.

A RocketMQ with lite topics keeps the committed offsets of all topics in a file of another name. If
that file exists, offsets are saved under both names, so that every RocketMQ finds the newest ones.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, cast

from rocketmq_broker.storage.disk.files import Files, crc32, join, read_file, write_file
from rocketmq_broker.storage.errors import ConfigFileError, StorageError
from rocketmq_wire import fastjson
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import parent_of
from rocketmq_wire.numbers import whole_number

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
_CHECKSUM: Final = "crc32"
_CHECKSUM_MEMBER: Final = b',\n\t"crc32": "%08x"\n}'

Table = dict[str, dict[str, object]]


class Configs:
    """The `config` directory. Several threads may save; saves follow one another."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.RLock()
        self._saved: set[str] = set()
        self._versions: dict[str, int] = {}
        """The version of the content last saved, by name."""
        self._deleted: frozenset[str] = frozenset()
        """Deleted topics whose committed offsets may still be on the disk."""
        dead = self.load(TOPICS).get(_DEAD_BEFORE, {})
        if not isinstance(dead, dict):
            raise ConfigFileError(TOPICS, f"{_DEAD_BEFORE} is not a table")
        self._dead_before = {str(topic): int(position) for topic, position in dead.items()}

    @property
    def dead_before(self) -> Mapping[str, int]:
        """Log position before which a topic's records are dead, by topic."""
        return self._dead_before

    def load(self, name: str) -> dict[str, object]:
        """A file's content, `{}` if there is no file. Raises ConfigFileError if it is damaged."""
        try:
            content = _read(self._files, name)
            if content:
                return content
            damage = None
        except ConfigFileError as error:
            content, damage = {}, error
        try:
            backup = _read(self._files, name, _BACKUP)
        except ConfigFileError:
            backup = None
        if backup:
            path = join(CONFIG_DIRECTORY, name)
            reason = "missing or empty" if damage is None else damage.reason
            _LOG.warning("file=%s: %s. As RocketMQ does, %s%s is used", path, reason, path, _BACKUP)
            return backup
        if damage is not None:
            raise damage
        return content or {}

    def load_table(self, name: str) -> Table:
        """The table of topics, groups or offsets that a file holds, `{}` if there is no file."""
        return table_of(name, self.load(name))

    def save(self, name: str, content: Mapping[str, object]) -> None:
        """Return once the new content is on the disk, or newer one of another thread."""
        with self._lock:
            version = _version_of(content)
            if version < self._versions.get(name, 0):
                return
            if name == TOPICS:
                self._save_topics(content, self._dead_before)
                return
            if name == CONSUMER_OFFSETS and self._has_lmq_offsets():
                self._write(LMQ_OFFSETS, {**content, "lmqOffsetTable": {}})
            self._write(name, content)
            self._versions[name] = version

    def set_dead(self, dead_before: Mapping[str, int]) -> None:
        """Return once `topics.json` has these positions. Writes nothing if it has them already."""
        with self._lock:
            if dict(dead_before) != self._dead_before:
                self._save_topics(self.load(TOPICS), dead_before)

    def delete_topics(self, topics: Collection[str], position: int) -> None:
        """Return once topics are not in `topics.json` and their records before `position` dead."""
        with self._lock:
            content = self.load(TOPICS)
            table = table_of(TOPICS, content)
            if TOPIC_TABLE in content:
                content[TOPIC_TABLE] = {
                    name: config for name, config in table.items() if name not in topics
                }
            self._save_topics(content, {**self._dead_before, **dict.fromkeys(topics, position)})
            self._deleted |= frozenset(topics)
            try:
                self._delete_offsets()
            except StorageError as error:
                _LOG.warning(
                    "topics=%s: deleted, but not yet their committed offsets: %s. The next change "
                    "of a topic, or the next start, deletes them",
                    ",".join(sorted(topics)),
                    error,
                )

    def _save_topics(self, content: Mapping[str, object], dead_before: Mapping[str, int]) -> None:
        self._delete_offsets()
        self._write(TOPICS, {**content, _DEAD_BEFORE: dead_before})
        self._dead_before = dict(dead_before)

    def _delete_offsets(self) -> None:
        """Return once the disk has no offsets in deleted topics, or in their lite queues."""
        if not self._deleted:
            return
        content = self.load(CONSUMER_OFFSETS)
        table = table_of(CONSUMER_OFFSETS, content)
        kept = {key: at for key, at in table.items() if not is_of(key, self._deleted)}
        if len(kept) < len(table):
            self.save(CONSUMER_OFFSETS, {**content, OFFSET_TABLE: kept})
        self._deleted = frozenset()

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        path, data = join(CONFIG_DIRECTORY, name), encode_config(content)
        before = read_file(self._files, path)
        try:
            write_file(self._files, path, data)
        except StorageError:
            self._take_back(path, before)
            raise
        if name not in self._saved:
            # A start reads it only if the new file is damaged, too.
            with suppress(StorageError):
                self._files.unlink(path + _BACKUP)
                self._saved.add(name)

    def _take_back(self, path: str, before: bytes | None) -> None:
        """Give a file its previous content if the failed write has replaced it already."""
        with suppress(StorageError):
            if read_file(self._files, path) == before:
                return
            if before is not None:
                write_file(self._files, path, before)
                return
            self._files.unlink(path)
            self._files.sync_directory(CONFIG_DIRECTORY)

    def _has_lmq_offsets(self) -> bool:
        return LMQ_OFFSETS in self._saved or LMQ_OFFSETS in self._files.names(CONFIG_DIRECTORY)


def encode_config(content: Mapping[str, object]) -> bytes:
    """A file of this content, with its checksum."""
    data = json.dumps(content, ensure_ascii=False, indent="\t").encode()
    if not content:
        return data
    return data.removesuffix(b"\n}") + _CHECKSUM_MEMBER % crc32(data, 0)


def has_own_checksum(data: bytes) -> bool:
    """True if a file's last member is the checksum of the others."""
    end = len(data) - len(_CHECKSUM_MEMBER % 0)
    return data[max(end, 0) :] == _CHECKSUM_MEMBER % crc32(data[:end] + b"\n}", 0)


def table_of(name: str, content: Mapping[str, object]) -> Table:
    """The table of topics, groups or offsets in a file's content, `{}` if it has none."""
    # `load` has checked that it is an object of objects.
    return cast("Table", content.get(_TABLES[name]) or {})


def is_of(offsets_key: str, topics: Collection[str]) -> bool:
    """True if a key of the offsets' table, `topic@group`, is of one of these topics.

    A lite queue is of its parent topic.
    """
    topic = offsets_key.partition("@")[0]
    return topic in topics or parent_of(topic) in topics


def _version_of(content: Mapping[str, object]) -> int:
    version = content.get("dataVersion")
    return int(version.get("counter", 0)) if isinstance(version, dict) else 0


def damaged_configs(files: Files) -> list[ConfigFileError]:
    """The errors of all files of the `config` directory that a start could not read."""
    errors = []
    for name in files.names(CONFIG_DIRECTORY):
        if name.endswith(".json"):
            try:
                _read(files, name)
            except ConfigFileError as error:
                errors.append(error)
    return errors


def _read(files: Files, name: str, ending: str = "") -> dict[str, object] | None:
    """A file's content; None if there is no such file. Raises ConfigFileError."""
    try:
        data = read_file(files, join(CONFIG_DIRECTORY, name + ending))
    except StorageError as error:
        raise ConfigFileError(name, error.reason) from error
    if data is None:
        return None
    try:
        value = fastjson.loads(data, is_trusted=True)
    except RemoteProtocolError as error:
        raise ConfigFileError(name, str(error) if data.strip(b"\0 \r\n\t") else "empty") from error
    if not isinstance(value, dict):
        raise ConfigFileError(name, "a JSON object was expected")
    if value.pop(_CHECKSUM, None) is not None and not has_own_checksum(data):
        reason = (
            "it is not what was written. If you changed it on purpose, remove its last member, "
            f"{_CHECKSUM}"
        )
        raise ConfigFileError(name, reason)
    _check_tables(name, value)
    return cast("dict[str, object]", value)


def _check_tables(name: str, content: Mapping[str, object]) -> None:
    """Check the types of the members that a start reads."""
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
    """True for a number, or digits as a JSON object's keys have them."""
    return isinstance(value, int) or (
        isinstance(value, str) and whole_number(value, is_signed=True) is not None
    )
