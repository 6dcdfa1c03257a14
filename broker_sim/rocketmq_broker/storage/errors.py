"""Errors of the broker's own disk: facts as attributes, and what to do as text.

RocketMQError
  StorageError             the disk refused, or a file cannot be used
    MissingFileError       a file is missing
    DataDirectoryError     a directory cannot hold a broker's data
    ConfigFileError        a file of `config` is damaged
    StoreLockedError       another broker has the data directory open
    DamagedStoreError      acknowledged data is damaged
"""

from __future__ import annotations

from rocketmq_wire.errors import RocketMQError


class StorageError(RocketMQError):
    """The disk refused, or a file cannot be used."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(file, position, reason)
        self.file = file
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"[ROCKETMQ_STORAGE] file={self.file} byte={self.position}: {self.reason}."


class MissingFileError(StorageError):
    """A file is missing."""


class DataDirectoryError(StorageError):
    """A directory cannot hold a broker's data."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, 0, reason)
        self.args = (directory, reason)

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_STORAGE.DIRECTORY] data directory {self.file}: {self.reason}. Give an "
            "empty directory, or the directory of a stopped broker (--data-dir, or data_dir in the "
            "configuration); --memory stores nothing on the disk."
        )


class ConfigFileError(StorageError):
    """A file of the `config` directory is damaged, and has no usable backup."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"config/{name}", 0, reason)
        self.args = (name, reason)
        self.name = name

    def __str__(self) -> str:
        loss = _WITHOUT.get(self.name, "its content is lost")
        return (
            f"[ROCKETMQ_STORAGE.CONFIG] file={self.file}: {self.reason}. This does not affect the "
            "messages. Put the file back from a backup, or move it away: then the broker "
            f"starts, and {loss}. `rmq fsck DIR` names every such file."
        )


_WITHOUT = {
    "topics.json": "topics must be created again, with no fewer queues, before they are read",
    "consumerOffset.json": "every group begins as a new one",
    "subscriptionGroup.json": "groups have the settings of new ones",
}
"""Consequence of a missing file, by its name."""


class StoreLockedError(StorageError):
    """Another broker has the data directory open."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_STORAGE.LOCKED] file={self.file}: {self.reason}. "
            "Stop the broker that uses this data directory, or choose another directory."
        )


class DamagedStoreError(StorageError):
    """Acknowledged data is damaged: the broker does not start on it, or does not serve it."""

    def __init__(self, file: str, position: int, reason: str, expected: int, found: int) -> None:
        super().__init__(file, position, reason)
        self.args = (file, position, reason, expected, found)
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_STORAGE.DAMAGED] file={self.file} byte={self.position}: {self.reason}, "
            f"expected {self.expected:#x} and found {self.found:#x}. This is acknowledged data, so "
            "nothing was cut away. `rmq fsck DIR` verifies the whole store and names every message "
            "that is damaged; put the damaged file back from a backup or a replica, or have "
            "`rmq fsck DIR --repair` set the damage aside."
        )
