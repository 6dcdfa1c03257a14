"""The programs of docs/other-languages.md, as they are there, on a broker started as it says."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from documents.blocks import Block, blocks_of
from interop.sdks import go_built, install, java_with, made_once, need, node_with, run_client
from pytest_rocketmq.faults import FaultProxy
from rocketmq_broker import Broker
from rocketmq_broker.config import config_from
from support.real_cluster import run_program

pytestmark = [pytest.mark.timeout(900)]
LONG = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "other-languages.md"
BLOCKS = blocks_of(PAGE.read_text(encoding="utf-8"))
GO = "github.com/apache/rocketmq-clients/golang/v5@v5.1.3"
NODE = "rocketmq-client-nodejs@1.0.8"
TESTCONTAINERS = "org.testcontainers:testcontainers:1.21.3"


def block(language: str, holds: str = "") -> Block:
    """The only block of a language that holds a text."""
    (found,) = (b for b in BLOCKS if b.language == language and holds in b.text)
    return found


def printed(said: dict[str, str]) -> None:
    """Check a program's output against the page's."""
    name, _, rest = block("text").text.strip().partition(": ")
    assert said.get(name) == rest


class Served:
    """The addresses of a broker; a container's port mapping is between it and gRPC clients."""

    def __init__(self, broker: Broker, endpoints: str) -> None:
        self.name_server = broker.name_server
        self.endpoints = endpoints

    def write(self, found: Block, path: Path) -> Path:
        """A program of the page as a file, with this broker's addresses."""
        text = found.text.replace("127.0.0.1:9876", self.name_server)
        path.write_text(text.replace("127.0.0.1:8081", self.endpoints), encoding="utf-8")
        return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Broker(config_from({"flush": "memory"})) as broker:
        assert broker.endpoints is not None
        with FaultProxy(broker.endpoints) as mapped:
            environment = {**os.environ, "NAMESRV_ADDR": broker.name_server}
            command = ["bash", "-euc", block("sh", "rmq topic create").text]
            subprocess.run(command, env=environment, check=True, timeout=60, cwd=tmp_path)
            yield Served(broker, mapped.address)


@LONG
def test_java_over_grpc(served: Served, tmp_path: Path) -> None:
    program = served.write(block("java", "class Payments {"), tmp_path / "Payments.java")
    printed(run_client(java_with("5.2.0", program), home=tmp_path))


@LONG
def test_java_over_tcp(served: Served, tmp_path: Path) -> None:
    program = served.write(block("java", "PaymentsOverTcp"), tmp_path / "PaymentsOverTcp.java")
    said = run_program("5.3.3", program, seconds=120)
    assert block("text").text.strip() in said.splitlines()


@LONG
def test_go(served: Served, tmp_path: Path) -> None:
    program = served.write(block("go"), tmp_path / "payments.go")
    printed(run_client([go_built(GO, program)], home=tmp_path))


def test_node(served: Served, tmp_path: Path) -> None:
    program = served.write(block("javascript", NODE.partition("@")[0]), tmp_path / "payments.js")
    modules = str(node_with(NODE) / "node_modules")
    said = run_client(["node", program], home=tmp_path, environment={"NODE_PATH": modules})
    printed(said)


@LONG
def test_the_container_in_java_compiles(tmp_path: Path) -> None:
    maven, compiler = need("mvn"), need("javac")
    group, artifact, version = TESTCONTAINERS.split(":")

    def copy_jars(folder: Path) -> None:
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId>"
            "<artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
            f"<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency></dependencies></project>"
        )
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        words = ("--batch-mode", "--quiet", goal, f"-DoutputDirectory={folder}")
        install(maven, *words, folder=folder)

    jars = made_once(f"java-{artifact}-{version}", copy_jars)
    source = tmp_path / "BrokerContainer.java"
    source.write_text(block("java", "GenericContainer").text)
    install(compiler, "-cp", f"{jars}/*", "-d", str(tmp_path), str(source), folder=tmp_path)
    assert (tmp_path / "BrokerContainer.class").exists()


@LONG
def test_the_container_in_node_wants_nothing_but_an_engine(tmp_path: Path) -> None:
    folder = node_with("testcontainers@11")
    program = tmp_path / "container.js"
    program.write_text(
        block("javascript", "testcontainers").text
        + "startBroker().catch(error => console.log(`ended: ${error.message}`));\n"
    )
    environment = {
        "NODE_PATH": str(folder / "node_modules"),
        "DOCKER_HOST": f"unix://{tmp_path}/no-engine",
    }
    said = run_client(["node", program], home=tmp_path, environment=environment)
    assert said["ended"].startswith("Could not find a working container runtime")


def test_the_steps_of_a_workflow_start_a_broker(tmp_path: Path) -> None:
    *_, step = yaml.safe_load(block("yaml").text)
    with_free_ports = (
        step["run"].replace("--port 9876", "--port 0").replace("--grpc-port 8081", "--grpc-port 0")
    )
    environment = {**os.environ, "GITHUB_ENV": str(tmp_path / "environment")}
    command = ["bash", "-ec", with_free_ports]
    started = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        assert started.wait(90) == 0
        # What Testcontainers waits for.
        assert "\nendpoints=127.0.0.1:" in (tmp_path / "broker.log").read_text()
        assert (tmp_path / "environment").read_text() == "NAMESRV_ADDR=127.0.0.1:9876\n"
    finally:
        os.killpg(started.pid, signal.SIGTERM)
