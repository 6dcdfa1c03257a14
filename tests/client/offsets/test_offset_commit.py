from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.offsets.offset_commit import commit_in_rounds
from rocketmq_wire.errors import ConnectError, RocketMQError
from rocketmq_wire.model import QueueId

AWAY = ConnectError("a:1", "refused")
_QUEUES = st.builds(
    QueueId, st.sampled_from(["orders", "returns"]), st.sampled_from("ab"), st.integers(0, 9)
)


class Broker:
    """Takes commits, but those of the queues that fail."""

    def __init__(self, *failing: QueueId) -> None:
        self.failing, self.rounds = failing, list[list[QueueId]]()

    def __call__(self, queues: Sequence[QueueId]) -> dict[QueueId, str | RocketMQError]:
        self.rounds.append(list(queues))
        return {queue: AWAY if queue in self.failing else "done" for queue in queues}


def test_one_queue_of_each_broker_and_topic_is_committed_first() -> None:
    first, second = QueueId("orders", "a", 0), QueueId("orders", "a", 1)
    elsewhere, other = QueueId("orders", "b", 0), QueueId("returns", "a", 0)
    broker, queues = Broker(), [first, second, elsewhere, other]
    assert commit_in_rounds(queues, broker) == dict.fromkeys(queues, "done")
    assert broker.rounds == [[first, elsewhere, other], [second]]


def test_without_offsets_nothing_is_committed() -> None:
    broker, alone = Broker(), QueueId("orders", "a", 0)
    assert commit_in_rounds([], broker) == {}
    assert broker.rounds == []
    assert commit_in_rounds([alone], broker) == {alone: "done"}
    assert broker.rounds == [[alone]]


def test_if_the_first_commit_fails_the_others_are_not_sent() -> None:
    queues = [QueueId("orders", broker, index) for broker in "ab" for index in range(3)]
    broker = Broker(queues[0])
    answers = commit_in_rounds(queues, broker)
    assert [answers[queue] for queue in queues] == [AWAY] * 3 + ["done"] * 3
    assert broker.rounds == [[queues[0], queues[3]], queues[4:]]


@given(st.sets(_QUEUES))
def test_every_queue_is_in_one_round_behind_one_of_its_broker_and_topic(
    queues: set[QueueId],
) -> None:
    broker = Broker()
    assert commit_in_rounds(queues, broker).keys() == queues
    assert sorted(queue for some in broker.rounds for queue in some) == sorted(queues)
    ahead = {(queue.broker, queue.topic) for queue in broker.rounds[0]} if queues else set()
    assert ahead == {(queue.broker, queue.topic) for queue in queues}
