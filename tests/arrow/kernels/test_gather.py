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
        places = first + step * np.arange(draw(st.integers(0, 60)))
        if draw(st.booleans()) and len(places) > 2:
            places[draw(st.integers(0, len(places) - 1))] += 1
        return places
    return np.array(sorted(draw(st.sets(st.integers(0, 2800), max_size=40))), np.int64)


@given(positions(), st.sampled_from([1, 3, 4, 8, 90]))
def test_pieces_are_the_bytes_at_the_positions(places: np.ndarray, size: int) -> None:
    expected = [DATA[place : place + size].tolist() for place in places]
    found = pieces_at(DATA, places, size)
    assert found.tolist() == expected
    found[...] = 0
    assert pieces_at(DATA, places, size).tolist() == expected


@given(positions())
def test_numbers_are_read_big_endian(places: np.ndarray) -> None:
    expected = [int.from_bytes(DATA[place : place + 4].tobytes(), "big") for place in places]
    assert numbers_at(DATA, places, ">u4").tolist() == expected


@given(positions(), st.integers(0, 40), st.booleans())
def test_byte_strings_are_the_bytes_between_the_bounds(
    places: np.ndarray, size: int, is_uneven: bool
) -> None:
    # They must not overlap.
    sizes = np.minimum(np.diff(places, append=3000), size)
    if is_uneven:
        sizes[::3] //= 2
    taken = take_binary(DATA, places, places + sizes)
    taken.validate(full=True)
    bounds = zip(places, places + sizes, strict=True)
    assert taken.to_pylist() == [DATA[start:end].tobytes() for start, end in bounds]


@pytest.mark.parametrize("places", [[0, 10, 20], [0, 11, 20], [0, 20], [20]])
def test_positions_without_room_are_refused(places: list[int]) -> None:
    data = DATA[:23]
    assert values_at(data, np.array(places), "<u2").shape == (len(places),)
    with pytest.raises(IndexError):
        values_at(data, np.array(places), "<u4")
    with pytest.raises(IndexError):
        pieces_at(data, np.array(places), 4)


@given(st.integers(0, 200), st.sets(st.integers(0, 199)), st.integers(0, 4))
def test_differing_rows_are_those_that_differ_where_the_mask_says(
    count: int, changed: set[int], place: int
) -> None:
    rows = np.tile(np.frombuffer(b"abcde", np.uint8), (count, 1))
    for row in changed:
        if row < count:
            rows[row, place] ^= 1
    expected = [row for row in sorted(changed) if row < count and place != 2]
    mask = b"\xff\xff\0\xff\xff"
    assert differing_rows(rows.ravel(), b"abcde", mask).tolist() == expected
