"""A disk that can lose power: it keeps what was synced, and any part of what was not.

`CrashFiles` carries out every operation at once, as a page cache does, and keeps a journal. A crash
at any point of the journal leaves everything synced before it, and of the rest whatever the disk
happened to write: every subset of the unsynced writes, each whole, cut, or with sectors missing,
and every subset of the names created, changed or removed in directories that were not synced.

Tests that want to see why a sync matters take it out of the journal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from rocketmq_broker.storage.disk.files import File
from rocketmq_broker.storage.errors import MissingFileError, StorageError, StoreLockedError
from rocketmq_wire.model import Buffer

SECTOR_SIZE = 512
DIRECTORY = -1
"""The number of a name that is a directory."""

State = tuple[tuple[str, bytes | None], ...]
"""A disk: every name with its content, None for a directory; sorted."""


@dataclass(frozen=True)
class Write:
    """Data of one file."""

    inode: int
    position: int
    data: bytes


@dataclass(frozen=True)
class Resize:
    """A file's new size."""

    inode: int
    size: int


@dataclass(frozen=True)
class Names:
    """Names of one directory with their new files' numbers; None for a removed name."""

    directory: str
    entries: tuple[tuple[str, int | None], ...]


Change = Write | Resize | Names


@dataclass(frozen=True)
class Sync:
    """All earlier changes of one file or directory are on the disk."""

    target: int | str


class _Inode:
    def __init__(self, number: int) -> None:
        self.number = number
        self.size = 0
        self.content = bytearray()

    def write(self, position: int, data: bytes) -> None:
        self.resize(max(self.size, position + len(data)))
        self.content[position : position + len(data)] = data

    def resize(self, size: int) -> None:
        if size < self.size:
            # Cleared, not cut: a map of the file may exist.
            self.content[size : self.size] = bytes(self.size - size)
        elif size > len(self.content):
            self.content = self.content + bytes(size - len(self.content))
        self.size = size


F = TypeVar("F", bound="CrashFiles")


class CrashFiles:
    """A root directory on a disk that can lose power."""

    def __init__(self) -> None:
        self.journal: list[Change | Sync] = []
        self.first_names: dict[int, str] = {}
        """The first name of each file."""
        self._inodes: list[_Inode] = []
        self._directories: dict[str, dict[str, int]] = {"": {}}
        self._locks: set[str] = set()
        self.base: State = ()

    @classmethod
    def of(cls: type[F], state: State) -> F:
        """A disk as a crash left it, with an empty journal."""
        files = cls()
        for name, content in state:
            directory, _, base = name.rpartition("/")
            if content is None:
                files._directories[name] = {}
                files._directories[directory][base] = DIRECTORY
            else:
                inode = files._new_inode()
                inode.write(0, content)
                files._directories[directory][base] = inode.number
        files.base = state
        return files

    def state(self) -> State:
        """The disk as the page cache shows it."""
        return _state(self._directories, lambda number: self._bytes(number))

    def open(self, name: str, *, create: bool = False) -> File:
        directory, _, base = name.rpartition("/")
        names = self._directories.get(directory)
        if names is None or (base not in names and not create):
            raise MissingFileError(name, 0, "no such file")
        if base not in names:
            number = self._new_inode().number
            self._rename(directory, (base, number))
        self.first_names.setdefault(names[base], name)
        return _CrashFile(self, name, self._inodes[names[base]])

    def names(self, directory: str) -> list[str]:
        return sorted(self._directories.get(directory, ()))

    def make_directory(self, name: str) -> None:
        if name not in self._directories:
            directory, _, base = name.rpartition("/")
            self._directories[name] = {}
            self._rename(directory, (base, DIRECTORY))

    def remove_directory(self, name: str) -> None:
        if name in self._directories:
            if self._directories[name]:
                raise StorageError(name, 0, "not empty")
            directory, _, base = name.rpartition("/")
            del self._directories[name]
            self._rename(directory, (base, None))

    def rename(self, old: str, new: str) -> None:
        directory, _, base = old.rpartition("/")
        number = self._directories[directory][base]
        self._rename(directory, (base, None), (new.rpartition("/")[2], number))

    def unlink(self, name: str) -> None:
        directory, _, base = name.rpartition("/")
        if base in self._directories.get(directory, ()):
            self._rename(directory, (base, None))

    def sync_directory(self, name: str) -> None:
        if name not in self._directories:
            raise MissingFileError(name, 0, "no such directory")
        self.journal.append(Sync(name))

    def lock(self, name: str) -> File:
        if name in self._locks:
            raise StoreLockedError(name, 0, "in use")
        self._locks.add(name)
        return _Lock(self, name)

    def disk_used_ratio(self) -> float:
        return 0.0

    def unlock_all(self) -> None:
        """Release all locks, as the end of the process does."""
        self._locks.clear()

    def _rename(self, directory: str, *entries: tuple[str, int | None]) -> None:
        for base, number in entries:
            if number is None:
                self._directories[directory].pop(base, None)
            else:
                self._directories[directory][base] = number
        self.journal.append(Names(directory, entries))

    def _new_inode(self) -> _Inode:
        inode = _Inode(len(self._inodes))
        self._inodes.append(inode)
        return inode

    def _bytes(self, number: int) -> bytes:
        inode = self._inodes[number]
        return bytes(inode.content[: inode.size])


class _CrashFile:
    def __init__(self, files: CrashFiles, name: str, inode: _Inode) -> None:
        self._files, self._name, self._inode = files, name, inode

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._inode.content[position : min(position + size, self._inode.size)])

    def pwrite(self, data: Buffer, position: int) -> None:
        content = bytes(memoryview(data).cast("B"))
        self._inode.write(position, content)
        self._files.journal.append(Write(self._inode.number, position, content))

    def sync(self) -> None:
        self._files.journal.append(Sync(self._inode.number))

    def resize(self, size: int) -> None:
        self._inode.resize(size)
        self._files.journal.append(Resize(self._inode.number, size))

    def size(self) -> int:
        return self._inode.size

    def reserve(self, position: int, size: int) -> None:
        """Does nothing: this disk has space."""

    def data_end(self) -> int:
        return self._inode.size

    def map(self, size: int) -> memoryview:
        return memoryview(self._inode.content)[:size].toreadonly()

    def close(self) -> None:
        """Does nothing: there is no handle."""


class _Lock(_CrashFile):
    def __init__(self, files: CrashFiles, name: str) -> None:
        super().__init__(files, name, _Inode(0))

    def close(self) -> None:
        self._files._locks.discard(self._name)


@dataclass(frozen=True)
class Crash:
    """One state that a crash leaves."""

    point: int
    """Number of operations of the journal before the crash."""
    state: State


class Disk:
    """Replays a journal: the changes that are, and that may be, on the disk at each point."""

    def __init__(self, base: State) -> None:
        self._contents: dict[int, bytes] = {}
        self._directories: dict[str, dict[str, int]] = {"": {}}
        self.pending: list[Change] = []
        number = 0
        for name, content in base:
            directory, _, last = name.rpartition("/")
            if content is None:
                self._directories[name] = {}
                self._directories[directory][last] = DIRECTORY
            else:
                self._contents[number] = content
                self._directories[directory][last] = number
                number += 1

    def step(self, operation: Change | Sync) -> None:
        """Take one operation of the journal."""
        if not isinstance(operation, Sync):
            self.pending.append(operation)
            return
        done = [change for change in self.pending if _target(change) == operation.target]
        self.pending = [change for change in self.pending if _target(change) != operation.target]
        for change in done:
            _apply(change, self._contents, self._directories)

    def state_with(self, changes: Sequence[Change]) -> State:
        """The disk with these of the unsynced changes."""
        contents = dict(self._contents)
        directories = {name: dict(entries) for name, entries in self._directories.items()}
        for change in changes:
            _apply(change, contents, directories)
        return _state(directories, lambda number: contents.get(number, b""))


@dataclass(frozen=True)
class Density:
    """Number of disk states that are tried for each crash point."""

    subset_bits: int = 6
    """Most unsynced changes of which all subsets are tried."""
    samples: int = 24
    """Number of random subsets of more changes, besides the plain ones."""
    tears: int = 6
    """Number of torn forms of each unsynced write."""


_USUAL = Density()


def crashes(files: CrashFiles, density: Density = _USUAL, *, seed: int = 0) -> Iterator[Crash]:
    """Every crash point, with the disk states possible there."""
    chance = random.Random(seed)
    disk = Disk(files.base)
    for point in range(len(files.journal) + 1):
        for changes in subsets(disk.pending, chance, density):
            yield Crash(point, disk.state_with(changes))
        for changes in torn(disk.pending, chance, density.tears):
            yield Crash(point, disk.state_with(changes))
        if point < len(files.journal):
            disk.step(files.journal[point])


def subsets(
    pending: Sequence[Change], chance: random.Random, density: Density
) -> Iterator[list[Change]]:
    """All subsets of few changes; of many: none, all, all but one, only one, and random ones."""
    count = len(pending)
    if count <= density.subset_bits:
        for choice in product((False, True), repeat=count):
            yield [change for change, is_in in zip(pending, choice, strict=True) if is_in]
        return
    yield []
    yield list(pending)
    for left_out in range(count):
        yield [change for index, change in enumerate(pending) if index != left_out]
    for _ in range(density.samples):
        share = chance.random()
        yield [change for change in pending if chance.random() < share]


def torn(pending: Sequence[Change], chance: random.Random, tears: int) -> Iterator[list[Change]]:
    """All changes, or only those before it, with one write cut or with sectors of it missing."""
    for index, change in enumerate(pending):
        if not isinstance(change, Write) or len(change.data) < 2:
            continue
        for _ in range(tears):
            if chance.random() < 0.5 or len(change.data) <= SECTOR_SIZE:
                pieces = [Write(change.inode, change.position, change.data[: _cut(change, chance)])]
            else:
                pieces = [piece for piece in sectors(change) if chance.random() < 0.5]
            yield [*pending[:index], *pieces]
            yield [*pending[:index], *pieces, *pending[index + 1 :]]


def sectors(change: Write) -> Iterator[Write]:
    """A write as the disk's sectors."""
    position, end = change.position, change.position + len(change.data)
    while position < end:
        stop = min(position - position % SECTOR_SIZE + SECTOR_SIZE, end)
        data = change.data[position - change.position : stop - change.position]
        yield Write(change.inode, position, data)
        position = stop


def _cut(change: Write, chance: random.Random) -> int:
    return chance.randrange(1, len(change.data))


def _target(change: Change) -> int | str:
    return change.directory if isinstance(change, Names) else change.inode


def _apply(
    change: Change, contents: dict[int, bytes], directories: dict[str, dict[str, int]]
) -> None:
    if isinstance(change, Names):
        # A directory keeps its entries while its own name is not on the disk.
        entries = directories.setdefault(change.directory, {})
        for name, number in change.entries:
            path = f"{change.directory}/{name}" if change.directory else name
            if number is None:
                if entries.pop(name, None) == DIRECTORY:
                    # A later directory of this name begins empty.
                    directories.pop(path, None)
            else:
                entries[name] = number
        return
    content = contents.get(change.inode, b"")
    if isinstance(change, Resize):
        contents[change.inode] = content[: change.size].ljust(change.size, b"\x00")
        return
    end = change.position + len(change.data)
    content = content.ljust(change.position, b"\x00")
    contents[change.inode] = content[: change.position] + change.data + content[end:]


def _state(directories: dict[str, dict[str, int]], content_of: Callable[[int], bytes]) -> State:
    found: list[tuple[str, bytes | None]] = []
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        for base, number in directories.get(directory, {}).items():
            name = f"{directory}/{base}" if directory else base
            if number == DIRECTORY:
                found.append((name, None))
                waiting.append(name)
            else:
                found.append((name, content_of(number)))
    return tuple(sorted(found, key=lambda entry: entry[0]))
