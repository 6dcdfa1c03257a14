"""Records of real brokers become the rows that their own clients show, as the scalar codec's do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_arrow.source_columns import COLUMNS, arrow_schema
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import decode_record
from support.expected_rows import expected_row
from support.golden_frames import PULLS, QUEUE, VERSIONS, golden_records, java_messages


def decoded(records: bytes, queue: QueueId, **options: Any) -> list[dict[str, Any]]:
    decoder = Decoder(DecodeOptions(arrow_schema(COLUMNS), **options))
    batches = list(decoder.decode(queue, 0, 1_000, records))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, arrow_schema(COLUMNS)).to_pylist()
    return rows


@pytest.mark.parametrize(("version", "name", "queue"), PULLS)
def test_rows_are_what_the_java_consumer_read(version: str, name: str, queue: QueueId):
    records = golden_records(version, name, queue)
    rows = decoded(records, queue)
    printed = java_messages(version, name)
    assert len(rows) == len(printed)
    position = 0
    for row, message in zip(rows, printed, strict=True):
        scalar, position = decode_record(records, position)
        expected = expected_row(scalar, queue, body=message["body"])
        assert row.pop("corruptReason") is None
        row["properties"] = dict(row["properties"])
        assert row == expected
        # The scalar codec is ours, too: what Java printed is the judge.
        assert row["msgId"] == message["msgId"]
        assert row["offsetMsgId"] == message["offsetMsgId"]
        assert row["properties"] == message["properties"]
        assert (row["tags"], row["keys"]) == (message["tags"], message["keys"])
        assert (row["queueOffset"], row["flag"]) == (message["queueOffset"], message["flag"])
        assert row["physicalOffset"] == message["physicalOffset"]
        assert row["reconsumeTimes"] == message["reconsumeTimes"]
        assert row["bodyCrc"] == message["bodyCrc"]


@pytest.mark.parametrize("version", VERSIONS)
def test_tags_with_one_hash_are_distinguished(version: str):
    rows = decoded(golden_records(version, "pull-found", QUEUE), QUEUE, tags=frozenset({"AaAa"}))
    assert [row["body"] for row in rows] == [b"collide1"]
