"""Options and schema of a write -> its plan, or what is wrong with it, before anything is sent."""

from __future__ import annotations

import uuid

from pyspark.sql.types import StructType

from pyspark_rocketmq.connecting import connection_settings
from pyspark_rocketmq.errors import UnsupportedError
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.sink_requests import SinkLayout
from pyspark_rocketmq.sink_schema import sink_columns
from pyspark_rocketmq.writers import SinkPlan


def sink_plan(options: ReadOptions, schema: StructType) -> SinkPlan:
    """What the tasks of a write need. Raises SinkSchemaError."""
    topic = options.subscribe[0] if options.subscribe else None
    columns = sink_columns(schema, has_topic_option=topic is not None)
    is_grpc = options.endpoints is not None
    return SinkPlan(
        settings=connection_settings(options),
        layout=SinkLayout(columns, topic, options.max_batch_bytes, is_grpc),
        group=options.producer_group,
        in_flight_max=options.sends_in_flight,
        write=str(uuid.uuid4()),
    )


def refuse_overwrite(what: str) -> None:
    """Topics only grow: what would replace their content is refused with what to write instead."""
    raise UnsupportedError(
        "SAVE_MODE" if what == "batch" else "OUTPUT_MODE",
        "a topic is only appended to, never overwritten: "
        + (
            "write with .mode('append')"
            if what == "batch"
            else "use outputMode('append'), and for complete or updated results foreachBatch with "
            "frame.write.format('rocketmq').mode('append')"
        ),
    )
