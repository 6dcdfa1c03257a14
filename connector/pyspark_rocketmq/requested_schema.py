"""The schema of a read: the default columns, and the checks of a user's own."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import SchemaError
from rocketmq_arrow.source_columns import COLUMNS, DEFAULT_COLUMNS, check_schema
from rocketmq_wire.suggest import nearest

# Names of the same columns in other sources, Spark's Kafka source first. By letters alone `offset`
# is nearest to `offsetMsgId`.
_OTHER_NAMES: Final = {
    "broker": "brokerName",
    "headers": "properties",
    "id": "msgId",
    "key": "keys",
    "message": "body",
    "offset": "queueOffset",
    "partition": "queueId",
    "queue": "queueId",
    "timestamp": "storeTimestamp",
    "value": "body",
}


def default_ddl(*, include_properties: bool, more: tuple[str, ...] = ()) -> str:
    """Return the default columns as Spark DDL, followed by `more`."""
    names = (*DEFAULT_COLUMNS, *(("properties",) if include_properties else ()), *more)
    return ", ".join(f"{name} {COLUMNS[name].spark_type}" for name in names)


def read_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects. Raises SchemaError for an unknown column."""
    for name in schema.fieldNames():
        if name not in COLUMNS:
            near = _nearest(name)
            hint = f"did you mean '{near}'?" if near else f"known are {', '.join(COLUMNS)}"
            raise SchemaError(f"unknown column '{name}', {hint}")
    if not schema.fieldNames():
        raise SchemaError("the schema names no column")
    arrow = arrow_schema_of(schema)
    try:
        check_schema(arrow)
    except ValueError as error:
        raise SchemaError(str(error)) from error
    return arrow


def _nearest(name: str) -> str | None:
    return _OTHER_NAMES.get(name.lower()) or nearest(name, COLUMNS)


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark's workers compare with the batches they get."""
    # Spark's own helper: its worker makes the schema by the same one.
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)  # Spark 4.0 and 4.1 support no other time zone.
