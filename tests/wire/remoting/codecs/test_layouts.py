"""Layouts: the order of header fields, and mistakes in a table."""

from __future__ import annotations

import pytest

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.remoting.codecs import header
from rocketmq_wire.remoting.codecs.layouts import Fields, constant, layout
from rocketmq_wire.requests.offsets import CommitOffset
from support.remoting_exchanges import NAMELESS

COMMIT = layout(
    CommitOffset,
    header.int64("commitOffset", "offset"),
    constant("why", "a test"),
    header.QUEUE,
    header.text("consumerGroup", "group"),
)


def test_fields_are_written_in_the_order_of_the_table():
    fields, body = COMMIT.encode(CommitOffset("g", NAMELESS, 17))
    assert list(fields.items()) == [
        ("commitOffset", "17"),
        ("why", "a test"),
        ("topic", "orders"),
        ("queueId", "3"),
        ("consumerGroup", "g"),
    ]
    assert body == ()
    assert COMMIT.decode(Fields(fields), b"") == CommitOffset("g", NAMELESS, 17)


def test_of_several_bad_fields_the_first_attribute_is_named():
    with pytest.raises(RemoteProtocolError, match="consumerGroup"):
        COMMIT.decode(Fields({"commitOffset": "x"}), b"")


def test_an_attribute_that_the_class_lacks_is_found_when_the_table_is_made():
    with pytest.raises(ValueError, match="grupo"):
        layout(CommitOffset, header.text("consumerGroup", "grupo"))
