"""The record builder itself agrees with bytes that Java wrote."""

from __future__ import annotations

from rocketmq_wire.model import StoredMessage
from support.records import BORN_HOST, BORN_MS, GOLDEN_RECORD, STORE_HOST, lay_out, make_records


def test_laid_out_record_equals_the_one_java_wrote() -> None:
    message = StoredMessage(
        topic="T",
        body=b"hello",
        properties={"TAGS": "TagA", "k": "v"},
        flag=7,
        queue_index=3,
        queue_offset=42,
        physical_offset=1000,
        sys_flag=0,
        born_ms=BORN_MS,
        born_host=BORN_HOST,
        store_ms=BORN_MS + 123,
        store_host=STORE_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=0,
    )
    assert lay_out(message) == GOLDEN_RECORD


def test_same_seed_gives_the_same_records() -> None:
    assert make_records(50, seed=3) == make_records(50, seed=3)
    assert make_records(50, seed=3) != make_records(50, seed=4)
