"""RocketMQDataSource: checks the options and picks a reader; holds no logic.

Spark imports this module to look the format up, in every process: so it imports no more than the
options, and the readers only when they are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter

from pyspark_rocketmq.errors import UnsupportedError
from pyspark_rocketmq.option_definition import Use
from pyspark_rocketmq.options import (
    ReadOptions,
    parse_options,
    require,
    require_connection,
    require_selection,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_rocketmq.batch_reader import BatchReader
    from pyspark_rocketmq.partition_read import ReadPlan
    from pyspark_rocketmq.stream_reader import StreamReader


class RocketMQDataSource(DataSource):
    """Apache RocketMQ as a Spark source, `format("rocketmq")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parsed = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq"

    def schema(self) -> str:
        """The default columns."""
        from pyspark_rocketmq.schema import default_ddl  # Keeps Spark's lookup light.

        require_connection(self._parsed)
        require_selection(self._parsed, self.options)
        return default_ddl(include_properties=self._parsed.include_properties)

    def reader(self, schema: StructType) -> BatchReader:
        """A batch read."""
        from pyspark_rocketmq.batch_reader import BatchReader  # Keeps Spark's lookup light.

        options = require(self._parsed, self.options, Use.BATCH)
        return BatchReader(options, self._plan(options, schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        """A stream."""
        from pyspark_rocketmq.stream_reader import StreamReader  # Keeps Spark's lookup light.

        options = require(self._parsed, self.options, Use.STREAM)
        return StreamReader(options, self._plan(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Refused: this version only reads."""
        raise UnsupportedError("SINK", "writing to RocketMQ is not supported yet")

    def streamWriter(
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,  # noqa: ARG002
    ) -> DataSourceStreamWriter:
        """Refused: this version only reads."""
        raise UnsupportedError("SINK", "writing to RocketMQ is not supported yet")

    @staticmethod
    def _plan(options: ReadOptions, schema: StructType) -> ReadPlan:
        from pyspark_rocketmq.read_plan import make_plan  # Keeps Spark's lookup light.

        return make_plan(options, schema)
