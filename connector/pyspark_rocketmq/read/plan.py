"""ReadOptions and the wanted schema -> the plan that every task of a read shares."""

from __future__ import annotations

from pyspark.sql.types import StructType

from pyspark_rocketmq.client_settings import connection_settings, read_spec
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.read.task import ReadPlan
from pyspark_rocketmq.read.typed_bodies import typed_plan
from pyspark_rocketmq.schema import arrow_schema_of, read_schema


def make_plan(options: ReadOptions, schema: StructType) -> ReadPlan:
    """Make the plan. Raises SchemaError for columns that the source does not have, OptionError."""
    arrow = read_schema(schema) if options.bodies.body_format is None else arrow_schema_of(schema)
    typed = typed_plan(options, arrow)
    return ReadPlan(
        settings=connection_settings(options.connection),
        spec=read_spec(options),
        schema=arrow if typed is None else typed.messages,
        corrupt=options.corrupt_messages,
        check_crc=options.check_crc,
        fail_on_data_loss=options.fail_on_data_loss,
        start_ms=options.starting_timestamp,
        typed=typed,
    )
