"""Header blocks: the examples of RFC 7541 appendix C, and what a hostile peer may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.hpack import HeaderDecoder, decode_huffman, encode_fields
from rocketmq_wire.hpack_tables import HUFFMAN_CODES, STATIC_FIELDS

REQUEST = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/"),
    (b":authority", b"www.example.com"),
]


def test_requests_with_huffman_coding_share_a_table() -> None:
    decoder = HeaderDecoder()
    first = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")
    assert decoder.decode(first) == REQUEST
    second = bytes.fromhex("828684be5886a8eb10649cbf")
    assert decoder.decode(second) == [*REQUEST, (b"cache-control", b"no-cache")]
    third = bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")
    assert decoder.decode(third) == [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ]


def test_responses_push_old_entries_out_of_a_small_table() -> None:
    decoder = HeaderDecoder()
    date = b"Mon, 21 Oct 2013 20:13:21 GMT"
    location = (b"location", b"https://www.example.com")
    resize = bytes.fromhex("3fe101")
    first = resize + bytes.fromhex(
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a3231"
        "20474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d"
    )
    private = (b"cache-control", b"private")
    assert decoder.decode(first) == [(b":status", b"302"), private, (b"date", date), location]
    second = decoder.decode(bytes.fromhex("4803333037c1c0bf"))
    assert second == [(b":status", b"307"), private, (b"date", date), location]
    # The first status was pushed out, so the same index now names another entry.
    third = decoder.decode(
        bytes.fromhex(
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a6970"
            "7738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d61"
            "67653d333630303b2076657273696f6e3d31"
        )
    )
    assert third == [
        (b":status", b"200"),
        private,
        (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT"),
        location,
        (b"content-encoding", b"gzip"),
        (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ]


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=300))))
def test_what_we_write_is_read_as_it_was(fields: list[tuple[bytes, bytes]]) -> None:
    decoder = HeaderDecoder()
    assert decoder.decode(encode_fields(fields)) == fields
    assert decoder.decode(encode_fields(fields)) == fields


def test_a_known_name_is_sent_as_its_number() -> None:
    assert encode_fields([(b":path", b"/x")]) == bytes.fromhex("04022f78")
    assert STATIC_FIELDS[3] == (b":path", b"/")


def encode_huffman(text: bytes) -> bytes:
    bits = "".join(f"{code:0{length}b}" for code, length in (HUFFMAN_CODES[s] for s in text))
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


@given(st.binary(max_size=100))
def test_every_huffman_coded_string_is_read(text: bytes) -> None:
    assert decode_huffman(encode_huffman(text)) == text


def test_the_huffman_codes_are_free_of_prefixes() -> None:
    codes = {f"{code:0{length}b}" for code, length in HUFFMAN_CODES}
    assert len(codes) == 257
    assert not any(code[:cut] in codes for code in codes for cut in range(1, len(code)))
    # They use up the whole space: nothing that decodes was left out of the table.
    assert sum(2 ** (30 - len(code)) for code in codes) == 2**30


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("80", "no header field 0"),
        ("be", "no header field 62"),
        ("40", "cut off at byte 1"),
        ("0005", "ends at byte 7 of a block of 2"),
        ("3fe2ff", "cut off at byte 3"),
        ("3fe2ffffffffffffff", "too large"),
        ("3fe21f", "a header table of 4097 bytes"),
        ("0081fe0100", "padded wrongly"),
        ("0084ffffffff", "contains its own end|padded wrongly"),
    ],
)
def test_broken_blocks_are_refused(block: str, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        HeaderDecoder().decode(bytes.fromhex(block))


def test_a_short_block_cannot_name_a_long_field_for_ever() -> None:
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01x\x7f\x81\x17" + b"v" * 3_072)
    with pytest.raises(RemoteProtocolError, match="more than 65536 bytes"):
        decoder.decode(b"\xbe" * 100)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_fields_or_a_protocol_error(block: bytes) -> None:
    try:
        fields = HeaderDecoder().decode(block)
    except RemoteProtocolError:
        return
    assert len(fields) <= len(block)
