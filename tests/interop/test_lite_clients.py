"""RocketMQ's own gRPC clients with lite topics: on the bundled broker and on a real one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interop.sdks import HERE, go_built, java_with, node_with, python_with, run_client
from rocketmq_broker_sim import Broker
from rocketmq_broker_sim.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.admin_requests import PutGroup
from rocketmq_wire.grpc_public_codes import Code
from rocketmq_wire.grpc_public_messages import LITE
from rocketmq_wire.lite_topics import light_queue
from rocketmq_wire.model import QueueId, TopicConfig
from support.public_peer import PublicPeer, outgoing
from support.real_cluster import RealCluster
from support.real_cluster.java import run_admin

pytestmark = pytest.mark.timeout(900)

REAL_VERSION = "5.5.0"
"""The first with lite topics is 5.4.0."""
JAVA = "5.2.0"
PYTHON = "rocketmq-python-client==5.1.2"
NODE = "rocketmq-client-nodejs@1.0.8"
GO = "github.com/apache/rocketmq-clients/golang/v5@v5.1.4"
PARENT = "chats"
EXPECTED: dict[str, dict[str, str]] = {
    "java": {
        "lite": "{lite-a=[0, 1, 2], lite-b=[0, 1]}",
        # This version leaves out the lite topic where it puts a message off.
        "again": "attempts [1, 2, 3]",
        "order": "{order=[0, 1, 1, 2, 3]}",
        "left": "{left=[0]} then {left=[0, 1]}",
        "taken": "told, {taken=[0]} and {taken=[1]}",
        "quota": "LiteSubscriptionQuotaExceededException at 2",
        "begin": "{begin=[2, 3]}",
        "name": "refused with 40020",
    },
    "python": {
        "lite": "{'lite-a': ['0', '1', '2'], 'lite-b': ['0', '1']}",
        "again": "attempts [1, 2, 3]",
        "quota": "LiteSubscriptionQuotaExceededException",
        "simple": "{'simple': ['0', '1', '2']}",
    },
    "node": {
        "lite": '{"lite-a":["0","1","2"],"lite-b":["0","1"]}',
        "again": "attempts [1,2,3]",
    },
    "go": {
        "lite": "lite-a=[0 1 2] lite-b=[0 1] end",
        "again": "again=[bad bad bad] end",
    },
}
"""The one in Rust, 5.0.0, has no lite topics."""
GROUPS: dict[str, dict[str, object]] = {
    "G-lite": {},
    "G-again": {},
    "G-order": {"consumeMessageOrderly": True},
    "G-left": {},
    "G-exclusive": {"attributes": {"+lite.sub.model": "Exclusive"}},
    "G-few": {"attributes": {"+lite.sub.client.quota": "2"}},
    "G-begin": {},
    "G-simple": {},
}
SOON = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1_000, "max": 2_000}}


def prepare(name_server: str) -> None:
    """The parent, and a group bound to it for each scenario."""
    with open_cluster(ConnectionSettings((name_server,))) as cluster:
        attributes = {"message.type": "LITE"}
        cluster.create_topic(TopicConfig(PARENT, 4, 4, attributes=attributes))
        for name, settings in GROUPS.items():
            bound = {"+lite.bind.topic": PARENT, **settings.get("attributes", {})}  # type: ignore[dict-item]
            group = {"groupName": name, "groupRetryPolicy": SOON, **settings, "attributes": bound}
            cluster.ask_masters(PutGroup(group))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    with Broker(config_from({"data_dir": str(folder)})) as broker:
        prepare(broker.name_server)
        assert broker.endpoints is not None
        yield broker.endpoints


@pytest.fixture(scope="module")
def real_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real broker that has lite topics, with its proxy."""
    cluster = RealCluster(REAL_VERSION, tmp_path_factory.mktemp("real"), is_brief=True)
    try:
        cluster.start_name_server()
        cluster.add_broker("broker-a", enableLmq="true", enableMultiDispatch="true")
        prepare(cluster.name_server)
        cluster.start_proxy()
        assert cluster.grpc_endpoint is not None
        yield cluster.grpc_endpoint
    finally:
        cluster.close()


def said_by(client: str, address: str, home: Path, *scenarios: str) -> dict[str, str]:
    """What a client says of the scenarios."""
    command: tuple[str | Path, ...]
    folder, environment = None, {}
    if client == "python":
        command = (python_with(PYTHON), HERE / "python" / "lite_client.py")
    elif client == "node":
        folder = node_with(NODE)
        command = ("node", HERE / "node" / "lite_client.js")
    elif client == "go":
        command = (go_built(GO, HERE / "go" / "lite_client.go"),)
        environment["rocketmq.client.logRoot"] = str(home / "logs")
    else:
        command = java_with(JAVA, HERE / "java" / "LiteClient.java")
    words = (*command, address, *scenarios)
    said = run_client(words, home=home, cwd=folder, seconds=200, environment=environment)
    return {name: text for name, text in said.items() if name in scenarios}


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "client", ["python", *(pytest.param(name, marks=LONG) for name in ("java", "node", "go"))]
)
def test_a_client_with_lite_topics(client: str, tmp_path: Path) -> None:
    expected = EXPECTED[client]
    with served(tmp_path / "broker") as endpoints:
        assert said_by(client, endpoints, tmp_path, *expected) == expected


class Killable:
    """The bundled broker in a process of its own, where it was before."""

    def __init__(self, folder: Path) -> None:
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        words = ("--data-dir", str(folder / "data"), "--ready-file", str(ready))
        self._process = subprocess.Popen([sys.executable, "-m", "rocketmq_broker_sim", *words])
        wait_for(ready.exists, 60)
        told = json.loads(ready.read_text())
        self.name_server, self.endpoints = str(told["nameServer"]), str(told["endpoints"])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def send(address: str, lite_topic: str, body: bytes) -> None:
    with PublicPeer(address, "tester@1") as peer:
        message = outgoing(PARENT, body, LITE, lite_topic=lite_topic, message_id=body.decode())
        assert peer.send(message).status.code == Code.OK


@LONG
def test_a_client_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    queue = QueueId(light_queue(PARENT, "kept"), "broker-a", 0)
    broker = Killable(tmp_path)
    try:
        prepare(broker.name_server)
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(said_by, "java", broker.endpoints, tmp_path, "kept")
            send(broker.endpoints, "kept", b"0")
            with open_cluster(ConnectionSettings((broker.name_server,))) as cluster:
                # Acknowledged, and on the disk: progress is saved every few seconds.
                wait_for(lambda: cluster.progress("G-lite", [queue]).get(queue) == 1, 60)
                config = tmp_path / "data" / "config" / "lmqConsumerOffset.json"
                wait_for(lambda: config.exists() and '"0": 1' in config.read_text(), 60)
            broker.kill()
            before, broker = broker.endpoints, Killable(tmp_path)
            assert broker.endpoints == before
            send(broker.endpoints, "kept", b"1")
            assert said.result() == {"kept": "{kept=[0, 1]}"}
    finally:
        broker.kill()


@LONG
def test_mqadmin_makes_a_parent_and_binds_a_group_to_it(tmp_path: Path) -> None:
    with Broker(config_from({"data_dir": str(tmp_path / "broker")})) as broker:
        words = ("-c", "DefaultCluster", "-t", PARENT, "-a", "+message.type=LITE")
        run_admin(REAL_VERSION, broker.name_server, "updateTopic", *words)
        bound = ("-g", "G-lite", "--attributes", f"+lite.bind.topic={PARENT}")
        words = ("-c", "DefaultCluster", *bound)
        run_admin(REAL_VERSION, broker.name_server, "updateSubGroup", *words)
        assert broker.endpoints is not None
        said = said_by("node", broker.endpoints, tmp_path, "lite")
    assert said == {"lite": EXPECTED["node"]["lite"]}


REAL = {
    # What is asked for there without a lite topic, RocketMQ 5.5.0 does not see.
    "java": tuple(name for name in EXPECTED["java"] if name != "again"),
    # Lite simple consumers are newer.
    "python": ("lite", "again", "quota"),
    "node": ("lite", "again"),
    "go": ("lite", "again"),
}
_LONG_POLL_SECONDS = 21.0


@LONG
@pytest.mark.parametrize("client", [*REAL])
def test_a_client_says_the_same_of_a_real_proxy(
    client: str, real_proxy: str, tmp_path: Path
) -> None:
    expected = {name: EXPECTED[client][name] for name in REAL[client]}
    if client != next(iter(REAL)):
        # What the one before still waited for when it ended would be lent to it first.
        time.sleep(_LONG_POLL_SECONDS)
    assert said_by(client, real_proxy, tmp_path, *expected) == expected
