"""Receipt handles and recall handles as Java writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.records.handles import (
    RecallHandle,
    ReceiptHandle,
    RetryKind,
    origin_topic_of,
    retry_kind_of,
)

NAMES = st.text("abcZ09_-%|", min_size=1, max_size=20)


RECALL_HANDLE = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDEgMEE="


def test_a_recall_handle_is_written_as_java_writes_it() -> None:
    handle = RecallHandle("orders", "broker-a", 1_700_000_000_001, "0A")
    assert handle.text() == RECALL_HANDLE
    assert RecallHandle.parse(RECALL_HANDLE) == handle
    assert RecallHandle.parse(RECALL_HANDLE.rstrip("=")) == handle


@given(NAMES, NAMES, st.integers(0, 10**17), NAMES)
def test_every_recall_handle_survives(topic: str, broker: str, due_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, due_ms, key)
    assert RecallHandle.parse(handle.text()) == handle


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.hex()))
def test_what_is_no_recall_handle_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a recall handle"):
        RecallHandle.parse(text)


HANDLE = "42 1700000000000 60000 5 0 broker-a 3 44"


LONGS = st.integers(-(2**62), 2**62)


def test_a_handle_is_its_eight_fields():
    handle = ReceiptHandle.parse(HANDLE)
    assert handle == ReceiptHandle(
        42, 1_700_000_000_000, 60_000, 5, RetryKind.NONE, "broker-a", 3, 44
    )
    assert (handle.text(), handle.visible_ms) == (HANDLE, 1_700_000_060_000)
    assert ReceiptHandle.parse(f"{HANDLE} -1").position == -1
    assert ReceiptHandle.parse(HANDLE.replace(" 5 0 ", " 999 0 ")).is_orderly


@given(
    st.builds(
        ReceiptHandle,
        start=LONGS,
        pop_ms=LONGS,
        invisible_ms=LONGS,
        revive_queue=st.integers(0, 999),
        retry=st.sampled_from(RetryKind),
        broker=st.from_regex(r"[a-z0-9_-]{1,40}", fullmatch=True),
        queue_index=st.integers(0, 2**31 - 1),
        offset=LONGS,
        position=st.none() | LONGS,
    )
)
def test_handles_survive(handle: ReceiptHandle):
    assert ReceiptHandle.parse(handle.text()) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        HANDLE.replace(" 0 ", " 3 "),
        HANDLE.replace("broker-a", ""),
        HANDLE.replace("44", "4_4"),
        HANDLE.replace("44", "²"),
        HANDLE.replace("44", "9" * 30),
        f"{HANDLE} 1 2",
        " " * 5_000,
    ],
)
def test_what_is_no_handle_is_refused(text: str):
    with pytest.raises(RemoteProtocolError, match="handle"):
        ReceiptHandle.parse(text)


def test_retry_topics_have_two_spellings():
    assert RetryKind.V1.topic_of("orders", "g") == "%RETRY%g_orders"
    assert RetryKind.V2.topic_of("orders", "g") == "%RETRY%g+orders"
    for kind in RetryKind:
        stored = kind.topic_of("orders", "g")
        assert (retry_kind_of(stored), origin_topic_of(stored, "g")) == (kind, "orders")
