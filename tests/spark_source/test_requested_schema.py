"""Schemas that users give: unknown columns are refused with the one that was meant."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.requested_schema import read_schema


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bodi", "body"),
        ("offset", "queueOffset"),
        ("partition", "queueId"),
        ("value", "body"),
        ("key", "keys"),
        ("timestamp", "storeTimestamp"),
        ("queueoffset", "queueOffset"),
        ("BODY", "body"),
    ],
)
def test_an_unknown_column_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    schema = StructType([StructField(name, StringType())])
    with pytest.raises(SchemaError) as refused:
        read_schema(schema)
    assert f"unknown column '{name}', did you mean '{meant}'? Name in" in str(refused.value)


def test_a_column_like_no_other_is_refused_with_all_there_are() -> None:
    schema = StructType([StructField("xyzzy", BinaryType())])
    with pytest.raises(SchemaError, match=r"known are topic, .*\. Name in \.schema"):
        read_schema(schema)


def test_a_body_as_text_is_refused_with_the_cast() -> None:
    with pytest.raises(SchemaError, match=r"'body' is binary .*CAST\(body AS STRING\)"):
        read_schema(StructType().add("body", "string"))
