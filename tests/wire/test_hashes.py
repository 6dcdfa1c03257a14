"""Hashes: values of Java and Guava themselves."""

from __future__ import annotations

import pytest

from rocketmq_wire.hashes import consistent_hash, java_hash


@pytest.mark.parametrize(("text", "bucket"), [("g1", 6), ("order-42", 3), ("-neg", 2)])
def test_buckets_are_those_of_guava(text, bucket):
    assert consistent_hash(java_hash(text), 8) == bucket


def test_one_bucket_takes_all_and_none_is_refused():
    assert {consistent_hash(value, 1) for value in range(-50, 50)} == {0}
    with pytest.raises(ValueError, match="must be a bucket"):
        consistent_hash(1, 0)
