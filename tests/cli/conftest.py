"""A broker in this process, the options that lead to it, and a topic for each test."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.main import main

Produce = Callable[..., int]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerConfig(flush="memory", auto_create_topic=False))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["name-server", "endpoints"])
def where(request: pytest.FixtureRequest, broker: Broker) -> tuple[str, str]:
    """The options that lead to the broker."""
    address = broker.name_server if request.param == "name-server" else broker.endpoints
    return f"--{request.param}", address


@pytest.fixture
def topic(request: pytest.FixtureRequest, where: tuple[str, str]) -> str:
    """A topic of one queue of its own."""
    kept = [sign if sign.isalnum() else "-" for sign in request.node.name]
    name = "".join(kept)[:100]
    assert main(["topic", "create", name, "--queues", "1", *where]) == 0
    return name


class Input:
    """Standard input with the given bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


@pytest.fixture
def produce(monkeypatch: pytest.MonkeyPatch) -> Produce:
    """Runs `rmq produce` with bytes as its standard input."""

    def run(data: bytes, *words: str) -> int:
        monkeypatch.setattr(sys, "stdin", Input(data))
        return main(["produce", *words])

    return run
