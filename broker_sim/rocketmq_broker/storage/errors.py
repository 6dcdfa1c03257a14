"""What goes wrong on the broker's own disk: facts as attributes, and what to do as text."""

from __future__ import annotations

from rocketmq_wire.errors import RocketMQError


class StorageError(RocketMQError):
    """The broker's disk refused, or holds something that it must not hold."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(file, position, reason)
        self.file, self.position, self.reason = file, position, reason

    def __str__(self) -> str:
        return f"[ROCKETMQ_STORAGE] file={self.file} byte={self.position}: {self.reason}."


class MissingFileError(StorageError):
    """A file that should be there is not."""


class DataDirectoryError(StorageError):
    """A directory cannot hold a broker's data."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(directory, 0, reason)
        self.args = (directory, reason)

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_STORAGE.DIRECTORY] data directory {self.file}: {self.reason}. Give an "
            "empty directory, or one of a stopped broker's (--data-dir, or data_dir in the "
            "configuration); --memory stores nothing on the disk."
        )


class ConfigFileError(StorageError):
    """A file of the `config` directory cannot be used, and nothing stands in for it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"config/{name}", 0, reason)
        self.args = (name, reason)
        self.name = name

    def __str__(self) -> str:
        loss = _WITHOUT.get(self.name, "what it says is forgotten")
        return (
            f"[ROCKETMQ_STORAGE.CONFIG] file={self.file}: {self.reason}. The messages are not "
            "touched by this. Put the file back from a backup, or move it away: then the broker "
            f"starts, and {loss}. `rmq fsck DIR` names every such file."
        )


_WITHOUT = {
    "topics.json": "topics must be created again, with no fewer queues, before they are read",
    "consumerOffset.json": "every group begins as one that is new",
    "subscriptionGroup.json": "groups have the settings of new ones",
}


class StoreLockedError(StorageError):
    """Another broker has this data directory open."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_STORAGE.LOCKED] file={self.file}: {self.reason}. "
            "Stop the broker that uses this data directory, or choose another directory."
        )


class DamagedStoreError(StorageError):
    """Acknowledged data is not what was written: the broker must not start on it."""

    def __init__(self, file: str, position: int, reason: str, expected: int, found: int) -> None:
        super().__init__(file, position, reason)
        self.args = (file, position, reason, expected, found)
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_STORAGE.DAMAGED] file={self.file} byte={self.position}: {self.reason}, "
            f"expected {self.expected:#x} and found {self.found:#x}. This is acknowledged data, so "
            "nothing was cut away. `rmq fsck DIR` verifies the whole store and names every message "
            "that is damaged; put the damaged file back from a backup or a replica, or have "
            "`rmq fsck DIR --repair` set the damage aside."
        )
