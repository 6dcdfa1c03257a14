"""Consume-queue entries of delayed messages: they hold the due time instead of the tag's hash.

RocketMQ delivers by these entries. It would take every message with a tag's hash there as due.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
DELAYS_MS: Final = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (*range(1, 11), 20, 30)),
    *(hours * _HOUR for hours in (1, 2)),
)
"""Delays by level. Levels count from 1; the queue of a level has the index below it."""


def entry_hashes(
    topic: str,
    queue_index: int | npt.NDArray[np.int64],
    store_ms: int | npt.NDArray[np.int64],
    tag_hashes: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The third field of the entries of one topic's records: tag hashes or due times."""
    if topic != SCHEDULE_TOPIC:
        return tag_hashes
    levels = np.clip(queue_index, 0, len(DELAYS_MS) - 1)
    due_ms = np.array(DELAYS_MS, np.int64)[levels] + store_ms
    return np.broadcast_to(due_ms, len(tag_hashes))
