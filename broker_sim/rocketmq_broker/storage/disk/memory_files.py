"""Files in memory, for `--memory`. Nothing survives the process."""

from __future__ import annotations

import mmap
import threading

from rocketmq_broker.storage.disk.files import DiskUse, File
from rocketmq_broker.storage.errors import MissingFileError, StoreLockedError
from rocketmq_wire.model import Buffer

_CAPACITY_MIN = mmap.PAGESIZE
"""A file starts with this capacity and doubles it, so that small configuration files stay small."""


class _Content:
    """The bytes of one file, in an anonymous map: only written pages take memory."""

    def __init__(self) -> None:
        self.size = 0
        self.bytes = memoryview(mmap.mmap(-1, _CAPACITY_MIN))

    def grow(self, size: int) -> None:
        if size > len(self.bytes):
            # A large file is resized once, then mapped: it gets exactly the requested size.
            larger = memoryview(mmap.mmap(-1, max(size, 2 * len(self.bytes))))
            larger[: self.size] = self.bytes[: self.size]
            self.bytes = larger
        self.size = max(self.size, size)


class MemoryFile:
    def __init__(self, content: _Content) -> None:
        self._content = content

    def pread(self, size: int, position: int) -> bytes:
        content = self._content
        return bytes(content.bytes[position : min(position + size, content.size)])

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        self._content.grow(position + len(view))
        self._content.bytes[position : position + len(view)] = view

    def sync(self) -> None:
        """Does nothing: memory is not durable."""

    def resize(self, size: int) -> None:
        content = self._content
        if size < content.size:
            content.bytes[size : content.size] = bytes(content.size - size)
            content.size = size
        else:
            content.grow(size)

    def size(self) -> int:
        return self._content.size

    def map(self, size: int) -> memoryview:
        self._content.grow(size)
        return self._content.bytes[:size].toreadonly()

    def close(self) -> None:
        """Does nothing: there is no handle."""


class MemoryFiles:
    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}
        self._directories = {""}
        self._locks: set[str] = set()
        self._guard = threading.Lock()

    def open(self, name: str, *, create: bool = False) -> File:
        with self._guard:
            content = self._contents.get(name)
            if content is None:
                if not create or name.rpartition("/")[0] not in self._directories:
                    raise MissingFileError(name, 0, "no such file")
                content = self._contents[name] = _Content()
            return MemoryFile(content)

    def names(self, directory: str) -> list[str]:
        prefix = directory + "/" if directory else ""
        with self._guard:
            known = [*self._contents, *self._directories]
        return sorted(
            name[len(prefix) :]
            for name in known
            if name and name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def make_directory(self, name: str) -> None:
        with self._guard:
            self._directories.add(name)

    def remove_directory(self, name: str) -> None:
        with self._guard:
            self._directories.discard(name)

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            if old not in self._contents:
                raise MissingFileError(old, 0, "no such file")
            self._contents[new] = self._contents.pop(old)

    def unlink(self, name: str) -> None:
        with self._guard:
            self._contents.pop(name, None)

    def sync_directory(self, name: str) -> None:
        """Does nothing: memory is not durable."""

    def lock(self, name: str) -> File:
        with self._guard:
            if name in self._locks:
                raise StoreLockedError(name, 0, "the store in memory is in use")
            self._locks.add(name)
        return _MemoryLock(self._locks, name)

    def disk_use(self) -> DiskUse:
        """Always empty: caches would release some of the memory that is in use."""
        return DiskUse(used_size=0, free_size=1)


class _MemoryLock(MemoryFile):
    def __init__(self, locks: set[str], name: str) -> None:
        super().__init__(_Content())
        self._locks = locks
        self._name = name

    def close(self) -> None:
        self._locks.discard(self._name)
