"""The options of access control and TLS -> settings that show none of them."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.parse import parse_options, read_options
from rocketmq_client.settings import TlsSettings
from rocketmq_wire.signing import Credentials

BASE = {"nameServer": "h:9876", "subscribe": "orders"}
KEYS = {"accessKey": "the-access", "secretKey": "the-secret", "securityToken": "the-token"}


def test_keys_reach_the_settings_and_no_text_of_them() -> None:
    options = read_options({**BASE, **KEYS})
    settings = connection_settings(options.connection)
    assert settings.credentials == Credentials("the-access", "the-secret", "the-token")
    parsed = parse_options({**BASE, **KEYS})
    for text in (repr(parsed), repr(options), repr(settings), str(settings.credentials)):
        assert not any(value in text for value in KEYS.values())
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_without_keys_nothing_is_signed_or_encrypted() -> None:
    settings = connection_settings(read_options(BASE).connection)
    assert settings.credentials is None
    assert settings.tls is None


def test_tls_takes_files_and_a_name() -> None:
    given = {
        "tls": "true",
        "tls.caFile": "/ca",
        "tls.certFile": "/c",
        "tls.keyFile": "/k",
        "tls.serverName": "mq.example",
    }
    settings = connection_settings(read_options({**BASE, **given}).connection)
    assert settings.tls == TlsSettings("/ca", "/c", "/k", "mq.example")
    loose = connection_settings(
        read_options({**BASE, "tls": "true", "tls.verify": "false"}).connection
    )
    assert loose.tls == TlsSettings(verifies=False)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"accessKey": "k"}, "'accessKey' needs the option 'secretKey'"),
        ({"secretKey": "k"}, "'secretKey' needs the option 'accessKey'"),
        ({"securityToken": "k"}, "'securityToken' needs the option 'accessKey'"),
        ({"tls.caFile": "/ca"}, "'tls.caFile' has no effect: set tls=true"),
        ({"tls": "true", "tls.keyFile": "/k"}, "'tls.keyFile' needs the option 'tls.certFile'"),
        (
            {"tls": "true", "tls.verify": "false", "tls.caFile": "/ca"},
            "'tls.caFile' has no effect under tls.verify=false",
        ),
    ],
)
def test_half_a_setting_is_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        read_options({**BASE, **given})


@pytest.mark.parametrize("key", ["accessKey", "secretKey", "securityToken"])
def test_a_bad_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(OptionError, match="printable ASCII") as refused:
        read_options({**BASE, **KEYS, key: "sec ret"})
    assert "sec ret" not in str(refused.value)
    assert "sec ret" not in repr(refused.value)
