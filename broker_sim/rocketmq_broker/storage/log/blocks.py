"""Blocks: encoded records in one buffer, which the store completes in place and appends."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.kernels.gather import Positions
from rocketmq_wire.model import Host


class Block(Protocol):
    """Records back to back. The first one starts at byte 0."""

    @property
    def buffer(self) -> npt.NDArray[np.uint8]: ...
    @property
    def starts(self) -> npt.NDArray[np.int64]: ...
    @property
    def sizes(self) -> npt.NDArray[np.int32]: ...
    @property
    def tag_hashes(self) -> npt.NDArray[np.int64]: ...

    def piece(self, start: int, end: int) -> Block:
        """The records `[start, end)` as a block over the same buffer."""

    def patch(
        self,
        queue_index: int | Positions,
        queue_offset: int | Positions,
        physical_start: int,
        store_ms: int,
        store_host: Host,
    ) -> None:
        """Write the fields that only the broker knows into every record.

        One queue offset is the first record's, and the next ones count on from it.
        """
