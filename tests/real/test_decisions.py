"""The decisions of `support.decisions`, asked of a real 5.3.3 that knows the same accounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from rocketmq_wire.errors import BrokerError, NotAuthorizedError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.groups import PutGroup
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.signing import Credentials
from support.accounts import GROUP, MEMBER, NOBODY, TOPIC
from support.decisions import KINDS, NEEDS, is_allowed, request_about
from support.real_cluster import RealCluster
from support.remoting_peer import RemotingPeer
from support.secured_cluster import ADMIN, add_guarded_broker, grant

SIDES: Final = ((TOPIC, GROUP), ("secret", GROUP), (TOPIC, "others"), ("secret", "others"))
TO_CLIENTS: Final = {"CheckTransaction", "GetClientOffsets", "NotifyMembersChanged", "ResetOffsets"}
ASKED: Final = sorted(
    name
    for name, kind in KINDS.items()
    if not kind.to_name_server and name not in {*TO_CLIENTS, "SendRecords"}
)


UNGUARDED: Final = {
    *("AckMessages", "ChangeBrokerSettings", "CheckSubscription", "CleanConsumeQueues"),
    *("PutGroup", "QueryAssignment", "SetConsumeMode"),
}
"""Requests for which 5.3.3 asks for no right, and the bundled broker does."""


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Credentials, RemotingPeer]]:
    cluster = RealCluster("5.3.3", tmp_path_factory.mktemp("decisions"), is_brief=True)
    try:
        cluster.start_name_server()
        node = add_guarded_broker(cluster)
        grant(cluster, MEMBER, f"Topic:{TOPIC}", "Pub,Sub,Get")
        grant(cluster, MEMBER, f"Group:{GROUP}", "Sub,Get", is_new=False)
        grant(cluster, NOBODY, "Topic:nothing", "Pub")
        accounts = (ADMIN, MEMBER, NOBODY)
        peers = {one: RemotingPeer(f"{node.host}:{node.port}", credentials=one) for one in accounts}
        for topic in (TOPIC, "secret"):
            peers[ADMIN].call(CreateTopic(TopicConfig(topic, 1, 1)))
        for group in (GROUP, "others"):
            peers[ADMIN].call(PutGroup({"groupName": group}))
        yield peers
        for peer in peers.values():
            peer.socket.close()
    finally:
        cluster.close()


@pytest.mark.parametrize("name", ASKED)
def test_a_real_broker_decides_as_the_table_says(
    peers: dict[Credentials, RemotingPeer], name: str
) -> None:
    needs = "-" if name in UNGUARDED else NEEDS[name]
    for account in (MEMBER, NOBODY):
        for topic, group in SIDES:
            is_refused = False
            try:
                peers[account].call(request_about(name, topic, group))
            except NotAuthorizedError:
                is_refused = True
            except BrokerError:
                pass
            expected = is_allowed("auth_file", account, needs, topic, group)
            assert is_refused is not expected, (account.access_key, topic, group)
