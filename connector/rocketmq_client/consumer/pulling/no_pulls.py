"""The puller of members that own queues and have them read by somebody else."""

from __future__ import annotations

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller


class NoPulls(QueuePuller):
    """Begins with queues, and leaves it at that."""

    def __init__(self, wire: IoThread, settings: ConsumerSettings) -> None:
        super().__init__(
            wire,
            settings,
            is_orderly=False,
            on_messages=lambda *_: None,
            on_illegal=lambda *_: None,
        )

    def start(self, owned: OwnedQueue) -> None:
        """Nothing is pulled here."""
