"""Rows are laid out piece by piece, as joining them in Python would."""

from __future__ import annotations

import numpy as np
import pytest

from rocketmq_arrow import assemble as assembling
from rocketmq_arrow.assemble import Constant, Ranges, Rows, assemble
from rocketmq_wire.errors import LocalProtocolError

TEXT = np.frombuffer(b"..aa.bbb.c", np.uint8)
STARTS = np.array([2, 5, 8])
ENDS = np.array([4, 8, 8])
MATRIX = np.frombuffer(b"112233", np.uint8).reshape(3, 2)


def test_pieces_of_every_kind_are_joined_in_order() -> None:
    mask = np.array([True, False, True])
    pieces = [
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


def test_no_rows_are_an_empty_buffer() -> None:
    none = np.empty(0, np.int64)
    pieces = [Constant(b"<"), Ranges(TEXT, none, none), Rows(np.empty((0, 4), np.uint8))]
    rows, starts, sizes = assemble(pieces, 0)
    assert (len(rows), len(starts), len(sizes)) == (0, 0, 0)


def test_rows_beyond_arrows_offsets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembling, "GATHER_SIZE_MAX", 20)
    with pytest.raises(LocalProtocolError, match="3 messages of 21 bytes"):
        assemble([Constant(b"1234567")], 3)
