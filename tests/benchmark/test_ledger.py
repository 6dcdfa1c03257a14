"""The ledger finds every way in which messages can be lost, repeated or reordered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.accounting.ledger import account
from bench.accounting.sink_files import final_files, read_rows, read_unlisted_rows


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_what_was_sent_and_read_once_in_order_is_clean() -> None:
    tally = account({0: numbers(0, 1, 2), 1: numbers(0)}, {}, {0: numbers(0, 1, 2), 1: numbers(0)})
    assert tally.is_clean
    assert (tally.sent, tally.read) == (4, 4)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (numbers(0, 2), "missing"),
        (numbers(0, 1, 1, 2), "duplicate"),
        (numbers(0, 2, 1), "out_of_order"),
        (numbers(0, 1, 2, 3), "unexpected"),
    ],
)
def test_each_kind_of_fault_is_counted_as_itself(read: np.ndarray, what: str) -> None:
    tally = account({0: numbers(0, 1, 2)}, {}, {0: read})
    assert not tally.is_clean
    counts = {
        name: getattr(tally, name)
        for name in ("missing", "duplicate", "out_of_order", "unexpected")
    }
    assert counts == dict.fromkeys(counts, 0) | {what: 1}
    assert len(tally.examples) == 1


def test_a_queue_that_was_not_read_at_all_is_missing() -> None:
    assert account({0: numbers(0), 5: numbers(0, 1)}, {}, {0: numbers(0)}).missing == 2


def test_sends_with_an_unknown_outcome_may_be_there_or_not() -> None:
    tally = account({0: numbers(0, 3)}, {0: numbers(1, 2)}, {0: numbers(0, 1, 3)})
    assert tally.is_clean
    assert (tally.unknown, tally.unknown_stored) == (2, 1)


def test_sends_with_an_unknown_outcome_may_not_be_there_twice() -> None:
    assert account({}, {0: numbers(1)}, {0: numbers(1, 1)}).duplicate == 1


def test_sends_with_an_unknown_outcome_may_be_stored_late() -> None:
    assert account({0: numbers(0, 2)}, {0: numbers(1)}, {0: numbers(0, 2, 1)}).is_clean


class Sink:
    """A folder as Spark's parquet sink leaves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "_spark_metadata").mkdir(parents=True)

    def write(self, name: str, *values: int) -> str:
        path = self.folder / name
        pq.write_table(pa.table({"value": list(values)}), path)
        return json.dumps({"path": path.as_uri(), "action": "add"})

    def list(self, name: str, *entries: str) -> None:
        (self.folder / "_spark_metadata" / name).write_text("\n".join(["v1", *entries]))


def test_only_listed_files_count_and_batches_come_in_order(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "output with blank")
    sink.list("0", sink.write("b.parquet", 1, 2))
    sink.write("left-by-a-killed-attempt.parquet", 99)
    sink.list("1", sink.write("a.parquet", 3))
    assert read_rows(sink.folder, ["value"])["value"].to_pylist() == [1, 2, 3]
    everything = read_unlisted_rows(sink.folder, ["value"])["value"].to_pylist()
    assert sorted(everything) == [1, 2, 3, 99]


def test_a_compacted_list_replaces_all_before_it(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    first, second = sink.write("0.parquet", 1), sink.write("1.parquet", 2)
    sink.list("0", first)
    sink.list("1.compact", first, second)
    sink.list("2", sink.write("2.parquet", 3))
    assert [path.name for path in final_files(tmp_path)] == ["0.parquet", "1.parquet", "2.parquet"]
