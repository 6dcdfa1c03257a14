"""ReadOptions and the wanted schema -> the plan that every task of a read shares."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_rocketmq.client_settings import connection_settings, read_spec
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.read.typed_bodies import TypedPlan, typed_plan
from pyspark_rocketmq.requested_schema import arrow_schema_of, read_schema
from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.filters.tags import TagExpression


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task of a read shares; Spark carries it to the workers pickled."""

    settings: ConnectionSettings
    spec: ReadSpec
    schema: pa.Schema
    corrupt: str
    check_crc: bool
    fail_on_data_loss: bool
    start_ms: int | None = None
    """The start of queues created after the plan, as a time; None: their first message."""
    typed: TypedPlan | None = None
    """How to read bodies, if their fields are the columns."""

    def decode_options(self, schema: pa.Schema) -> DecodeOptions:
        return DecodeOptions(
            schema=schema,
            check_crc=self.check_crc,
            corrupt=CorruptPolicy[self.corrupt.upper()],
            tags=self._tags(),
        )

    def _tags(self) -> frozenset[str] | None:
        """Return the tags to keep; None: all. Only the broker evaluates SQL92, and it is exact."""
        subscription = self.spec.subscription
        if subscription.kind != "TAG" or subscription.selects_all:
            return None
        expression = TagExpression.parse(subscription.expression)
        return None if expression.matches_all else expression.tags


def make_plan(options: ReadOptions, schema: StructType) -> ReadPlan:
    """Make the plan. Raises SchemaError for columns that the source does not have, OptionError."""
    is_typed = options.bodies.body_format is not None
    arrow = arrow_schema_of(schema) if is_typed else read_schema(schema)
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
