"""The vectorised decoder and the scalar codec read the same from generated and hostile records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_arrow.decode import checksums, property_template
from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_arrow.source_columns import COLUMNS, arrow_schema
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Host, QueueId, StoredMessage
from rocketmq_wire.records.record import decode_record, encode_record
from support.expected_rows import expected_row
from support.records import join_records, lay_out, make_messages, properties_text

QUEUE = QueueId("orders", "broker-a", 0)
EVERYTHING = DecodeOptions(arrow_schema(COLUMNS), rows_max=7)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-62_135_596_800_000, 253_402_300_799_999)

# Few names and separators everywhere, so that duplicates and broken items are common.
PROPERTY_PIECES = b"\x01 \x02 \x01 \x02 TAGS KEYS UNIQ_KEY XTAGS a b 0123456789AB \xff".split(b" ")
PROPERTY_PIECES += ["ü".encode(), b"a long name of a property", b"order-1 order-2"]
PROPERTY_TEXTS = st.lists(st.sampled_from(PROPERTY_PIECES), max_size=40).map(b"".join)


@pytest.fixture(autouse=True, scope="module", params=["as few rows", "as many rows"])
def ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """A handful of records is read in the ways of large chunks, too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "as many rows":
            patch.setattr(checksums, "_ROWS_MIN", 1)
            patch.setattr(property_template, "_ROWS_MIN", 1)
        yield


@st.composite
def messages(draw: st.DrawFn, *, index: int) -> StoredMessage:
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    return StoredMessage(
        topic=QUEUE.topic,
        body=draw(st.binary(max_size=60)),
        properties={},
        flag=draw(INT32),
        queue_index=QUEUE.index,
        queue_offset=index,
        physical_offset=draw(INT64),
        sys_flag=draw(INT32) & ~0xB1 | 0x10 * born_v6 | 0x20 * store_v6,
        born_ms=draw(TIMES),
        born_host=draw(hosts(16 if born_v6 else 4)),
        store_ms=draw(TIMES),
        store_host=draw(hosts(16 if store_v6 else 4)),
        reconsume_times=draw(st.integers(0, 100)),
        prepared_transaction_offset=draw(INT64),
        body_crc=0,
        store_size=0,
    )


def hosts(size: int) -> st.SearchStrategy[Host]:
    address = st.binary(min_size=size, max_size=size)
    return st.builds(Host, address, st.integers(0, 65535))


@st.composite
def record_lists(draw: st.DrawFn) -> list[bytes]:
    count = draw(st.integers(1, 20))
    return [
        lay_out(draw(messages(index=index)), properties=draw(PROPERTY_TEXTS))
        for index in range(count)
    ]


def decoded(body: bytes, options: DecodeOptions = EVERYTHING) -> list[dict[str, Any]]:
    rows = []
    for batch in Decoder(options).decode(QUEUE, 0, 2**63 - 1, body):
        batch.validate(full=True)
        for row in batch.to_pylist():
            row["properties"] = dict(row["properties"])
            del row["corruptReason"]
            rows.append(row)
    return rows


def expected(body: bytes) -> list[dict[str, Any]]:
    rows, position = [], 0
    while position < len(body):
        message, position = decode_record(body, position)
        rows.append(expected_row(message, QUEUE, body=message.body))
    return rows


@settings(max_examples=60)
@given(record_lists())
def test_generated_records_give_the_rows_of_the_scalar_codec(records: list[bytes]) -> None:
    body, _ = join_records(records)
    assert decoded(body) == expected(body)


def test_records_of_the_scalar_encoder_are_those_of_the_tests_own_one() -> None:
    for message in make_messages(50, extra_properties=2):
        assert encode_record(message) == lay_out(message)


@settings(max_examples=200)
@given(st.data())
def test_hostile_bytes_are_refused_or_read_as_the_scalar_codec_reads_them(
    data: st.DataObject,
) -> None:
    records = [lay_out(message) for message in make_messages(3, 10)]
    body = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(1, 4))):
        # Mostly the header and the sizes behind it: other bytes carry no structure.
        position = data.draw(st.integers(0, len(body) - 1) | st.integers(0, 120))
        body[position] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80]))
    hostile = bytes(body)
    try:
        rows = decoded(hostile)
    except CorruptRecordError:
        return
    wanted = expected(hostile)
    assert rows == wanted


@settings(max_examples=100)
@given(st.data())
@example(None)
def test_skipping_keeps_exactly_the_records_that_the_scalar_codec_accepts(
    data: st.DataObject | None,
) -> None:
    records = [lay_out(message) for message in make_messages(6, 10)]
    if data is not None:
        row = data.draw(st.integers(0, 5))
        # Not the record's size (it tears the chain) nor the queue offset (it moves the record).
        position = data.draw(st.integers(4, len(records[row]) - 1))
        changed = bytearray(records[row])
        changed[position] = data.draw(st.integers(0, 255))
        records[row] = bytes(changed)
        if 12 <= position < 28 or 36 <= position < 48 or 56 <= position < 64:
            return
    decoder = Decoder(replace(EVERYTHING, corrupt=CorruptPolicy.SKIP))
    body, _ = join_records(records)
    kept = [row for batch in decoder.decode(QUEUE, 0, 2**63 - 1, body) for row in batch.to_pylist()]
    accepted = []
    for record in records:
        try:
            message, _ = decode_record(record)
        except CorruptRecordError:
            continue
        if message.topic == QUEUE.topic:
            accepted.append(message.queue_offset)
    assert [row["queueOffset"] for row in kept] == accepted
    assert decoder.skipped == len(records) - len(accepted)


def test_property_text_builder_writes_what_the_scalar_codec_writes() -> None:
    message = make_messages(1, extra_properties=3)[0]
    assert properties_text(message.properties) in encode_record(message)
