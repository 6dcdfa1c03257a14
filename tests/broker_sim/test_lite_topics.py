"""Lite topics: each in its order, to the clients that want it, however many there are."""

from __future__ import annotations

import pytest

from rocketmq_broker_sim.engine import lite_subscriptions
from rocketmq_broker_sim.engine.lite_popping import MINUTE_MS
from rocketmq_broker_sim.engine.lite_subscriptions import EXPIRY_MS, LiteSubscriptions
from rocketmq_broker_sim.storage.errors import DamagedStoreError
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.lite_requests import LiteAction, LiteOffset, LiteStart, PopLite, SubscribeLite
from rocketmq_wire.lite_topics import light_queue, lite_topic_of, parent_of
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.permissions import CONSUME, Resources
from rocketmq_wire.pop_requests import AckMessage, ChangeInvisibleTime, change_of
from rocketmq_wire.properties import encode_properties
from rocketmq_wire.requests import (
    CreateTopic,
    DeleteTopic,
    GetMaxOffset,
    SendBatch,
    SendMessage,
    SendRecords,
)
from support.engines import EngineUnderTest, queue_of
from support.lite import (
    GROUP,
    PARENT,
    ack_lite,
    begin_lite,
    bind,
    bodies,
    is_held,
    pop_lite,
    queue_of_lite,
    request_of,
    send_lite,
    subscribe,
)
from support.storage_blocks import block_of


@pytest.fixture
def broker():
    broker = EngineUnderTest()
    begin_lite(broker)
    return broker


def refused(broker, request) -> int:
    with pytest.raises(BrokerError) as told:
        broker.ask(request)
    return told.value.code


def test_names_are_taken_apart():
    name = light_queue("chats", "a-1")
    assert name == "%LMQ%$chats$a-1"
    assert (parent_of(name), lite_topic_of(name)) == ("chats", "a-1")
    assert parent_of("orders") == "orders"


class TestWhatAClientGets:
    def test_what_it_wants_and_nothing_else(self, broker):
        send_lite(broker, "a", b"a0")
        send_lite(broker, "b", b"b0")
        send_lite(broker, "c", b"c0")
        subscribe(broker, "a", "c")
        assert sorted(bodies(pop_lite(broker))) == [b"a0", b"c0"]

    def test_nothing_before_it_wants_something(self, broker):
        send_lite(broker, "a", b"a0")
        assert pop_lite(broker) == []

    def test_a_lite_topic_in_the_order_of_its_messages_across_queues(self, broker):
        for number in range(6):
            send_lite(broker, "a", b"%d" % number, queue=number % 2)
        subscribe(broker, "a")
        popped = pop_lite(broker)
        assert bodies(popped) == [b"%d" % number for number in range(6)]
        assert [one.handle.offset for one in popped] == list(range(6))

    def test_messages_of_the_parent_stay_messages_of_the_parent(self, broker):
        send_lite(broker, "a", b"a0", queue=1)
        assert broker.ask(GetMaxOffset(queue_of(PARENT, 1))).value == 1

    def test_nothing_more_of_a_lite_topic_until_what_is_lent_is_settled(self, broker):
        send_lite(broker, "a", b"a0", b"a1")
        send_lite(broker, "b", b"b0")
        subscribe(broker, "a", "b")
        first = pop_lite(broker, count=1)
        assert bodies(first) == [b"a0"]
        assert bodies(pop_lite(broker)) == [b"b0"]
        assert pop_lite(broker) == []
        ack_lite(broker, *first)
        assert bodies(pop_lite(broker)) == [b"a1"]

    def test_what_is_not_acknowledged_comes_again_and_is_counted(self, broker):
        send_lite(broker, "a", b"a0")
        subscribe(broker, "a")
        assert bodies(pop_lite(broker, invisible_ms=1_000)) == [b"a0"]
        broker.now_ms += 1_001
        reply = broker.ask(request_of())
        assert reply.spans[0].attempts == (1,)

    def test_a_late_acknowledgement_skips_nothing(self, broker):
        send_lite(broker, "a", *(b"a%d" % number for number in range(4)))
        subscribe(broker, "a")
        late = pop_lite(broker, invisible_ms=1_000)
        assert len(late) == 4
        broker.now_ms += 1_001
        ack_lite(broker, *pop_lite(broker, count=1))
        ack_lite(broker, late[2])
        assert bodies(pop_lite(broker)) == [b"a1", b"a2", b"a3"]

    def test_a_late_acknowledgement_of_what_comes_next_counts(self, broker):
        send_lite(broker, "a", b"a0", b"a1", b"a2")
        subscribe(broker, "a")
        late = pop_lite(broker, invisible_ms=1_000)
        broker.now_ms += 1_001
        ack_lite(broker, *pop_lite(broker, count=1), late[1])
        assert bodies(pop_lite(broker)) == [b"a2"]

    def test_a_suspended_lite_topic_waits_whole_and_is_not_counted(self, broker):
        send_lite(broker, "a", b"a0", b"a1")
        subscribe(broker, "a")
        pop_lite(broker, invisible_ms=1_000)
        broker.now_ms += 1_001
        again = pop_lite(broker)
        handle = again[0].handle.text()
        name = queue_of_lite(again[0])
        broker.ask(change_of(GROUP, name, handle, 5_000, is_suspended=True))
        broker.now_ms += 4_999
        assert pop_lite(broker) == []
        broker.now_ms += 2
        assert broker.ask(request_of()).spans[0].attempts == (1, 1)

    def test_a_message_that_is_put_off_is_counted(self, broker):
        send_lite(broker, "a", b"a0")
        subscribe(broker, "a")
        (one,) = pop_lite(broker)
        broker.ask(change_of(GROUP, queue_of_lite(one), one.handle.text(), 2_000))
        broker.now_ms += 2_001
        assert broker.ask(request_of()).spans[0].attempts == (1,)

    def test_only_what_is_out_is_kept(self, broker):
        send_lite(broker, "a", b"a0", b"a1")
        subscribe(broker, "a")
        popped = pop_lite(broker)
        key = f"{light_queue(PARENT, 'a')}@{GROUP}"
        ack_lite(broker, popped[0])
        assert key in broker.engine.take_orders().content["table"]
        ack_lite(broker, popped[1])
        assert broker.engine.take_orders().content == {"table": {}}
        # One that comes twice changes nothing.
        ack_lite(broker, *popped)
        assert broker.engine.take_progress().content["offsetTable"] == {key: {"0": 2}}

    def test_groups_consume_for_themselves(self, broker):
        bind(broker, "others")
        send_lite(broker, "a", b"a0")
        subscribe(broker, "a")
        subscribe(broker, "a", client="two", group="others")
        assert bodies(pop_lite(broker)) == [b"a0"]
        assert bodies(pop_lite(broker, "two", group="others")) == [b"a0"]

    def test_members_share_a_lite_topic(self, broker):
        send_lite(broker, "a", b"a0", b"a1")
        subscribe(broker, "a")
        subscribe(broker, "a", client="two")
        first = pop_lite(broker, count=1)
        assert pop_lite(broker, "two") == []
        ack_lite(broker, *first)
        assert bodies(pop_lite(broker, "two")) == [b"a1"]

    def test_lite_topics_take_turns(self, broker):
        for name in "abc":
            send_lite(broker, name, *(b"%s%d" % (name.encode(), n) for n in range(3)))
        subscribe(broker, "a", "b", "c")
        seen = []
        for _ in range(9):
            (one,) = pop_lite(broker, count=1)
            seen.append(one.body)
            ack_lite(broker, one)
        assert [body[:1] for body in seen] == [b"a", b"b", b"c"] * 3

    def test_a_client_of_another_group_gets_nothing(self, broker):
        bind(broker, "others")
        send_lite(broker, "a", b"a0")
        subscribe(broker, "a")
        assert pop_lite(broker, group="others") == []

    def test_a_pop_waits_where_nothing_is_there(self, broker):
        subscribe(broker, "a")
        waiting = PopLite(GROUP, PARENT, "one", 1, 60_000, poll_ms=5_000)
        assert is_held(broker, waiting)
        send_lite(broker, "a", b"a0")
        assert not is_held(broker, waiting)


class TestWhatAClientWants:
    def test_a_whole_list_replaces_what_it_wanted(self, broker):
        for name in "abc":
            send_lite(broker, name, name.encode())
        subscribe(broker, "a", "b")
        subscribe(broker, "b", "c", action=LiteAction.REPLACE)
        assert sorted(bodies(pop_lite(broker))) == [b"b", b"c"]

    def test_what_it_gives_up_it_gets_no_more(self, broker):
        subscribe(broker, "a", "b")
        subscribe(broker, "a", action=LiteAction.REMOVE)
        send_lite(broker, "a", b"a0")
        send_lite(broker, "b", b"b0")
        assert bodies(pop_lite(broker)) == [b"b0"]

    def test_a_client_that_leaves_wants_nothing(self, broker):
        subscribe(broker, "a")
        subscribe(broker, action=LiteAction.FORGET)
        send_lite(broker, "a", b"a0")
        assert pop_lite(broker) == []

    def test_a_client_whose_connection_closed_wants_nothing(self, broker):
        subscribe(broker, "a")
        broker.engine.forget_peer(1)
        send_lite(broker, "a", b"a0")
        assert pop_lite(broker) == []

    def test_a_client_that_is_silent_is_forgotten(self, broker):
        subscribe(broker, "a")
        send_lite(broker, "a", b"a0")
        broker.now_ms += EXPIRY_MS
        broker.engine.expire_clients(broker.now_ms)
        assert broker.engine.pops.lite.subscriptions.count == 1
        broker.engine.expire_clients(broker.now_ms + 1)
        assert pop_lite(broker) == []

    @pytest.mark.parametrize(
        ("offset", "expected"),
        [
            (LiteOffset(LiteStart.OLDEST), [b"0", b"1", b"2", b"3"]),
            (LiteOffset(LiteStart.END), []),
            (LiteOffset(LiteStart.OFFSET, 3), [b"3"]),
            (LiteOffset(LiteStart.BACK, 2), [b"2", b"3"]),
            (LiteOffset(LiteStart.TIME, 2_000_000_000_000), []),
            (None, []),
        ],
    )
    def test_it_may_say_where_to_begin(self, broker, offset, expected):
        send_lite(broker, "a", b"0", b"1", b"2", b"3")
        subscribe(broker, "a")
        ack_lite(broker, *pop_lite(broker))
        subscribe(broker, "a", action=LiteAction.REMOVE)
        subscribe(broker, "a", offset=offset)
        assert bodies(pop_lite(broker)) == expected

    def test_it_may_begin_at_a_time(self, broker):
        send_lite(broker, "a", b"0")
        broker.now_ms += 10_000
        send_lite(broker, "a", b"1")
        subscribe(broker, "a", offset=LiteOffset(LiteStart.TIME, broker.now_ms - 5_000))
        assert bodies(pop_lite(broker)) == [b"1"]

    def test_a_move_frees_what_is_lent(self, broker):
        send_lite(broker, "a", b"0", b"1")
        subscribe(broker, "a")
        pop_lite(broker)
        subscribe(broker, "a", offset=LiteOffset(LiteStart.OFFSET, 1))
        assert bodies(pop_lite(broker)) == [b"1"]

    def test_too_many_at_once_are_refused(self, broker):
        bind(broker, GROUP, lite_sub_client_quota="2")
        names = tuple(f"n{number}" for number in range(303))
        add = SubscribeLite(GROUP, PARENT, "one", LiteAction.ADD, names)
        assert refused(broker, add) == 2018
        assert subscribe(broker, *names[:302]) == ()

    def test_all_clients_together_have_a_limit(self, broker):
        broker.engine.pops.lite.subscriptions = LiteSubscriptions(count_max=2)
        subscribe(broker, "a", "b")
        for action in (LiteAction.ADD, LiteAction.REPLACE):
            request = SubscribeLite(GROUP, PARENT, "two", action, ("c",))
            assert refused(broker, request) == 2018
        # Who wants other ones, and no more, is served.
        assert subscribe(broker, "c", "b", action=LiteAction.REPLACE) == ()
        assert lite_subscriptions.SUBSCRIPTIONS_MAX == 100_000

    def test_a_group_must_be_bound_to_the_parent(self, broker):
        broker.ask(CreateTopic(TopicConfig("other", 2, 2, attributes={"message.type": "LITE"})))
        broker.ask(CreateTopic(TopicConfig("plain", 2, 2)))
        for topic, code in (("other", 29), ("plain", 29), ("none", 17)):
            assert refused(broker, SubscribeLite(GROUP, topic, "one", LiteAction.ADD)) == code
            assert refused(broker, PopLite(GROUP, topic, "one", 1, 1_000)) == code


class TestExclusiveGroups:
    def test_whoever_asks_last_has_it(self, broker):
        bind(broker, GROUP, lite_sub_model="Exclusive")
        assert subscribe(broker, "a") == ()
        assert subscribe(broker, "a", client="two") == (("one", "a"),)
        send_lite(broker, "a", b"a0")
        assert pop_lite(broker) == []
        assert bodies(pop_lite(broker, "two")) == [b"a0"]

    def test_one_that_lost_it_and_does_not_know_is_told_again(self, broker):
        bind(broker, GROUP, lite_sub_model="Exclusive")
        subscribe(broker, "a")
        subscribe(broker, "a", client="two")
        lost = subscribe(broker, "a", "b", action=LiteAction.REPLACE)
        assert lost == (("one", "a"),)
        send_lite(broker, "a", b"a0")
        send_lite(broker, "b", b"b0")
        assert bodies(pop_lite(broker)) == [b"b0"]

    @pytest.mark.parametrize("again", [True, False])
    def test_it_may_begin_anew_for_the_next_one(self, broker, again):
        bind(
            broker,
            GROUP,
            lite_sub_model="Exclusive",
            lite_sub_reset_offset_exclusive=str(again).lower(),
        )
        send_lite(broker, "a", b"a0")
        subscribe(broker, "a")
        ack_lite(broker, *pop_lite(broker))
        subscribe(broker, "a", client="two")
        assert bodies(pop_lite(broker, "two")) == ([b"a0"] if again else [])

    @pytest.mark.parametrize("again", [True, False])
    def test_it_may_begin_anew_once_it_is_given_up(self, broker, again):
        bind(broker, GROUP, lite_sub_reset_offset_unsubscribe=str(again).lower())
        send_lite(broker, "a", b"a0")
        subscribe(broker, "a")
        ack_lite(broker, *pop_lite(broker))
        subscribe(broker, "a", action=LiteAction.REMOVE)
        subscribe(broker, "a")
        assert bodies(pop_lite(broker)) == ([b"a0"] if again else [])


class TestGroupsThatGetAll:
    def test_what_is_there_and_what_comes(self, broker):
        bind(broker, GROUP, lite_sub_wildcard="true")
        send_lite(broker, "a", b"a0")
        subscribe(broker, action=LiteAction.REPLACE)
        send_lite(broker, "b", b"b0")
        assert sorted(bodies(pop_lite(broker))) == [b"a0", b"b0"]

    def test_none_can_be_asked_for(self, broker):
        bind(broker, GROUP, lite_sub_wildcard="true")
        assert refused(broker, SubscribeLite(GROUP, PARENT, "one", LiteAction.ADD, ("a",))) == 604


class TestWhatIsRefused:
    def test_batches_and_laid_out_records_whose_properties_nobody_looks_at(self, broker):
        block = block_of(PARENT, b"x")
        records = SendRecords("g", queue_of(PARENT), bytes(block.buffer), block.sizes.tobytes())
        batch = SendBatch(PARENT, queue_of(PARENT), broker.now_ms, b"x" * 20)
        assert refused(broker, records) == 13
        assert refused(broker, batch) == 13

    @pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC"])
    def test_delayed_messages(self, broker, name):
        properties = encode_properties({name: "1", "__LITE_TOPIC": "a"})
        send = SendMessage(PARENT, queue_of(PARENT), broker.now_ms, b"x", properties)
        assert refused(broker, send) == 13

    @pytest.mark.parametrize("name", ["a b", "a$b", "x" * 65, "../x"])
    def test_names_that_are_none(self, broker, name):
        properties = encode_properties({"__LITE_TOPIC": name})
        send = SendMessage(PARENT, queue_of(PARENT), broker.now_ms, b"x", properties)
        assert refused(broker, send) == 13

    def test_more_lite_topics_than_there_may_be(self, broker):
        sending = broker.engine._sending
        limits = sending._limits
        sending._limits = type(limits)(
            limits.body_size_max, limits.waits_for_sync, light_queues_max=2
        )
        send_lite(broker, "a", b"a0")
        send_lite(broker, "b", b"b0")
        properties = encode_properties({"__LITE_TOPIC": "c"})
        send = SendMessage(PARENT, queue_of(PARENT), broker.now_ms, b"x", properties)
        assert refused(broker, send) == 2017
        send_lite(broker, "a", b"a1")

    def test_nobody_else_says_where_a_message_is_listed(self, broker):
        forged = {"INNER_MULTI_DISPATCH": light_queue(PARENT, "z"), "INNER_MULTI_QUEUE_OFFSET": "0"}
        broker.ask(CreateTopic(TopicConfig("plain", 1, 1)))
        place, text = queue_of("plain"), encode_properties(forged)
        broker.ask(SendMessage("plain", place, broker.now_ms, b"x", text))
        send_lite(broker, "a", b"a0", properties=forged)
        (plain,) = broker.messages(queue_of("plain"))
        (lite,) = broker.messages(queue_of(PARENT))
        assert not forged.keys() & plain.properties.keys()
        assert lite.properties["INNER_MULTI_DISPATCH"] == light_queue(PARENT, "a")


def expire(broker) -> list[str]:
    """The lite topics that are deleted for their age."""
    names = broker.engine.pops.lite.may_expire()
    return [lite_topic_of(name) for name in broker.engine.expire_lite_topics(names, broker.now_ms)]


class TestTheEndOfLiteTopics:
    def test_one_without_messages_for_long_is_gone(self, broker):
        config = TopicConfig(PARENT, 2, 2, attributes={"lite.topic.expiration": "20"})
        broker.ask(CreateTopic(config))
        send_lite(broker, "old", b"0", b"1")
        subscribe(broker, "old", "new")
        ack_lite(broker, *pop_lite(broker))
        broker.now_ms += 20 * MINUTE_MS
        send_lite(broker, "new", b"0")
        assert expire(broker) == []
        broker.now_ms += 1
        assert expire(broker) == ["old"]
        assert broker.store.light_queues() == [light_queue(PARENT, "new")]
        # It begins anew, for groups, too.
        send_lite(broker, "old", b"2")
        subscribe(broker, "old", "new")
        popped = pop_lite(broker)
        assert sorted((one.body, one.handle.offset) for one in popped) == [(b"0", 0), (b"2", 0)]

    def test_many_are_deleted_by_one_write(self, broker, monkeypatch):
        config = TopicConfig(PARENT, 2, 2, attributes={"lite.topic.expiration": "20"})
        broker.ask(CreateTopic(config))
        names = [f"n{number}" for number in range(30)]
        for name in names:
            send_lite(broker, name, b"0")
        subscribe(broker, *names)
        ack_lite(broker, *pop_lite(broker, count=20))
        progress = broker.engine.take_progress()
        broker.store.configs.save(progress.name, progress.content)
        broker.now_ms += 20 * MINUTE_MS + 1
        send_lite(broker, "n7", b"1")
        real, saved = broker.store.configs.save, []
        monkeypatch.setattr(
            broker.store.configs, "save", lambda *file: (saved.append(file[0]), real(*file))
        )
        assert sorted(expire(broker)) == sorted({*names} - {"n7"})
        assert sorted(saved) == ["consumerOffset.json", "topics.json"]
        assert broker.store.light_queues() == [light_queue(PARENT, "n7")]
        assert broker.engine.progress.topics(GROUP) == (light_queue(PARENT, "n7"),)
        assert bodies(pop_lite(broker)) == [b"1"]

    def test_one_whose_age_cannot_be_read_keeps_no_other(self, broker, monkeypatch):
        config = TopicConfig(PARENT, 2, 2, attributes={"lite.topic.expiration": "20"})
        broker.ask(CreateTopic(config))
        for name in "abc":
            send_lite(broker, name, b"0")
        broker.now_ms += 20 * MINUTE_MS + 1
        real = broker.store.store_time

        def store_time(topic, queue_index, offset):
            if lite_topic_of(topic) == "b":
                raise DamagedStoreError("00000", 7, "it changed", 1, 2)
            return real(topic, queue_index, offset)

        monkeypatch.setattr(broker.store, "store_time", store_time)
        assert expire(broker) == ["a", "c"]

    def test_none_expires_before_a_quarter_of_an_hour_or_without_a_word(self, broker):
        send_lite(broker, "a", b"0")
        broker.now_ms += 365 * 24 * 60 * MINUTE_MS
        assert expire(broker) == []
        config = TopicConfig(PARENT, 2, 2, attributes={"lite.topic.expiration": "1"})
        broker.ask(CreateTopic(config))
        send_lite(broker, "a", b"1")
        broker.now_ms += 2 * MINUTE_MS
        assert expire(broker) == []

    def test_they_go_with_their_parent(self, broker):
        send_lite(broker, "a", b"0")
        subscribe(broker, "a")
        ack_lite(broker, *pop_lite(broker))
        broker.ask(DeleteTopic(PARENT))
        assert broker.store.light_queues() == []
        assert broker.engine.progress.topics(GROUP) == ()
        begin_lite(broker)
        assert pop_lite(broker) == []
        send_lite(broker, "a", b"1")
        subscribe(broker, "a")
        (one,) = pop_lite(broker)
        assert (one.body, one.handle.offset) == (b"1", 0)

    @pytest.mark.parametrize("is_popped_empty", [False, True])
    def test_an_acknowledgement_of_one_that_is_gone_is_none_of_its_successor(
        self, broker, is_popped_empty
    ):
        config = TopicConfig(PARENT, 2, 2, attributes={"lite.topic.expiration": "20"})
        broker.ask(CreateTopic(config))
        subscribe(broker, "a")
        send_lite(broker, "a", *(b"old%d" % number for number in range(4)))
        old = pop_lite(broker)
        broker.now_ms += 20 * MINUTE_MS + 1
        assert expire(broker) == ["a"]
        subscribe(broker, "a")
        if is_popped_empty:
            assert pop_lite(broker) == []
        send_lite(broker, "a", *(b"new%d" % number for number in range(4)))
        ack_lite(broker, old[2], *old)
        subscribe(broker, "a")
        assert bodies(pop_lite(broker)) == [b"new0", b"new1", b"new2", b"new3"]

    def test_an_acknowledgement_of_one_that_is_gone_is_refused(self, broker):
        send_lite(broker, "a", b"0")
        subscribe(broker, "a")
        (one,) = pop_lite(broker)
        broker.ask(DeleteTopic(PARENT))
        with pytest.raises(BrokerError) as told:
            ack_lite(broker, one)
        assert told.value.code == 17


def test_a_right_to_the_parent_is_one_to_its_lite_topics():
    wanted = CONSUME.on(Resources((PARENT,), (GROUP,)))
    subscribe_ = SubscribeLite(GROUP, PARENT, "one", LiteAction.ADD, ("a",))
    queue = QueueId(light_queue(PARENT, "a"), "broker-a", 0)
    change = ChangeInvisibleTime(GROUP, queue, 0, "", 1_000)
    for request in (request_of(), subscribe_, AckMessage(GROUP, queue, 0, ""), change):
        assert request.permissions() == wanted


def test_attributes_of_groups_are_set_and_taken_away(broker):
    groups = broker.engine.groups
    assert groups.lite(GROUP).parent == PARENT
    groups.put({"groupName": GROUP, "attributes": {"+lite.sub.model": "Exclusive"}})
    assert (groups.lite(GROUP).parent, groups.lite(GROUP).is_exclusive) == (PARENT, True)
    groups.put({"groupName": GROUP, "attributes": {"-lite.sub.model": ""}})
    assert not groups.lite(GROUP).is_exclusive
    assert groups.settings(GROUP)["attributes"] == {"lite.bind.topic": PARENT}


def test_a_pull_by_the_name_of_a_light_queue_is_of_no_topic(broker):
    send_lite(broker, "a", b"0")
    name = light_queue(PARENT, "a")
    assert broker.engine.topics.get(name) is None
    assert broker.ask(GetMaxOffset(QueueId(name, "broker-a", 0))).value == 1
