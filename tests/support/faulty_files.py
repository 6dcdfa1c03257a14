"""A disk that refuses one operation, and may lose power: the Nth change of any file or directory.

Tests run a step once for every N, until the step ends before its Nth change.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator

from rocketmq_broker.storage.disk.files import File
from rocketmq_broker.storage.errors import StorageError
from rocketmq_wire.model import Buffer
from support.crash_files import CrashFiles, Disk, State

_SAMPLES = 2


class FaultyFiles(CrashFiles):
    """A disk whose Nth change from `refuse` on fails, untouched or half done."""

    def __init__(self) -> None:
        super().__init__()
        self.used_ratio = 0.0
        self.fault: str | None = None
        """The refused operation and its file; None until one was refused."""
        self.is_full = False
        """True while nothing can be written that takes room."""
        self._left = 0
        self._is_half_done = False

    def refuse(self, count: int, *, is_half_done: bool = False) -> None:
        """Refuse the `count`th change from here on, once."""
        self._left, self._is_half_done, self.fault = count, is_half_done, None

    def open(self, name: str, *, create: bool = False) -> File:
        is_new = create and name.rpartition("/")[2] not in self.names(name.rpartition("/")[0])
        if is_new:
            self._change("create", name, lambda: super(FaultyFiles, self).open(name, create=True))
        return _FaultyFile(self, name, super().open(name))

    def make_directory(self, name: str) -> None:
        self._change("mkdir", name, lambda: super(FaultyFiles, self).make_directory(name))

    def remove_directory(self, name: str) -> None:
        self._change("rmdir", name, lambda: super(FaultyFiles, self).remove_directory(name))

    def rename(self, old: str, new: str) -> None:
        self._change("rename", old, lambda: super(FaultyFiles, self).rename(old, new))

    def unlink(self, name: str) -> None:
        self._change("unlink", name, lambda: super(FaultyFiles, self).unlink(name))

    def sync_directory(self, name: str) -> None:
        self._change("sync", name + "/", lambda: super(FaultyFiles, self).sync_directory(name))

    def disk_used_ratio(self) -> float:
        return self.used_ratio

    def power_cuts(self) -> Iterator[State]:
        """The disks that the end of the process, or of power, leaves now."""
        disk = Disk(self.base)
        for operation in self.journal:
            disk.step(operation)
        yield disk.state_with([])
        yield disk.state_with(disk.pending)
        chance = random.Random(len(self.journal))
        for _ in range(min(len(disk.pending), _SAMPLES)):
            yield disk.state_with([each for each in disk.pending if chance.random() < 0.5])

    def _change(
        self,
        what: str,
        name: str,
        act: Callable[[], object],
        half: Callable[[], object] | None = None,
    ) -> None:
        # Only writes can be half done, and need room; the mark has its own.
        if self.is_full and half is not None and name != "durable.mark":
            raise StorageError(name, 0, os.strerror(errno.ENOSPC))
        if self._left == 1:
            self._left, self.fault = 0, f"{what} {name}"
            if self._is_half_done:
                (half or act)()
            raise StorageError(name, 0, os.strerror(errno.EIO))
        self._left = max(self._left - 1, 0)
        act()


class _FaultyFile:
    def __init__(self, files: FaultyFiles, name: str, file: File) -> None:
        self._files, self._name, self._file = files, name, file
        self.pread, self.size = file.pread, file.size
        self.map, self.close, self.data_end = file.map, file.close, file.data_end

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        part = view[: len(view) * 3 // 4]
        self._files._change(
            "write",
            self._name,
            lambda: self._file.pwrite(view, position),
            lambda: self._file.pwrite(part, position),
        )

    def reserve(self, position: int, size: int) -> None:
        self._files._change(
            "reserve", self._name, lambda: self._file.reserve(position, size), lambda: None
        )

    def sync(self) -> None:
        self._files._change("sync", self._name, self._file.sync)

    def resize(self, size: int) -> None:
        self._files._change("resize", self._name, lambda: self._file.resize(size))
