"""What the fixture's first use loads, and what waits until it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WAITING = ("pyarrow", "pyarrow.compute", "grpc", "google.protobuf")
TEST = f"""
import gc, os, sys

WAITING = {WAITING}

def loaded():
    return [name for name in WAITING if name in sys.modules]

def test_it(rocketmq):
    assert loaded() == []
    assert gc.isenabled()
    rocketmq.produce(["a", "b"])
    assert len(rocketmq.consume_all()) == 2
    assert "grpc" not in sys.modules
    endpoints = rocketmq.endpoints
    assert "grpc" in sys.modules
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"
    assert rocketmq.endpoints == endpoints

def test_once_more(rocketmq):
    from rocketmq_client.cluster import open_cluster
    from rocketmq_client.settings import ConnectionSettings

    topic = rocketmq.create_topic()
    with open_cluster(ConnectionSettings(endpoints=rocketmq.endpoints)) as cluster:
        assert len(cluster.queues(topic)) == 4
"""


def test_the_fixture_starts_without_loading_what_a_test_may_never_need(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    environment = {n: v for n, v in os.environ.items() if n != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout


def test_a_broker_serves_grpc_from_when_it_is_asked_for_its_address() -> None:
    program = """
import socket, sys
from rocketmq_broker import Broker, BrokerConfig

with Broker(BrokerConfig(flush="memory"), grpc_when_asked=True) as broker:
    assert "grpc" not in sys.modules
    host, _, port = broker.endpoints.rpartition(":")
    socket.create_connection((host, int(port))).close()
try:
    with Broker(BrokerConfig(flush="memory", grpc=False), grpc_when_asked=True) as broker:
        broker.endpoints
except RuntimeError as error:
    assert "grpc = false" in str(error)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "done\n", done.stderr[-2_000:]
