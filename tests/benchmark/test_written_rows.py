"""The count of written rows finds lost, repeated and indistinguishable rows."""

from __future__ import annotations

import pytest

from bench.accounting.writing import Restarts, summary
from bench.accounting.written import Row, count_rows


def rows(*pairs: tuple[int, str]) -> list[Row]:
    return [Row(number, ("query/0/0", row_id)) for number, row_id in pairs]


def test_every_row_once_is_clean_in_both_deliveries() -> None:
    count = count_rows(rows((0, "a"), (1, "b")), 2)
    assert (count.lost, count.repeated, count.distinct) == ((), (), ())
    assert count.is_clean("transactional")
    assert count.is_clean("at-least-once")


@pytest.mark.parametrize("delivery", ["transactional", "at-least-once"])
def test_a_lost_row_is_never_clean(delivery: str) -> None:
    count = count_rows(rows((0, "a"), (2, "c")), 3)
    assert count.lost == (1,)
    assert not count.is_clean(delivery)


def test_a_repeated_row_with_its_row_id_is_clean_where_repeats_are_allowed() -> None:
    count = count_rows(rows((0, "a"), (0, "a"), (1, "b")), 2)
    assert (count.repeated, count.distinct) == ((0,), ())
    assert count.is_clean("at-least-once")
    assert not count.is_clean("transactional")


def test_a_repeated_row_with_another_row_id_is_never_clean() -> None:
    count = count_rows(rows((0, "a"), (0, "z")), 1)
    assert count.distinct == (0,)
    assert not count.is_clean("at-least-once")


def test_rows_behind_what_is_wanted_may_be_there_or_not() -> None:
    assert count_rows(rows((0, "a"), (7, "h")), 1).is_clean("transactional")
    assert not count_rows(rows((0, "a"), (7, "h"), (7, "h")), 1).is_clean("transactional")


def test_a_run_in_a_line_says_when_decided_batches_were_whole() -> None:
    clean = count_rows(rows((0, "a")), 1)
    cut = Restarts([9.0], [7.4, 6.1], [1.2, 0.8])
    assert summary("transactional", 20, 1, clean, cut) == (
        "accounting: transactional: 20 kills, 0 of 1 rows lost, 0 repeated, "
        "2 decided batches were cut short, each whole within 7.4 s of the restart and "
        "1.2 s of the query's own start (0 later than 10 s)"
    )
    late = Restarts([9.0], [7.4, 16.1], [1.2, 0.8])
    assert late.late(10.0) == [16.1]
    assert cut.late(7.0) == [7.4]
    assert "16.1 s of the restart" in summary("transactional", 20, 1, clean, late)
    assert "(1 later than 10 s)" in summary("transactional", 20, 1, clean, late)
    assert summary("transactional", 2, 1, clean, Restarts()).endswith(
        "no decided batch was cut short"
    )
    assert summary("at-least-once", 2, 1, clean, cut).endswith(
        "0 of them beyond what drop_replays tells"
    )
