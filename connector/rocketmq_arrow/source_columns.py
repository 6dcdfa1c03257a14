"""The column table: every column a read can have, its Arrow type and its Spark type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `nullable` says whether a row can lack a value."""

    name: str
    arrow_type: pa.DataType
    spark_type: str
    nullable: bool = False


_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

COLUMNS: Final[dict[str, Column]] = {
    column.name: column
    for column in (
        Column("topic", pa.string(), "string"),
        Column("brokerName", pa.string(), "string"),
        Column("queueId", pa.int32(), "int"),
        Column("queueOffset", pa.int64(), "bigint"),
        Column("body", pa.binary(), "binary"),
        Column("tags", pa.string(), "string", nullable=True),
        Column("keys", pa.string(), "string", nullable=True),
        Column("bornTimestamp", _TIMESTAMP, "timestamp"),
        Column("storeTimestamp", _TIMESTAMP, "timestamp"),
        Column("properties", pa.map_(pa.string(), pa.string()), "map<string,string>"),
        Column("msgId", pa.string(), "string"),
        Column("offsetMsgId", pa.string(), "string"),
        Column("flag", pa.int32(), "int"),
        Column("sysFlag", pa.int32(), "int"),
        Column("reconsumeTimes", pa.int32(), "int"),
        Column("bornHost", pa.string(), "string"),
        Column("storeHost", pa.string(), "string"),
        Column("physicalOffset", pa.int64(), "bigint"),
        Column("bodyCrc", pa.int32(), "int"),
        Column("storeSize", pa.int32(), "int"),
        Column("preparedTransactionOffset", pa.int64(), "bigint"),
        Column("deliveryAttempt", pa.int32(), "int"),
        Column("receiptHandle", pa.string(), "string", nullable=True),
        Column("corruptReason", pa.string(), "string", nullable=True),
    )
}
"""Every column of the source, by name."""

DEFAULT_COLUMNS: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "body",
    "tags",
    "keys",
    "bornTimestamp",
    "storeTimestamp",
)
"""The columns of a read without a schema."""


def arrow_schema(names: Iterable[str]) -> pa.Schema:
    """The Arrow schema of the named columns; every field is nullable, as Spark's DDL makes them."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow_type) for name in names])


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError for a field that is unknown, mistyped, doubled, or cannot be non-null."""
    if len(set(schema.names)) != len(schema.names):
        raise ValueError(f"a column is named twice: {', '.join(schema.names)}")
    for field in schema:
        column = COLUMNS.get(field.name)
        if column is None:
            raise ValueError(f"unknown column '{field.name}'; known are {', '.join(COLUMNS)}")
        if not _same_type(field.type, column.arrow_type):
            hint = ""
            if pa.types.is_binary(column.arrow_type) and pa.types.is_string(field.type):
                hint = f": read it as binary and select CAST({field.name} AS STRING)"
            raise ValueError(
                f"column '{field.name}' is {column.spark_type} ({column.arrow_type}), "
                f"not {field.type}{hint}"
            )
        if column.nullable and not field.nullable:
            raise ValueError(f"column '{field.name}' can be null, the schema says it cannot")


def _same_type(wanted: pa.DataType, offered: pa.DataType) -> bool:
    # Spark's valueContainsNull shows in the Arrow type; we never have null values: both will do.
    if pa.types.is_map(wanted) and pa.types.is_map(offered):
        same_keys: bool = wanted.key_type == offered.key_type
        return same_keys and bool(wanted.item_type == offered.item_type)
    return bool(wanted == offered)
