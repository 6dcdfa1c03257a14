"""Sessions of Spark Connect: the same options, reads, writes and progress as in any other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_broker import Broker
from support.loader import Loader

# What a client needs besides Spark: the extra `connect`.
pytest.importorskip("grpc_status")
_SECONDS_MAX = 300


@pytest.fixture
def remote(spark: SparkSession) -> Iterator[str]:
    """The suite's own JVM as a Connect server: a second one would take longer than the test."""
    service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService  # type: ignore[union-attr]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", str(port))
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{port}"
    nothing = spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
    service.stop(nothing, nothing)


def test_a_connect_session_reads_streams_and_writes(
    remote: str, broker: Broker, loader: Loader, topic: str, tmp_path: Path
) -> None:
    loader.put(loader.create(topic, 1)[0], 2)
    loader.create(f"{topic}-copies", 1)
    client = subprocess.run(
        [
            sys.executable,
            "-m",
            "support.connect_client",
            remote,
            broker.name_server,
            topic,
            tmp_path,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert client.returncode == 0, client.stderr[-6000:]
    seen = json.loads(client.stdout)
    assert seen["bodies"] == [f"{topic}/0", f"{topic}/1", "written"]
    assert "[ROCKETMQ_OPTION.UNKNOWN] option 'subscibe'" in seen["error"]
    assert "did you mean 'subscribe'?" in seen["error"]
    assert (seen["copies"], seen["behind"]) == (3, 0)
    # A line a batch, as standard error is no terminal. (Spark counts no rows before a Python sink.)
    assert client.stderr.startswith("batch 0 ")
    assert seen["listened"][-1:] == [0]
