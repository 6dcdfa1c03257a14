"""Real brokers with access control and with TLS: our signatures, our handshakes, their refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.tls import TlsSettings
from rocketmq_client.transport import ReadSpec
from rocketmq_wire.acl import Credentials
from rocketmq_wire.errors import NotAuthorizedError, TlsError
from rocketmq_wire.model import Message, OffsetRange, TopicConfig
from support.certificates import Authority, Pair
from support.real_cluster import VERSIONS, RealCluster

pytestmark = pytest.mark.short

ADMIN = Credentials("AdminAdmin", "admin-secret")
PLAIN = """
accounts:
  - accessKey: AdminAdmin
    secretKey: admin-secret
    admin: true
  - accessKey: ReaderReader
    secretKey: reader-secret
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - signed=SUB
"""
# Access control of 5.3 is configured in the broker's own file, and keeps its users in its store.
AUTH = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider."
    "LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"AdminAdmin","password":"admin-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"AdminAdmin","secretKey":"admin-secret"}',
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider."
    "LocalAuthorizationMetadataProvider",
}


@pytest.fixture(scope="module", params=VERSIONS)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """A cluster whose broker asks who sends."""
    cluster = RealCluster(str(request.param), tmp_path_factory.mktemp("guarded"), is_brief=True)
    try:
        cluster.start_name_server()
        if cluster.is_4:
            configuration = cluster.folder / "broker-a-0" / "conf"
            configuration.mkdir(parents=True)
            (configuration / "plain_acl.yml").write_text(PLAIN)
        cluster.add_broker("broker-a", **({"aclEnable": "true"} if cluster.is_4 else AUTH))
        yield cluster
    finally:
        cluster.close()


def signed(cluster: RealCluster, credentials: Credentials | None) -> ConnectionSettings:
    return replace(cluster.settings, credentials=credentials)


def read(cluster: Cluster, topic: str) -> int:
    queue = cluster.queues(topic)[0]
    chunks = cluster.read_ranges([OffsetRange(queue, 0, 1)], ReadSpec("readers"))
    return sum(chunk.end - chunk.start for chunk in chunks)


def send_one(settings: ConnectionSettings, topic: str) -> None:
    """One message in the first queue of a new topic."""
    with open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig(topic, 1, 1))
        queue = cluster.queues(topic)[0]
    with Producer(settings) as producer:
        producer.send(Message(topic, b"hello", properties={"k": "\u4e2d\u6587"}), queue)


@contextmanager
def refused(start: str, error: type[Exception]) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(error) as caught:
        yield
    assert str(caught.value).startswith(f"[{start}] "), str(caught.value)
    assert ADMIN.secret_key not in str(caught.value)
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize("token", [None, "a-token"])
def test_a_real_broker_takes_our_signatures(guarded: RealCluster, token: str | None) -> None:
    settings = signed(guarded, replace(ADMIN, security_token=token))
    send_one(settings, "signed")
    with open_cluster(settings) as cluster:
        assert read(cluster, "signed") == 1
        queue = cluster.queues("signed")[0]
        assert cluster.commit("readers", {queue: 1}) == {queue: None}


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        (None, "MISSING_KEY"),
        (replace(ADMIN, secret_key="wrong-secret"), "WRONG_KEY"),
        (Credentials("NobodyKnown", "admin-secret"), "WRONG_KEY"),
    ],
)
def test_a_real_brokers_refusals_say_what_to_do(
    guarded: RealCluster, credentials: Credentials | None, kind: str
) -> None:
    send_one(signed(guarded, ADMIN), "signed")
    with open_cluster(signed(guarded, credentials)) as cluster:
        with refused(f"ROCKETMQ_AUTH.{kind}", NotAuthorizedError):
            read(cluster, "signed")
        with refused(f"ROCKETMQ_AUTH.{kind}", NotAuthorizedError):
            cluster.create_topic(TopicConfig("new", 1, 1))


def test_rights_of_a_real_plain_acl_are_told_apart(guarded: RealCluster) -> None:
    if not guarded.is_4:
        pytest.skip("5.3 keeps rights in its store, where this suite puts none")
    for topic in ("signed", "closed"):
        send_one(signed(guarded, ADMIN), topic)
    with open_cluster(signed(guarded, Credentials("ReaderReader", "reader-secret"))) as cluster:
        assert read(cluster, "signed") == 1
        with refused("ROCKETMQ_AUTH.NO_PERMISSION", NotAuthorizedError):
            read(cluster, "closed")


# --- TLS --------------------------------------------------------------------------------------


class EncryptedCluster(RealCluster):
    """Takes TLS alone, from clients that show a certificate of the authority."""

    def __init__(self, version: str, folder: Path, authority: Authority) -> None:
        self.authority = authority
        self._server, self._client = authority.issue(), authority.issue("DNS:client")
        super().__init__(version, folder, is_brief=True)

    def server_arguments(self, home: Path, heap: str) -> list[str]:
        server, client, ca = self._server, self._client, self.authority.ca_file
        settings = {
            "test.mode.enable": "false",
            "server.mode": "enforcing",
            "server.certPath": server.cert_file,
            "server.keyPath": server.key_file,
            "server.trustCertPath": ca,
            "server.authClient": "true",
            "server.need.client.auth": "require",
            # The broker is the name server's client.
            "enable": "true",
            "client.certPath": client.cert_file,
            "client.keyPath": client.key_file,
            "client.trustCertPath": ca,
            "client.authServer": "true",
        }
        words = [f"-Dtls.{name}={text}" for name, text in settings.items()]
        return [*words, *super().server_arguments(home, heap)]

    @property
    def settings(self) -> ConnectionSettings:
        return self.encrypted(self._client)

    def encrypted(self, shown: Pair | None) -> ConnectionSettings:
        """Settings that show this certificate."""
        tls = TlsSettings(self.authority.ca_file)
        if shown is not None:
            tls = replace(tls, cert_file=shown.cert_file, key_file=shown.key_file)
        return replace(super().settings, tls=tls)


@pytest.fixture(scope="module", params=VERSIONS)
def encrypted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EncryptedCluster]:
    folder = tmp_path_factory.mktemp("encrypted")
    with EncryptedCluster(str(request.param), folder, Authority(folder / "ca")) as cluster:
        yield cluster


def test_a_real_enforcing_broker_is_written_and_read(encrypted: EncryptedCluster) -> None:
    send_one(encrypted.settings, "orders")
    with open_cluster(encrypted.settings) as cluster:
        assert read(cluster, "orders") == 1


def test_a_real_enforcing_broker_refuses_others_for_the_reasons_we_say(
    encrypted: EncryptedCluster, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").issue()
    wanted = (
        (replace(encrypted.settings, tls=None), "REQUIRED"),
        (encrypted.encrypted(None), "CLIENT_CERTIFICATE"),
        (encrypted.encrypted(stranger), "CLIENT_CERTIFICATE"),
    )
    for settings, kind in wanted:
        with open_cluster(settings) as cluster, refused(f"ROCKETMQ_TLS.{kind}", TlsError):
            cluster.topics()


def test_a_real_broker_as_it_comes_takes_tls_but_shows_a_strange_certificate(
    broker: RealCluster,
) -> None:
    loose = replace(broker.settings, tls=TlsSettings(verifies=False))
    send_one(loose, "loosely")
    with open_cluster(loose) as cluster:
        assert read(cluster, "loosely") == 1
    strict = replace(broker.settings, tls=TlsSettings())
    with (
        open_cluster(strict) as cluster,
        refused("ROCKETMQ_TLS.CERTIFICATE_UNKNOWN", TlsError),
    ):
        cluster.topics()
