"""One file of the commit log: written at its end, read through a map."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_broker.storage.disk.files import File, Files, join
from rocketmq_wire.model import Buffer

LOG_DIRECTORY: Final = "commitlog"


def segment_name(start: int) -> str:
    """The file of the segment that begins at this log position."""
    return join(LOG_DIRECTORY, f"{start:020d}")


def segment_starts(files: Files) -> list[int]:
    """The log position at which each file of the log begins, ascending."""
    return sorted(int(name) for name in files.names(LOG_DIRECTORY) if name.isdecimal())


class Segment:
    """The log's bytes `[start, start + size)`."""

    def __init__(self, files: Files, start: int, size: int, *, create: bool) -> None:
        self.start = start
        self.size = size
        self.name = segment_name(start)
        self._files = files
        file = files.open(self.name, create=create)
        # A crash may have left the file shorter; the rest was never written.
        if file.size() != size:
            file.resize(size)
        self._file: File | None = file
        self.view = file.map(size)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self.view, np.uint8)

    @property
    def end(self) -> int:
        return self.start + self.size

    def write(self, data: Buffer, position: int) -> None:
        """Write at a log position inside this segment."""
        self._open().pwrite(data, position - self.start)

    def sync(self) -> None:
        """Return once everything written to this segment is on the disk."""
        self._open().sync()

    def clear_from(self, position: int) -> None:
        """Replace everything from a log position on by zeros."""
        file = self._open()
        file.resize(position - self.start)
        file.resize(self.size)

    def close(self) -> None:
        """Close the file handle; the map and all views of it stay readable."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.name)
        return self._file
