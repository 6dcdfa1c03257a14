"""Keys and certificates of `rmq` come from the environment, never from its arguments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED, UsageError
from rocketmq_client.settings import TlsSettings
from rocketmq_wire.signing import Credentials
from support.certificates import Authority, Pair

NAMES = ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_SECURITY_TOKEN")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def broker(server_pair: Pair) -> Iterator[Broker]:
    config = BrokerConfig(
        flush="memory",
        tls_mode="enforcing",
        tls_cert_file=server_pair.cert_file,
        tls_key_file=server_pair.key_file,
    )
    with Broker(config) as running:
        yield running


def arguments(*words: str) -> Namespace:
    parser = ArgumentParser()
    add_connection_options(parser)
    return parser.parse_args(["-n", "h:1", *words])


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection_settings(arguments()).credentials is None
    for name, value in zip(NAMES, ("ak", "sk", "token"), strict=True):
        monkeypatch.setenv(name, value)
    assert connection_settings(arguments()).credentials == Credentials("ak", "sk", "token")
    monkeypatch.delenv("ROCKETMQ_SECRET_KEY")
    with pytest.raises(UsageError, match="ROCKETMQ_SECRET_KEY"):
        connection_settings(arguments())


def test_tls_is_spelled_as_in_spark() -> None:
    files = ("--tls-ca-file", "/ca", "--tls-cert-file", "/c", "--tls-key-file", "/k")
    settings = connection_settings(arguments("--tls", *files, "--tls-server-name", "mq"))
    assert settings.tls == TlsSettings("/ca", "/c", "/k", "mq")
    loose = connection_settings(arguments("--tls", "--tls-no-verify"))
    assert loose.tls == TlsSettings(verifies=False)


@pytest.mark.parametrize(
    "words", [("--tls-ca-file", "/ca"), ("--tls", "--tls-key-file", "/k"), ("--tls-no-verify",)]
)
def test_half_a_setting_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        connection_settings(arguments(*words))


def test_a_command_reaches_an_encrypted_broker_and_says_why_it_does_not(
    broker: Broker, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["topic", "list", "-n", broker.name_server]
    assert main([*words, "--tls", "--tls-ca-file", authority.ca_file]) == 0
    assert main(words) == EXIT_FAILED
    assert "[ROCKETMQ_TLS.REQUIRED]" in capsys.readouterr().err
