"""Encoded rows are what the scalar codec reads back, and illegal rows are refused by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_arrow.encode.record_block import block_from_records
from rocketmq_arrow.encode.rows import (
    OutgoingRows,
    encode_batch_body,
    encode_entries,
    encode_record_rows,
)
from rocketmq_arrow.source_columns import arrow_schema
from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import decode_properties, encode_properties
from support.batch_blocks import block_from_batch
from support.batch_entries import decode_batch
from support.records import BORN_HOST, BORN_HOST_V6, STORE_HOST, STORE_HOST_V6

MAP = pa.map_(pa.string(), pa.string())
CHARACTERS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
MAPS = st.none() | st.dictionaries(
    CHARACTERS.filter(lambda name: name not in ("", "TAGS", "KEYS", "UNIQ_KEY", "WAIT")),
    st.none() | CHARACTERS,
    max_size=5,
)
ROWS = st.lists(
    st.tuples(st.binary(max_size=30), st.none() | CHARACTERS, st.none() | CHARACTERS, MAPS),
    min_size=1,
    max_size=20,
)

BORN_HOSTS = st.sampled_from([BORN_HOST, BORN_HOST_V6])
STORE_HOSTS = st.sampled_from([STORE_HOST, STORE_HOST_V6])


def columns(rows: list[tuple[bytes, str | None, str | None, Any]]) -> dict[str, pa.Array]:
    return {
        "bodies": pa.array([row[0] for row in rows], pa.binary()),
        "tags": pa.array([row[1] for row in rows], pa.string()),
        "keys": pa.array([row[2] for row in rows], pa.string()),
        "properties": pa.array([row[3] for row in rows], MAP),
    }


def expected_properties(row: tuple[bytes, str | None, str | None, Any]) -> dict[str, str]:
    found = {name: value for name, value in (row[3] or {}).items() if value}
    found |= {"KEYS": row[2]} if row[2] else {}
    found |= {"TAGS": row[1]} if row[1] else {}
    return found | {"WAIT": "true"}


@given(ROWS)
def test_batch_body_is_read_back_by_the_scalar_codec(rows: list[Any]) -> None:
    body = encode_batch_body(**columns(rows), shared={"WAIT": "true"})
    entries = decode_batch(body)
    assert [entry.body for entry in entries] == [row[0] for row in rows]
    assert [decode_properties(entry.properties) for entry in entries] == [
        expected_properties(row) for row in rows
    ]


@given(
    ROWS, st.sampled_from([BORN_HOST, BORN_HOST_V6]), st.sampled_from([STORE_HOST, STORE_HOST_V6])
)
def test_records_pass_the_broker_and_the_decoder(rows: list[Any], born: Any, store: Any) -> None:
    times = np.arange(len(rows), dtype=np.int64) * 1000 + 5
    flags = np.arange(len(rows), dtype=np.int32)
    outgoing = OutgoingRows(
        **columns(rows), shared=encode_properties({"WAIT": "true"}), flags=flags
    )
    buffer, sizes = encode_record_rows(
        "orders", outgoing, born_ms=times, born_host=born, store_host=store
    )
    block = block_from_records(buffer.data, sizes.astype("<i4").data, topic="orders")
    block.patch(3, 70, 0, 9000, store)
    schema = arrow_schema(["body", "properties", "queueOffset", "flag", "tags"])
    queue = QueueId("orders", "b", 3)
    decoded = [
        row
        for batch in Decoder(DecodeOptions(schema)).decode(queue, 0, 1000, block.buffer.tobytes())
        for row in batch.to_pylist()
    ]
    assert decoded == [
        {
            "body": row[0],
            "properties": list(expected_properties(row).items()),
            "queueOffset": 70 + index,
            "flag": index,
            "tags": row[1] or None,
        }
        for index, row in enumerate(rows)
    ]


def test_batch_body_without_properties_equals_the_scalar_encoders() -> None:
    bodies = pa.array([b"hello", b"", b"x" * 300])
    expected = encode_batch([BatchEntry(7, body) for body in bodies.to_pylist()])
    assert encode_entries(OutgoingRows(bodies, flags=7))[0].tobytes() == expected


def test_golden_batch_entry_is_written() -> None:
    golden = bytes.fromhex(
        "0000002C00000000000000000000000100000002686900145741495401747275650254414753015461674102"
    )
    rows = OutgoingRows(
        pa.array([b"hi"]),
        properties=pa.array([{"WAIT": "true"}], MAP),
        tags=pa.array(["TagA"]),
        flags=1,
    )
    assert encode_entries(rows)[0].tobytes() == golden


def test_entries_can_be_cut_anywhere() -> None:
    rows = OutgoingRows(pa.array([b"a" * size for size in range(1, 40)]), tags=pa.array(["t"] * 39))
    entries, sizes = encode_entries(rows)
    ends = np.cumsum(sizes)
    for cut in ends:
        assert (
            len(decode_batch(entries[:cut].tobytes())) + len(decode_batch(entries[cut:].tobytes()))
            == 39
        )


def test_slices_of_columns_are_encoded_as_they_look() -> None:
    rows: list[tuple[bytes, str | None, str | None, Any]] = [
        (b"body-%d" % row, f"tag{row}", None if row % 2 else f"key{row}", {"n": str(row)})
        for row in range(20)
    ]
    sliced = {name: column[5:12] for name, column in columns(rows).items()}
    assert encode_batch_body(**sliced) == encode_batch_body(**columns(rows[5:12]))
    chunked = {
        name: pa.chunked_array([column[5:7], column[7:12]])
        for name, column in columns(rows).items()
    }
    assert encode_batch_body(**chunked) == encode_batch_body(**columns(rows[5:12]))


def test_no_rows_give_an_empty_body() -> None:
    assert encode_batch_body(**columns([])) == b""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bodies": pa.array([b"x", None, b"y"])}, "row 1 has no body"),
        ({"tags": pa.array(["a", "b", "c\x01"])}, "row 2 has TAGS with a character"),
        ({"keys": pa.array(["a", "\x02", None])}, "row 1 has KEYS with a character"),
        ({"unique_keys": pa.array(["\x02", "b", None])}, "row 0 has UNIQ_KEY with a character"),
        (
            {"properties": pa.array([None, {}, {"a\x01": "b"}], MAP)},
            "row 2 has properties with a character",
        ),
        (
            {"properties": pa.array([None, {"a": "b\x02"}, {}], MAP)},
            "row 1 has properties with a character",
        ),
        ({"properties": pa.array([{"": "b"}, {}, {}], MAP)}, "row 0 has a property without name"),
        ({"tags": pa.array(["a", "b" * 32_768, "c"])}, "row 1 has properties of 3"),
    ],
)
def test_illegal_rows_are_refused_by_number(changes: dict[str, Any], reason: str) -> None:
    sound: dict[str, Any] = {"bodies": pa.array([b"x", b"y", b"z"])}
    with pytest.raises(LocalProtocolError, match=reason):
        encode_batch_body(**sound | changes)


def test_encoded_batch_is_accepted_by_the_broker() -> None:
    body = encode_batch_body(pa.array([b"x"] * 500), tags=pa.array(["a", None] * 250))
    block = block_from_batch(
        body,
        topic="orders",
        queue_index=0,
        born_ms=1,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        sys_flag=0,
    )
    assert len(block) == 500
    assert block.tag_hashes.tolist() == [97, 0] * 250
