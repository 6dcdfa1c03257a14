"""RocketMQ's own gRPC clients, unmodified, each from its registry, on the bundled broker."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interop.sdks import HERE, go_built, java_with, node_with, python_with, run_client, rust_built
from rocketmq_broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.groups import PutGroup
from rocketmq_wire.signing import Credentials
from rocketmq_wire.stubs import public
from support.certificates import Authority
from support.real_cluster import RealCluster

# The first build of the one in Rust takes minutes, on a busy machine many.
pytestmark = pytest.mark.timeout(1_800)

_LONG_POLL_SECONDS = 21.0
NAMES = ("python", "node", "java", "go", "rust")
PYTHON = "rocketmq-python-client==5.1.2"
NODE = "rocketmq-client-nodejs@1.0.8"
JAVA = "5.2.0"
GO = "github.com/apache/rocketmq-clients/golang/v5@v5.1.3"
EXPECTED = {
    "simple": "12 messages, as sent: True, ids kept True, whole True",
    "tags": "6 messages, tags ['TagA']",
    "again": "attempts [1, 2], not early True",
    "push": "12 messages, as sent: True",
    "retry": "attempts [1, 2]",
    "fifo": "12 messages, as sent: True, in order True",
    "delay": "4 messages, as sent: True, early 0",
    "recall": "recalled True, came ['body-0'], handles True",
    "transaction": "came ['body-0', 'body-2']",
}
"""What every client says of these, in these words."""
TYPES = {
    "fifo": "FIFO",
    "delay": "DELAY",
    "recall": "DELAY",
    "transaction": "TRANSACTION",
    "priority": "PRIORITY",
}
SHORT = ("simple", "push", "fifo", "delay", "transaction")


@dataclass(frozen=True)
class Endpoints:
    address: str
    name_server: str


@contextlib.contextmanager
def served(
    folder: Path, credentials: Credentials | None = None, **settings: object
) -> Iterator[Endpoints]:
    """The bundled broker with a topic for each scenario."""
    config = {
        "data_dir": str(folder),
        "property_filter": True,
        # An orphan is asked about soon, and soon again.
        "transaction_timeout_ms": 2_000,
        "transaction_check_interval_ms": 2_000,
        **settings,
    }
    with Broker(config_from(config)) as broker:
        connection = ConnectionSettings((broker.name_server,), credentials=credentials)
        prepare(connection, (*EXPECTED, "priority"))
        assert broker.endpoints is not None
        yield Endpoints(broker.endpoints, broker.name_server)


def prepare(connection: ConnectionSettings, topics: Iterable[str]) -> None:
    """A topic for each scenario, and a group that consumes in order."""
    with open_cluster(connection) as cluster:
        for name in topics:
            attributes = {"message.type": TYPES.get(name, "NORMAL")}
            cluster.create_topic(TopicConfig(name, 4, 4, attributes=attributes))
        cluster.ask_masters(PutGroup({"groupName": "G-fifo", "consumeMessageOrderly": True}))


@pytest.fixture(scope="module")
def real_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A real 5.3.3 with its proxy."""
    cluster = RealCluster("5.3.3", tmp_path_factory.mktemp("real"), is_brief=True)
    try:
        cluster.start_name_server()
        cluster.add_broker(
            "broker-a",
            enablePropertyFilter="true",
            recallMessageEnable="true",
            transactionTimeOut="5000",
            transactionCheckInterval="5000",
        )
        prepare(ConnectionSettings((cluster.name_server,)), EXPECTED)
        cluster.start_proxy()
        assert cluster.grpc_endpoint is not None
        yield Endpoints(cluster.grpc_endpoint, cluster.name_server)
    finally:
        cluster.close()


@pytest.fixture
def scenarios(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return SHORT if request.config.getoption("--short") else tuple(EXPECTED)


def expected_of(scenarios: tuple[str, ...]) -> dict[str, str]:
    return {name: EXPECTED[name] for name in scenarios}


def said_by(
    client: str, address: str, home: Path, scenarios: tuple[str, ...], **environment: str
) -> dict[str, str]:
    """What a client says of the scenarios."""
    command: tuple[str | Path, ...]
    folder = None
    if client == "python":
        command = (python_with(PYTHON), HERE / "python" / "public_client.py")
    elif client == "node":
        folder = node_with(NODE)
        command = ("node", HERE / "node" / "public_client.js")
    elif client == "java":
        command = java_with(JAVA, HERE / "java" / "PublicClient.java")
    elif client == "rust":
        command = (rust_built(HERE / "rust"),)
    else:
        command = (go_built(GO, HERE / "go" / "public_client.go"),)
        environment["rocketmq.client.enableSsl"] = str("WITH_TLS" in environment).lower()
        environment["rocketmq.client.logRoot"] = str(home / "logs")
    said = run_client(
        (*command, address, *scenarios), home=home, cwd=folder, seconds=200, environment=environment
    )
    return {name: text for name, text in said.items() if name in scenarios}


UNKNOWN = {
    "go": {"recall"},
    # No push consumer is in it.
    "rust": {"push", "retry", "recall"},
}
"""What these versions of the clients cannot do."""


def known_to(client: str, scenarios: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in scenarios if name not in UNKNOWN.get(client, ()))


LONG = pytest.mark.long
CLIENTS = [pytest.param(name, marks=LONG) for name in NAMES[1:]]


@pytest.mark.parametrize("client", ["python", *CLIENTS])
def test_a_client_of_the_public_service(
    client: str, tmp_path: Path, scenarios: tuple[str, ...]
) -> None:
    wanted = known_to(client, scenarios)
    with served(tmp_path / "broker") as endpoints:
        assert said_by(client, endpoints.address, tmp_path, wanted) == expected_of(wanted)


def test_what_is_more_urgent_comes_first(tmp_path: Path) -> None:
    with served(tmp_path / "broker") as endpoints:
        said = said_by("python", endpoints.address, tmp_path, ("priority",))
    # RocketMQ has priorities since 5.4.
    assert said == {"priority": "came [3, 2, 1, 0]"}


@LONG
def test_a_client_that_takes_tls_by_itself(tmp_path: Path, scenarios: tuple[str, ...]) -> None:
    """The one in Java, which trusts whomever it meets; the same port serves plaintext."""
    shown = Authority(tmp_path).issue()
    files: dict[str, Any] = {"tls_cert_file": shown.cert_file, "tls_key_file": shown.key_file}
    with served(tmp_path / "broker", tls_mode="permissive", **files) as endpoints:
        said = said_by("java", endpoints.address, tmp_path, scenarios, WITH_TLS="1")
        assert said == expected_of(scenarios)
        plain = said_by("python", endpoints.address, tmp_path, ("simple",))
        assert plain == expected_of(("simple",))


@LONG
@pytest.mark.parametrize("client", NAMES)
def test_a_client_says_the_same_of_a_real_proxy(
    client: str, real_proxy: Endpoints, tmp_path: Path
) -> None:
    wanted = known_to(client, tuple(EXPECTED))
    if client != NAMES[0]:
        # A pop that the client before left waiting would get the messages first.
        time.sleep(_LONG_POLL_SECONDS)
    assert said_by(client, real_proxy.address, tmp_path, wanted) == expected_of(wanted)


BOSS = Credentials("boss", "boss-password")


def accounts_file(folder: Path) -> str:
    """Users of the broker: one for everything, and one for the topic `simple`."""
    entry = {
        "resource": ["Topic:simple", "Group:*"],
        "actions": ["Pub", "Sub"],
        "decision": "Allow",
    }
    users = [
        {"username": "boss", "password": BOSS.secret_key, "userType": "Super"},
        {"username": "app", "password": "app-password", "userType": "Normal"},
    ]
    acls = [{"subject": "User:app", "policies": [{"entries": [entry]}]}]
    accounts = folder / "accounts.json"
    accounts.write_text(json.dumps({"users": users, "acls": acls}))
    return str(accounts)


# The one in Rust has no TLS in this version.
@pytest.mark.parametrize("client", ["python", *CLIENTS])
def test_a_client_shows_its_key_over_tls(client: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.issue()
    # Some verify whom they meet, by what their own environments name.
    trust = {
        "WITH_TLS": "1",
        "NODE_EXTRA_CA_CERTS": authority.ca_file,
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": authority.ca_file,
    }
    settings = {
        "auth_file": accounts_file(tmp_path),
        "tls_mode": "permissive",
        "tls_cert_file": shown.cert_file,
        "tls_key_file": shown.key_file,
    }
    with served(tmp_path / "broker", BOSS, **settings) as endpoints:
        ways = trust if client != "rust" else {}
        keys = {"ACCESS_KEY": "app", "SECRET_KEY": "app-password", **ways}
        said = said_by(client, endpoints.address, tmp_path, ("simple",), **keys)
        assert said == expected_of(("simple",))


def test_a_client_without_the_right_key_gets_nothing(tmp_path: Path) -> None:
    settings = {"auth_file": accounts_file(tmp_path)}
    with served(tmp_path / "broker", BOSS, **settings) as endpoints:
        for name, secret_key in (("simple", "wrong"), ("tags", "app-password")):
            keys = {"ACCESS_KEY": "app", "SECRET_KEY": secret_key}
            said = said_by("python", endpoints.address, tmp_path, (name,), **keys)
            assert said[name].startswith("FAILED"), name


@pytest.mark.long
def test_our_messages_are_those_of_the_client_in_python() -> None:
    """Every field of the official definitions is in ours, with its name, number and type."""
    python = python_with(PYTHON)
    program = HERE / "python" / "public_fields.py"
    done = subprocess.run([str(python), str(program)], capture_output=True, timeout=60, check=True)
    theirs = json.loads(done.stdout)
    ours = {}
    for file in public.descriptor_files():
        if file.package == public.PACKAGE:
            for message in file.message_type:
                ours[message.name] = {
                    field.name: [field.number, field.type, field.label] for field in message.field
                }
    assert set(theirs) <= set(ours)
    for name, fields in theirs.items():
        assert fields.items() <= ours[name].items(), name
