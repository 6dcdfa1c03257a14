"""The decision about every request class, for accounts with and without rights to its names.

Both kinds of access control are asked over remoting and over the bulk service; the public service
has its own module. The table follows RocketMQ 4.9 and 5.3 where docs/security.md names no
difference.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import grpc
import pytest

from rocketmq_arrow.decode.layout import PHYSICAL_OFFSET_AT
from rocketmq_broker import Broker
from rocketmq_wire.errors import BrokerError, NotAuthorizedError
from rocketmq_wire.grpc.bulk.mapping import (
    METHODS,
    PULL_RECORDS_PATH,
    SEND_RECORDS_STREAM_PATH,
    error_from_metadata,
    method_of,
)
from rocketmq_wire.grpc.bulk.records import (
    PULL_RECORDS,
    SEND_RECORDS,
    PullRange,
    PullRecords,
    decode_chunk,
    decode_send_outcome,
)
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import QueueId, Subscription, TopicConfig
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.contract import Request
from rocketmq_wire.requests.groups import Heartbeat, PutGroup
from rocketmq_wire.requests.members import ConsumeDirectly
from rocketmq_wire.requests.messages import (
    QueryMessages,
    SendBack,
    SendMessage,
    SendRecords,
    ViewMessage,
)
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.requests.transactions import EndTransaction, Resolution
from rocketmq_wire.signing import Credentials, sign_call
from support.accounts import ADMIN, GROUP, MEMBER, NOBODY, SCHEMES, TOPIC, guarded_config
from support.decisions import KINDS, NEEDS, SIDES, consumer_of, is_allowed, request_about
from support.remoting_peer import RemotingPeer


class Guarded(NamedTuple):
    scheme: str
    broker: Broker
    peers: dict[Credentials | None, RemotingPeer]

    def refuses(self, request: Request[Any], account: Credentials | None) -> bool:
        """True if the account lacks a right; any other answer means that it has all of them."""
        try:
            self.peers[account].call(request)
        except NotAuthorizedError:
            return True
        except BrokerError:
            pass
        return False


@pytest.fixture(scope="module", params=SCHEMES)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    config = guarded_config(request.param, tmp_path_factory.mktemp("accounts"))
    with Broker(config) as broker:
        accounts = (ADMIN, MEMBER, NOBODY, None)
        peers = {one: RemotingPeer(broker.name_server, credentials=one) for one in accounts}
        for topic in (TOPIC, "secret"):
            peers[ADMIN].call(CreateTopic(TopicConfig(topic, 1, 1)))
        for group in (GROUP, "others"):
            peers[ADMIN].call(PutGroup({"groupName": group}))
        yield Guarded(request.param, broker, peers)
        for peer in peers.values():
            peer.socket.close()


def test_every_request_class_has_a_decision() -> None:
    assert NEEDS.keys() == KINDS.keys()


@pytest.mark.parametrize("name", sorted(NEEDS.keys() - {"SendRecords"}))
def test_every_account_may_do_over_remoting_what_its_rights_cover(
    guarded: Guarded, name: str
) -> None:
    needs = NEEDS[name]
    for account in (MEMBER, NOBODY):
        for topic, group in SIDES:
            refused = guarded.refuses(request_about(name, topic, group), account)
            expected = is_allowed(guarded.scheme, account, needs, topic, group)
            assert refused is not expected, (account.access_key, topic, group)
    assert not guarded.refuses(request_about(name, "spare", "sparegroup"), ADMIN)
    is_free = KINDS[name].to_name_server and needs == "-"
    assert guarded.refuses(request_about(name, TOPIC, GROUP), None) is not is_free


BULK: Final = sorted({kind.__name__ for method in METHODS for kind in method.request_types})


def _bulk_refuses(channel: Any, request: Request[Any], account: Credentials) -> bool:
    metadata = tuple(sign_call(account, "20240102T030405Z"))
    method = method_of(request)
    outcome: Any
    try:
        content = channel.unary_unary(method.path)(
            method.encode([request]), metadata=metadata, timeout=10
        )
        (outcome,) = method.decode_outcomes([request], content)
    except grpc.RpcError as error:
        answered: Any = error
        outcome = error_from_metadata(answered.trailing_metadata())
    return isinstance(outcome, NotAuthorizedError)


def test_every_account_may_do_over_the_bulk_service_what_its_rights_cover(guarded: Guarded) -> None:
    with grpc.insecure_channel(guarded.broker.endpoints) as channel:
        for name in BULK:
            for account in (MEMBER, NOBODY):
                for topic, group in SIDES:
                    request = request_about(name, topic, group)
                    refused = _bulk_refuses(channel, request, account)
                    expected = is_allowed(guarded.scheme, account, NEEDS[name], topic, group)
                    assert refused is not expected, (name, account.access_key, topic, group)
            assert not _bulk_refuses(channel, request_about(name, "spare", "sparegroup"), ADMIN)


def test_the_streams_of_the_bulk_service_ask_for_the_same_rights(guarded: Guarded) -> None:
    opened: Any = grpc.insecure_channel(guarded.broker.endpoints)
    with opened as channel:
        pulls = channel.unary_stream(PULL_RECORDS_PATH)
        sends = channel.stream_stream(SEND_RECORDS_STREAM_PATH)
        for account in (MEMBER, NOBODY):
            metadata = tuple(sign_call(account, "20240102T030405Z"))
            for topic, group in SIDES:
                ranges = (PullRange(QueueId(topic, "broker-a", 0), 0),)
                wanted = PULL_RECORDS.encode(PullRecords(group, ranges, Subscription()))
                pulled = decode_chunk(next(iter(pulls(wanted, metadata=metadata, timeout=10))))
                expected = is_allowed(guarded.scheme, account, "TG", topic, group)
                assert isinstance(pulled.error, NotAuthorizedError) is not expected
                batch = SEND_RECORDS.encode(
                    SendRecords(group, QueueId(topic, "broker-a", 0), b"records")
                )
                answers = sends(iter([batch]), metadata=metadata, timeout=10)
                expected = is_allowed(guarded.scheme, account, "T", topic, group)
                sent = decode_send_outcome(next(answers))
                assert isinstance(sent, NotAuthorizedError) is not expected


# --- messages that are reached by position, id, key or transaction --------------------------------


class Stored(NamedTuple):
    position: int
    message_id: str


def _store(peer: RemotingPeer, topic: str, body: bytes = b"body", **properties: str) -> Stored:
    encoded = encode_properties({"KEYS": "invoice", **properties})
    sent = peer.call(SendMessage("producers", QueueId(topic, "", 0), 0, body, encoded))
    return Stored(parse_offset_message_id(sent.message_id)[1], sent.message_id)


def test_a_message_that_is_reached_by_its_position_takes_the_right_to_its_own_topic(
    guarded: Guarded,
) -> None:
    own, others = (_store(guarded.peers[ADMIN], topic) for topic in (TOPIC, "secret"))
    retried = _store(guarded.peers[ADMIN], "%RETRY%mygroup")
    guarded.peers[MEMBER].call(Heartbeat("m@1", (), (consumer_of(TOPIC, GROUP),)))
    for stored, is_refused in ((own, False), (retried, False), (others, True)):
        for asked in (
            SendBack(GROUP, stored.position),
            SendBack(GROUP, stored.position, -1, topic=TOPIC),
            ConsumeDirectly(GROUP, "nobody@1", stored.message_id, "", b""),
            ViewMessage(stored.position),
            ViewMessage(stored.position, TOPIC),
        ):
            assert guarded.refuses(asked, MEMBER) is is_refused, asked
            assert guarded.refuses(asked, NOBODY), asked
            assert not guarded.refuses(asked, ADMIN), asked


def test_the_bytes_of_a_record_in_a_body_are_no_record(guarded: Guarded) -> None:
    member = guarded.peers[MEMBER]
    (inner,) = member.call(ViewMessage(_store(member, TOPIC).position)).records
    trial = _store(member, TOPIC, body=bytes(inner))
    (record,) = member.call(ViewMessage(trial.position)).records
    # The next record follows directly, and a record names its own position.
    position = trial.position + len(record) + bytes(record).index(bytes(inner))
    forged = bytearray(inner)
    struct.pack_into(">q", forged, PHYSICAL_OFFSET_AT, position)
    begin = position - trial.position - len(record)
    assert _store(member, TOPIC, body=bytes(forged)).position + begin == position
    for asked in (ViewMessage(position), SendBack(GROUP, position)):
        with pytest.raises(BrokerError, match="can not find message by the offset"):
            member.call(asked)


def _colliding_key(topic: str, hashed: str) -> str:
    """A key of which the index has, with the topic, the hash of another text."""
    left = (java_hash(hashed) - java_hash(f"{topic}#" + "!" * 7)) % 2**32
    digits = []
    for _ in range(7):
        left, digit = divmod(left, 31)
        digits.append(chr(ord("!") + digit))
    key = "".join(reversed(digits))
    assert java_hash(f"{topic}#{key}") == java_hash(hashed)
    return key


def test_a_key_with_the_hash_of_another_topics_key_finds_nothing(guarded: Guarded) -> None:
    _store(guarded.peers[ADMIN], "secret", KEYS="invoice-4711")
    asked = QueryMessages("secret", "invoice-4711", 32, 0, 2**62)
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        with suppress(BrokerError):
            assert guarded.peers[ADMIN].call(asked).records
            break
        time.sleep(0.05)
    key = _colliding_key(TOPIC, "secret#invoice-4711")
    with pytest.raises(BrokerError) as caught:
        guarded.peers[MEMBER].call(QueryMessages(TOPIC, key, 32, 0, 2**62))
    assert caught.value.code == 22


def test_a_half_message_is_ended_by_an_account_that_may_publish_to_its_topic(
    guarded: Guarded,
) -> None:
    for offset, topic in enumerate((TOPIC, "secret")):
        is_refused = topic == "secret"
        half = _store(guarded.peers[ADMIN], topic, TRAN_MSG="true", UNIQ_KEY=f"{topic}-1")
        for named in (TOPIC, ""):
            end = EndTransaction(
                "producers", offset, half.position, Resolution.ROLLBACK, topic=named
            )
            assert guarded.refuses(end, NOBODY)
            assert guarded.refuses(end, MEMBER) is is_refused
        by_id = EndTransaction(
            "producers", -1, -1, Resolution.ROLLBACK, transaction_id=f"{topic}-1", topic=TOPIC
        )
        assert guarded.refuses(by_id, MEMBER) is is_refused
        end = EndTransaction("producers", offset, half.position, Resolution.ROLLBACK, topic=topic)
        guarded.peers[ADMIN].call(end)
