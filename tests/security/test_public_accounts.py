"""Access keys on RocketMQ's public gRPC service: the refused calls and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.signing import Credentials, sign_call
from support.public_peer import PublicPeer, resource

_ACCOUNTS = """\
accounts:
  - accessKey: reader-key
    secretKey: reader-secret
    admin: false
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path: Path = tmp_path_factory.mktemp("accounts") / "plain_acl.yml"
    path.write_text(_ACCOUNTS)
    with Broker(config_from({"flush": "memory", "acl_file": str(path)})) as broker:
        yield broker


def signed(broker: Broker, secret_key: str) -> PublicPeer:
    metadata = dict(sign_call(Credentials("reader-key", secret_key), "20240102T030405Z"))
    assert broker.endpoints is not None
    return PublicPeer(broker.endpoints, "signed@1", **metadata)


@pytest.mark.parametrize("secret_key", ["", "wrong"])
def test_who_does_not_prove_who_he_is_is_refused(broker: Broker, secret_key: str) -> None:
    assert broker.endpoints is not None
    made = signed(broker, secret_key) if secret_key else PublicPeer(broker.endpoints)
    with made as peer:
        for name in ("SendMessage", "QueryRoute", "ReceiveMessage", "Heartbeat"):
            reply = peer.call(name)
            status = reply[0].status if isinstance(reply, list) else reply.status
            assert status.code == PublicCode.UNAUTHORIZED, name
        assert peer.be_producer("orders").status.code == PublicCode.UNAUTHORIZED


def test_who_proves_it_is_answered_as_far_as_he_may(broker: Broker) -> None:
    with signed(broker, "reader-secret") as peer:
        assert (
            peer.call("QueryRoute", topic=resource("absent")).status.code
            == PublicCode.TOPIC_NOT_FOUND
        )
        assert peer.be_consumer("readers", "orders").status.code == PublicCode.OK
