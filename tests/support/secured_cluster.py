"""Real brokers that ask who sends, and ones that take TLS, with the accounts they know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocketmq_client.settings import ConnectionSettings, TlsSettings
from rocketmq_wire.signing import Credentials
from support.certificates import Authority, Pair
from support.real_cluster import BrokerNode, RealCluster
from support.real_cluster.cluster import CLUSTER

ADMIN: Final = Credentials("AdminAdmin", "admin-secret")
READER: Final = Credentials("ReaderReader", "reader-secret")
"""May read `READABLE` as a member of `READERS`, and nothing else."""
WRITER: Final = Credentials("WriterWriter", "writer-secret")
"""May write `READABLE`, and nothing else."""
READABLE: Final = "signed"
READERS: Final = "readers"
_PLAIN: Final = f"""
accounts:
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: {READER.access_key}
    secretKey: {READER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - {READABLE}=SUB
    groupPerms:
      - {READERS}=SUB
  - accessKey: {WRITER.access_key}
    secretKey: {WRITER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - {READABLE}=PUB
"""
# Access control of 5.3 is configured in the broker's own file, and keeps its users in its store.
_AUTH: Final = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider."
    "LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"AdminAdmin","password":"admin-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"AdminAdmin","secretKey":"admin-secret"}',
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider."
    "LocalAuthorizationMetadataProvider",
}


def add_guarded_broker(cluster: RealCluster, name: str = "broker-a") -> BrokerNode:
    """Start a master that knows `ADMIN`, `READER` and `WRITER`, by the means of its version."""
    if cluster.is_4:
        configuration = cluster.folder / f"{name}-0" / "conf"
        configuration.mkdir(parents=True)
        (configuration / "plain_acl.yml").write_text(_PLAIN)
        return cluster.add_broker(name, aclEnable="true")
    node = cluster.add_broker(name, **_AUTH)
    # Pulls and commits need Sub, to see where queues end and what was committed takes Get.
    grant(cluster, READER, f"Topic:{READABLE},Group:{READERS}", "Sub,Get")
    grant(cluster, WRITER, f"Topic:{READABLE}", "Pub")
    return node


def grant(
    cluster: RealCluster, who: Credentials, resources: str, actions: str, *, is_new: bool = True
) -> None:
    """Give an account rights at a broker of 5.3, and make the account if it is new."""
    user = ("-u", who.access_key, "-p", who.secret_key, "-t", "Normal")
    rights = ("-s", f"User:{who.access_key}", "-r", resources, "-a", actions, "-d", "Allow")
    made = (("createUser", user), ("createAcl", rights))
    for verb, words in made if is_new else (("updateAcl", rights),):
        printed = cluster.admin(verb, "-c", CLUSTER, *words, credentials=ADMIN)
        assert "success" in printed, printed


class EncryptedCluster(RealCluster):
    """Takes TLS alone, from clients that show a certificate of the authority."""

    def __init__(self, version: str, folder: Path, authority: Authority) -> None:
        self.authority = authority
        self._server, self._client = authority.issue(), authority.issue("DNS:client")
        self.of_broker: dict[str, Mapping[str, str]] = {}
        """By a broker's name what differs for it from the other servers, without `tls.`."""
        super().__init__(version, folder, is_brief=True)

    def server_arguments(self, home: Path, heap: str) -> list[str]:
        settings = {
            "server.mode": "enforcing",
            "server.certPath": self._server.cert_file,
            "server.keyPath": self._server.key_file,
            "server.trustCertPath": self.authority.ca_file,
            "server.authClient": "true",
            "server.need.client.auth": "require",
            **self.of_broker.get(home.name.rpartition("-")[0], {}),
        }
        words = [f"-Dtls.{name}={text}" for name, text in settings.items()]
        # The broker is the name server's client.
        return [*words, *self.client_arguments, *super().server_arguments(home, heap)]

    @property
    def client_arguments(self) -> list[str]:
        settings = {
            "enable": "true",
            "test.mode.enable": "false",
            "client.certPath": self._client.cert_file,
            "client.keyPath": self._client.key_file,
            "client.trustCertPath": self.authority.ca_file,
            "client.authServer": "true",
        }
        return [f"-Dtls.{name}={text}" for name, text in settings.items()]

    @property
    def settings(self) -> ConnectionSettings:
        return self.encrypted(self._client)

    def encrypted(self, shown: Pair | None) -> ConnectionSettings:
        """Settings that show this certificate."""
        tls = TlsSettings(self.authority.ca_file)
        if shown is not None:
            tls = replace(tls, cert_file=shown.cert_file, key_file=shown.key_file)
        return replace(super().settings, tls=tls, credentials=ADMIN)

    @property
    def options(self) -> dict[str, str]:
        """`settings` as options of Spark, but for the keys."""
        return {
            "nameServer": self.name_server,
            "tls": "true",
            "tls.caFile": self.authority.ca_file,
            "tls.certFile": self._client.cert_file,
            "tls.keyFile": self._client.key_file,
        }
