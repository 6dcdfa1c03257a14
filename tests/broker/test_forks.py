"""A process with a broker in it starts other processes, as PySpark does with Java."""

from __future__ import annotations

import os
import subprocess
import sys

FORKS = 150
PROGRAM = f"""
import signal, subprocess
from rocketmq_broker import Broker, BrokerConfig

with Broker(BrokerConfig(flush="memory")):
    ends = set()
    for _ in range({FORKS}):
        child = subprocess.Popen(["true"], preexec_fn=lambda: signal.getsignal(signal.SIGINT))
        ends.add(child.wait(30))
print(ends)
"""


def test_processes_started_beside_a_broker_live() -> None:
    environment = {n: v for n, v in os.environ.items() if n != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "{0}"), done.stderr[-2_000:]
