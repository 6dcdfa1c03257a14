"""Settings of connections: which are refused, and that they travel."""

from __future__ import annotations

import pickle

import pytest

from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.addresses import NAME_SERVER_PORT, split_address, split_addresses


def test_addresses_are_split_and_checked():
    assert split_addresses(" a:1; b:22;") == ("a:1", "b:22")
    assert split_address("[::1]:9876") == ("::1", 9876)
    for wrong in ("a", "a:", ":1", "a:x", "a:0", "a:65536", "a b:1", "a/b:1", "::1", "b://a:1"):
        with pytest.raises(ValueError, match=r"address|port"):
            split_address(wrong)


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("http://127.0.0.1:9876", ("127.0.0.1:9876",)),
        (
            "http://MQ_INST_123_Abc.mq-internet.example:80/",
            ("MQ_INST_123_Abc.mq-internet.example:80",),
        ),
        ("http://a:1;http://b,c:3", ("a:1", "b:9876", "c:3")),
        ("[::1];[fe80::2]:7", ("[::1]:9876", "[fe80::2]:7")),
        ("http://a:8080/nsaddr", ("http://a:8080/nsaddr",)),
        ("https://a/nsaddr", ("https://a/nsaddr",)),
    ],
)
def test_name_servers_are_given_as_to_a_java_client(given, addresses):
    assert split_addresses(given, NAME_SERVER_PORT) == addresses


def test_settings_drop_the_scheme_of_name_servers():
    assert ConnectionSettings(("http://a:1", "b:2")).name_servers == ("a:1", "b:2")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"name_servers": ("a:1",), "endpoints": "b:2"},
        {"name_servers": ("a",)},
        {"name_servers": "a:1"},
        {"name_servers": ("a:1",), "request_timeout_ms": 0},
        {"name_servers": ("a:1",), "retry_delay_ms": 9_000},
    ],
)
def test_settings_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=r"must be|host:port|not a range"):
        ConnectionSettings(**options)


def test_settings_travel_to_workers():
    settings = ConnectionSettings(("a:1",), address_map={"x": "y"})
    assert pickle.loads(pickle.dumps(settings)) == settings
