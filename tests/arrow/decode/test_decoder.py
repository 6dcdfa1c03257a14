"""Pull bodies become rows that equal the messages; damage is never read as data."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_arrow.source_columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import QueueId, StoredMessage
from support.expected_rows import expected_row
from support.records import (
    GOLDEN_RECORD,
    join_records,
    lay_out,
    make_messages,
    make_odd_messages,
    make_records,
    sealed,
)

QUEUE = QueueId("orders", "broker-a", 0)
EVERYTHING = tuple(COLUMNS)
END = 2**62


def options(*names: str, **changes: Any) -> DecodeOptions:
    return DecodeOptions(schema=arrow_schema(names or EVERYTHING), **changes)


def rows_of(
    body: bytes,
    sizes: bytes | None = None,
    *,
    wanted: DecodeOptions | None = None,
    queue: QueueId = QUEUE,
    start: int = 0,
    end: int = END,
) -> list[dict[str, Any]]:
    decoder = Decoder(wanted or options())
    rows = []
    for batch in decoder.decode(queue, start, end, body, sizes):
        batch.validate(full=True)
        for row in batch.to_pylist():
            if row.get("properties") is not None:
                row["properties"] = dict(row["properties"])
            rows.append(row)
    return rows


def with_byte(body: bytes, position: int, value: int) -> bytes:
    return body[:position] + bytes((value,)) + body[position + 1 :]


def expected_rows(messages: list[StoredMessage], bodies: dict[int, bytes] | None = None) -> Any:
    return [
        expected_row(message, QUEUE, body=(bodies or {}).get(row, message.body))
        | {"corruptReason": None}
        for row, message in enumerate(messages)
    ]


def test_golden_record_gives_the_columns_java_shows() -> None:
    queue = QueueId("T", "b", 3)
    (row,) = rows_of(GOLDEN_RECORD, queue=queue)
    assert row["body"] == b"hello"
    assert (row["tags"], row["keys"], row["properties"]) == (
        "TagA",
        None,
        {"TAGS": "TagA", "k": "v"},
    )
    assert row["msgId"] == row["offsetMsgId"] == "0A00000100002A9F00000000000003E8"
    assert (row["queueOffset"], row["flag"], row["physicalOffset"]) == (42, 7, 1000)
    assert (row["bornHost"], row["storeHost"]) == ("10.0.0.9:5555", "10.0.0.1:10911")
    assert (row["bodyCrc"], row["storeSize"]) == (907060870, 111)


def test_every_column_of_realistic_records_equals_the_messages() -> None:
    messages = make_messages(500, extra_properties=3)
    body, sizes = join_records([lay_out(message) for message in messages])
    assert rows_of(body) == rows_of(body, sizes) == expected_rows(messages)


def test_every_column_of_odd_records_equals_the_messages() -> None:
    messages = make_odd_messages()
    body, _ = join_records([lay_out(message) for message in messages])
    assert rows_of(body) == expected_rows(messages, {3: b"abc" * 2000})


def test_batches_have_exactly_the_schema_that_was_asked_for() -> None:
    body, _ = make_records(10)
    schema = pa.schema(
        [
            pa.field("body", pa.binary(), nullable=False),
            pa.field(
                "properties", pa.map_(pa.string(), pa.field("v", pa.string(), nullable=False))
            ),
            pa.field("queueOffset", pa.int64()),
        ]
    )
    (batch,) = Decoder(DecodeOptions(schema)).decode(QUEUE, 0, END, body)
    assert batch.schema.equals(schema)
    assert batch.schema.field("properties").type == schema.field("properties").type


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("colour", pa.string()), "unknown column 'colour'"),
        (pa.field("queueId", pa.int64()), "column 'queueId' is int"),
        (pa.field("bornTimestamp", pa.timestamp("ms", tz="UTC")), "column 'bornTimestamp'"),
        (pa.field("tags", pa.string(), nullable=False), "column 'tags' can be null"),
    ],
)
def test_schema_that_cannot_be_had_is_refused_by_column(field: pa.Field, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecodeOptions(pa.schema([field]))


def test_rows_outside_the_wanted_range_are_dropped() -> None:
    body, _ = make_records(100, start=50)
    rows = rows_of(body, start=60, end=70, wanted=options("queueOffset"))
    assert [row["queueOffset"] for row in rows] == list(range(60, 70))
    assert rows_of(body, start=150, end=200) == []


def test_damage_outside_the_wanted_range_is_not_judged() -> None:
    messages = make_messages(3)
    records = [lay_out(message) for message in messages]
    records[2] = with_byte(records[2], 90, records[2][90] ^ 1)
    body, _ = join_records(records)
    assert [row["queueOffset"] for row in rows_of(body, end=2)] == [0, 1]


def test_chunks_follow_the_row_limit_and_keep_the_order() -> None:
    body, sizes = make_records(25)
    batches = list(Decoder(options("queueOffset", rows_max=10)).decode(QUEUE, 0, END, body, sizes))
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == list(range(25))


def test_tags_are_checked_exactly() -> None:
    messages = make_messages(50, tags=("Aa", "BB", "C"))
    messages[7] = sealed(replace(messages[7], properties={"k": "v"}))
    body, _ = join_records([lay_out(message) for message in messages])
    rows = rows_of(body, wanted=options(tags=frozenset({"Aa"})))
    assert rows == [row for row in expected_rows(messages) if row["tags"] == "Aa"]
    assert rows_of(body, wanted=options(tags=frozenset())) == []


@pytest.mark.parametrize("trailing", [True, False])
def test_both_trailing_styles_are_read(trailing: bool) -> None:
    texts = [
        b"TAGS\x01a\x02KEYS\x01k1 k2",
        b"KEYS\x01k",
        b"",
        b"x\x01y\x02TAGS\x01b",
        b"XTAGS\x01n\x02aKEYS\x01n",
    ]
    messages = make_messages(len(texts), 10)
    records = [
        lay_out(message, properties=text + (b"\x02" if trailing and text else b""))
        for message, text in zip(messages, texts, strict=True)
    ]
    body, _ = join_records(records)
    rows = rows_of(body, wanted=options("tags", "keys", "properties"))
    assert [(row["tags"], row["keys"]) for row in rows] == [
        ("a", "k1 k2"),
        (None, "k"),
        (None, None),
        ("b", None),
        (None, None),
    ]
    assert rows[3]["properties"] == {"x": "y", "TAGS": "b"}
    assert rows[4]["properties"] == {"XTAGS": "n", "aKEYS": "n"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a\x01\x02", {}),
        (b"\x01a\x02", {}),
        (b"ab\x02", {}),
        (b"\x02\x02\x02", {}),
        (b"\x01", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"TAGS\x01one\x02TAGS\x01two\x02", {"TAGS": "two"}),
        (b"TAGS\x01one\x02TAGS\x01\x02", {"TAGS": "one"}),
        (b"TAGS\x01one\x02x\x01TAGS\x01two\x02", {"TAGS": "one", "x": "TAGS\x01two"}),
        (b"TAGS\x01TAGS\x01x", {"TAGS": "TAGS\x01x"}),
        (
            b"a-name-longer-than-16\x01u\x02a-name-longer+than-16\x01v\x02",
            {"a-name-longer-than-16": "u", "a-name-longer+than-16": "v"},
        ),
        (
            b"a-name-longer-than-16\x01u\x02a-name-longer-than-16\x01v\x02",
            {"a-name-longer-than-16": "v"},
        ),
        (b"\xff\x01a\x02\xfe\x01b\x02", {"\ufffd": "b"}),
        (b"k\x01\xff\x02TAGS\x01\xc3(\x02", {"k": "\ufffd", "TAGS": "\ufffd("}),
        (
            b"".join(b"n%d\x01v\x02" % (i % 40) for i in range(80)),
            {f"n{i}": "v" for i in range(40)},
        ),
    ],
)
@pytest.mark.parametrize("neighbours", [0, 1, 30])
def test_property_text_is_read_by_javas_rules(
    text: bytes, expected: dict[str, str], neighbours: int
) -> None:
    messages = make_messages(2 * neighbours + 1, 10)
    records = [lay_out(message) for message in messages]
    records[neighbours] = lay_out(messages[neighbours], properties=text)
    body, _ = join_records(records)
    rows = rows_of(body, wanted=options("tags", "properties"))
    assert rows[neighbours]["properties"] == expected
    assert rows[neighbours]["tags"] == expected.get("TAGS")
    others = rows[:neighbours] + rows[neighbours + 1 :]
    kept = messages[:neighbours] + messages[neighbours + 1 :]
    assert [row["properties"] for row in others] == [message.properties for message in kept]


# --- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 90, 91, 200, 279, 281, 300])
def test_torn_body_is_refused(cut: int) -> None:
    body, _ = make_records(2, 101)
    torn = body[:cut]
    assert cut != struct.unpack_from(">i", body)[0]
    with pytest.raises(CorruptRecordError):
        rows_of(torn, wanted=options(corrupt=CorruptPolicy.SKIP))


def test_sizes_that_disagree_with_the_records_are_refused() -> None:
    body, sizes = make_records(5)
    wrong = struct.unpack("<5i", sizes)
    for given in ((*wrong[:3], wrong[3] - 1, wrong[4] + 1), wrong[:4], (*wrong, 0), ()):
        with pytest.raises(CorruptRecordError):
            rows_of(body, struct.pack(f"<{len(given)}i", *given))
    with pytest.raises(CorruptRecordError):
        rows_of(body, sizes[:-1])


def test_any_flip_of_a_checked_field_is_noticed_and_the_others_change_only_their_column() -> None:
    messages = make_messages(3, 20)
    records = [lay_out(message) for message in messages]
    good = rows_of(b"".join(records))
    # Flag, physical offset, sysFlag's meaningless bits, times, hosts, reconsume times, prepared
    # offset and the properties' bytes carry no checksum: a flip there changes that row alone.
    for position in range(len(records[1])):
        flipped = with_byte(records[1], position, records[1][position] ^ 0x02)
        body = records[0] + flipped + records[2]
        try:
            rows = rows_of(body)
        except CorruptRecordError:
            continue
        assert (rows[0], rows[2]) == (good[0], good[2])
        assert rows[1]["body"] == good[1]["body"]
        assert position >= 16, f"byte {position} was not checked"


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (4, 0, "unknown magic"),
        (15, 9, "the record is of queue 9"),
        (39, 0x80, "inner batch"),
        (84, 0x7F, "does not fit"),
        (84, 0xFF, "does not fit"),
        (95, 0x00, "fails its checksum"),
        (108, 0x7F, "topic size"),
        (109, ord("p"), "of topic 'prders'"),
        (115, 0x7F, "announced"),
    ],
)
def test_damaged_record_follows_the_policy(position: int, value: int, reason: str) -> None:
    messages = make_messages(3, 20)
    records = [lay_out(message) for message in messages]
    records[1] = with_byte(records[1], position, value)
    body, _ = join_records(records)
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        rows_of(body)
    assert caught.value.position == len(records[0])
    assert "orders" in str(caught.value)

    decoder = Decoder(options("queueOffset", corrupt=CorruptPolicy.SKIP))
    kept = [row for batch in decoder.decode(QUEUE, 0, END, body) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in kept] == [0, 2]
    assert decoder.skipped == 1

    rows = rows_of(body, wanted=options(corrupt=CorruptPolicy.EMIT))
    (bad,) = [row for row in rows if row["corruptReason"] is not None]
    assert reason in bad["corruptReason"]
    assert bad["body"] in (records[1][88:108], records[1])
    assert [row for row in rows if row is not bad] == [
        expected_rows(messages)[0],
        expected_rows(messages)[2],
    ]


def test_damaged_record_too_short_for_the_hosts_it_claims_is_emitted() -> None:
    message = sealed(replace(make_messages(1, 0, topic="T")[0], properties={}))
    body = with_byte(lay_out(message), 39, 0x30)
    (row,) = rows_of(
        body, wanted=options(corrupt=CorruptPolicy.EMIT), queue=QueueId("T", "broker-a", 0)
    )
    assert row["body"] == body
    assert "cannot hold its fixed fields" in row["corruptReason"]
    assert row["storeHost"] == "10.0.0.1:10911"


def test_checksum_is_ignored_when_not_asked_for() -> None:
    body, _ = make_records(1, 20)
    body = with_byte(body, 95, body[95] ^ 1)
    assert len(rows_of(body, wanted=options(check_crc=False))) == 1


@pytest.mark.parametrize(
    ("offsets", "blamed"), [((0, 7, 2, 3), 7), ((0, 1, 0, 3), 0), ((5, 1, 2, 3), 5), ((1, 1), 1)]
)
def test_offset_out_of_order_is_damage(offsets: tuple[int, ...], blamed: int) -> None:
    messages = make_messages(len(offsets), 20)
    changed = [
        replace(message, queue_offset=offset)
        for message, offset in zip(messages, offsets, strict=True)
    ]
    body, _ = join_records([lay_out(message) for message in changed])
    with pytest.raises(CorruptRecordError, match=f"queue offset {blamed} is out of order"):
        rows_of(body, end=4)
    decoder = Decoder(options("queueOffset", corrupt=CorruptPolicy.SKIP))
    kept = [row for batch in decoder.decode(QUEUE, 0, END, body) for row in batch.to_pylist()]
    assert len(kept) == len(offsets) - 1
    assert decoder.skipped == 1


# --- compression ----------------------------------------------------------------------------


def compressed(codec: str, body: bytes) -> bytes:
    if codec == "zlib":
        return zlib.compress(body)
    if codec == "gzip":
        return gzip.compress(body)
    packed: bytes = pa.Codec(codec).compress(body, asbytes=True)
    return packed


CODECS = [
    ("zlib", 0x301),
    ("zlib", 0x1),
    ("gzip", 0x1),
    ("lz4", 0x101),
    ("lz4", 0x1),
    ("zstd", 0x201),
    ("zstd", 0x1),
]


@pytest.mark.parametrize(("codec", "sys_flag"), CODECS)
def test_compressed_bodies_are_inflated_or_refused(codec: str, sys_flag: int) -> None:
    plain = b"0123456789" * 1000
    packed = compressed(codec, plain)
    message = make_messages(1)[0]
    body = lay_out(sealed(replace(message, sys_flag=sys_flag, body=packed)))
    assert rows_of(body)[0]["body"] == plain
    assert rows_of(body, wanted=options(body_size_max=10_000))[0]["body"] == plain
    with pytest.raises(CorruptRecordError, match="more than 9999 bytes"):
        rows_of(body, wanted=options(body_size_max=9_999))
    for cut in (len(packed) - 1, len(packed) // 2, 5):
        torn = lay_out(sealed(replace(message, sys_flag=sys_flag, body=packed[:cut])))
        with pytest.raises(CorruptRecordError, match=r"does not decompress|torn"):
            rows_of(torn)


def test_unknown_compression_is_emitted_raw() -> None:
    message = make_messages(1)[0]
    for sys_flag, reason in ((0x1, "no known method"), (0x401, "unknown compression type 4")):
        body = lay_out(sealed(replace(message, sys_flag=sys_flag, body=b"????")))
        (row,) = rows_of(body, wanted=options(corrupt=CorruptPolicy.EMIT))
        assert row["body"] == b"????"
        assert reason in row["corruptReason"]


def test_batches_end_before_inflated_bodies_grow_large() -> None:
    plain = bytes(3 * 1024 * 1024)
    messages = [
        sealed(replace(message, sys_flag=0x1, body=zlib.compress(plain)) if row % 2 else message)
        for row, message in enumerate(make_messages(20, 10))
    ]
    body, _ = join_records([lay_out(message) for message in messages])
    batches = list(Decoder(options("queueOffset", "body")).decode(QUEUE, 0, END, body))
    assert len(batches) == 2
    assert all(batch.nbytes < 17 * 1024 * 1024 for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(20))
    assert all(row["body"] == plain for row in rows[1::2])


# --- odd values -----------------------------------------------------------------------------


def test_long_topic_is_read_from_a_v2_record() -> None:
    queue = QueueId("t" * 200, "broker-a", 0)
    body, _ = make_records(5, topic=queue.topic)
    assert [row["topic"] for row in rows_of(body, queue=queue)] == [queue.topic] * 5


@pytest.mark.parametrize("topic", ["T", "ab", "abc", "orders", "orders7", "orders-of-2026"])
def test_topic_of_any_length_is_compared_whole(topic: str) -> None:
    queue = QueueId(topic, "broker-a", 0)
    for other in {topic[:-1] + "~", "~" + topic[1:], topic + "x", "x" + topic}:
        body, _ = make_records(2, topic=other)
        with pytest.raises(CorruptRecordError, match="of topic"):
            rows_of(body, queue=queue)
    assert len(rows_of(make_records(2, topic=topic)[0], queue=queue)) == 2


def test_times_beyond_the_calendar_are_cut_to_it() -> None:
    message = replace(make_messages(1)[0], born_ms=2**63 - 1, store_ms=-(2**63))
    (row,) = rows_of(lay_out(message))
    assert (row["bornTimestamp"].year, row["storeTimestamp"].year) == (9999, 1)


def test_empty_body_has_no_rows() -> None:
    assert rows_of(b"") == rows_of(b"", b"") == []


def test_default_columns_decode_without_the_map() -> None:
    body, _ = make_records(3)
    (batch,) = Decoder(options(*DEFAULT_COLUMNS)).decode(QUEUE, 0, END, bytearray(body))
    assert tuple(batch.schema.names) == DEFAULT_COLUMNS
