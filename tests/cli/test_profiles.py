"""Profiles in `rmq.toml`: defaults of the connection options."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_USAGE, UsageError
from rocketmq_client.settings import TlsSettings
from rocketmq_wire.signing import Credentials

PROFILES = """
[default]
name-server = "local"

[prod]
endpoints = "mq:8081"
tls = true
tls-ca-file = "ca.pem"
tls-server-name = "mq.example"
credentials-file = "prod.yml"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NAMESRV_ADDR", "RMQ_PROFILE", "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write(tmp_path, PROFILES)
    keys = tmp_path / "prod.yml"
    keys.write_text("accessKey: rocketmq  # of the team\nsecretKey: '12345678'\n")
    keys.chmod(0o600)
    return tmp_path


def write(home: Path, text: str) -> None:
    (home / "rmq.toml").write_text(text)


def arguments(*words: str) -> Namespace:
    parser = ArgumentParser()
    add_connection_options(parser)
    return parser.parse_args(words)


def test_the_default_profile_gives_the_address() -> None:
    assert connection_settings(arguments()).name_servers == ("local:9876",)


def test_a_profile_is_named_by_its_option_or_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = connection_settings(arguments("--profile", "prod"))
    assert (settings.endpoints, settings.name_servers) == ("mq:8081", ())
    assert settings.tls == TlsSettings(str(home / "ca.pem"), None, None, "mq.example")
    assert settings.credentials == Credentials("rocketmq", "12345678")
    monkeypatch.setenv("RMQ_PROFILE", "prod")
    assert connection_settings(arguments()) == settings
    assert connection_settings(arguments("--profile", "default")).name_servers == ("local:9876",)
    with pytest.raises(UsageError, match="the cluster's address is missing"):
        connection_settings(arguments("--profile", "none"))
    assert capsys.readouterr().err == ""


def test_options_and_the_environment_replace_the_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--profile", "prod", "-n", "other:1", "--tls-server-name", "mine")
    settings = connection_settings(arguments(*words))
    assert (settings.endpoints, settings.name_servers) == (None, ("other:1",))
    assert settings.tls is not None
    assert settings.tls.server_name == "mine"
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "ak")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "sk")
    monkeypatch.setenv("NAMESRV_ADDR", "exported:1")
    assert connection_settings(arguments("--profile", "prod")).endpoints == "mq:8081"
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RMQ_PROFILE", "prod")
    settings = connection_settings(arguments())
    assert settings.name_servers == ("exported:1",)
    assert settings.credentials == Credentials("ak", "sk")
    said = "rmq: NAMESRV_ADDR=exported:1 replaces the address of profile 'prod'\n"
    assert capsys.readouterr().err == said


def test_a_file_of_keys_that_others_can_read_is_reported(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "prod.yml").chmod(0o644)
    assert connection_settings(arguments("--profile", "prod")).credentials is not None
    said = capsys.readouterr().err
    assert said.startswith(f"rmq: {home}/rmq.toml: [prod] credentials-file: other users")
    assert said.endswith(f"chmod 600 {home}/prod.yml\n")


def test_a_finding_is_reported_once(
    home: Path, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "credentials-file = 'prod.yml'"
    write(home, f"[default]\nname-server = '{broker.name_server}'\n{keys}")
    (home / "prod.yml").chmod(0o644)
    for words in (["check", "--no-spark"], ["topic", "describe", "missing"]):
        main(words)
        assert capsys.readouterr().err.count("other users") == 1


@pytest.mark.parametrize(
    ("text", "words", "reason"),
    [
        (PROFILES, ("--profile", "prodd"), "rmq.toml has no profile 'prodd'. Did you mean 'prod'?"),
        ("[default]\nname-sever='x'", (), "[default] name-sever is no key of a profile. Did you"),
        ("[default]\nsecret-key='x'", (), "secret-key is no key of a profile. The keys are name-"),
        ("[default]\ntls='yes'", (), "[default] tls must be true or false, not 'yes'"),
        ("[default]\nname-server=9876", (), "[default] name-server must be text, not 9876"),
        ("default='local'", (), "default must be a table: write [default]"),
        ("[default", (), "rmq.toml cannot be read: "),
        ("[default]\nname-server='a'\nendpoints='b'", (), "leave out one"),
        (
            "[default]\nname-server='a'\ncredentials-file='no.yml'",
            (),
            "no.yml: no such credentials file",
        ),
        (
            "[default]\nname-server='a'\ncredentials-file='rmq.toml'",
            (),
            "rmq.toml: line 1 is none of accessKey, secretKey, securityToken: VALUE",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(
    home: Path, text: str, words: tuple[str, ...], reason: str
) -> None:
    write(home, text)
    with pytest.raises(UsageError) as refused:
        connection_settings(arguments(*words))
    assert reason in str(refused.value)
    assert str(home) in str(refused.value)


def test_a_missing_reader_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"rmq.toml needs a reader of TOML: pip install"):
        connection_settings(arguments())


def test_a_profile_without_a_file_is_refused(home: Path) -> None:
    (home / "rmq.toml").unlink()
    with pytest.raises(UsageError, match=r"no profile 'prod': .*rmq.toml does not exist"):
        connection_settings(arguments("--profile", "prod"))
    with pytest.raises(UsageError, match="write a profile"):
        connection_settings(arguments())


def test_a_missing_credentials_file_is_named(home: Path) -> None:
    write(home, "[default]\nname-server = 'mq'\ncredentials-file = 'absent.yml'")
    with pytest.raises(UsageError, match=r"/absent\.yml: no such credentials file$"):
        connection_settings(arguments())


def test_the_group_of_the_profile_is_that_of_lag_and_describe(
    home: Path, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, f"[default]\nname-server = '{broker.name_server}'")
    assert main(["group", "describe"]) == EXIT_USAGE
    assert "set group in the profile" in capsys.readouterr().err
    write(home, f"[default]\nname-server = '{broker.name_server}'\ngroup = 'of-profile'")
    assert main(["topic", "create", "mine", "--queues", "1"]) == 0
    move = ("--topic", "mine", "--to", "latest", "--execute")
    for words in (["lag"], ["group", "describe"]):
        assert main(words) == 1
        assert "no broker knows the group 'of-profile'" in capsys.readouterr().err
    assert main(["group", "reset-offsets", "of-profile", *move]) == 0
    capsys.readouterr()
    assert main(["lag"]) == 0
    assert re.search(r"^group +topic.*\nof-profile +mine", capsys.readouterr().out)
    assert main(["lag", "--all"]) == 0
    assert main(["lag", "--all", "g"]) == EXIT_USAGE
