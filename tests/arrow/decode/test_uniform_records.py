"""Uniform records are read at once, with the rows and errors of the general way."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_arrow.decode.uniform_records import UniformReader, UniformRecords
from rocketmq_arrow.source_columns import COLUMNS, arrow_schema
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import QueueId, StoredMessage
from rocketmq_wire.records.record import decode_record
from support.expected_rows import expected_row
from support.records import SYS_BORN_V6, join_records, lay_out, make_messages, sealed

QUEUE = QueueId("orders", "broker-a", 0)
EVERYTHING = DecodeOptions(arrow_schema(COLUMNS))
EVER = (0, 2**63 - 1)
NAMES = ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "größe"]


class _NeverUniform(UniformReader):
    def read(self, *_: Any) -> UniformRecords | None:
        return None


def outcome(
    body: bytes,
    *,
    is_quick: bool,
    options: DecodeOptions = EVERYTHING,
    wanted: tuple[int, int] = EVER,
    queue: QueueId = QUEUE,
    sizes: bytes | None = None,
) -> tuple[list[dict[str, Any]], int] | str:
    """The rows, or the words of the error, with or without the quick way."""
    decoder = Decoder(options)
    if not is_quick:
        decoder._uniform = _NeverUniform()
    rows = []
    try:
        for batch in decoder.decode(queue, *wanted, body, sizes):
            batch.validate(full=True)
            rows += batch.to_pylist()
    except CorruptRecordError as error:
        return str(error)
    for row in rows:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return rows, decoder.skipped


def read(
    body: bytes,
    queue: QueueId = QUEUE,
    wanted: tuple[int, int] = EVER,
    sizes: bytes | None = None,
) -> UniformRecords | None:
    return UniformReader().read(queue, wanted, np.frombuffer(body, np.uint8), sizes, 10_000)


@st.composite
def uniform_messages(draw: st.DrawFn) -> list[StoredMessage]:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=5, unique=True))
    sizes = [draw(st.integers(1, 12)) for _ in names]
    source = random.Random(draw(st.integers(0, 2**32)))
    characters = draw(st.sampled_from(["0123456789ab", "\x03a", "xyz \x7f"]))
    body_size = draw(st.sampled_from([1, 7, 100, 255, 256, 257, 1_600]))
    count = draw(st.sampled_from([2, 3, 40, 70]))
    topic = draw(st.sampled_from(["orders", "t" * 127, "t" * 128]))
    messages = make_messages(count, body_size, topic=topic, seed=source.randrange(100))
    return [
        sealed(
            replace(
                message,
                properties={
                    name: "".join(source.choices(characters, k=size))
                    for name, size in zip(names, sizes, strict=True)
                },
                flag=source.randrange(-9, 9),
                reconsume_times=source.randrange(17),
            )
        )
        for message in messages
    ]


@settings(max_examples=40)
@given(uniform_messages(), st.booleans())
def test_uniform_records_are_read_as_the_scalar_codec_reads_them(
    messages: list[StoredMessage], has_sizes: bool
) -> None:
    queue = QUEUE._replace(topic=messages[0].topic)
    body, sizes = join_records([lay_out(message) for message in messages])
    assert read(body, queue, sizes=sizes if has_sizes else None) is not None
    found = outcome(body, is_quick=True, queue=queue, sizes=sizes if has_sizes else None)
    expected, position = [], 0
    while position < len(body):
        message, position = decode_record(body, position)
        row = expected_row(message, queue, body=message.body)
        expected.append(row | {"corruptReason": None})
    assert found == (expected, 0)


POLICIES = st.sampled_from(list(CorruptPolicy))
COLUMN_SETS = st.sampled_from([tuple(COLUMNS), ("queueOffset",), ("tags", "body")])


@settings(max_examples=100)
@given(uniform_messages(), st.data())
def test_hostile_bytes_give_the_rows_and_errors_of_the_other_way(
    messages: list[StoredMessage], data: st.DataObject
) -> None:
    queue = QUEUE._replace(topic=messages[0].topic)
    records = [lay_out(message) for message in messages]
    size = len(records[0])
    body = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(0, 4))):
        row = data.draw(st.integers(0, len(records) - 1))
        # Mostly the fields, the topic and the properties; a few bytes of the body.
        position = data.draw(st.integers(0, 90) | st.integers(max(0, size - 80), size - 1))
        odd = st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        body[row * size + position] = data.draw(odd)
    if data.draw(st.booleans()):
        # One and the same odd byte in every record.
        position = data.draw(st.integers(0, size - 1))
        value = data.draw(st.sampled_from([0, 1, 2, 0x80]))
        for row in range(len(records)):
            body[row * size + position] = value
    options = DecodeOptions(
        arrow_schema(data.draw(COLUMN_SETS)),
        check_crc=data.draw(st.booleans()),
        corrupt=data.draw(POLICIES),
        tags=data.draw(st.sampled_from([None, frozenset({"a"})])),
        rows_max=data.draw(st.sampled_from([7, 10_000])),
    )
    wanted = data.draw(st.sampled_from([EVER, (0, len(records)), (1, 5)]))
    sizes = data.draw(st.sampled_from([None, struct.pack("<i", size) * len(records)]))
    ways = [
        outcome(
            bytes(body), is_quick=quick, options=options, wanted=wanted, queue=queue, sizes=sizes
        )
        for quick in (True, False)
    ]
    assert ways[0] == ways[1]


def records_of(count: int = 100, **changes: Any) -> list[bytes]:
    messages = make_messages(count, 40, tags=("paid",))
    return [lay_out(sealed(replace(message, **changes))) for message in messages]


def test_usual_records_take_the_quick_way_whatever_their_number() -> None:
    for count in (2, 3, 64, 1_000):
        assert read(b"".join(records_of(count))) is not None


@pytest.mark.parametrize("value", ["\u00e4\u00f6", "\ufffd"])
def test_values_beyond_ascii_are_text(value: str) -> None:
    body = b"".join(records_of(properties={"TAGS": value, "KEYS": "k"}))
    assert read(body) is not None
    rows = outcome(body, is_quick=True)
    assert rows == outcome(body, is_quick=False)
    assert not isinstance(rows, str)
    assert rows[0][5]["tags"] == value


@pytest.mark.parametrize(
    "odd",
    [
        make_messages(1, 40, tags=("open",), start=50)[0],
        make_messages(1, 40, tags=("paid",), start=50, queue_index=1)[0],
        make_messages(1, 40, tags=("paid",), start=50, topic="rodres")[0],
        make_messages(1, 40, tags=("paid",), start=49)[0],
        replace(make_messages(1, 40, tags=("paid",), start=50)[0], sys_flag=SYS_BORN_V6),
        replace(make_messages(1, 40, tags=("paid",), start=50)[0], properties={"KEYS": "k" * 68}),
    ],
    ids=["another tag", "queue", "topic", "offset again", "host", "properties"],
)
def test_one_odd_record_is_read_or_refused_as_the_other_way_does(odd: StoredMessage) -> None:
    records = records_of()
    changed = lay_out(odd)
    records[50] = changed[: len(records[50])].ljust(len(records[50]), b"z")
    records[50] = struct.pack(">i", len(records[50])) + records[50][4:]
    body = b"".join(records)
    assert outcome(body, is_quick=True) == outcome(body, is_quick=False)


def test_a_value_that_hides_an_item_is_no_value() -> None:
    messages = make_messages(60, 20)
    texts = [{"UNIQ_KEY": f"{row:020d}", "TAGS": "paid"} for row in range(60)]
    texts[33]["UNIQ_KEY"] = "000\x02KEYS\x01stolen\x020123"
    records = [
        lay_out(sealed(replace(message, properties=text)))
        for message, text in zip(messages, texts, strict=True)
    ]
    body = b"".join(records)
    assert len(set(map(len, records))) == 1
    assert read(body) is None
    rows = outcome(body, is_quick=True)
    assert rows == outcome(body, is_quick=False)
    assert not isinstance(rows, str)
    assert rows[0][33]["keys"] == "stolen"


def test_records_of_various_sizes_are_no_longer_tried_every_time() -> None:
    # One size, but not one build: the tags' sizes differ, and the keys' make up for it.
    messages = make_messages(100, 40)
    records = [
        lay_out(
            sealed(
                replace(message, properties={"TAGS": "t" * (1 + row % 3), "K": "k" * (9 - row % 3)})
            )
        )
        for row, message in enumerate(messages)
    ]
    body = np.frombuffer(b"".join(records), np.uint8)
    reader, tries = UniformReader(), []
    reader._read = lambda *_: tries.append(1)  # type: ignore[method-assign]
    for _ in range(100):
        assert reader.read(QUEUE, EVER, body, None, 10_000) is None
    assert 5 < len(tries) < 12


def test_what_was_learned_of_one_topic_is_not_taken_for_another() -> None:
    reader = UniformReader()
    body = np.frombuffer(b"".join(records_of()), np.uint8)
    assert reader.read(QUEUE, EVER, body, None, 10_000) is not None
    other = QUEUE._replace(topic="rodres")
    assert reader.read(other, EVER, body, None, 10_000) is None
    reader = UniformReader()
    assert reader.read(QUEUE, EVER, body, None, 10_000) is not None
    assert reader.read(QUEUE._replace(index=1), EVER, body, None, 10_000) is None
