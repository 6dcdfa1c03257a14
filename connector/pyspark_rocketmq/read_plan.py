"""ReadOptions and the wanted schema -> what every task of a read has in common."""

from __future__ import annotations

from pyspark.sql.types import StructType

from pyspark_rocketmq.connecting import connection_settings, read_spec
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.partition_read import ReadPlan
from pyspark_rocketmq.schema import read_schema


def make_plan(options: ReadOptions, schema: StructType) -> ReadPlan:
    """Raises SchemaError for columns that we do not have."""
    return ReadPlan(
        settings=connection_settings(options),
        spec=read_spec(options),
        schema=read_schema(schema),
        corrupt=options.corrupt_messages,
        check_crc=options.check_crc,
        fail_on_data_loss=options.fail_on_data_loss,
        start_ms=options.starting_timestamp,
    )
