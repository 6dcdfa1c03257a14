"""Light queues: each lists the messages of one lite topic, which are stored in its parent's queues.

What a record says of its light queue is believed only where it is of its own topic and goes on
where that queue ends: the properties that say it are text, which whoever sends may write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rocketmq_arrow.layout import Layout
from rocketmq_arrow.property_scan import PropertyScan
from rocketmq_wire.lite_topics import DISPATCHED_AT, DISPATCHED_TO, light_queue, parent_of

Positions = npt.NDArray[np.int64]
_DIGITS_MAX = 18


def dead_end(dead_before: Mapping[str, int], topic: str) -> int:
    """Up to which log position a topic's records are dead: a light queue dies with its parent."""
    return max(dead_before.get(topic, -1), dead_before.get(parent_of(topic), -1))


def light_rows(
    properties: PropertyScan, topics: Sequence[str], codes: Positions
) -> Iterator[tuple[str, Positions, Positions]]:
    """Light queue, rows and offsets in it, of the records that are in one."""
    text, starts, ends, missing = properties.find_bounds(DISPATCHED_TO)
    if missing.all():
        return
    _, at_starts, at_ends, at_missing = properties.find_bounds(DISPATCHED_AT)
    found: dict[str, tuple[list[int], list[int]]] = {}
    for row in np.flatnonzero(~missing & ~at_missing).tolist():
        name = text[starts[row] : ends[row]].tobytes().decode("utf-8", "replace")
        number = text[at_starts[row] : at_ends[row]].tobytes()
        prefix = light_queue(topics[int(codes[row])], "")
        if not name.startswith(prefix) or len(name) == len(prefix):
            continue
        if not number.isdigit() or len(number) > _DIGITS_MAX:
            continue
        rows, offsets = found.setdefault(name, ([], []))
        rows.append(row)
        offsets.append(int(number))
    for name, (rows, offsets) in found.items():
        yield name, np.array(rows, np.int64), np.array(offsets, np.int64)


def light_offsets(layout: Layout) -> Positions:
    """What each record says is its offset in its light queue; -1 where it says nothing."""
    properties = PropertyScan(layout.data, layout.text_start, layout.text_end)
    text, starts, ends, missing = properties.find_bounds(DISPATCHED_AT)
    offsets = np.full(len(layout.starts), -1, np.int64)
    for row in np.flatnonzero(~missing).tolist():
        number = text[starts[row] : ends[row]].tobytes()
        if number.isdigit() and len(number) <= _DIGITS_MAX:
            offsets[row] = int(number)
    return offsets


def going_on(offsets: Positions, expected: Positions) -> Positions:
    """The places of those offsets that are the expected ones, one after the other."""
    kept: list[int] = []
    wanted = expected.tolist()
    for place, offset in enumerate(offsets.tolist()):
        if offset == wanted[len(kept)]:
            kept.append(place)
    return np.array(kept, np.int64)
