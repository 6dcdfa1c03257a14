"""The query of `writer_job` without Spark: its tasks and its commits one after the other.

It starts in a tenth of the time, so that many kills are cheap: the steps between write and commit
are the sink's own, and a batch is planned, written, committed and written down in Spark's order.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_rocketmq.options.parse import write_options
from pyspark_rocketmq.sink.encoding.plan import SinkPlan, WriteId, sink_plan
from pyspark_rocketmq.sink.task import commit_write, write_task
from rocketmq_wire.errors import RocketMQError

_TASKS = 2
_ATTEMPTS_MAX = 4


def _attempted(plan: SinkPlan, write_id: WriteId, rows: pa.RecordBatch) -> WriterCommitMessage:
    """A task, which Spark tries four times."""
    attempt = 1
    while True:
        try:
            return write_task(plan, write_id, iter([rows]))
        except RocketMQError as error:
            print(f"attempt {attempt} of {write_id} failed: {error}", flush=True)
            if attempt == _ATTEMPTS_MAX:
                raise
        attempt += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("options", "checkpoint", "begun"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rows", type=int, required=True)
    args = parser.parse_args()
    names = json.loads(args.options)
    options = write_options(names)
    plan = sink_plan(options, StructType([StructField("body", StringType())]))
    planned, finished = (Path(args.checkpoint) / name for name in ("offsets", "commits"))
    for folder in (planned, finished):
        folder.mkdir(parents=True, exist_ok=True)
    batch = len(list(finished.iterdir()))
    Path(args.begun).touch()
    while True:
        (planned / str(batch)).touch()
        written = []
        for task in range(_TASKS):
            numbers = range(batch * args.rows + task, (batch + 1) * args.rows, _TASKS)
            rows = pa.RecordBatch.from_arrays([pa.array(map(str, numbers))], names=["body"])
            write_id = WriteId(names["topic"], str(batch), task)
            written.append(_attempted(plan, write_id, rows))
        commit_write(plan, [*written])
        (finished / str(batch)).touch()
        batch += 1


if __name__ == "__main__":
    main()
