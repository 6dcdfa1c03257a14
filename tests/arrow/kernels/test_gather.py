"""Values are the same whether their positions are at one distance or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_arrow.kernels.gather import (
    differing_rows,
    numbers_at,
    pieces_at,
    take_binary,
    values_at,
)

DATA = np.frombuffer(np.random.default_rng(0).bytes(3000), np.uint8)


@st.composite
def positions(draw: st.DrawFn) -> np.ndarray:
    if draw(st.booleans()):
        first, step = draw(st.integers(0, 100)), draw(st.integers(1, 40))
        positions = first + step * np.arange(draw(st.integers(0, 60)))
        if draw(st.booleans()) and len(positions) > 2:
            positions[draw(st.integers(0, len(positions) - 1))] += 1
        return positions
    return np.array(sorted(draw(st.sets(st.integers(0, 2800), max_size=40))), np.int64)


@given(positions(), st.sampled_from([1, 3, 4, 8, 90]))
def test_pieces_are_the_bytes_at_the_positions(positions: np.ndarray, size: int) -> None:
    expected = [DATA[position : position + size].tolist() for position in positions]
    found = pieces_at(DATA, positions, size)
    assert found.tolist() == expected
    found[...] = 0
    assert pieces_at(DATA, positions, size).tolist() == expected


@given(positions())
def test_numbers_are_read_big_endian(positions: np.ndarray) -> None:
    expected = [
        int.from_bytes(DATA[position : position + 4].tobytes(), "big") for position in positions
    ]
    assert numbers_at(DATA, positions, ">u4").tolist() == expected


@given(positions(), st.integers(0, 40), st.booleans())
def test_byte_strings_are_the_bytes_between_the_bounds(
    positions: np.ndarray, size: int, is_uneven: bool
) -> None:
    # They must not overlap.
    sizes = np.minimum(np.diff(positions, append=3000), size)
    if is_uneven:
        sizes[::3] //= 2
    taken = take_binary(DATA, positions, positions + sizes)
    taken.validate(full=True)
    bounds = zip(positions, positions + sizes, strict=True)
    assert taken.to_pylist() == [DATA[start:end].tobytes() for start, end in bounds]


@pytest.mark.parametrize("positions", [[0, 10, 20], [0, 11, 20], [0, 20], [20]])
def test_positions_without_room_are_refused(positions: list[int]) -> None:
    data = DATA[:23]
    assert values_at(data, np.array(positions), "<u2").shape == (len(positions),)
    with pytest.raises(IndexError):
        values_at(data, np.array(positions), "<u4")
    with pytest.raises(IndexError):
        pieces_at(data, np.array(positions), 4)


@given(st.integers(0, 200), st.sets(st.integers(0, 199)), st.integers(0, 4))
def test_differing_rows_are_those_that_differ_where_the_mask_says(
    count: int, changed: set[int], position: int
) -> None:
    rows = np.tile(np.frombuffer(b"abcde", np.uint8), (count, 1))
    for row in changed:
        if row < count:
            rows[row, position] ^= 1
    expected = [row for row in sorted(changed) if row < count and position != 2]
    mask = b"\xff\xff\0\xff\xff"
    assert differing_rows(rows.ravel(), b"abcde", mask).tolist() == expected
