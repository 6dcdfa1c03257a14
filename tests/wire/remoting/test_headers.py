"""Remoting headers in both forms: literal bytes, what foreign peers send, hostile input."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.remoting.headers import (
    FLAG_ONEWAY,
    FLAG_REPLY,
    LANGUAGES,
    Header,
    HeaderCodec,
    decode_header,
    encode_header,
)

JSON, BINARY = HeaderCodec.JSON, HeaderCodec.BINARY
GOLDEN = Header(105, opaque=7, version=401, language="PYTHON", ext_fields={"topic": "T"})
GOLDEN_JSON = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":401}'
)
GOLDEN_BINARY = bytes.fromhex(
    "0069 03 0191 00000007 00000000 00000000 0000000C 0005 746F706963 00000001 54"
)

i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
headers = st.builds(
    Header,
    code=i16,
    language=st.sampled_from(LANGUAGES),
    version=i16,
    opaque=i32,
    flag=i32,
    remark=st.one_of(st.none(), texts),
    ext_fields=st.dictionaries(texts, texts, max_size=5),
)


def test_the_golden_header_is_written_and_read_as_json():
    assert encode_header(GOLDEN) == GOLDEN_JSON
    assert decode_header(GOLDEN_JSON, JSON) == GOLDEN


def test_the_golden_header_is_written_and_read_in_binary():
    assert encode_header(GOLDEN, BINARY) == GOLDEN_BINARY
    assert decode_header(GOLDEN_BINARY, BINARY) == GOLDEN


@given(headers, st.sampled_from(HeaderCodec))
def test_headers_survive_a_round_trip(header: Header, codec: HeaderCodec):
    assert decode_header(memoryview(encode_header(header, codec)), codec) == header


def test_a_reply_always_has_ext_fields():
    assert b'"extFields":{}' in encode_header(Header(0, flag=FLAG_REPLY))
    assert b"extFields" not in encode_header(Header(34))


def test_flags_mark_replies_and_oneways():
    assert Header(1, flag=FLAG_REPLY).is_reply
    assert not Header(1, flag=FLAG_REPLY).is_oneway
    assert Header(1, flag=FLAG_ONEWAY).is_oneway
    assert not Header(1, flag=FLAG_ONEWAY).is_reply


def test_a_remark_is_kept():
    text = encode_header(Header(17, remark="No topic route info: 中"))
    assert '"remark":"No topic route info: 中"'.encode() in text


def test_absent_fields_have_javas_defaults():
    assert decode_header(b"{}", JSON) == Header(0, language="JAVA", version=0)


def test_nulls_count_as_absent():
    text = b'{"code":null,"extFields":null,"remark":null,"language":null}'
    assert decode_header(text, JSON) == Header(0, language="JAVA", version=0)


def test_scalars_in_ext_fields_become_the_text_java_makes_of_them():
    text = b'{"extFields":{"i":7,"b":true,"c":false,"f":1.5,"n":null,"o":{"a":[1]},"s":"x"}}'
    assert decode_header(text, JSON).ext_fields == {
        "i": "7",
        "b": "true",
        "c": "false",
        "f": "1.5",
        "o": '{"a":[1]}',
        "s": "x",
    }


def test_a_header_with_unquoted_keys_is_read():
    assert decode_header(b'{"extFields":{0:"a"}}', JSON).ext_fields == {"0": "a"}


def test_an_unknown_language_is_harmless():
    assert decode_header(b'{"language":"COBOL"}', JSON).language == "COBOL"
    assert decode_header(encode_header(Header(1, language="COBOL"), BINARY), BINARY).language == (
        "OTHER"
    )
    binary = bytearray(GOLDEN_BINARY)
    binary[2] = 0xFF
    assert decode_header(binary, BINARY).language == "OTHER"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b'{"code":"x"}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"opaque":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"flag":[]}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
    ],
)
def test_a_header_that_is_no_header_is_refused(text: bytes):
    with pytest.raises(RemoteProtocolError):
        decode_header(text, JSON)


def test_a_truncated_code_is_read_as_it_came():
    binary = struct.pack(">H", 200_050 & 0xFFFF) + GOLDEN_BINARY[2:]
    assert decode_header(binary, BINARY).code == 3442


def test_a_code_that_would_be_truncated_is_refused():
    with pytest.raises(LocalProtocolError, match="200050"):
        encode_header(Header(200_050), BINARY)
    assert decode_header(encode_header(Header(200_050)), JSON).code == 200_050


def test_a_name_too_long_for_the_binary_form_is_refused():
    with pytest.raises(LocalProtocolError, match="32768"):
        encode_header(Header(1, ext_fields={"n" * 32_768: "v"}), BINARY)


def test_empty_texts_are_absent_in_the_binary_form():
    header = Header(1, remark="", ext_fields={"": "v", "n": "", "k": "v"})
    assert decode_header(encode_header(header, BINARY), BINARY) == Header(1, ext_fields={"k": "v"})
    # Java's decoder takes entries without a name or a value, and makes nulls of them.
    empties = bytes.fromhex("0000 00000001 54 0001 54 00000000")
    raw = GOLDEN_BINARY[:17] + struct.pack(">i", len(empties)) + empties
    assert decode_header(raw, BINARY).ext_fields == {}


@pytest.mark.parametrize("cut", range(len(GOLDEN_BINARY)))
def test_a_binary_header_cut_anywhere_is_refused(cut: int):
    with pytest.raises(RemoteProtocolError):
        decode_header(GOLDEN_BINARY[:cut], BINARY)


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [
        (13, ">i", -1),
        (13, ">i", 2**31 - 1),
        (13, ">i", 17),
        (17, ">i", -1),
        (17, ">i", 13),
        (17, ">i", 11),
        (17, ">i", 2**31 - 1),
        (21, ">h", -1),
        (21, ">h", 32_767),
        (21, ">h", 11),
        (28, ">i", -1),
        (28, ">i", 2),
        (28, ">i", 2**31 - 1),
    ],
)
def test_a_hostile_length_is_refused(position: int, layout: str, value: int):
    binary = bytearray(GOLDEN_BINARY)
    struct.pack_into(layout, binary, position, value)
    with pytest.raises(RemoteProtocolError):
        decode_header(binary, BINARY)


@given(st.binary(max_size=80), st.sampled_from(HeaderCodec))
def test_no_bytes_raise_anything_else(buffer: bytes, codec: HeaderCodec):
    try:
        decode_header(buffer, codec)
    except RemoteProtocolError:
        return
