"""Arrow arrays made without pandas equal those that `pa.array` makes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_arrow.kernels.numpy_arrays import (
    array_of,
    byte_strings,
    integers_of,
    mask_of,
    string_array,
    text_array,
)

FIRST_BATCH = """
import sys
from rocketmq_arrow.source_columns import DEFAULT_COLUMNS, arrow_schema
from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_wire.model import QueueId
from support.records import make_records
data, _ = make_records(100)
tags = frozenset({"paid", "created"})
for options in (DecodeOptions(arrow_schema(DEFAULT_COLUMNS)),
                DecodeOptions(arrow_schema(DEFAULT_COLUMNS), tags=tags)):
    rows = Decoder(options).decode(QueueId("orders", "broker-a", 0), 0, 100, data)
    assert sum(batch.num_rows for batch in rows)
from rocketmq_arrow.source_columns import COLUMNS
from support.golden_frames import QUEUE, golden_records
records = golden_records("5.3.3", "pull-found", QUEUE)  # Compressed bodies and an IPv6 host.
rows = Decoder(DecodeOptions(arrow_schema(COLUMNS))).decode(QUEUE, 0, 100, records)
assert sum(batch.num_rows for batch in rows) == 13
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint32, np.float64, np.bool_])
# The expected value's own import of pandas counts as a slow example.
@given(values=st.lists(st.integers(0, 100), max_size=40), seed=st.integers(0, 2**32 - 1))
def test_numbers_and_masks(dtype, values, seed):
    numbers = np.array(values).astype(dtype)
    missing = np.random.default_rng(seed).random(len(numbers)) < 0.5
    assert array_of(numbers).equals(pa.array(numbers))
    assert array_of(numbers[::2]).equals(pa.array(numbers[::2]))
    assert array_of(numbers, missing).equals(pa.array(numbers, mask=missing))


@given(st.lists(st.none() | st.text(max_size=5), max_size=40))
def test_texts(texts):
    expected = [text and text.encode("utf-8", "replace").decode() for text in texts]
    assert text_array(texts).equals(pa.array(expected, pa.string()))


@given(st.lists(st.none() | st.binary(max_size=5), max_size=40))
def test_bodies(values):
    assert string_array(values, pa.binary()).equals(pa.array(values, pa.binary()))


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40))
def test_masks_back(values, start):
    array = pa.array(values, pa.bool_())[start:]
    assert mask_of(array).tolist() == values[start:]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40), st.integers(0, 40))
def test_numbers_back(values, start):
    array = pa.array(values, pa.int32())[start:]
    assert integers_of(array).tolist() == values[start:]


@given(st.lists(st.binary(max_size=5), max_size=40), st.integers(0, 40))
def test_byte_strings(values, start):
    assert byte_strings(pa.array(values, pa.binary())[start:]) == values[start:]


def test_decoding_does_not_import_pandas():
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{FIRST_BATCH}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
