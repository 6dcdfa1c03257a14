"""Noted offsets, and where a member starts in a queue."""

from __future__ import annotations

from typing import cast

import pytest

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.consumer.membership.offset_store import OffsetStore, StartAt, start_of
from rocketmq_wire.model import QueueId
from support.group_fakes import FakeIo

QUEUE, OTHER = QueueId("orders", "broker-a", 0), QueueId("orders", "broker-a", 1)
RETRY = QueueId("%RETRY%g", "broker-a", 0)


@pytest.fixture
def store() -> OffsetStore:
    return OffsetStore(cast(IoThread, FakeIo()), "c1", ConsumerSettings("g"))


def test_a_noted_offset_only_increases(store: OffsetStore) -> None:
    store.note(QUEUE, 10)
    store.note(QUEUE, 9)
    assert store.consumed == {QUEUE: 10}


def test_a_reset_may_go_back(store: OffsetStore) -> None:
    store.note(QUEUE, 10)
    store.reset(QUEUE, 3)
    assert store.consumed == {QUEUE: 3}


def test_only_owned_queues_are_due_and_others_are_forgotten(store: OffsetStore) -> None:
    store.note(QUEUE, 10)
    store.note(OTHER, 20)
    assert store.due({OTHER}) == {OTHER: 20}
    assert store.consumed == {OTHER: 20}


@pytest.mark.parametrize("consume_from", ConsumeFrom)
def test_a_committed_offset_is_the_start(consume_from: ConsumeFrom) -> None:
    assert start_of(QUEUE, 7, consume_from) == 7
    assert start_of(QUEUE, 0, consume_from) == 0


@pytest.mark.parametrize(
    ("consume_from", "ordinary", "retry"),
    [
        (ConsumeFrom.LAST, StartAt.END, 0),
        (ConsumeFrom.FIRST, 0, 0),
        (ConsumeFrom.TIMESTAMP, StartAt.TIMESTAMP, StartAt.END),
    ],
)
def test_without_a_committed_offset_the_settings_say_where_to_start(
    consume_from: ConsumeFrom, ordinary: int | StartAt, retry: int | StartAt
) -> None:
    assert start_of(QUEUE, None, consume_from) == ordinary
    assert start_of(RETRY, None, consume_from) == retry
