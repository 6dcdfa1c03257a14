"""Property strings: literal bytes both ways, and every oddity that readers have to live with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.records.properties import decode_properties, encode_properties

names = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
)


def test_properties_are_joined_by_the_two_separators():
    assert encode_properties({"TAGS": "TagA", "k": "v"}) == b"TAGS\x01TagA\x02k\x01v\x02"


@pytest.mark.parametrize("encoded", [b"TAGS\x01TagA\x02k\x01v\x02", b"TAGS\x01TagA\x02k\x01v"])
def test_a_missing_last_separator_is_accepted(encoded: bytes):
    assert decode_properties(encoded) == {"TAGS": "TagA", "k": "v"}


@pytest.mark.parametrize(
    ("encoded", "properties"),
    [
        (b"", {}),
        (b"a\x01\x02", {}),
        (b"a\x01b", {"a": "b"}),
        (b"\x01b\x02", {}),
        (b"\x02\x02\x02", {}),
        (b"ab\x02c\x01d", {"c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"\x01\x01\x01\x02", {}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
    ],
)
def test_odd_items_are_read_as_java_reads_them(encoded: bytes, properties: dict[str, str]):
    assert decode_properties(encoded) == properties


def test_the_last_of_two_equal_names_wins():
    assert decode_properties(b"UNIQ_KEY\x01own\x02UNIQ_KEY\x01batch\x02") == {"UNIQ_KEY": "batch"}


def test_bytes_that_are_no_utf8_become_replacement_characters():
    assert decode_properties(b"k\x01\xff\xfev\x02") == {"k": "��v"}


def test_a_memoryview_is_read_without_being_turned_into_bytes_first():
    assert decode_properties(memoryview(b"xxa\x01bxx")[2:-2]) == {"a": "b"}


def test_empty_values_are_left_out():
    assert encode_properties({"empty": "", "k": "v"}) == b"k\x01v\x02"


@pytest.mark.parametrize("bad", [{"": "v"}, {"a\x01": "v"}, {"a": "v\x02"}, {"a\x02b": "v"}])
def test_what_would_be_misread_is_refused(bad: dict[str, str]):
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        encode_properties(bad)


def test_properties_over_the_records_limit_are_refused():
    assert len(encode_properties({"k": "v" * 32_764})) == 32_767
    with pytest.raises(LocalProtocolError, match="32768 bytes"):
        encode_properties({"k": "v" * 32_765})


def test_an_unpaired_surrogate_is_replaced_not_raised():
    assert encode_properties({"k": "a\ud800"}) == b"k\x01a?\x02"


@given(st.dictionaries(names, names, max_size=8))
def test_properties_survive_a_round_trip(properties: dict[str, str]):
    assert decode_properties(encode_properties(properties)) == properties


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(encoded: bytes):
    for name, value in decode_properties(encoded).items():
        assert name
        assert value
