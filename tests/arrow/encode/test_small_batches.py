"""Batches of a few messages become the very records that the vectorised way makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_arrow.encode.small_batches import SMALL_BODY_SIZE_MAX, lay_out_few
from rocketmq_wire.model import Host
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from support.batch_blocks import block_from_batch

BORN_HOST, STORE_HOST = Host(bytes((10, 0, 0, 9)), 5555), Host(bytes((10, 0, 0, 1)), 10911)
# Enough entries to make the batch a large one.
FILLERS = [BatchEntry(0, b"filler", b"")] * 97
TAGGED = st.fixed_dictionaries({}, optional={"TAGS": st.text(max_size=5), "k": st.text(max_size=5)})
TEXTS = st.one_of(
    TAGGED.map(
        lambda pairs: encode_properties(
            {name: value.replace("\x01", "").replace("\x02", "") for name, value in pairs.items()}
        )
    ),
    # Anything, also what is no UTF-8, has no separators, or says TAGS twice.
    st.lists(st.sampled_from([b"TAGS", b"\x01", b"\x02", b"A", b"\xff", b"k"]), max_size=9).map(
        b"".join
    ),
)
ENTRIES = st.lists(
    st.builds(BatchEntry, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), TEXTS),
    min_size=1,
    max_size=8,
)


def block_of(body, *, topic="orders", born_host=BORN_HOST):
    return block_from_batch(
        body,
        topic=topic,
        queue_index=3,
        born_ms=1_700_000_000_000,
        born_host=born_host,
        store_host=STORE_HOST,
        sys_flag=0x1,
    )


@given(
    entries=ENTRIES,
    topic=st.sampled_from(["t", "orders", "x" * 127, "x" * 128]),
    born_host=st.sampled_from([BORN_HOST, Host(bytes(range(16)), 1)]),
)
def test_few_messages_are_laid_out_as_many_are(entries, topic, born_host):
    few = block_of(encode_batch(entries), topic=topic, born_host=born_host)
    many = block_of(encode_batch([*entries, *FILLERS]), topic=topic, born_host=born_host)
    first = many.piece(0, len(entries))
    for name in ("buffer", "starts", "sizes", "tag_hashes", "text_starts"):
        assert getattr(few, name).tolist() == getattr(first, name).tolist(), name
        assert getattr(few, name).dtype == getattr(first, name).dtype, name
    few.patch(1, 2, 3, 4, STORE_HOST)


def test_what_is_not_small_or_not_sound_is_left_to_the_vectorised_way():
    whole = encode_batch([BatchEntry(0, b"body", b"a\x01b\x02")] * 2)
    assert lay_out_few([whole], [bytes(88)], b"\x01t") is not None
    assert lay_out_few([b""], [bytes(88)], b"\x01t") is None
    assert lay_out_few([encode_batch(FILLERS)], [bytes(88)], b"\x01t") is None
    large = encode_batch([BatchEntry(0, bytes(SMALL_BODY_SIZE_MAX), b"")])
    assert lay_out_few([large], [bytes(88)], b"\x01t") is None


@pytest.mark.parametrize("at", [0, 1, 2, 3, 16, 17, 18, 19, 24, 25])
@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_no_length_that_does_not_add_up_is_taken(at, value):
    whole = bytearray(encode_batch([BatchEntry(0, b"body", b"a\x01b\x02")] * 2))
    is_changed = whole[at] != value
    whole[at] = value
    assert (lay_out_few([whole], [bytes(88)], b"\x01t") is None) is is_changed
