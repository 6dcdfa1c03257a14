"""What a broker writes to its revive topic, as Java writes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.records.pop_checkpoints import (
    Ack,
    Checkpoint,
    CheckpointKey,
    decode_ack,
    decode_checkpoint,
    encode_ack,
    encode_checkpoint,
)

KEY = CheckpointKey("orders", "g", 3, 42, 1_700_000_000_000, "broker-a")


def test_a_checkpoint_is_javas_json():
    checkpoint = Checkpoint(KEY, 60_000, (42, 44), acked=0b10)
    assert encode_checkpoint(checkpoint) == (
        b'{"bm":2,"bn":"broker-a","c":"g","d":[0,2],"it":60000,"n":2,"pt":1700000000000,"q":3,'
        b'"ro":0,"so":42,"t":"orders"}'
    )
    assert (checkpoint.pending, checkpoint.visible_ms) == ((42,), 1_700_000_060_000)


def test_an_old_checkpoint_counts_from_its_start():
    body = b'{"bm":0,"c":"g","it":60000,"n":3,"pt":1,"q":3,"ro":0,"so":42,"t":"orders"}'
    assert decode_checkpoint(body).offsets == (42, 43, 44)


@given(
    st.sets(st.integers(0, 2**20), min_size=1, max_size=32),
    st.integers(0, 2**32 - 1),
    st.integers(0, 100),
)
def test_checkpoints_survive(steps: set[int], acked: int, rewrites: int):
    offsets = tuple(42 + step for step in sorted(steps))
    checkpoint = Checkpoint(KEY, 60_000, offsets, acked, 5, rewrites)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_acks_are_javas_json():
    assert encode_ack(Ack(KEY, (44,))) == (
        b'{"ao":44,"bn":"broker-a","c":"g","pt":1700000000000,"q":3,"so":42,"t":"orders"}'
    )
    for offsets in ((44,), (42, 44)):
        assert decode_ack(encode_ack(Ack(KEY, offsets))) == Ack(KEY, offsets)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"t":1}', b"\xff", b'{"ao":"x"}'])
def test_a_broken_revive_record_is_refused(body: bytes):
    for decode in (decode_checkpoint, decode_ack):
        with pytest.raises(RemoteProtocolError):
            decode(body)
