"""Hashes of many texts at once are those of each text alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_arrow.kernels.gather import values_of
from rocketmq_arrow.kernels.text_hashes import content_hashes, sip_hashes

MASK = 2**64 - 1
TEXTS = st.lists(st.binary(max_size=40), min_size=1, max_size=20)
# Of every kind: taken word by word, in small blocks and in large ones.
LONG_TEXTS = st.lists(
    st.one_of(st.binary(max_size=40), st.binary(max_size=300), st.binary(min_size=512)),
    min_size=1,
    max_size=10,
)


def scalar_sip_hash(text: bytes) -> int:
    """SipHash-2-4 as its authors write it."""
    k0, k1 = (int.from_bytes(bytes(range(n, n + 8)), "little") for n in (0, 8))
    v = [
        k0 ^ int.from_bytes(b"uespemos", "little"),
        k1 ^ int.from_bytes(b"modnarod", "little"),
        k0 ^ int.from_bytes(b"arenegyl", "little"),
        k1 ^ int.from_bytes(b"setybdet", "little"),
    ]

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> 64 - bits) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, bits in ((0, 1, 13), (2, 3, 16)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = rotated(v[b], bits) ^ v[a]
            v[0] = rotated(v[0], 32)
            for a, b, bits in ((2, 1, 17), (0, 3, 21)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = rotated(v[b], bits) ^ v[a]
            v[2] = rotated(v[2], 32)

    padded = text + bytes(-(len(text) + 1) % 8) + bytes([len(text) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def hashes_of(texts: list[bytes], seed: int = 7) -> list[int]:
    data, offsets = values_of(pa.array(texts, pa.binary()))
    seeds = np.full(len(texts), seed, np.uint64)
    hashes: list[int] = content_hashes(data, offsets[:-1], offsets[1:], seeds).tolist()
    return hashes


def test_the_order_42_hashes_as_the_official_clients_do() -> None:
    assert sip_hashes(pa.array(["order-42"])).tolist() == [-7687897554513327571]


@given(TEXTS)
def test_sip_hashes_are_those_of_each_text_alone(texts: list[bytes]) -> None:
    found = sip_hashes(pa.array(texts, pa.binary())).view(np.uint64).tolist()
    assert found == [scalar_sip_hash(text) for text in texts]


@given(TEXTS)
def test_a_content_hash_depends_on_its_text_alone(texts: list[bytes]) -> None:
    assert hashes_of(texts) == [hashes_of([text])[0] for text in texts]


@given(LONG_TEXTS)
def test_a_content_hash_of_a_long_text_depends_on_it_alone(texts: list[bytes]) -> None:
    assert hashes_of(texts) == [hashes_of([text])[0] for text in texts]


@pytest.mark.parametrize("size", [63, 64, 65, 100, 127, 128, 511, 512, 513, 1024, 1030])
def test_every_byte_of_a_text_counts_for_its_content_hash(size: int) -> None:
    text = bytes(position % 251 for position in range(size))
    others = [
        text[:position] + bytes([text[position] ^ 1 << position % 8]) + text[position + 1 :]
        for position in range(size)
    ]
    swapped = text[8:16] + text[:8] + text[16:]
    assert len(set(hashes_of([text, text[:-1], swapped, *others]))) == size + 3


def test_more_rows_than_are_hashed_at_once_have_the_hashes_of_each_alone() -> None:
    texts = [b"%07d" % number * (10 + 100 * (number % 2)) for number in range(6_000)]
    found = hashes_of(texts)
    assert len(set(found)) == len(texts)
    assert found[-3:] == [hashes_of([text])[0] for text in texts[-3:]]


def test_content_hashes_stay_what_they_are() -> None:
    # They are stored with messages: what runs again may be a later version.
    texts = [b"", b"order-42", b"0123456789" * 10, b"0123456789" * 103]
    assert [f"{value:016x}" for value in hashes_of(texts)] == [
        "a50f5914577fb420",
        "7d93bedbe0d2920f",
        "321e6a1a3f9da1fa",
        "f59a4a6b55a269c1",
    ]


@given(st.sets(st.binary(max_size=20), min_size=2, max_size=30))
def test_different_texts_hash_differently(texts: set[bytes]) -> None:
    assert len(set(hashes_of(list(texts)))) == len(texts)


def test_trailing_zeros_and_seeds_count() -> None:
    (short,), (long,) = hashes_of([b"a"]), hashes_of([b"a\0"])
    (other,) = hashes_of([b"a"], seed=8)
    assert len({short, long, other}) == 3
