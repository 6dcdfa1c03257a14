"""Rules of the public gRPC service: which messages it takes, which leases it renews."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.servers.public_grpc.lookup import GroupLookup, PublicLimits
from rocketmq_broker.servers.public_grpc.members import decided_settings
from rocketmq_broker.servers.public_grpc.renewals import Renewals
from rocketmq_broker.servers.public_grpc.sending import check_message
from rocketmq_broker.servers.public_grpc.sessions import Sessions
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import BrokerError, PublicRefusal
from rocketmq_wire.grpc.public.messages import (
    DELAY,
    FIFO,
    LITE,
    NORMAL,
    PRIORITY,
    TRANSACTION,
    outgoing_of,
    put_duration,
    put_timestamp,
    type_of,
)
from rocketmq_wire.grpc.public.status import code_of
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.requests.pop import InvisibleTimeReply
from rocketmq_wire.stubs import public
from support.public_peer import outgoing

ALL = (NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY)
NOW = 1_700_000_000_000


def code_for(message, accepted=ALL):
    """The code that refuses a message; OK if it is accepted."""
    try:
        check_message(message, accepted, now_ms=NOW)
    except PublicRefusal as error:
        return error.code
    return PublicCode.OK


class TestSendChecks:
    @pytest.mark.parametrize(
        ("system", "code"),
        [
            ({}, PublicCode.OK),
            ({"tag": "TagA"}, PublicCode.OK),
            ({"tag": " "}, PublicCode.ILLEGAL_MESSAGE_TAG),
            ({"tag": "a|b"}, PublicCode.ILLEGAL_MESSAGE_TAG),
            ({"tag": "a\n"}, PublicCode.ILLEGAL_MESSAGE_TAG),
            ({"keys": ["k", " "]}, PublicCode.ILLEGAL_MESSAGE_KEY),
            ({"keys": ["k\x01"]}, PublicCode.ILLEGAL_MESSAGE_KEY),
            ({"message_id": ""}, PublicCode.ILLEGAL_MESSAGE_ID),
            ({"message_group": " "}, PublicCode.ILLEGAL_MESSAGE_GROUP),
            ({"message_group": "g" * 64}, PublicCode.ILLEGAL_MESSAGE_GROUP),
            ({"message_group": "\x7f"}, PublicCode.ILLEGAL_MESSAGE_GROUP),
        ],
    )
    def test_names_are_checked(self, system, code):
        assert code_for(outgoing("t", **system)) == code

    @pytest.mark.parametrize(
        ("properties", "code"),
        [
            ({"n": "7"}, PublicCode.OK),
            ({str(number): "x" for number in range(128)}, PublicCode.OK),
            ({str(number): "x" for number in range(129)}, PublicCode.MESSAGE_PROPERTIES_TOO_LARGE),
            ({"n": "x" * 16_383}, PublicCode.OK),
            ({"n": "x" * 16_384}, PublicCode.MESSAGE_PROPERTIES_TOO_LARGE),
            ({"TAGS": "x"}, PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
            ({"POP_CK": "x"}, PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
            ({"a\x02": "x"}, PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
            ({"a": "x\x01"}, PublicCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ],
    )
    def test_properties_have_bounds(self, properties, code):
        message = outgoing("t")
        for name, value in properties.items():
            message.user_properties[name] = value
        assert code_for(message) == code

    @pytest.mark.parametrize(
        ("size", "code"),
        [
            (0, PublicCode.MESSAGE_BODY_EMPTY),
            (PublicLimits().body_size_max, PublicCode.OK),
            (PublicLimits().body_size_max + 1, PublicCode.MESSAGE_BODY_TOO_LARGE),
        ],
    )
    def test_bodies_have_bounds(self, size, code):
        assert code_for(outgoing("t", b"x" * size)) == code

    @pytest.mark.parametrize(
        ("kind", "system", "accepted", "code"),
        [
            (FIFO, {"message_group": "g"}, ALL, PublicCode.OK),
            (FIFO, {}, ALL, PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            (DELAY, {}, ALL, PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            (PRIORITY, {}, ALL, PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            (LITE, {"lite_topic": "l"}, ALL, PublicCode.NOT_IMPLEMENTED),
            (LITE, {}, ALL, PublicCode.NOT_IMPLEMENTED),
            (NORMAL, {"lite_topic": "l"}, ALL, PublicCode.NOT_IMPLEMENTED),
            (NORMAL, {}, (LITE,), PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            (PRIORITY, {"priority": 3}, ALL, PublicCode.OK),
            (NORMAL, {}, (FIFO,), PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            (
                TRANSACTION,
                {"message_group": "g"},
                ALL,
                PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            ),
            (0, {}, ALL, PublicCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ],
    )
    def test_a_message_is_what_it_says(self, kind, system, accepted, code):
        assert code_for(outgoing("t", b"x", kind, **system), accepted) == code

    @pytest.mark.parametrize(
        ("delay_ms", "code"),
        [
            (0, PublicCode.OK),
            (86_400_000, PublicCode.OK),
            (86_400_001, PublicCode.ILLEGAL_DELIVERY_TIME),
        ],
    )
    def test_times_of_delivery_have_bounds(self, delay_ms, code):
        message = outgoing("t", b"x", DELAY)
        put_timestamp(message.system_properties.delivery_timestamp, NOW + delay_ms)
        assert code_for(message) == code

    def test_checks_of_transactions_are_not_put_off_for_ever(self):
        message = outgoing("t", b"x", TRANSACTION)
        put_duration(message.system_properties.orphaned_transaction_recovery_duration, 3_600_001)
        assert code_for(message) == PublicCode.BAD_REQUEST


class TestMessages:
    def test_a_message_is_stored_with_the_properties_of_its_kind(self):
        message = outgoing("t", b"x", TRANSACTION, tag="A", keys=["k", "l"], message_id="M")
        put_duration(message.system_properties.orphaned_transaction_recovery_duration, 9_000)
        stored = outgoing_of(message, topic="t", now_ms=NOW)
        assert dict(stored.properties) == {
            "TAGS": "A",
            "KEYS": "k l",
            "UNIQ_KEY": "M",
            "TRAN_MSG": "true",
            "PGROUP": "t",
            "CHECK_IMMUNITY_TIME_IN_SECONDS": "9",
            "BORN_TIMESTAMP": str(NOW),
        }
        assert (stored.sys_flag, stored.born_ms) == (4, NOW)

    def test_gzip_is_known_by_the_flag(self):
        message = outgoing("t", b"x")
        message.system_properties.body_encoding = 2
        assert outgoing_of(message, topic="t", now_ms=NOW).sys_flag == 1

    @pytest.mark.parametrize(
        ("properties", "kind"),
        [
            ({}, NORMAL),
            ({"__SHARDINGKEY": "g"}, FIFO),
            ({"DELAY": "3"}, DELAY),
            ({"TIMER_DELIVER_MS": "3", "__SHARDINGKEY": "g"}, DELAY),
            ({"TRAN_MSG": "true", "DELAY": "3"}, TRANSACTION),
        ],
    )
    def test_a_kind_is_known_by_properties(self, properties, kind):
        assert type_of(properties) == kind

    @pytest.mark.parametrize(
        ("code", "public"),
        [(2, 42_900), (3, 50_100), (17, 40_402), (23, 40_010), (26, 40_403), (1, 50_001)],
    )
    def test_a_refusal_has_its_code(self, code, public):
        assert code_of(BrokerError(code, "why")) == public


class Renewing:
    """Grants every renewal, and keeps the requests."""

    def __init__(self, error=None):
        self.asked, self._error = [], error

    async def __call__(self, request):
        self.asked.append(request.invisible_ms)
        if self._error is not None:
            raise self._error
        return InvisibleTimeReply(self.now_ms, request.invisible_ms, 1)

    def turn(self, renewals, now_ms, *, is_online=True):
        self.now_ms = now_ms
        asyncio.run(renewals.renew_due(self, lambda _: is_online, now_ms))


@pytest.fixture
def leased():
    handle = ReceiptHandle(0, NOW, 60_000, 1, RetryKind.NONE, "broker-a", 0, 7, 4_711).text()
    renewals = Renewals()
    renewals.add("c", "g", "t", handle)
    return renewals, handle


class TestRenewals:
    def test_a_lease_is_renewed_before_it_ends_and_for_longer_each_time(self, leased):
        renewals, first = leased
        renewing = Renewing()
        renewing.turn(renewals, NOW + 49_000)
        assert renewing.asked == []
        for now_ms in (NOW + 50_000, NOW + 100_000, NOW + 280_000):
            renewing.turn(renewals, now_ms)
        assert renewing.asked == [60_000, 180_000, 300_000]
        current = ReceiptHandle.parse(asyncio.run(renewals.current("c", "g", first)))
        assert (current.pop_ms, current.offset, current.position) == (NOW + 280_000, 7, 4_711)

    def test_what_was_decided_is_not_renewed(self, leased):
        renewals, first = leased
        renewals.remove("c", "g", first)
        renewing = Renewing()
        renewing.turn(renewals, NOW + 50_000)
        assert renewing.asked == []
        assert asyncio.run(renewals.current("c", "g", first)) == first

    def test_a_client_that_is_gone_loses_its_leases(self, leased):
        renewals, _ = leased
        renewing = Renewing()
        renewing.turn(renewals, NOW + 50_000, is_online=False)
        assert (renewing.asked, len(renewals)) == ([], 0)

    def test_a_broker_that_refuses_is_asked_three_times(self, leased):
        renewals, _ = leased
        renewing = Renewing(BrokerError(1, "no"))
        for second in range(5):
            renewing.turn(renewals, NOW + 50_000 + second)
        assert (len(renewing.asked), len(renewals)) == (3, 0)

    def test_nothing_is_held_for_more_than_three_hours(self, leased):
        renewals, _ = leased
        renewing = Renewing()
        renewing.turn(renewals, NOW + 3 * 3_600_000)
        assert (renewing.asked, len(renewals)) == ([], 0)


class NoClients:
    def __init__(self):
        self.forgotten = []

    def listen(self, peer, *, on_members_changed, on_check, ask_client):
        pass

    def forget_peer(self, peer):
        self.forgotten.append(peer.key)


class NoGroups:
    broker_name, host = "broker-a", ""

    def topic(self, name):
        del name

    def group(self, name):
        del name
        return GroupLookup(is_fifo=True, attempts_max=17)


class TestSettings:
    def test_settings_that_are_too_large_to_keep_are_refused(self):
        settings = public.message_class("Settings")(client_type=3)
        settings.subscription.group.name = "g"
        assert decided_settings(settings, cast(Any, NoGroups())).subscription.fifo
        for number in range(10_000):
            settings.subscription.subscriptions.add().topic.name = f"topic-{number}"
        with pytest.raises(PublicRefusal, match="more than"):
            decided_settings(settings, cast(Any, NoGroups()))


def command_of(size):
    return public.message_class("TelemetryCommand")(
        recover_orphaned_transaction_command={"transaction_id": "x" * size}
    )


class TestSessions:
    @pytest.fixture
    def clock(self):
        return [0.0]

    @pytest.fixture
    def sessions(self, clock):
        return Sessions(
            cast(Any, NoClients()),
            expiry_seconds=9,
            time=lambda: clock[0],
            limits=PublicLimits(sessions_max=2, commands_max=3),
        )

    def put(self, sessions, client_id, topics=0):
        settings = public.message_class("Settings")(
            publishing={"topics": [{"name": "x" * 100}] * topics}
        )
        return sessions.put(client_id, Peer(1, "127.0.0.1", 4_711), settings)

    def test_clients_differ_by_their_ids_alone(self, sessions):
        first, second = self.put(sessions, "a"), self.put(sessions, "b")
        assert first.peer.key != second.peer.key
        assert self.put(sessions, "a").peer == first.peer

    def test_there_is_room_again_when_silent_ones_are_gone(self, sessions, clock):
        self.put(sessions, "a")
        clock[0] = 8
        self.put(sessions, "b")
        with pytest.raises(PublicRefusal):
            self.put(sessions, "c")
        clock[0] = 10
        self.put(sessions, "c")
        assert sessions.find("a") is None

    def test_a_client_that_does_not_read_is_hung_up(self, sessions):
        async def run():
            session = self.put(sessions, "a")
            commands = sessions.begin_stream(session)
            for _ in range(5):
                session.send(command_of(10))
            return [commands.get_nowait() for _ in range(commands.qsize())]

        assert asyncio.run(run())[0] is None

    def weighed(self, **limits):
        return Sessions(
            cast(Any, NoClients()),
            expiry_seconds=9,
            limits=PublicLimits(**limits),
            time=lambda: 0.0,
        )

    def test_unread_commands_are_weighed(self):
        async def run():
            sessions = self.weighed(commands_size_max=10_000)
            session = self.put(sessions, "a")
            commands = sessions.begin_stream(session)
            # One command may have any size, as one that carries a message.
            session.send(command_of(20_000))
            assert (await session.next_command(commands)).ByteSize() > 20_000
            for _ in range(9):
                session.send(command_of(1_000))
            assert (await session.next_command(commands)) is not None
            for _ in range(2):
                session.send(command_of(1_000))
            assert (await session.next_command(commands)) is None
            commands = sessions.begin_stream(session)
            session.send(command_of(9_000))
            assert commands.qsize() == 1

        asyncio.run(run())

    def test_the_memory_of_all_clients_has_a_limit(self):
        async def run():
            sessions = self.weighed(held_size_max=190_000)
            for client_id in ("a", "b", "c"):
                self.put(sessions, client_id, topics=150)
            for _ in range(5):
                self.put(sessions, "a", topics=150)
            with pytest.raises(PublicRefusal, match="too much memory"):
                self.put(sessions, "d", topics=150)
            session = self.put(sessions, "e")
            commands = sessions.begin_stream(session)
            session.send(command_of(60_000))
            assert commands.get_nowait() is None
            sessions.end_stream(session, commands)
            sessions.remove("a")
            self.put(sessions, "d", topics=150)

        asyncio.run(run())
