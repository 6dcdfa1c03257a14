"""Uniform rows are read as a search reads them; other rows are left to the search."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_arrow.decode import property_template
from rocketmq_arrow.decode.property_scan import PropertyScan
from rocketmq_arrow.decode.property_template import RowTemplate
from rocketmq_arrow.source_columns import COLUMNS
from rocketmq_wire.records.properties import decode_properties

NAMES = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"CLUSTER", b"a", b"XTAGS", "größe".encode()]
MAP = COLUMNS["properties"].arrow_type


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(property_template, "_ROWS_MIN", 1)


def scan(rows: Sequence[bytes], template: RowTemplate | None = None) -> PropertyScan:
    """Rows with other bytes between them, as in records."""
    data, starts = bytearray(), []
    for row in rows:
        data += b"\x02TAGS\x01"
        starts.append(len(data))
        data += row
    positions = np.array(starts, np.int64)
    ends = positions + np.array([len(row) for row in rows], np.int64)
    return PropertyScan(np.frombuffer(data, np.uint8), positions, ends, template)


def check(rows: Sequence[bytes], template: RowTemplate | None = None) -> None:
    expected = [decode_properties(row) for row in rows]
    found = scan(rows, template)
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "CLUSTER"):
        values = found.find(name)
        values.validate(full=True)
        assert values.to_pylist() == [row.get(name) for row in expected]
    assert [dict(row) for row in found.map_array(MAP).to_pylist()] == expected


def is_placed(rows: Sequence[bytes], template: RowTemplate | None = None) -> bool:
    return scan(rows, template)._item_bounds is not None


def text(*items: tuple[bytes, bytes], is_closed: bool = True) -> bytes:
    return b"\x02".join(b"\x01".join(item) for item in items) + b"\x02" * is_closed


@st.composite
def uniform_rows(draw: st.DrawFn) -> list[bytes]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    spans = [
        (size, size + draw(st.sampled_from([0, 0, 1, 5, 25, 40])))
        for size in draw(st.lists(st.integers(1, 20), min_size=len(names), max_size=len(names)))
    ]
    is_closed = draw(st.booleans())
    source = random.Random(draw(st.integers(0, 2**32)))
    characters = draw(
        st.sampled_from([b"0123456789ab", "xyü€".encode(), b"\xff\x80z", b"\x00\x03a"])
    )
    rows = []
    for _ in range(draw(st.integers(1, 90))):
        values = [bytes(source.choices(characters, k=source.randint(*span))) for span in spans]
        rows.append(text(*zip(names, values, strict=True), is_closed=is_closed))
    return rows


@settings(max_examples=150)
@given(uniform_rows())
def test_uniform_rows_give_the_properties_of_the_scalar_codec(rows: list[bytes]) -> None:
    check(rows)


@settings(max_examples=300)
@given(uniform_rows(), st.data())
def test_rows_with_a_few_odd_ones_give_the_properties_of_the_scalar_codec(
    rows: list[bytes], data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        row = bytearray(rows[index := data.draw(st.integers(0, len(rows) - 1))])
        locate = data.draw(st.integers(0, len(row)))
        odd = st.sampled_from(
            [b"\x01", b"\x02", b"TAGS\x01x\x02", b"\x02KEYS\x01", b"", b"\x01\x02"]
        )
        row[locate : locate + data.draw(st.integers(0, 3))] = data.draw(odd)
        rows[index] = bytes(row)
    check(rows)


@settings(max_examples=100)
@given(st.lists(uniform_rows(), min_size=1, max_size=4), st.randoms())
def test_what_was_learned_from_earlier_rows_changes_nothing(
    chunks: list[list[bytes]], source: random.Random
) -> None:
    template = RowTemplate()
    for rows in chunks * 2:
        check(rows, template)
        check([*rows, *source.choice(chunks)], template)


def orders(count: int, *, key: str = "{}", tag: str = "paid") -> list[bytes]:
    return [
        text(
            (b"KEYS", key.format(row).encode()),
            (b"TAGS", (tag if row % 2 else "created").encode()),
            (b"UNIQ_KEY", b"%032d" % row),
            (b"WAIT", b"true"),
        )
        for row in range(count)
    ]


@pytest.mark.parametrize("tag", ["created", "paid"])
@pytest.mark.parametrize("key", ["{:08d}", "order-{}", "o" * 30 + "{:0<20}"])
def test_usual_rows_are_placed_without_a_search(key: str, tag: str) -> None:
    rows = orders(1200, key=key, tag=tag)
    assert is_placed(rows)
    check(rows)


def test_rows_without_the_last_separator_are_placed() -> None:
    rows = [row[:-1] for row in orders(300, key="order-{}")]
    assert is_placed(rows)
    check(rows)


def test_a_size_that_no_sample_had_is_learned() -> None:
    rows = orders(500, key="{:05d}")
    rows[333] = orders(1, key="seventeen characters")[0]
    rows[334] = orders(1, key="1")[0]
    template = RowTemplate()
    assert is_placed(rows, template)
    check(rows, template)


FALSE_FRIENDS = {
    "the tag twice": text((b"KEYS", b"00"), (b"TAGS", b"a"), (b"TAGS", b"b"), (b"WAIT", b"true")),
    "other name": text((b"KEYS", b"00"), (b"TAGZ", b"a"), (b"WAIT", b"true")),
    "other order": text((b"TAGS", b"a"), (b"KEYS", b"00"), (b"WAIT", b"true")),
    "empty value": text((b"KEYS", b"00"), (b"TAGS", b""), (b"WAIT", b"true")),
    "separator within a value": text((b"KEYS", b"00"), (b"TAGS", b"\x01"), (b"WAIT", b"true")),
    "end within a value": text((b"KEYS", b"\x020"), (b"TAGS", b"a"), (b"WAIT", b"true")),
    "no properties": b"",
    "not closed": text((b"KEYS", b"00"), (b"TAGS", b"a"), (b"WAIT", b"true"), is_closed=False),
    "one more": text((b"KEYS", b"00"), (b"TAGS", b"a"), (b"WAIT", b"true"), (b"a", b"b")),
    "empty item": text((b"KEYS", b"00"), (b"TAGS", b"a"), (b"WAIT", b"true")) + b"\x02",
}


@pytest.mark.parametrize("is_sampled", [True, False])
@pytest.mark.parametrize("odd", FALSE_FRIENDS.values(), ids=FALSE_FRIENDS.keys())
def test_one_row_that_is_built_otherwise_makes_all_be_searched(
    odd: bytes, is_sampled: bool
) -> None:
    rows = [
        text((b"KEYS", b"%02d" % row), (b"TAGS", b"a"), (b"WAIT", b"true")) for row in range(99)
    ]
    assert is_placed(rows)
    rows[0 if is_sampled else 51] = odd
    assert not is_placed(rows)
    check(rows)


def test_a_lack_and_a_surplus_of_separators_do_not_balance() -> None:
    rows = [text((b"KEYS", b"%02d" % row), (b"TAGS", b"ab")) for row in range(99)]
    rows[41] = text((b"KEYS", b"\x022"), (b"TAGS", b"ab"))
    rows[42] = text((b"KEYS", b"423TAGS"), (b"", b"ab"))[:-4] + b"\x01ab\x02"
    assert not is_placed(rows)
    check(rows)


def test_long_rows_are_searched() -> None:
    rows = orders(300, key="x" * 1024 + "{}")
    assert not is_placed(rows)
    check(rows)


def test_rows_of_several_producers_are_tried_ever_less_often() -> None:
    mixed = [*orders(50), *[text((b"TAGS", b"x"))] * 50]
    template = RowTemplate()
    tried = 0
    for _ in range(100):
        tried += not template.attempts.pause
        assert not is_placed(mixed, template)
    assert tried < 10
    check(mixed, template)


def test_another_producer_is_taken_up() -> None:
    template = RowTemplate()
    for rows in (orders(99), [text((b"TAGS", b"x"))] * 99, orders(99)):
        assert is_placed(rows, template)


def test_few_rows_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not is_placed(orders(20))
    assert is_placed(orders(1000))
