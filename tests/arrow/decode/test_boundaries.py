"""Every way of finding record starts finds the same chain, and none accepts a torn one."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_arrow.decode import boundaries
from rocketmq_arrow.decode.boundaries import record_bounds
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.records.record import RECORD_SIZE_MIN
from support.records import join_records, lay_out, make_messages, make_records


def starts_of(sizes: bytes) -> list[int]:
    values = np.frombuffer(sizes, "<i4").astype(np.int64)
    starts: list[int] = (np.cumsum(values) - values).tolist()
    return starts


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 3000])
def test_starts_are_found_with_and_without_sizes(count: int) -> None:
    body, sizes = make_records(count, 30)
    starts, found = record_bounds(body)
    assert starts.tolist() == starts_of(sizes)
    assert found.astype("<i4").tobytes() == sizes
    assert record_bounds(body, sizes)[0].tolist() == starts_of(sizes)


def test_magics_inside_bodies_do_not_mislead() -> None:
    messages = make_messages(2000, 30)
    magic = struct.pack(">II", 200, boundaries.MAGIC_V1)
    records = []
    for row, message in enumerate(messages):
        body = (magic * 20)[: 20 + row % 90] if row % 3 else message.body
        object.__setattr__(message, "body", body)
        records.append(lay_out(message))
    body, sizes = join_records(records)
    assert record_bounds(body)[0].tolist() == starts_of(sizes)


def test_large_records_among_small_ones_are_found() -> None:
    messages = make_messages(1500, 20)
    for row in range(0, 1500, 97):
        object.__setattr__(messages[row], "body", bytes(50_000))
    body, sizes = join_records([lay_out(message) for message in messages])
    assert record_bounds(body)[0].tolist() == starts_of(sizes)


BODIES = {count: make_records(count, 5) for count in (3, 1200)}


@given(st.data())
def test_damaged_size_is_refused_or_leads_to_another_whole_chain(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from(list(BODIES)))
    body, sizes = BODIES[count]
    starts = starts_of(sizes)
    changed = bytearray(body)
    row = data.draw(st.integers(0, count - 1))
    value = data.draw(st.integers(-(2**31), 2**31 - 1) | st.integers(80, 2000))
    struct.pack_into(">i", changed, starts[row], value)
    try:
        found, found_sizes = record_bounds(changed)
    except CorruptRecordError:
        return
    assert (found_sizes >= RECORD_SIZE_MIN).all()
    assert found[0] == 0
    assert (found[1:] == found[:-1] + found_sizes[:-1]).all()
    assert found[-1] + found_sizes[-1] == len(changed)
    fields = [struct.unpack_from(">i", changed, start)[0] for start in found]
    assert fields == found_sizes.tolist()


@pytest.mark.parametrize("cut", [1, 50, 95, 5000, 61_001])
def test_torn_bodies_name_the_position(cut: int) -> None:
    body, sizes = make_records(1400, 5)
    ends = {0, *(start for start in starts_of(sizes))}
    assert cut not in ends
    with pytest.raises(CorruptRecordError) as caught:
        record_bounds(body[:cut], where="here")
    assert caught.value.where == "here"
    assert caught.value.position == max(start for start in ends if start <= cut)


def test_endless_record_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="size 0 is not within"):
        record_bounds(bytes(500))


def chain_of(sizes: list[int]) -> bytearray:
    """Records of which nothing but size and magic is looked at here."""
    chain = bytearray()
    for row, size in enumerate(sizes):
        start = struct.pack(">iI", size, boundaries.MAGIC_V1)
        chain += start + bytes([row % 251]) * (size - len(start))
    return chain


RUNS = st.lists(st.tuples(st.integers(1, 150), st.integers(91, 400)), min_size=1, max_size=8)


@settings(max_examples=60)
@given(RUNS, st.booleans(), st.data())
def test_runs_of_equal_sizes_and_what_is_between_them_are_found(
    runs: list[tuple[int, int]], is_long: bool, data: st.DataObject
) -> None:
    sizes = [size for count, size in runs for _ in range(count)]
    if is_long:
        # The last stretch is for the many walkers.
        sizes += [91 + row * 37 % 120 for row in range(1500)]
    body = chain_of(sizes)
    starts, found = record_bounds(body)
    assert found.tolist() == sizes
    assert starts.tolist() == (np.cumsum(sizes) - sizes).tolist()
    cut = data.draw(st.integers(1, len(body) - 1))
    if cut in starts:
        return
    with pytest.raises(CorruptRecordError) as caught:
        record_bounds(body[:cut])
    assert caught.value.position == max(start for start in starts.tolist() if start <= cut)


def test_a_wrong_size_within_a_run_names_the_position() -> None:
    body = chain_of([120] * 500)
    struct.pack_into(">i", body, 120 * 321, -5)
    with pytest.raises(CorruptRecordError, match="size -5 is not within") as caught:
        record_bounds(body)
    assert caught.value.position == 120 * 321
