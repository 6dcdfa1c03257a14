"""Searches the property strings of many records at once: single values by name, or the whole map.

The strings `name 0x01 value 0x02 ...` of a chunk are laid side by side (9 ns a record), which
leaves a third of the bytes to look at. An item lasts to the next 0x02 or to its record's end; it
counts only when it has a 0x01 that is neither its first nor its last byte, the first one separates,
and the last of several items of one name wins. A searched name stands right before a 0x01 and right
behind a 0x02 or its record's start, so that 0x01 is its item's first.

Uniform rows need no search: `property_template` locates their items.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.decode.property_template import ItemBounds, RowTemplate
from rocketmq_arrow.kernels.gather import (
    Bytes,
    Mask,
    Positions,
    as_text,
    equals_at,
    is_ascii,
    is_utf8,
    overlapping,
    take_binary,
    values_of,
)
from rocketmq_arrow.kernels.lazy_pyarrow import pa
from rocketmq_wire.records.properties import decode_properties

_SEPARATOR: Final = 1
_END: Final = 2
# Up to this many items of a record are compared pairwise; a record with more is read by itself.
_COMPARED_ITEMS_MAX: Final = 24


@dataclass(frozen=True, slots=True)
class Items:
    """Every item that counts, in order: its record's row, and the places of name and value."""

    row: Positions
    name_start: Positions
    name_end: Positions
    value_end: Positions

    def kept(self, mask: Mask) -> Items:
        return Items(
            self.row[mask], self.name_start[mask], self.name_end[mask], self.value_end[mask]
        )


class PropertyScan:
    """The property strings of one chunk's rows."""

    def __init__(
        self, data: Bytes, starts: Positions, ends: Positions, template: RowTemplate | None = None
    ) -> None:
        self._text, self._bounds = values_of(take_binary(data, starts, ends))
        self._count = len(starts)
        self._template = template or RowTemplate()

    @cached_property
    def _item_bounds(self) -> ItemBounds | None:
        return self._template.locate(self._text, self._bounds)

    def _map_of_texts(self, map_type: pa.MapType) -> pa.MapArray:
        bounds = self._bounds.tolist()
        texts = [self._text[start:end].tobytes() for start, end in itertools.pairwise(bounds)]
        return pa.array([list(decode_properties(text).items()) for text in texts], map_type)

    @cached_property
    def is_ascii(self) -> bool:
        return is_ascii(self._text)

    @cached_property
    def _separators(self) -> Positions:
        return np.flatnonzero(self._text == _SEPARATOR)

    @cached_property
    def _ends(self) -> Positions:
        return np.flatnonzero(self._text == _END)

    @cached_property
    def _fenced_ends(self) -> Positions:
        """Every 0x02 between two that stand before and behind all places."""
        return np.concatenate([[-1], self._ends, [len(self._text)]])

    @cached_property
    def _name_tails(self) -> tuple[int, NDArray[Any]]:
        """The 4 bytes before each separator, and how many separators stand too early for that."""
        early = int(np.searchsorted(self._separators, 4))
        return early, overlapping(self._text, "<u4")[self._separators[early:] - 4]

    def find(self, name: str) -> pa.StringArray:
        """Each row's value of one property, null where there is none."""
        starts, ends, missing = self._find_bounds(name.encode())
        values = take_binary(self._text, starts, ends, missing)
        return as_text(values, is_ascii=self.is_ascii)

    def find_bounds(self, name: str) -> tuple[Bytes, Positions, Positions, Mask]:
        """The text, and each row's value of one property in it; the mask says where none is."""
        starts, ends, missing = self._find_bounds(name.encode())
        return self._text, starts, ends, _none_of(self._count) if missing is None else missing

    def _find_bounds(self, name: bytes) -> tuple[Positions, Positions, Mask | None]:
        """As `find_bounds`, without a mask when every row has a value."""
        if self._item_bounds is None:
            starts, ends, missing = self._search(name)
            return starts, ends, missing if missing.any() else None
        item_bounds = self._item_bounds.bounds(name)
        if item_bounds is None:
            return self._bounds[:-1], self._bounds[:-1], ~_none_of(self._count)
        return (*item_bounds, None)

    def _search(self, name: bytes) -> tuple[Positions, Positions, Mask]:
        assert len(name) >= 4
        early, tails = self._name_tails
        hits = np.flatnonzero(tails == np.frombuffer(name[-4:], "<u4")[0]) + early
        positions = self._separators[hits]
        rows = self._rows_of(positions)
        name_starts = positions - len(name)
        row_starts = self._bounds[rows]
        is_hit = name_starts >= row_starts
        if not is_hit.all():
            hits, positions, rows = hits[is_hit], positions[is_hit], rows[is_hit]
            name_starts, row_starts = name_starts[is_hit], row_starts[is_hit]
        # Byte -1 stands in for what is before the first name; it is judged by the first half.
        is_hit = (name_starts == row_starts) | (self._text[name_starts - 1] == _END)
        if len(name) > 4:
            is_hit &= equals_at(self._text, name_starts, name[:-4])
        value_ends = self._value_ends(hits, positions, rows)
        is_hit &= value_ends > positions + 1
        if not is_hit.all():
            positions, rows, value_ends = positions[is_hit], rows[is_hit], value_ends[is_hit]
        if len(rows) == self._count and (rows[1:] > rows[:-1]).all():
            return positions + 1, value_ends, _none_of(self._count)
        starts, ends = self._bounds[:-1].copy(), self._bounds[:-1].copy()
        missing = np.ones(self._count, np.bool_)
        # Of several assignments to one row the last one stays: the last item of a name wins.
        starts[rows], ends[rows], missing[rows] = positions + 1, value_ends, False
        return starts, ends, missing

    def _rows_of(self, positions: Positions) -> Positions:
        """The rows of ascending positions; usually each row has the same number."""
        bounds, count = self._bounds, self._count
        per_row = len(positions) // count if count else 0
        if per_row and per_row * count == len(positions):
            first, last = positions[::per_row], positions[per_row - 1 :: per_row]
            if (first >= bounds[:-1]).all() and (last < bounds[1:]).all():
                return np.repeat(np.arange(count), per_row)
        counts = np.diff(np.searchsorted(positions, bounds))
        return np.repeat(np.arange(count), counts)

    def _value_ends(self, hits: Positions, positions: Positions, rows: Positions) -> Positions:
        """The next 0x02 behind each position, or the row's end when that comes first.

        Where every item has one 0x01, the k-th 0x02 ends the item of the k-th 0x01; without 0x02
        at the records' ends it is one less for every record before. Either guess is checked.
        """
        fenced = self._fenced_ends
        row_ends = self._bounds[rows + 1]
        for guess in (hits, hits - rows):
            index = np.clip(guess, 0, len(fenced) - 2)
            found = fenced[index + 1]
            if (found > positions).all() and (fenced[index] < positions).all():
                return np.minimum(found, row_ends)
        return np.minimum(fenced[np.searchsorted(fenced, positions)], row_ends)

    # --- the map -----------------------------------------------------------------------------

    def items(self) -> Items:
        """Every item that counts, duplicates removed."""
        return (
            self._searched_items()
            if self._item_bounds is None
            else self._items_from_template(self._item_bounds)
        )

    def _items_from_template(self, item_bounds: ItemBounds) -> Items:
        shape = (self._count, len(item_bounds.values))
        name_starts, name_ends, value_ends = (np.empty(shape, np.int64) for _ in range(3))
        for index, name in enumerate(item_bounds.values):
            bounds = item_bounds.bounds(name)
            assert bounds is not None
            np.subtract(bounds[0], 1, out=name_ends[:, index])
            np.subtract(bounds[0], len(name) + 1, out=name_starts[:, index])
            value_ends[:, index] = bounds[1]
        rows = np.repeat(np.arange(self._count), shape[1])
        return Items(rows, name_starts.ravel(), name_ends.ravel(), value_ends.ravel())

    def _searched_items(self) -> Items:
        last = self._last_bytes()
        starts = np.empty_like(last)
        starts[:1] = 0
        starts[1:] = last[:-1] + 1
        value_ends = last + (self._text[last] != _END)
        name_ends = self._first_separators(starts)
        items = Items(self._rows_of(last), starts, name_ends, value_ends)
        counts = (name_ends > starts) & (name_ends < value_ends - 1)
        return _without_duplicates(self._text, items if counts.all() else items.kept(counts))

    def _last_bytes(self) -> Positions:
        """The last byte of every item: its 0x02, or the row's last byte where that is none."""
        ends = self._bounds[1:]
        ends = ends[ends > self._bounds[:-1]]
        is_open = self._text[ends - 1] != _END
        if not is_open.any():
            return self._ends
        return np.sort(np.concatenate([self._ends, ends[is_open] - 1]))

    def _first_separators(self, starts: Positions) -> Positions:
        """The first 0x01 at or behind each start; the text's size when there is none."""
        separators = self._separators
        if len(separators) == len(starts):
            # Mostly each item has exactly one: the k-th item has the k-th.
            is_first = separators >= starts
            is_first[1:] &= separators[:-1] < starts[1:]
            if is_first.all():
                return separators
        index = np.searchsorted(separators, starts)
        return np.append(separators, len(self._text))[index]

    def map_array(self, map_type: pa.MapType) -> pa.MapArray:
        if not self.is_ascii and not is_utf8(self._text):
            # Names that differ only in broken bytes become equal: such a chunk is read as text.
            return self._map_of_texts(map_type)
        items = self.items()
        counts = np.bincount(items.row, minlength=self._count)
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        names = take_binary(self._text, items.name_start, items.name_end)
        values = take_binary(self._text, items.name_end + 1, items.value_end)
        children = [as_text(names, is_ascii=self.is_ascii), as_text(values, is_ascii=self.is_ascii)]
        # Arrow up to 25 ends the process over keys whose nulls nobody has counted yet.
        if children[0].null_count:
            raise ValueError("a property has no name")
        entries = pa.StructArray.from_arrays(
            children, fields=[map_type.key_field, map_type.item_field]
        )
        return pa.Array.from_buffers(
            map_type, self._count, [None, pa.py_buffer(offsets)], children=[entries]
        )


def _none_of(count: int) -> Mask:
    return np.zeros(count, np.bool_)


def _without_duplicates(text: Bytes, items: Items) -> Items:
    """Drops every item that a later one of the same row and name replaces."""
    if not len(items.row):
        return items
    is_kept = np.ones(len(items.row), np.bool_)
    counts = np.bincount(items.row)
    for row in np.flatnonzero(counts > _COMPARED_ITEMS_MAX).tolist():
        first = int(np.searchsorted(items.row, row))
        newest = {}
        for item in range(first, first + int(counts[row])):
            newest[text[items.name_start[item] : items.name_end[item]].tobytes()] = item
        is_kept[first : first + counts[row]] = False
        is_kept[list(newest.values())] = True
    pairs = _equal_in_row(items.row, _name_keys(text, items))
    if len(pairs):
        earlier, later = pairs[:, 0], pairs[:, 1]
        is_kept[earlier[_is_same_name(text, items, earlier, later)]] = False
    return items if is_kept.all() else items.kept(is_kept)


def _name_keys(text: Bytes, items: Items) -> NDArray[np.uint32]:
    """The size and the last 4 bytes of each name: equal for equal names, mostly not for others."""
    size = (items.name_end - items.name_start).astype(np.uint32)
    # The 4 bytes of the very first names would begin before the text.
    positions = items.name_end - 4
    early = int(np.searchsorted(positions, 0))
    tails = np.empty(len(positions), np.uint32)
    tails[early:] = overlapping(text, "<u4")[positions[early:]]
    for item in range(early):
        tails[item] = int.from_bytes(text[: items.name_end[item]].tobytes()[-4:].rjust(4), "little")
    if size.min() < 4:
        tails >>= np.uint32(8) * (4 - np.minimum(size, 4))
    keys: NDArray[np.uint32] = tails ^ (size << np.uint32(24))
    return keys


def _is_same_name(text: Bytes, items: Items, first: Positions, second: Positions) -> Mask:
    """Whether two items have the same name, pair by pair."""
    size = items.name_end - items.name_start
    is_same: Mask = size[first] == size[second]
    padded = np.concatenate([text, np.zeros(8, np.uint8)])
    words = overlapping(padded, "<u8")
    for at in range(0, int(size[first].max()), 8):
        rest = np.clip(size[first] - at, 0, 8).astype(np.uint64)
        is_open = is_same & (rest > 0)
        unused = np.uint64(8) * (8 - rest[is_open])
        ones = words[items.name_start[first[is_open]] + at] << unused
        others = words[items.name_start[second[is_open]] + at] << unused
        is_same[is_open] = ones == others
    return is_same


def _equal_in_row(rows: Positions, keys: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Pairs (earlier, later) of near items of one row with equal keys."""
    found = []
    count_max = min(int(np.bincount(rows).max()), _COMPARED_ITEMS_MAX)
    for distance in range(1, count_max):
        is_equal = keys[distance:] == keys[:-distance]
        if is_equal.any():
            is_equal &= rows[distance:] == rows[:-distance]
            earlier = np.flatnonzero(is_equal)
            found.append(np.stack([earlier, earlier + distance], axis=1))
    return np.concatenate(found) if found else np.empty((0, 2), np.int64)
