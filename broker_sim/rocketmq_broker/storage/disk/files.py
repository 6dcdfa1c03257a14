"""Named files below one root directory: the only access to the disk.

Writes use `pwrite`, reads use `pread` or a read-only map. So a full disk raises StorageError; a
write through a map would kill the process (SIGBUS). Names are relative and use `/`. Written bytes
are on the disk only after `sync`; a created, renamed or removed name only after `sync_directory`
of its directory. `MemoryFiles` stands in for a disk.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

from rocketmq_broker.storage.errors import (
    DataDirectoryError,
    MissingFileError,
    StorageError,
    StoreLockedError,
)
from rocketmq_wire.model import Buffer

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    # The standard library's is five times slower, but platforms without a wheel still work.
    from zlib import crc32 as _crc32

crc32 = cast("Callable[[Buffer, int], int]", _crc32)
"""`crc32(data, start)` continues the CRC-32 `start` over `data`."""
_CAPACITY_MIN: Final = mmap.PAGESIZE
"""A file in memory starts with this capacity and doubles it: small files stay small."""
_NAME_SIZE_MAX: Final = 255
# Other users of the machine would read every message, whatever the accounts.
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
"""Bytes of one part of a name, on all usual file systems."""
T = TypeVar("T")
_SPARE_MAX: Final = 64
"""Descriptors that are held back: more than a checkpoint and the next files of a log need."""
_WRITE_SIZE_MAX: Final = 256 * 1024
"""Most bytes of one `pwrite` call. From 6.16 on Linux caches the bytes of one call in pieces of up
to 2 MiB. A virtual machine has returned pieces of that size to its host, so a message of 1 KB then
takes 1.0 to 2.5 microseconds to write, against 0.2 with this limit."""


class File(Protocol):
    """One open file."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data`."""

    def sync(self) -> None:
        """Return once everything written to this file, and its size, is on the disk."""

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with zeros that take no space."""

    def size(self) -> int:
        """The file's size."""

    def reserve(self, position: int, size: int) -> None:
        """Take space for zeros that maps read: on a full tmpfs the read would be a SIGBUS."""

    def data_end(self) -> int:
        """The end of what takes space; zeros follow up to the file's end."""

    def map(self, size: int) -> memoryview:
        """A read-only view of the file's first `size` bytes that shows later writes too."""

    def close(self) -> None:
        """Close the handle. Maps stay valid while they are referenced."""


class Files(Protocol):
    """A root directory."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises MissingFileError."""

    def names(self, directory: str) -> list[str]:
        """Sorted names in a directory; none if it does not exist."""

    def make_directory(self, name: str) -> None:
        """Create a directory unless it exists. Its parent must exist."""

    def remove_directory(self, name: str) -> None:
        """Remove an empty directory if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, replacing a file of the new name."""

    def unlink(self, name: str) -> None:
        """Remove a file if it exists."""

    def sync_directory(self, name: str) -> None:
        """Return once the names in a directory are on the disk."""

    def lock(self, name: str) -> File:
        """Lock a file until its handle is closed. Raises StoreLockedError."""

    def disk_used_ratio(self) -> float:
        """Used part of the file system, without what the system reserves for itself."""


def join(*parts: str) -> str:
    """Joins the parts of a name; empty parts are left out."""
    return "/".join(part for part in parts if part)


def write_file(files: Files, name: str, data: bytes) -> None:
    """Replace a file: after a crash it has either its old or its new content, whole."""
    directory, _, base = name.rpartition("/")
    temporary = join(directory, base + ".tmp")
    with closing(files.open(temporary, create=True)) as file:
        file.resize(0)
        file.pwrite(data, 0)
        file.sync()
    files.rename(temporary, name)
    files.sync_directory(directory)


def read_file(files: Files, name: str) -> bytes | None:
    """A file's content, or None if there is no such file."""
    try:
        with closing(files.open(name)) as file:
            return file.pread(file.size(), 0)
    except MissingFileError:
        return None


def file_size(files: Files, name: str) -> int:
    """A file's size. Raises MissingFileError."""
    with closing(files.open(name)) as file:
        return file.size()


def _storage_error(name: str, position: int, error: OSError) -> StorageError:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return MissingFileError(name, position, reason)
    return StorageError(name, position, reason)


@contextmanager
def _storage_errors(name: str, position: int = 0) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(name, position, error) from error


class _Descriptors:
    """Gives files a descriptor also if the process has none left: some are held back for them."""

    def __init__(self, spare_max: int) -> None:
        self._spare_max = spare_max
        self._spare: list[int] = []
        self._hold()
        # A store closes its files one by one, and never the folder of all.
        weakref.finalize(self, _close_all, self._spare)

    def take(self, make: Callable[[], T]) -> T:
        """What `make` returns, which takes a descriptor. Raises OSError."""
        while True:
            try:
                made = make()
            except OSError as error:
                if error.errno != errno.EMFILE or not self._spare:
                    raise
                os.close(self._spare.pop())
                continue
            self._hold()
            return made

    def _hold(self) -> None:
        with suppress(OSError):
            while len(self._spare) < self._spare_max:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


class OsFile:
    def __init__(self, name: str, descriptor: int, descriptors: _Descriptors) -> None:
        self._name = name
        self._descriptor = descriptor
        self._descriptors = descriptors

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _storage_error(self._name, position, error) from error
        return data

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data)
        try:
            written = 0
            # Linux may write less on a signal or a full disk.
            while written < view.nbytes:
                room = _WRITE_SIZE_MAX - (position + written) % _WRITE_SIZE_MAX
                part = view[written : written + room]
                written += os.pwrite(self._descriptor, part, position + written)
        except OSError as error:
            raise _storage_error(self._name, position, error) from error

    def sync(self) -> None:
        with _storage_errors(self._name):
            _data_sync(self._descriptor)

    def resize(self, size: int) -> None:
        with _storage_errors(self._name, size):
            os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def reserve(self, position: int, size: int) -> None:
        with _storage_errors(self._name, position):
            _reserve(self._descriptor, position, size)

    def data_end(self) -> int:
        end = 0
        try:
            while True:
                end = os.lseek(self._descriptor, end, os.SEEK_DATA)
                end = os.lseek(self._descriptor, end, os.SEEK_HOLE)
        except OSError as error:
            # Other errors mean that the file system does not tell.
            return end if error.errno == errno.ENXIO else self.size()

    def map(self, size: int) -> memoryview:
        try:
            # A map has a descriptor of its own.
            made = partial(mmap.mmap, self._descriptor, size, access=mmap.ACCESS_READ)
            mapped = self._descriptors.take(made)
        except (OSError, ValueError) as error:
            raise StorageError(self._name, 0, f"cannot map {size} bytes: {error}") from error
        return memoryview(mapped)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


# macOS has no fdatasync, and no tmpfs.
_data_sync = getattr(os, "fdatasync", os.fsync)
_reserve = getattr(os, "posix_fallocate", lambda *_: None)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names_in_directory(name: str) -> list[str]:
    """Sorted names in a data directory; none if it does not exist yet.

    Raises DataDirectoryError if this user cannot create it or write to it.
    """
    root = Path(name).absolute()
    existing = next(path for path in (root, *root.parents) if path.exists())
    if not existing.is_dir():
        raise DataDirectoryError(str(root), f"{existing} is not a directory")
    rights = os.R_OK | os.W_OK | os.X_OK
    uses_effective_ids = os.access in os.supports_effective_ids
    if not os.access(existing, rights, effective_ids=uses_effective_ids):
        what = "it" if existing == root else str(existing)
        raise DataDirectoryError(str(root), f"{what} cannot be written to by this user")
    return sorted(os.listdir(root)) if existing == root else []


def _checked(name: str) -> str:
    """A name that stays below the root and that the file system takes. Raises StorageError."""
    # Topics give files their names, so this is the last gate between a client and the disk.
    parts = name.split("/")
    if name and any(part in ("", ".", "..") for part in parts):
        raise StorageError(name[:80], 0, "the name leaves the data directory")
    if "\0" in name or any(len(os.fsencode(part)) > _NAME_SIZE_MAX for part in parts):
        raise StorageError(name[:80], 0, "the file system takes no such name")
    return name


class OsFiles:
    def __init__(self, root: str | os.PathLike[str], *, spare: bool = False) -> None:
        """`spare` holds descriptors back, for a process that may run out of them."""
        self._root = Path(root)
        self._descriptors = _Descriptors(_SPARE_MAX if spare else 0)
        try:
            created = [path for path in (self._root, *self._root.parents) if not path.exists()]
            self._root.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
            for path in created:
                _sync_directory(path.parent)
        except OSError as error:
            reason = f"it cannot be created ({error.strerror or error})"
            raise DataDirectoryError(str(self._root.absolute()), reason) from error

    def open(self, name: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        with _storage_errors(name):
            return OsFile(name, self._open(name, flags), self._descriptors)

    def names(self, directory: str) -> list[str]:
        with _storage_errors(directory), suppress(FileNotFoundError):
            return sorted(os.listdir(self._path(directory)))
        return []

    def make_directory(self, name: str) -> None:
        with _storage_errors(name):
            self._path(name).mkdir(_DIRECTORY_MODE, exist_ok=True)

    def remove_directory(self, name: str) -> None:
        with _storage_errors(name), suppress(FileNotFoundError):
            self._path(name).rmdir()

    def rename(self, old: str, new: str) -> None:
        with _storage_errors(old):
            os.replace(self._path(old), self._path(new))

    def unlink(self, name: str) -> None:
        with _storage_errors(name):
            self._path(name).unlink(missing_ok=True)

    def sync_directory(self, name: str) -> None:
        with _storage_errors(name):
            descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def lock(self, name: str) -> File:
        with _storage_errors(name):
            descriptor = self._open(name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Java takes the other kind of lock, and the two kinds do not exclude each other.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            used = f"the data directory {self._root.absolute()} is in use"
            raise StoreLockedError(name, 0, used) from error
        return OsFile(name, descriptor, self._descriptors)

    def _open(self, name: str, flags: int) -> int:
        path = self._path(name)
        return self._descriptors.take(lambda: os.open(path, flags | os.O_CLOEXEC, _FILE_MODE))

    def _path(self, name: str) -> Path:
        return self._root / _checked(name)

    def disk_used_ratio(self) -> float:
        use = shutil.disk_usage(self._root)
        return use.used / (use.used + use.free or 1)


class MemoryFile:
    """One file in an anonymous map: only written pages take memory. It has no handle."""

    def __init__(self) -> None:
        self._size = 0
        self._bytes = memoryview(mmap.mmap(-1, _CAPACITY_MIN))

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._bytes[position : min(position + size, self._size)])

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data).cast("B")
        self._grow(position + len(view))
        self._bytes[position : position + len(view)] = view

    def sync(self) -> None:
        """Does nothing: memory is not durable."""

    def resize(self, size: int) -> None:
        if size < self._size:
            self._bytes[size : self._size] = bytes(self._size - size)
            self._size = size
        else:
            self._grow(size)

    def size(self) -> int:
        return self._size

    def reserve(self, position: int, size: int) -> None:
        """Does nothing: memory that is read takes none."""

    data_end = size

    def map(self, size: int) -> memoryview:
        self._grow(size)
        return self._bytes[:size].toreadonly()

    def close(self) -> None:
        """Does nothing: there is no handle."""

    def _grow(self, size: int) -> None:
        if size > len(self._bytes):
            # A large file is resized once, then mapped: it gets exactly the requested size.
            larger = memoryview(mmap.mmap(-1, max(size, 2 * len(self._bytes))))
            larger[: self._size] = self._bytes[: self._size]
            self._bytes = larger
        self._size = max(self._size, size)


class MemoryFiles:
    """A root directory in memory, for `--memory`. Nothing survives the process."""

    def __init__(self) -> None:
        self._contents: dict[str, MemoryFile] = {}
        self._directories = {""}
        self._locks: set[str] = set()
        self._guard = threading.Lock()

    def open(self, name: str, *, create: bool = False) -> File:
        with self._guard:
            content = self._contents.get(name)
            if content is None:
                if not create or name.rpartition("/")[0] not in self._directories:
                    raise MissingFileError(name, 0, "no such file")
                content = self._contents[name] = MemoryFile()
            return content

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

    def disk_used_ratio(self) -> float:
        """Always 0: caches would release some of the memory that is in use."""
        return 0.0


class _MemoryLock(MemoryFile):
    def __init__(self, locks: set[str], name: str) -> None:
        super().__init__()
        self._locks = locks
        self._name = name

    def close(self) -> None:
        self._locks.discard(self._name)
