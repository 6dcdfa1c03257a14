"""The checkpointed offset: canonical, versioned, and anchored where Spark logs no start."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.errors import CheckpointError, UnsupportedError
from pyspark_rocketmq.planning.checkpoint import ParsedOffsets, SourceOffset
from rocketmq_wire.model import QueueId

A0, A1, A10 = (QueueId("orders", "broker-a", index) for index in (0, 1, 10))
B0 = QueueId("bills", "broker-b", 0)

QUEUES = st.builds(
    QueueId,
    st.text("abcXYZ-_%", min_size=1, max_size=5),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 20),
)
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**60), max_size=8)
TEXT = (
    '{"version": 1, "births": {"orders": {"broker-a": {"0": 77}}}, '
    '"offsets": {"bills": {"broker-b": {"0": 7}}, '
    '"orders": {"broker-a": {"0": 5, "1": 6, "10": 9}}}, '
    '"starts": {"orders": {"broker-a": {"0": 2}}}}'
)
OFFSET = SourceOffset({A10: 9, A1: 6, B0: 7, A0: 5}, {A0: 2}, {A0: 77})


def test_the_text_in_the_checkpoint_is_this() -> None:
    assert json.dumps(OFFSET.to_json()) == TEXT
    assert SourceOffset.from_json(json.loads(TEXT)) == OFFSET


def test_first_offsets_are_written_only_if_a_queue_lost_its_first_message() -> None:
    value = replace(OFFSET, first_offsets={A1: 3}).to_json()
    assert list(value) == ["version", "births", "firsts", "offsets", "starts"]
    assert value["firsts"] == {"orders": {"broker-a": {"1": 3}}}
    assert SourceOffset.from_json(json.loads(json.dumps(value))).first_offsets == {A1: 3}
    # As releases wrote it that did not know of it.
    assert SourceOffset.from_json(json.loads(TEXT)).first_offsets == {}


def test_the_topic_identity_is_formatted_once() -> None:
    parsed, first_store_times, first_offsets = ParsedOffsets(), {A0: 77}, {A1: 3}
    one = parsed.write(SourceOffset({A0: 5, A1: 6}, {}, first_store_times, first_offsets))
    two = parsed.write(SourceOffset({A0: 6, A1: 6}, {}, first_store_times, first_offsets))
    assert one["births"] is two["births"]
    assert one["firsts"] is two["firsts"]
    three = parsed.write(SourceOffset({A0: 7, A1: 6}, {}, first_store_times, {A1: 4}))
    assert three["firsts"] == {"orders": {"broker-a": {"1": 4}}}
    assert parsed.parse(dict(three)).first_offsets == {A1: 4}


@given(OFFSETS, OFFSETS, OFFSETS, st.randoms())
def test_equal_offsets_are_the_same_text_in_any_order(
    offsets: dict[QueueId, int],
    starts: dict[QueueId, int],
    first_store_times: dict[QueueId, int],
    random: object,
) -> None:
    offset = SourceOffset(offsets, starts, first_store_times)
    text = json.dumps(offset.to_json())
    items = list(offsets.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(SourceOffset(dict(items), starts, first_store_times).to_json()) == text
    again = SourceOffset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text


def test_an_initial_offset_differs_from_one_that_was_read_to() -> None:
    assert SourceOffset.initial({A0: 5}, {}).is_initial
    assert not SourceOffset({A0: 5}, {}).is_initial
    assert not SourceOffset({A0: 5}, {A0: 4}).is_initial
    assert not SourceOffset({A0: 5, A1: 3}, {A1: 3}).is_initial
    # An offset corrected after a loss is its own start, too, but was read to.
    assert not SourceOffset({A0: 5}, {A0: 5}).is_initial


def test_being_initial_survives_the_checkpoint() -> None:
    for offset in (SourceOffset.initial({A0: 5}, {}), SourceOffset({A0: 5}, {A0: 5})):
        text = json.dumps(offset.to_json())
        assert SourceOffset.from_json(json.loads(text)) == offset
        assert ('"initial": true' in text) == offset.is_initial


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_an_unknown_version_is_refused_by_name(version: object) -> None:
    with pytest.raises(UnsupportedError, match=r"^\[ROCKETMQ_UNSUPPORTED\.CHECKPOINT_VERSION\] "):
        SourceOffset.from_json({"version": version, "offsets": {}})


@pytest.mark.parametrize(
    "value",
    [
        {"orders": {"0": 5}},
        {"version": 1},
        {"version": 1, "offsets": {"orders": {"broker-a": {"x": 1}}}},
        {"version": 1, "offsets": {"orders": {"broker-a": {"0": -1}}}},
        {"version": 1, "offsets": {"orders": {"broker-a": {"0": "5"}}}},
        {"version": 1, "offsets": {"orders": 5}},
        None,
    ],
)
def test_what_this_source_did_not_write_is_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"\[ROCKETMQ_OPTION\.CHECKPOINT\]"):
        SourceOffset.from_json(value)  # type: ignore[arg-type]
