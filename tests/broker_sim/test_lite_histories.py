"""Lite topics through histories that nobody chose: whole, in order, and never with two at once."""

from __future__ import annotations

import random

import pytest

from rocketmq_wire.lite_requests import LiteAction
from support.engines import EngineUnderTest
from support.lite import GROUP, ack_lite, begin_lite, bind, pop_lite, send_lite, subscribe
from support.pops import Popped


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_lite_topic_is_consumed_whole_and_in_order(seed):
    """Clients of two groups come, go, take, settle, forget and settle late; at the end all is."""
    chance, broker = random.Random(seed), EngineUnderTest()
    begin_lite(broker)
    bind(broker, "others")
    members = {"one": GROUP, "two": GROUP, "three": "others"}
    held: dict[tuple[str, str], dict[int, Popped]] = {}
    ever: list[tuple[str, Popped]] = []
    settled: dict[tuple[str, str], list[int]] = {}
    sent = dict.fromkeys("abc", 0)

    def settle(group, popped):
        name = popped.message.properties["__LITE_TOPIC"]
        ack_lite(broker, popped, group=group)
        settled.setdefault((group, name), []).append(popped.handle.offset)
        if held[group, name].get(popped.handle.offset) is popped:
            del held[group, name][popped.handle.offset]

    def take(client, group, count):
        for popped in pop_lite(broker, client, count, group=group, invisible_ms=5_000):
            name = popped.message.properties["__LITE_TOPIC"]
            assert popped.body == b"%s%d" % (name.encode(), popped.handle.offset)
            out = held.setdefault((group, name), {})
            before = {*settled.get((group, name), [])}
            for offset, other in out.items():
                if other.handle.pop_ms == popped.handle.pop_ms:
                    before.add(offset)
                else:
                    # What somebody else has is over.
                    assert other.handle.visible_ms <= broker.now_ms
            # In its order: nothing before it is left out.
            assert set(range(popped.handle.offset)) <= before
            out[popped.handle.offset] = popped
            ever.append((group, popped))
            yield popped

    for _ in range(250):
        broker.now_ms += 1
        client = chance.choice(list(members))
        group = members[client]
        match chance.randrange(8):
            case 0 | 1:
                name = chance.choice("abc")
                send_lite(broker, name, b"%s%d" % (name.encode(), sent[name]))
                sent[name] += 1
            case 2:
                names = chance.sample("abc", chance.randrange(1, 4))
                action = chance.choice((LiteAction.ADD, LiteAction.REMOVE, LiteAction.REPLACE))
                subscribe(broker, *names, client=client, group=group, action=action)
            case 3 | 4:
                share = chance.choice((0.0, 0.6, 1.0))
                for popped in list(take(client, group, chance.randrange(1, 5))):
                    if chance.random() < share:
                        settle(group, popped)
            case 5:
                broker.now_ms += chance.choice((100, 1_000, 6_000))
            case 6 if ever:
                # By whatever handle, whoever has the message now; often one that nobody settled.
                open_ones = [(key[0], one) for key, out in held.items() for one in out.values()]
                settle(*chance.choice(open_ones if open_ones and chance.random() < 0.6 else ever))
            case _:
                broker.engine.expire_clients(broker.now_ms)
    for client, group in members.items():
        subscribe(broker, "a", "b", "c", client=client, group=group)
    for _ in range(200):
        broker.now_ms += 6_000
        for client, group in members.items():
            for popped in list(take(client, group, 32)):
                settle(group, popped)
    for group in set(members.values()):
        for name in "abc":
            assert set(settled.get((group, name), [])) == set(range(sent[name])), (group, name)
