"""The schema of a read: the default one, and what a user's own must look like."""

from __future__ import annotations

import difflib

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import SchemaError
from rocketmq_arrow.columns import COLUMNS, DEFAULT_COLUMNS, check_schema


def default_ddl(*, include_properties: bool) -> str:
    """The default columns as Spark DDL."""
    names = (*DEFAULT_COLUMNS, "properties") if include_properties else DEFAULT_COLUMNS
    return ", ".join(f"{name} {COLUMNS[name].spark_type}" for name in names)


def read_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark will expect. Raises SchemaError for a column we do not have."""
    for name in schema.fieldNames():
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(COLUMNS)}"
            raise SchemaError(f"unknown column '{name}', {hint}")
    if not schema.fieldNames():
        raise SchemaError("the schema names no column")
    arrow = _arrow_schema(schema)
    try:
        check_schema(arrow)
    except ValueError as error:
        raise SchemaError(str(error)) from error
    return arrow


def _arrow_schema(schema: StructType) -> pa.Schema:
    # Spark's own helper: its worker compares what we yield with exactly this.
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)  # Spark 4.0 and 4.1 know no other time zone.
