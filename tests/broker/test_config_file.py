"""The broker's configuration: the shipped file, refusals, command-line words."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from rocketmq_broker.config import (
    BrokerConfig,
    config_from,
    load_config,
    parse_assignment,
    read_values,
)
from rocketmq_broker.errors import ConfigError

SHIPPED = Path(__file__).resolve().parents[2] / "conf" / "broker.toml"


def test_shipped_file_names_every_key_with_its_default():
    assert list(read_values(SHIPPED)) == [key.name for key in fields(BrokerConfig)]
    assert load_config(SHIPPED) == BrokerConfig()


def test_every_key_of_the_shipped_file_is_explained():
    blocks = SHIPPED.read_text(encoding="utf-8").split("\n\n")
    plain = [line for block in blocks if "#" not in block for line in block.splitlines() if line]
    # Names that need no explanation.
    allowed = {"broker_name", "cluster_name", "connections_max"}
    assert {line.split(" ")[0] for line in plain} <= allowed


def test_unknown_key_is_refused_with_the_nearest_known_one():
    with pytest.raises(ConfigError, match=r"unknown key 'retention_hour'.*'retention_hours'"):
        config_from({"retention_hour": 1})


def test_unknown_key_without_a_near_one_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"known keys: host, port"):
        config_from({"zzzzzz": 1})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"port": 65_536}, "'port' must be between 0 and 65535, got 65536"),
        ({"port": -1}, "'port' must be between"),
        ({"port": True}, "'port' must be a whole number, got True"),
        ({"port": "9876"}, "'port' must be a whole number"),
        ({"grpc": 1}, "'grpc' must be true or false"),
        ({"host": ""}, "'host' must be an address"),
        ({"host": 1}, "'host' must be a text"),
        ({"flush": "fast"}, "'flush' must be one of sync, async, memory, got 'fast'"),
        ({"broker_name": "a b"}, "'broker_name' must be letters"),
        ({"data_dir": ""}, "'data_dir' must be a folder"),
        ({"name_server": "127.0.0.1"}, "'name_server' must be host:port;host:port"),
        ({"name_server": "a:9876;b:0"}, "'name_server' must be host:port;host:port"),
        ({"name_server": "a:1", "name_server_apart": True}, "exclude each other"),
        ({"name_server_access_key": "a"}, "need each other"),
        ({"transfer_bytes_max": 0}, "'transfer_bytes_max' must be between"),
    ],
)
def test_value_that_cannot_work_is_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=message):
        config_from(values)


def test_memory_needs_no_folder():
    assert config_from({"flush": "memory", "data_dir": ""}).in_memory


def test_overrides_win_over_the_file(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text('port = 1000\nflush = "async"\n')
    config = load_config(path, {"port": 2000})
    assert (config.port, config.flush) == (2000, "async")


def test_file_that_is_missing_or_no_toml_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "absent.toml")
    path = tmp_path / "bad.toml"
    path.write_text("port = = 1")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("retention-hours=5", ("retention_hours", 5)),
        ("grpc=false", ("grpc", False)),
        ("host=0.0.0.0", ("host", "0.0.0.0")),
        ("advertised_host=a=b", ("advertised_host", "a=b")),
        ("grpc=no", ("grpc", "no")),
    ],
)
def test_assignment_is_read_by_the_type_of_its_key(text, parsed):
    assert parse_assignment(text) == parsed


@pytest.mark.parametrize("text", ["port", "port=x"])
def test_bad_assignment_is_refused(text):
    with pytest.raises(ConfigError):
        parse_assignment(text)
