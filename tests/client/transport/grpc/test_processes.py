"""The gRPC transport in processes that fork or start others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.fake_shell import FakeQueue, FakeShell, queue
from support.grpc_serving import Serving, serving


@pytest.fixture
def server() -> Iterator[Serving]:
    with serving(FakeShell({queue(0): FakeQueue(0, 100_000)})) as server:
        yield server


_FORKING = """
import os, sys
from rocketmq_client.consumer.public_pop import PublicPopClient
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.transport.grpc.transport import GrpcTransport
from rocketmq_wire.errors import ForkedError
from rocketmq_wire.model import OffsetRange, QueueId
from rocketmq_wire.requests.offsets import GetMaxOffset

queue = QueueId("orders", "broker-a", 0)
transport = GrpcTransport(ConnectionSettings(endpoints=sys.argv[1]))

def use(transport):
    assert transport.call(GetMaxOffset(queue), timeout_ms=20_000).value == 100_000
    chunks = list(transport.read_ranges([OffsetRange(queue, 0, 50_000)], ReadSpec("g")))
    assert chunks[-1].end == 50_000

def fork(act):
    child = os.fork()
    if not child:
        try:
            act()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def be_refused():
    try:
        use(transport)
    except ForkedError as error:
        assert str(error).startswith(sys.argv[2])
    else:
        raise AssertionError("a channel of the parent's was used")
    transport.close()

assert "grpc" not in sys.modules
fork(lambda: use(transport))
assert "grpc" not in sys.modules
use(transport)
half_read = transport.read_ranges([OffsetRange(queue, 0, 100_000)], ReadSpec("g"))
next(half_read)
fork(be_refused)
use(transport)
assert [chunk.end for chunk in half_read][-1] == 100_000
"""


def test_a_child_forked_before_the_first_use_connects_and_one_forked_later_is_refused(
    server: Serving,
) -> None:
    forking = [sys.executable, "-W", "error", "-c", _FORKING, server.endpoints]
    assert not subprocess.run(
        [*forking, "[ROCKETMQ_CONNECTION.FORKED] cannot connect to 127.0.0.1:"], timeout=60
    ).returncode


_STARTING = """
import signal, subprocess, sys
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.grpc.transport import GrpcTransport
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.offsets import GetMaxOffset

transport = GrpcTransport(ConnectionSettings(endpoints=sys.argv[1]))
ends = set()
for _ in range(100):
    request = GetMaxOffset(QueueId("orders", "broker-a", 0))
    ticket = transport.submit(request, broker=None, timeout_ms=20_000)
    child = subprocess.Popen(["true"], preexec_fn=lambda: signal.getsignal(signal.SIGINT))
    ends.add(child.wait(30))
    assert [done for done, _ in transport.completed(timeout_ms=20_000)] == [ticket]
assert ends == {0}, ends
"""


def test_processes_started_beside_a_channel_live(server: Serving) -> None:
    environment = {n: v for n, v in os.environ.items() if n != "GRPC_ENABLE_FORK_SUPPORT"}
    subprocess.run(
        [sys.executable, "-c", _STARTING, server.endpoints],
        env=environment,
        check=True,
        timeout=120,
    )
