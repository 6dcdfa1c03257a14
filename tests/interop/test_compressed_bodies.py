"""Bodies that the sink compressed are read by RocketMQ's own Java client, on both brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from interop.brokers import our_broker, real_broker
from pyspark_rocketmq.sink.encoding.plan import SinkLayout, SinkPlan, WriteId
from pyspark_rocketmq.sink.task import TaskWritten, write_task
from rocketmq_client.settings import ConnectionSettings
from support.real_cluster import run_program

SHOW = Path(__file__).parents[1] / "real" / "java" / "Show.java"
LONG = pytest.mark.long
# One over the 4 MiB of an LZ4 block, which shrinks to what a broker takes.
BODIES = [b"small", *(b"%04d-" % number * 2_000 for number in range(50)), bytes(5_000_000), b"end"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("version", "opens"),
    [
        ("5.3.3", our_broker),
        pytest.param("5.3.3", real_broker, marks=LONG),
        pytest.param("4.9.7", real_broker, marks=LONG),
    ],
)
def test_java_reads_what_the_sink_compressed(version, opens, tmp_path):
    opened = opens(tmp_path) if opens is our_broker else opens(version, tmp_path)
    with opened as broker:
        for codec in ("lz4", "zlib", "zstd"):
            broker.create_topic(codec)
            settings = ConnectionSettings(name_servers=(broker.name_server,))
            layout = SinkLayout({"body": 0}, codec, 500_000, False, codec)
            batch = pa.record_batch({"body": pa.array(BODIES)})
            plan = SinkPlan(settings, layout, "producers", 8, "write")
            written = write_task(plan, WriteId("write", "0", 0), iter([batch]))
            assert isinstance(written, TaskWritten)
            assert written.rows == len(BODIES)
            printed = run_program(version, SHOW, broker.name_server, codec)
            lines = [json.loads(line) for line in printed.splitlines() if line[:1] == "{"]
            assert sorted(bytes.fromhex(line["body"]) for line in lines) == sorted(BODIES)
            # Java takes the bit away when it has inflated; the record's size tells.
            assert sum(line["storeSize"] < len(line["body"]) // 2 for line in lines) == 51
