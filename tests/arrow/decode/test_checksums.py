"""Wrong bodies are found among many, whichever way they are summed, and no right one is blamed."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_arrow.decode import checksums
from rocketmq_arrow.decode.checksums import crcs_at, wrong_bodies

MASK = 0x7FFFFFFF


class Bodies:
    """Bodies with other bytes between them, as records have."""

    def __init__(self, sizes: list[int], *, seed: int = 0, lead: int = 88) -> None:
        source = random.Random(seed)
        self.data = bytearray()
        self.starts, self.ends, self.stored = [], [], []
        for size in sizes:
            self.data += source.randbytes(lead)
            body = source.randbytes(size)
            self.starts.append(len(self.data))
            self.data += body
            self.ends.append(len(self.data))
            self.stored.append(zlib.crc32(body) & MASK)
            self.data += source.randbytes(9)

    def wrong(self) -> list[int]:
        found = wrong_bodies(
            np.frombuffer(self.data, np.uint8),
            np.array(self.starts),
            np.array(self.ends),
            np.array(self.stored, np.int64).astype(np.int32),
        )
        rows: list[int] = found.tolist()
        return rows

    def wrong_one_by_one(self) -> list[int]:
        pairs = zip(self.starts, self.ends, strict=True)
        found = [zlib.crc32(self.data[start:end]) & MASK for start, end in pairs]
        return [row for row, crc in enumerate(found) if crc != self.stored[row]]


SIZES = (
    st.integers(0, 300).flatmap(lambda size: st.lists(st.just(size), min_size=64, max_size=200))
    | st.lists(st.integers(60, 140), min_size=64, max_size=200)
    | st.lists(st.sampled_from([0, 1, 7, 100, 3000]), min_size=60, max_size=120)
    | st.lists(st.integers(500, 900), min_size=64, max_size=80)
)


@settings(max_examples=60)
@given(SIZES, st.integers(0, 88), st.data())
def test_exactly_the_wrong_bodies_are_found(
    sizes: list[int], lead: int, data: st.DataObject
) -> None:
    bodies = Bodies(sizes, lead=lead)
    assert bodies.wrong() == []
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, len(sizes) - 1))
        if data.draw(st.booleans()) or not sizes[row]:
            bodies.stored[row] ^= 1 << data.draw(st.integers(0, 31))
        else:
            position = data.draw(st.integers(bodies.starts[row], bodies.ends[row] - 1))
            bodies.data[position] ^= 1 << data.draw(st.integers(0, 7))
    assert bodies.wrong() == bodies.wrong_one_by_one()


@pytest.mark.parametrize("sizes", [[100] * 70, [60 + row % 80 for row in range(5000)]])
def test_right_bodies_are_summed_together(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("summed one by one")

    bodies = Bodies(sizes, lead=160)
    monkeypatch.setattr(checksums, "crcs_at", refuse)
    assert bodies.wrong() == []


@pytest.mark.parametrize("row", [0, 1, 2000, 4999])
def test_every_bit_of_a_body_counts_in_every_piece(
    monkeypatch: pytest.MonkeyPatch, row: int
) -> None:
    monkeypatch.setattr(checksums, "_BYTES_AT_ONCE", 10_000)
    bodies = Bodies([8] * 5000)
    for position in range(bodies.starts[row], bodies.ends[row]):
        for bit in range(8):
            bodies.data[position] ^= 1 << bit
            assert bodies.wrong() == [row]
            bodies.data[position] ^= 1 << bit


def test_numpy_1_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    bodies = Bodies([90 + row % 20 for row in range(500)])
    assert bodies.wrong() == []
    bodies.data[bodies.starts[400]] ^= 1
    assert bodies.wrong() == [400]


def test_the_same_error_in_two_bodies_does_not_cancel() -> None:
    bodies = Bodies([100] * 80)
    for row in (10, 11, 50):
        bodies.data[bodies.starts[row] + 50] ^= 0x20
    assert bodies.wrong() == [10, 11, 50]


def test_exchanged_bodies_are_both_wrong() -> None:
    bodies = Bodies([100] * 80)
    first, second = (slice(bodies.starts[row], bodies.ends[row]) for row in (20, 60))
    bodies.data[first], bodies.data[second] = bodies.data[second], bodies.data[first]
    assert bodies.wrong() == [20, 60]


def test_a_checksum_with_its_highest_bit_set_is_wrong() -> None:
    bodies = Bodies([100] * 80)
    bodies.stored[7] |= 1 << 31
    assert bodies.wrong() == [7]


def test_a_body_at_the_very_end_and_one_at_the_very_start_are_summed() -> None:
    body = b"x" * 100
    data = np.frombuffer(body * 70, np.uint8)
    starts = np.arange(70) * 100
    stored = np.full(70, zlib.crc32(body) & MASK, np.int32)
    assert wrong_bodies(data, starts, starts + 100, stored).tolist() == []
    stored[[0, 69]] ^= 1
    assert wrong_bodies(data, starts, starts + 100, stored).tolist() == [0, 69]


@pytest.mark.parametrize("sizes", [[], [0], [100] * 80, [1024] * 80, [5, 2000, 0, 299, 300]])
def test_checksums_are_those_that_records_store(sizes: list[int]) -> None:
    bodies = Bodies(sizes)
    found = crcs_at(
        np.frombuffer(bodies.data, np.uint8),
        np.array(bodies.starts, np.int64),
        np.array(bodies.ends, np.int64),
    )
    assert found.tolist() == bodies.stored
