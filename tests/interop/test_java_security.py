"""Java's own signatures and TLS, and those of mqadmin, on the bundled broker: taken and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.brokers import CLUSTER, JAVA, our_broker
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings, TlsSettings
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.signing import Credentials
from support.certificates import Authority
from support.real_cluster import JavaError, run_admin, run_program

pytestmark = pytest.mark.timeout(600)

BROKER = "broker-a"
TOPIC = "guarded"
ADMIN = Credentials("AdminAdmin", "admin-secret")
WRITER, READER = "WriterWriter:writer-secret", "ReaderReader:reader-secret"
PLAIN = f"""
accounts:
  - accessKey: AdminAdmin
    secretKey: admin-secret
    admin: true
  - accessKey: WriterWriter
    secretKey: writer-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - {TOPIC}=PUB
  - accessKey: ReaderReader
    secretKey: reader-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - {TOPIC}=SUB
    groupPerms:
      - readers=SUB
"""


def _rights(user: str, *resources: str, actions: list[str]) -> dict[str, object]:
    entry = {"resource": resources, "actions": actions, "decision": "Allow"}
    return {"subject": f"User:{user}", "policies": [{"entries": [entry]}]}


USERS = json.dumps(
    {
        "users": [
            {"username": "AdminAdmin", "password": "admin-secret", "userType": "Super"},
            {"username": "WriterWriter", "password": "writer-secret"},
            {"username": "ReaderReader", "password": "reader-secret"},
        ],
        "acls": [
            _rights("WriterWriter", f"Topic:{TOPIC}", actions=["Pub"]),
            _rights("ReaderReader", f"Topic:{TOPIC}", "Group:readers", actions=["Sub"]),
        ],
    }
)
LONG = pytest.mark.long


@dataclass(frozen=True)
class Guarded:
    """A broker that takes TLS alone and asks who is there, and a Java version for it."""

    version: str
    name_server: str
    trusted: str
    """The authority's certificate."""

    def jvm(self, trusted: str | None = None) -> list[str]:
        """What a Java client must be started with to greet it."""
        settings = {
            "enable": "true",
            # Otherwise it takes whatever certificate it is shown.
            "test.mode.enable": "false",
            "client.authServer": "true",
            "client.trustCertPath": trusted or self.trusted,
        }
        return [f"-Dtls.{name}={text}" for name, text in settings.items()]

    def run(self, *scenarios: str, trusted: str | None = None) -> list[str]:
        """What each scenario came to."""
        arguments = (self.name_server, TOPIC, BROKER, *scenarios)
        program, jvm = JAVA / "Guarded.java", self.jvm(trusted)
        printed = run_program(self.version, program, *arguments, jvm=jvm, seconds=300)
        names = {scenario.partition(":")[0] for scenario in scenarios}
        pairs = (line.partition(": ") for line in printed.splitlines())
        return [said for name, _, said in pairs if name in names]

    def admin(self, *command: str, credentials: Credentials | None) -> str:
        """What mqadmin prints."""
        jvm = self.jvm()
        return run_admin(self.version, self.name_server, *command, credentials=credentials, jvm=jvm)


@pytest.fixture(
    scope="module",
    params=[
        ("5.3.3", "auth_file"),
        pytest.param(("4.9.7", "acl_file"), marks=LONG),
        pytest.param(("5.3.3", "acl_file"), marks=LONG),
        pytest.param(("4.9.7", "auth_file"), marks=LONG),
    ],
    ids="-".join,
)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    version, key = request.param
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder / "ca")
    pair = authority.issue()
    accounts = folder / "accounts"
    accounts.write_text(PLAIN if key == "acl_file" else USERS)
    settings = {
        key: str(accounts), "tls_mode": "enforcing",
        "tls_cert_file": pair.cert_file, "tls_key_file": pair.key_file,
    }  # fmt: skip
    with our_broker(folder / "ours", **settings) as broker:
        ours = ConnectionSettings(
            (broker.name_server,), credentials=ADMIN, tls=TlsSettings(authority.ca_file)
        )
        with open_cluster(ours) as cluster:
            cluster.create_topic(TopicConfig(TOPIC, 1, 1))
            yield Guarded(version, broker.name_server, authority.ca_file)
            # What Java consumed has Java's progress.
            queue = QueueId(TOPIC, BROKER, 0)
            assert cluster.committed_offsets("readers", [queue]) == {queue: 8}


def test_java_clients_with_rights_send_and_consume_and_others_are_refused(guarded: Guarded) -> None:
    said = guarded.run(
        *(f"send={WRITER}", f"pull={READER}", f"push={READER}"),
        *(f"send={READER}", f"pull={WRITER}"),
        *("send=WriterWriter:wrong-secret", "pull=NobodyKnown:reader-secret", "send=", "pull="),
    )
    assert said[:3] == ["[SEND_OK]", "8 messages", "8 messages"]
    assert len(said) == 9
    assert all(text.startswith("refused with ") for text in said[3:]), said
    assert "secret" not in " ".join(said)


def test_a_java_client_that_does_not_trust_the_broker_does_not_talk_to_it(
    guarded: Guarded, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    (said,) = guarded.run(f"send={WRITER}", trusted=stranger.ca_file)
    assert said.startswith("failed "), said


def test_mqadmin_signs_and_encrypts_and_is_refused_without_rights(guarded: Guarded) -> None:
    create = ("updateTopic", "-c", CLUSTER, "-t", "made", "-r", "2", "-w", "2")
    assert "success" in guarded.admin(*create, credentials=ADMIN)
    printed = guarded.admin("topicStatus", "-t", TOPIC, credentials=ADMIN)
    assert BROKER in printed
    for credentials in (Credentials("AdminAdmin", "wrong-secret"), None):
        with pytest.raises(JavaError, match="Exception"):
            guarded.admin(*create, credentials=credentials)
