"""The broker over TCP: answers, long polling, limits, and peers that misbehave."""

from __future__ import annotations

import socket
import struct

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_wire.codes import BROKER_VERSION
from rocketmq_wire.errors import BrokerError, TopicNotFoundError, UnsupportedRequestError
from rocketmq_wire.model import ConsumerInfo, QueueId, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.remoting.frames import Frame, FrameDecoder
from rocketmq_wire.remoting.headers import Header, HeaderCodec
from rocketmq_wire.requests.groups import Heartbeat, ListGroupClients
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendBatch,
    SendMessage,
    SendReply,
)
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset, GetMaxOffset
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic, GetRoute
from support.remoting_peer import RemotingPeer
from support.remoting_sessions import encode_frame
from support.storage_blocks import bodies_of

ORDERS_0 = QueueId("orders", "broker-a", 0)
KIB = 1024


def serve(**settings):
    return Broker(config_from({"flush": "memory", "grpc": False, **settings}))


@pytest.fixture
def broker():
    with serve() as broker:
        yield broker


@pytest.fixture
def peer(broker):
    with RemotingPeer(broker.name_server) as peer:
        peer.call(CreateTopic(TopicConfig("orders", 2, 2)))
        yield peer


def send(body, queue=ORDERS_0):
    return SendMessage("p", queue, 1, body)


def pull(start=0, count_max=1_000, **more):
    return PullMessages("g", ORDERS_0, start, count_max, **more)


def exchange(broker, data):
    """Write bytes, return the first frame that comes back."""
    host, _, port = broker.name_server.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        decoder = FrameDecoder()
        while (frame := decoder.next_frame()) is None:
            size = connection.recv_into(decoder.next_buffer())
            assert size, "the broker closed the connection"
            decoder.received(size)
        return frame


class TestAnswers:
    def test_what_is_sent_can_be_pulled(self, peer):
        assert peer.call(send(b"one")).start == 0
        batch = encode_batch([BatchEntry(0, body, b"") for body in (b"two", b"three")])
        assert peer.call(SendBatch("p", ORDERS_0, 1, batch)).count >= 1
        reply = peer.call(pull())
        assert bodies_of([memoryview(part) for part in reply.records]) == [b"one", b"two", b"three"]
        assert (reply.status, reply.next_begin, reply.start, reply.end) == (
            PullStatus.FOUND,
            3,
            0,
            3,
        )

    def test_route_names_the_port_it_was_asked_at(self, peer, broker):
        route = peer.call(GetRoute("orders")).route
        assert [queue.index for queue in route.readable_queues("orders")] == [0, 1]
        assert [dict(entry.addresses) for entry in route.brokers] == [{0: broker.name_server}]

    def test_refusal_carries_its_code(self, peer):
        with pytest.raises(TopicNotFoundError, match="No topic route info"):
            peer.call(GetRoute("absent"))

    def test_answer_says_what_the_broker_is(self, broker):
        frame = exchange(broker, encode_frame(Frame(Header(206, opaque=77))))
        assert (frame.header.opaque, frame.header.flag) == (77, 1)
        assert frame.header.version == BROKER_VERSION

    @pytest.mark.parametrize("code", [0, -1, 43, 999, 200_049, 2**31 - 1])
    def test_unknown_code_is_answered_with_3(self, broker, code):
        frame = exchange(broker, encode_frame(Frame(Header(code, opaque=5))))
        assert (frame.header.code, frame.header.opaque) == (3, 5)

    def test_request_that_lacks_a_field_is_answered_with_1(self, broker):
        frame = exchange(broker, encode_frame(Frame(Header(11, opaque=5))))
        assert (frame.header.code, frame.header.opaque) == (1, 5)

    def test_binary_headers_are_read(self, broker):
        request = Header(105, opaque=5, ext_fields={"topic": "absent"})
        frame = exchange(broker, encode_frame(Frame(request, codec=HeaderCodec.BINARY)))
        assert (frame.header.code, frame.header.opaque) == (17, 5)

    def test_oneway_is_carried_out_and_never_answered(self, peer):
        peer.start_oneway(send(b"one"))
        peer.start_oneway(GetRoute("absent"))
        # Were the two answered, this call would meet their answers first.
        assert peer.call(GetMaxOffset(ORDERS_0)).value == 1
        assert peer.session.late_count == 0

    def test_many_requests_at_once_are_all_answered(self, peer):
        opaques = [peer.start(send(b"%d" % number)) for number in range(500)]
        answered = [peer.next_completed() for _ in opaques]
        assert sorted(done.opaque for done in answered) == opaques
        assert sorted(done.result.start for done in answered) == list(range(500))

    def test_small_requests_written_at_once_behind_one_that_waits_are_all_answered(self, tmp_path):
        settings = {"flush": "sync", "data_dir": str(tmp_path), "requests_in_flight_max": 1}
        with serve(**settings) as broker, RemotingPeer(broker.name_server) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            slow = b"".join(peer.session.start(send(b"one"), now_ms=0, timeout_ms=1).parts)
            small = [
                encode_frame(Frame(Header(206, opaque=number), codec=HeaderCodec.BINARY))
                for number in range(1_000_000, 1_002_000)
            ]
            peer.socket.sendall(slow + b"".join(small))
            decoder = FrameDecoder()
            answered: list[int] = []
            while len(answered) < 1 + len(small):
                size = peer.socket.recv_into(decoder.next_buffer())
                assert size, "the broker closed the connection"
                decoder.received(size)
                while (frame := decoder.next_frame()) is not None:
                    answered.append(frame.header.opaque)
            assert answered[1:] == list(range(1_000_000, 1_002_000))


class TestLongPolling:
    def test_arrival_wakes_a_held_pull_and_other_requests_pass_it(self, peer, broker):
        held = peer.start(pull(suspend_ms=15_000))
        assert peer.call(GetMaxOffset(ORDERS_0)).value == 0
        with RemotingPeer(broker.name_server) as producer:
            producer.call(send(b"news"))
        done = peer.next_completed()
        assert done.opaque == held
        assert bodies_of([memoryview(part) for part in done.result.records]) == [b"news"]

    def test_wait_ends_in_time(self, peer):
        reply = peer.call(pull(suspend_ms=50))
        assert reply == PullReply(PullStatus.NO_NEW_MESSAGE, 0, 0, 0, remark="NO_MESSAGE_IN_QUEUE")

    def test_deletion_of_the_topic_ends_the_wait(self, peer, broker):
        peer.start(pull(suspend_ms=15_000))
        with RemotingPeer(broker.name_server) as admin:
            admin.call(DeleteTopic("orders"))
        assert peer.next_completed().result.code == 17

    def test_stop_of_the_broker_ends_the_wait(self):
        with serve() as broker, RemotingPeer(broker.name_server) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            peer.start(pull(suspend_ms=15_000))
            peer.call(GetMaxOffset(ORDERS_0))
            broker.stop()
            assert peer.next_reply(PullReply).status is PullStatus.NO_NEW_MESSAGE
            assert peer.is_closed_by_broker()

    def test_more_waiting_pulls_than_allowed_are_answered_at_once(self):
        with serve(held_pulls_max=1) as broker, RemotingPeer(broker.name_server) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            peer.start(pull(suspend_ms=15_000))
            second = peer.start(pull(suspend_ms=15_000))
            assert peer.next_completed().opaque == second

    def test_waiting_pulls_do_not_use_up_the_requests_of_a_connection(self):
        with serve(requests_in_flight_max=2) as broker, RemotingPeer(broker.name_server) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            for _ in range(5):
                peer.start(pull(suspend_ms=15_000))
            assert peer.call(GetMaxOffset(ORDERS_0)).value == 0


class TestGroups:
    def test_clients_are_listed_while_their_connection_lives(self, broker, peer):
        consumer = ConsumerInfo("g", "CONSUME_ACTIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        with RemotingPeer(broker.name_server) as other:
            other.call(Heartbeat("c2", (), (consumer,)))
            peer.call(Heartbeat("c1", (), (consumer,)))
            assert peer.call(ListGroupClients("g")).client_ids == ("c1", "c2")
            other.socket.shutdown(socket.SHUT_RDWR)
            assert other.is_closed_by_broker()
        for _ in range(1_000):
            # The broker learns of the closed connection on its own thread.
            if peer.call(ListGroupClients("g")).client_ids == ("c1",):
                break
        else:
            pytest.fail("the client of the closed connection is still listed")

    def test_members_are_notified_when_others_come_and_go(self, broker, peer):
        consumer = ConsumerInfo("g", "CONSUME_ACTIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
        peer.call(Heartbeat("c1", (), (consumer,)))
        assert peer.next_notices() == ["g"]
        with RemotingPeer(broker.name_server) as other:
            other.call(Heartbeat("c2", (), (consumer,)))
            assert other.next_notices() == ["g"]
            assert peer.next_notices() == ["g"]
            # Nothing changes: the next notice is that of the other's end.
            peer.call(Heartbeat("c1", (), (consumer,)))
            assert peer.session.take_notices() == []
        assert peer.next_notices() == ["g"]
        assert peer.call(ListGroupClients("g")).client_ids == ("c1",)

    def test_committed_offsets_outlive_connections(self, peer, broker):
        peer.call(pull())
        peer.call(CommitOffset("g", ORDERS_0, 5))
        with RemotingPeer(broker.name_server) as other:
            assert other.call(GetCommittedOffset("g", ORDERS_0)).value == 5


class TestBulk:
    def test_megabytes_arrive_whole_at_a_slow_reader(self, broker):
        with RemotingPeer(broker.name_server, receive_buffer_size=4 * KIB) as peer:
            peer.call(CreateTopic(TopicConfig("orders")))
            body = bytes(range(256)) * 512
            for _ in range(24):
                peer.call(send(body))
            opaques = [peer.start(pull()) for _ in range(4)]
            for _ in opaques:
                records = b"".join(peer.next_reply(PullReply).records)
                assert bodies_of([memoryview(records)]) == [body] * 24

    def test_reader_that_takes_nothing_is_read_from_no_more(self):
        """Its requests wait in its own socket, not as answers in the broker's memory."""
        with (
            serve(output_bytes_max=64 * KIB) as broker,
            RemotingPeer(broker.name_server, receive_buffer_size=4 * KIB) as peer,
        ):
            peer.call(CreateTopic(TopicConfig("orders")))
            for _ in range(8):
                peer.call(send(b"x" * 500_000))
            request = b"".join(peer.session.start(pull(), now_ms=0, timeout_ms=1).parts)
            peer.socket.settimeout(0.5)
            with pytest.raises(TimeoutError):
                # Far more than socket buffers hold: one side stopped reading.
                peer.socket.sendall(request * 100_000)

    def test_readers_that_go_away_in_the_middle_leave_no_line_in_the_log(self, caplog):
        with serve() as broker:
            with RemotingPeer(broker.name_server) as peer:
                peer.call(CreateTopic(TopicConfig("orders")))
                for _ in range(24):
                    peer.call(send(b"x" * 500_000))
            for round_number in range(0, 40, 4):
                with RemotingPeer(broker.name_server, receive_buffer_size=4 * KIB) as reader:
                    for _ in range(8):
                        reader.start(pull())
                    for _ in range(round_number):
                        reader.socket.recv(64 * KIB)
                    # The socket is reset when it is closed, as that of a killed process.
                    reader.socket.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
            with RemotingPeer(broker.name_server) as peer:
                assert peer.call(GetMaxOffset(ORDERS_0)).value == 24
        assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


class TestHostileBytes:
    @pytest.mark.parametrize(
        "data",
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            struct.pack(">iI", 2**31 - 1, 0),
            struct.pack(">iI", -1, 0),
            struct.pack(">iI", 3, 0),
            struct.pack(">iI", 100, 7 << 24 | 10),
            struct.pack(">iI", 100, 200),
            struct.pack(">iI", 14, 10) + b"no json at",
            bytes(64),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        ],
    )
    def test_bytes_that_are_no_frames_close_only_their_connection(self, broker, peer, data):
        with RemotingPeer(broker.name_server) as hostile:
            hostile.socket.sendall(data)
            assert hostile.is_closed_by_broker()
        assert peer.call(GetMaxOffset(ORDERS_0)).value == 0

    def test_frame_over_the_limit_is_refused_before_its_body_comes(self):
        with serve(frame_bytes_max=KIB) as broker, RemotingPeer(broker.name_server) as hostile:
            hostile.socket.sendall(struct.pack(">iI", KIB, 10))
            assert hostile.is_closed_by_broker()

    def test_good_requests_before_bad_bytes_are_still_carried_out(self, broker, peer):
        with RemotingPeer(broker.name_server) as hostile:
            parts = hostile.session.start_oneway(send(b"good"))
            hostile.write([*parts, b"bad bytes that are no frame"])
            assert hostile.is_closed_by_broker()
        assert peer.call(GetMaxOffset(ORDERS_0)).value == 1

    def test_connections_over_the_limit_are_closed(self):
        with serve(connections_max=1) as broker, RemotingPeer(broker.name_server) as first:
            first.call(CreateTopic(TopicConfig("orders")))
            with RemotingPeer(broker.name_server) as second:
                assert second.is_closed_by_broker()
            assert first.call(GetMaxOffset(ORDERS_0)).value == 0


class TestNameServerApart:
    def test_each_port_takes_its_own_requests(self):
        with serve(name_server_apart=True) as broker:
            with RemotingPeer(broker.name_server) as name_server:
                with pytest.raises(UnsupportedRequestError):
                    name_server.call(CreateTopic(TopicConfig("orders")))
                route = name_server.call(GetRoute("TBW102")).route
            address = route.brokers[0].addresses[0]
            assert address != broker.name_server
            with RemotingPeer(address) as peer:
                peer.call(CreateTopic(TopicConfig("orders")))
                with pytest.raises(BrokerError, match="not supported by the broker"):
                    peer.call(GetRoute("orders"))
                assert isinstance(peer.call(send(b"one")), SendReply)


def test_idle_connection_is_closed_unless_a_pull_waits_for_it():
    with (
        serve(idle_seconds=1) as broker,
        RemotingPeer(broker.name_server) as waiting,
        RemotingPeer(broker.name_server) as idle,
    ):
        waiting.call(CreateTopic(TopicConfig("orders")))
        waiting.start(pull(suspend_ms=2_500))
        assert idle.is_closed_by_broker()
        assert waiting.next_reply(PullReply).status is PullStatus.NO_NEW_MESSAGE


def test_wildcard_broker_advertises_the_address_the_client_used():
    with serve(host="0.0.0.0") as broker:
        port = broker.name_server.rpartition(":")[2]
        with RemotingPeer(f"127.0.0.1:{port}") as peer:
            route = peer.call(GetRoute("TBW102")).route
        assert dict(route.brokers[0].addresses) == {0: f"127.0.0.1:{port}"}
