"""Authorities and certificates, made once for all tests of this folder."""

from __future__ import annotations

import pytest

from rocketmq_broker.security import reloaded_files
from support.certificates import Authority, Pair


@pytest.fixture(autouse=True)
def _files_are_checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers check for changed files once a second, which is too seldom for tests."""
    monkeypatch.setattr(reloaded_files, "CHECK_SECONDS", 0.02)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="session")
def server_pair(authority: Authority) -> Pair:
    return authority.issue()


@pytest.fixture(scope="session")
def client_pair(authority: Authority) -> Pair:
    return authority.issue("DNS:reader")
