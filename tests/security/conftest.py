"""Authorities and certificates, made once for all tests of this folder."""

from __future__ import annotations

import pytest

from support.certificates import Authority, Pair


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Somebody whom nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="session")
def server_pair(authority: Authority) -> Pair:
    return authority.issue()


@pytest.fixture(scope="session")
def client_pair(authority: Authority) -> Pair:
    return authority.issue("DNS:reader")
