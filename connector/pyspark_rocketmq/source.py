"""RocketMQDataSource: checks the options and makes a reader or writer; holds no logic.

Spark imports this module in every process to look the format up. So it imports the options alone at
its top, and a reader or writer in the method that returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_rocketmq.boundary import bares_errors
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import parse_options
from pyspark_rocketmq.options.values import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_rocketmq.read.batch_reader import BatchReader, LookupReader
    from pyspark_rocketmq.read.filtered_reader import FilteredReader
    from pyspark_rocketmq.read.plan import ReadPlan
    from pyspark_rocketmq.sink.writers import BatchWriter, StreamWriter
    from pyspark_rocketmq.stream.reader import StreamReader


@bares_errors("__init__", "schema", "reader", "streamReader", "writer", "streamWriter")
class RocketMQDataSource(DataSource):
    """Apache RocketMQ as a Spark source, `format("rocketmq")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        from pyspark_rocketmq.requested_schema import default_ddl  # Keeps Spark's lookup light.

        options = self._parsed.selected_read()
        if options.bodies.body_format is not None:
            raise OptionError("bodyFormat", "needs .schema(...): name the fields of the bodies")
        names = ("receiptHandle",) if options.consumer.consume_mode == "pop" else ()
        return default_ddl(include_properties=options.include_properties, more=names)

    def reader(self, schema: StructType) -> BatchReader | LookupReader | FilteredReader:
        from pyspark_rocketmq.read import batch_reader  # Keeps Spark's lookup light.

        options = self._parsed.read(Use.BATCH)
        plan = self._plan(options, schema)
        if options.message_key is not None or options.message_id is not None:
            return batch_reader.LookupReader(options, plan)
        if options.push_down == "once":
            from pyspark_rocketmq.read import filtered_reader  # Keeps Spark's lookup light.

            return filtered_reader.open_filtered_reader(options, plan, schema)
        return batch_reader.BatchReader(options, plan)

    def streamReader(self, schema: StructType) -> StreamReader:
        from pyspark_rocketmq.stream.reader import StreamReader  # Keeps Spark's lookup light.

        options = self._parsed.read(Use.STREAM)
        return StreamReader(options, self._plan(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pyspark_rocketmq.sink.encoding import plan as plans  # Keeps Spark's lookup light.
        from pyspark_rocketmq.sink.writers import BatchWriter  # Keeps Spark's lookup light.

        if overwrite:
            plans.refuse_overwrite("batch")
        plan = plans.sink_plan(self._parsed.write(), schema, is_batch=True)
        plans.require_topic(plan)
        return BatchWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from pyspark_rocketmq.sink.encoding import plan as plans  # Keeps Spark's lookup light.
        from pyspark_rocketmq.sink.writers import stream_writer  # Keeps Spark's lookup light.

        if overwrite:
            plans.refuse_overwrite("stream")
        plan = plans.sink_plan(self._parsed.write(), schema)
        if plans.has_logged_no_batch(self.options.get("checkpointlocation")):
            plans.require_topic(plan)
        return stream_writer(plan)

    @staticmethod
    def _plan(options: ReadOptions, schema: StructType) -> ReadPlan:
        from pyspark_rocketmq.read.plan import make_plan  # Keeps Spark's lookup light.

        return make_plan(options, schema)
