"""Rows are laid out piece by piece, as joining them in Python would."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from rocketmq_arrow.kernels import assemble as assembling
from rocketmq_arrow.kernels.assemble import Constant, Ranges, Rows, assemble
from rocketmq_wire.errors import LocalProtocolError

Piece = Rows | Ranges | Constant
TEXT = np.frombuffer(b"..aa.bbb.c", np.uint8)
STARTS = np.array([2, 5, 8])
ENDS = np.array([4, 8, 8])
MATRIX = np.frombuffer(b"112233", np.uint8).reshape(3, 2)


def test_pieces_of_every_kind_are_joined_in_order() -> None:
    mask = np.array([True, False, True])
    pieces: list[Piece] = [
        Constant(b"<"),
        Rows(MATRIX),
        Constant(b"|"),
        Constant(b"-"),
        Ranges(TEXT, STARTS, ENDS),
        Constant(b"!", mask),
        Constant(b">"),
    ]
    rows, starts, sizes = assemble(pieces, 3)
    assert rows.tobytes() == b"<11|-aa!><22|-bbb><33|-!>"
    assert starts.tolist() == [0, 9, 18]
    assert sizes.tolist() == [9, 9, 7]


def bounds_of(sizes: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ends = np.cumsum(np.array(sizes, np.int64))
    return ends - sizes, ends


@pytest.mark.parametrize(
    "sizes",
    [
        [4] * 50,
        [4, 5] * 25,
        [0, 900] * 25,
        [0] * 50,
        list(range(50)),
        [0, 100_000, *[3] * 48],
    ],
    ids=["one size", "two", "none and some", "nothing", "many", "far apart"],
)
def test_rows_are_the_same_whatever_the_sizes_of_their_pieces_are(sizes: list[int]) -> None:
    random = np.random.default_rng(5)
    text = random.integers(0, 256, sum(sizes), np.uint8)
    starts, ends = bounds_of(sizes)
    head = random.integers(0, 256, (len(sizes), 3), np.uint8)
    mask = np.arange(len(sizes)) % 3 == 0
    pieces: list[Piece] = [
        Rows(head),
        Ranges(text, starts, ends),
        Constant(b"ab"),
        Constant(b"!", mask),
    ]
    rows, row_starts, row_sizes = assemble(pieces, len(sizes))
    expected = [
        head[row].tobytes()
        + text[starts[row] : ends[row]].tobytes()
        + (b"ab!" if mask[row] else b"ab")
        for row in range(len(sizes))
    ]
    assert rows.tobytes() == b"".join(expected)
    assert row_sizes.tolist() == [len(row) for row in expected]
    assert row_starts.tolist() == (np.cumsum(row_sizes) - row_sizes).tolist()


def test_rows_of_one_size_are_laid_out_without_gaps() -> None:
    text = np.frombuffer(b"aabbccdd", np.uint8)
    starts = np.array([0, 2, 6])
    rows, _, sizes = assemble([Constant(b"<"), Ranges(text, starts, starts + 2)], 3)
    assert rows.tobytes() == b"<aa<bb<dd"
    assert sizes.tolist() == [3, 3, 3]


def test_no_rows_are_an_empty_buffer() -> None:
    none = np.empty(0, np.int64)
    pieces: list[Piece] = [
        Constant(b"<"),
        Ranges(TEXT, none, none),
        Rows(np.empty((0, 4), np.uint8)),
    ]
    rows, starts, sizes = assemble(pieces, 0)
    assert (len(rows), len(starts), len(sizes)) == (0, 0, 0)


def test_rows_beyond_arrows_offsets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "GATHER_SIZE_MAX", 20)
    with pytest.raises(LocalProtocolError, match="3 messages of 21 bytes"):
        assemble([Constant(b"1234567")], 3)
