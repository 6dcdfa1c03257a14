"""Files that live in memory: what `--memory` runs on. Nothing survives the process."""

from __future__ import annotations

import mmap
import threading

from rocketmq_broker.storage.disk.files import DiskUse, File
from rocketmq_broker.storage.errors import MissingFileError, StoreLockedError
from rocketmq_wire.model import Buffer

# A file starts with this much and doubles: small configuration files stay small.
_CAPACITY_MIN = mmap.PAGESIZE


class _Content:
    """The bytes of one file: an anonymous map, so that pages exist only once they are written."""

    def __init__(self) -> None:
        self.size = 0
        self.bytes = memoryview(mmap.mmap(-1, _CAPACITY_MIN))

    def grow(self, size: int) -> None:
        if size > len(self.bytes):
            # Exactly the asked-for size for large files: those are resized once, then mapped.
            larger = memoryview(mmap.mmap(-1, max(size, 2 * len(self.bytes))))
            larger[: self.size] = self.bytes[: self.size]
            self.bytes = larger
        self.size = max(self.size, size)


class MemoryFile:
    """A handle on a file in memory."""

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
        """Nothing to do: memory promises nothing."""

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
        """Nothing to give back."""


class MemoryFiles:
    """A root directory in memory."""

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
            everything = [*self._contents, *self._directories]
        return sorted(
            name[len(prefix) :]
            for name in everything
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
        """Nothing to do: memory promises nothing."""

    def lock(self, name: str) -> File:
        with self._guard:
            if name in self._locks:
                raise StoreLockedError(name, 0, "the store in memory is in use")
            self._locks.add(name)
        return _MemoryLock(self._locks, name)

    def disk_use(self) -> DiskUse:
        """Always empty: what memory is left cannot be told from what caches would give back."""
        return DiskUse(used_size=0, free_size=1)


class _MemoryLock(MemoryFile):
    def __init__(self, locks: set[str], name: str) -> None:
        super().__init__(_Content())
        self._locks, self._name = locks, name

    def close(self) -> None:
        self._locks.discard(self._name)
