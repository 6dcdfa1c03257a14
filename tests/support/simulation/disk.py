"""A disk that refuses, fills up and loses power at any change, below one broker after another."""

from __future__ import annotations

import random
from collections.abc import Callable

from rocketmq_broker.storage.errors import StorageError
from support.crash_files import Change, Disk, Write, torn
from support.faulty_files import FaultyFiles


class PowerCutError(SystemExit):
    """Ends the process: the event loop lets no other exception through."""


class EndedProcessError(StorageError):
    """A process that has ended does something to its disk."""


class SimulatedDisk(FaultyFiles):
    """The disk as one process of a broker sees it."""

    def __init__(self) -> None:
        super().__init__()
        self._cut_at = ""
        self._cut_count = 0
        self._is_dead = False

    @property
    def will_be_cut(self) -> bool:
        """True if a change is chosen at which the power is cut."""
        return self._cut_count > 0

    def cut_power_at(self, what: str, count: int) -> None:
        """Cut the power at the `count`th change that begins with `what`; 0: never.

        Changes are named as `sync commitlog/00000000000000000000`.
        """
        self._cut_at, self._cut_count = what, count

    def after_kill(self) -> SimulatedDisk:
        """The disk for the next process: the page cache survives the end of the last one."""
        disk = SimulatedDisk()
        disk.journal, disk.base, disk.first_names = self.journal, self.base, self.first_names
        disk._inodes, disk._directories = self._inodes, self._directories
        disk._take_state(self)
        return disk

    def after_power_cut(self, chance: random.Random) -> SimulatedDisk:
        """The disk with what was synced, and any part of what was not."""
        replayed = Disk(self.base)
        for operation in self.journal:
            replayed.step(operation)
        pending = replayed.pending
        share = chance.choice((0.0, 0.3, 0.5, 0.8, 1.0))
        kept = [change for change in pending if chance.random() < share]
        if chance.random() < 0.4:
            kept = _with_torn_write(kept, chance)
        disk = SimulatedDisk.of(replayed.state_with(kept))
        disk._take_state(self)
        return disk

    def _take_state(self, before: SimulatedDisk) -> None:
        self.used_ratio, self.is_full = before.used_ratio, before.is_full
        before._is_dead = True

    def _change(
        self,
        what: str,
        name: str,
        act: Callable[[], object],
        half: Callable[[], object] | None = None,
    ) -> None:
        if self._is_dead:
            raise EndedProcessError(name, 0, "the process has ended")
        if self._cut_count and f"{what} {name}".startswith(self._cut_at):
            self._cut_count -= 1
            if not self._cut_count:
                self._is_dead = True
                raise PowerCutError(f"{what} {name}")
        super()._change(what, name, act, half)


def _with_torn_write(kept: list[Change], chance: random.Random) -> list[Change]:
    """The changes with one write torn, rather a large one; the later ones may be missing."""
    writes = [change for change in kept if isinstance(change, Write) and len(change.data) > 1]
    if not writes:
        return kept
    (write,) = chance.choices(writes, [len(change.data) for change in writes])
    (pieces, _) = torn([write], chance, 1)
    index = kept.index(write)
    later = kept[index + 1 :] if chance.random() < 0.5 else []
    return [*kept[:index], *pieces, *later]
