"""The decision about every call of the public service, and the account that a session belongs to.

The calls are asked by a member of one group and by an account without rights, about their own names
and about another's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import grpc
import pytest

from rocketmq_broker import Broker
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import put_duration
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.requests.groups import ListGroupClients, PutGroup
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.signing import Credentials, sign_call
from rocketmq_wire.stubs import public
from support.accounts import ADMIN, GROUP, MEMBER, NOBODY, SCHEMES, TOPIC, guarded_config
from support.public_peer import PublicPeer, outgoing, queue_of, resource
from support.remoting_peer import RemotingPeer

SIDES: Final = ((TOPIC, GROUP), ("secret", GROUP), (TOPIC, "others"), ("secret", "others"))
NOW_MS: Final = time.time_ns() // 1_000_000
REFUSED: Final = (PublicCode.UNAUTHORIZED, PublicCode.FORBIDDEN)


def handle_at(position: int) -> str:
    later = ReceiptHandle(0, NOW_MS, 3_600_000, 0, RetryKind.NONE, "broker-a", 0, 0, position)
    return later.text()


def _soon() -> Any:
    request = public.message_class("ChangeInvisibleDurationRequest")()
    put_duration(request.invisible_duration, 10_000)
    return request.invisible_duration


# T, G: a right to the topic, to the group; lower case: with acl_file every signed account may look.
CALLS: Final[dict[str, tuple[str, Callable[[str, str], dict[str, Any]]]]] = {
    "QueryRoute": ("-", lambda topic, _: {"topic": resource(topic)}),
    "QueryAssignment": (
        "TG",
        lambda topic, group: {"topic": resource(topic), "group": resource(group)},
    ),
    "NotifyClientTermination": ("G", lambda _, group: {"group": resource(group)}),
    "SendMessage": ("T", lambda topic, _: {"messages": [outgoing(topic)]}),
    "EndTransaction": (
        "T",
        lambda topic, _: {"topic": resource(topic), "transaction_id": "x", "resolution": 2},
    ),
    "RecallMessage": ("T", lambda topic, _: {"topic": resource(topic), "recall_handle": "x"}),
    "AckMessage": (
        "TG",
        lambda topic, group: {
            "topic": resource(topic),
            "group": resource(group),
            "entries": [{"receipt_handle": handle_at(0)}],
        },
    ),
    "ChangeInvisibleDuration": (
        "TG",
        lambda topic, group: {
            "topic": resource(topic),
            "group": resource(group),
            "receipt_handle": handle_at(0),
            "invisible_duration": _soon(),
        },
    ),
    "ReceiveMessage": (
        "TG",
        lambda topic, group: {
            "message_queue": queue_of(topic, -1),
            "group": resource(group),
            "invisible_duration": _soon(),
        },
    ),
    "PullMessage": (
        "TG",
        lambda topic, group: {"message_queue": queue_of(topic, 0), "group": resource(group)},
    ),
    "UpdateOffset": (
        "TG",
        lambda topic, group: {"message_queue": queue_of(topic, 0), "group": resource(group)},
    ),
    "GetOffset": (
        "tg",
        lambda topic, group: {"message_queue": queue_of(topic, 0), "group": resource(group)},
    ),
    "QueryOffset": ("t", lambda topic, _: {"message_queue": queue_of(topic, 0)}),
}
ELSEWHERE: Final = {
    "ForwardMessageToDeadLetterQueue",
    "Heartbeat",
    "SyncLiteSubscription",
    "Telemetry",
}
"""Calls with tests of their own, and one that is always refused."""


class Guarded(NamedTuple):
    scheme: str
    broker: Broker
    positions: dict[str, int]
    """The log position of a message in each topic."""

    def peer(self, account: Credentials, client_id: str = "client@1") -> PublicPeer:
        metadata = dict(sign_call(account, "20240102T030405Z"))
        return PublicPeer(str(self.broker.endpoints), client_id, **metadata)


@pytest.fixture(scope="module", params=SCHEMES)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    config = guarded_config(request.param, tmp_path_factory.mktemp("accounts"))
    with (
        Broker(config) as broker,
        RemotingPeer(broker.name_server, credentials=ADMIN) as admin,
    ):
        positions = {}
        for topic in (TOPIC, "secret"):
            admin.call(CreateTopic(TopicConfig(topic, 1, 1)))
            sent = admin.call(SendMessage("p", QueueId(topic, "", 0), 0, b"body"))
            positions[topic] = parse_offset_message_id(sent.message_id)[1]
        for group in (GROUP, "others"):
            admin.call(PutGroup({"groupName": group}))
        yield Guarded(request.param, broker, positions)


def is_allowed(scheme: str, account: Credentials, needs: str, topic: str, group: str) -> bool:
    if needs == "-" or (needs.islower() and scheme == "acl_file"):
        return True
    may_topic = topic == TOPIC or "T" not in needs.upper()
    return account == MEMBER and may_topic and (group == GROUP or "G" not in needs.upper())


def code_of(reply: Any) -> int:
    """The status of a reply, of its first frame, or of the one entry in it."""
    first = reply[0] if isinstance(reply, list) else reply
    entries: Any = getattr(first, "entries", ())
    return int((entries[0] if len(entries) else first).status.code)


def test_every_call_has_a_decision() -> None:
    proto = public.message_class("SendMessageRequest").DESCRIPTOR.file
    services: Any = proto.services_by_name
    (service,) = services.values()
    assert {method.name for method in service.methods} == CALLS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_account_may_do_what_its_rights_cover(guarded: Guarded, name: str) -> None:
    needs, fields = CALLS[name]
    for account in (MEMBER, NOBODY):
        with guarded.peer(account, f"{name}@1") as peer:
            if name == "ReceiveMessage":
                # A receive needs a session, which a producer of no topic gets without a right.
                assert peer.be_producer().status.code == PublicCode.OK
            for topic, group in SIDES:
                is_refused = code_of(peer.call(name, **fields(topic, group))) in REFUSED
                expected = is_allowed(guarded.scheme, account, needs, topic, group)
                assert is_refused is not expected, (account.access_key, topic, group)


def test_telemetry_takes_the_rights_to_all_that_it_names(guarded: Guarded) -> None:
    for number, (topic, group) in enumerate(SIDES):
        for account in (MEMBER, NOBODY):
            with guarded.peer(account, f"consumer@{number}") as peer:
                is_refused = peer.be_consumer(group, topic).status.code in REFUSED
                assert is_refused is not is_allowed(guarded.scheme, account, "TG", topic, group)
            with guarded.peer(account, f"producer@{number}") as peer:
                is_refused = peer.be_producer(topic).status.code in REFUSED
                assert is_refused is not is_allowed(guarded.scheme, account, "T", topic, group)


def test_a_handle_makes_a_dead_letter_of_a_message_in_the_own_topics_only(guarded: Guarded) -> None:
    def forward(account: Credentials, position: int) -> int:
        with guarded.peer(account) as peer:
            names = {"topic": resource(TOPIC), "group": resource(GROUP)}
            call = "ForwardMessageToDeadLetterQueue"
            return code_of(peer.call(call, receipt_handle=handle_at(position), **names))

    for topic, position in guarded.positions.items():
        assert forward(NOBODY, position) in REFUSED
        assert (forward(MEMBER, position) in REFUSED) is (topic == "secret")


def test_a_session_belongs_to_the_account_that_opened_it(guarded: Guarded) -> None:
    with guarded.peer(MEMBER, "victim@1") as victim, guarded.peer(NOBODY, "victim@1") as stranger:
        assert victim.be_consumer(GROUP, TOPIC).status.code == PublicCode.OK
        # The same id: the stranger gets a session of its own, and ends none but that.
        assert stranger.be_producer().status.code == PublicCode.OK
        assert code_of(stranger.call("Heartbeat")) == PublicCode.OK
        assert code_of(stranger.call("NotifyClientTermination")) == PublicCode.OK
        assert stranger.hear() is None
        assert code_of(victim.call("Heartbeat")) == PublicCode.OK
        victim.say(settings=_settings())
        assert victim.hear().status.code == PublicCode.OK
        with RemotingPeer(guarded.broker.name_server, credentials=ADMIN) as admin:
            assert admin.call(ListGroupClients(GROUP)).client_ids == ("victim@1",)
            assert code_of(victim.call("NotifyClientTermination")) == PublicCode.OK
            assert admin.call(ListGroupClients(GROUP)).client_ids == ()


def _settings() -> Any:
    settings = public.message_class("Settings")(client_type=3)
    settings.subscription.group.name = GROUP
    return settings


def test_an_account_that_was_not_identified_is_refused_everywhere(guarded: Guarded) -> None:
    with PublicPeer(str(guarded.broker.endpoints)) as peer:
        for name, (_, fields) in CALLS.items():
            try:
                code = code_of(peer.call(name, **fields(TOPIC, GROUP)))
            except grpc.RpcError:
                pytest.fail(f"{name} has no answer")
            assert code == PublicCode.UNAUTHORIZED, name
