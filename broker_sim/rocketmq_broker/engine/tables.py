"""Tables: what every rule of the broker may look up or change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core.broker_table import BrokerTable
from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Outcome
from rocketmq_broker.engine.core.routes import Identity, OwnBroker
from rocketmq_broker.engine.core.topics import Topics, built_in_topics
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.engine.groups.committed_offsets import CommittedOffsets
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS, GROUPS, TOPICS
from rocketmq_broker.storage.store import Store
from rocketmq_wire.requests.contract import Reply


@dataclass(frozen=True, slots=True)
class Tables:
    """The settings, the store, and the tables beside it."""

    config: BrokerConfig
    identity: Identity
    store: Store
    topics: Topics
    brokers: BrokerTable
    groups: Groups
    clients: Clients
    committed: CommittedOffsets
    ahead_ms: Callable[[], int]
    """How far the broker's clock is ahead of the wall clock, by which clients name times."""

    @classmethod
    def open(
        cls, config: BrokerConfig, store: Store, identity: Identity, ahead_ms: Callable[[], int]
    ) -> Tables:
        """Load the tables from the store's configuration files."""
        load, save = store.configs.load, store.configs.save
        topics = Topics(
            load(TOPICS),
            save,
            auto_create=config.auto_create_topic,
            auto_create_queues=config.auto_create_topic_queues,
            built_in=built_in_topics(identity.cluster_name, identity.broker_name),
        )
        return cls(
            config,
            identity,
            store,
            topics,
            BrokerTable(identity.broker_name, OwnBroker(identity, topics)),
            Groups(
                load(GROUPS),
                save,
                auto_create=config.auto_create_group,
                server_load_balancer=config.server_load_balancer,
            ),
            Clients(expiry_ms=config.client_expiry_seconds * 1_000),
            CommittedOffsets(load(CONSUMER_OFFSETS)),
            ahead_ms,
        )

    def acknowledge(self, reply: Reply, end_position: int) -> Outcome:
        """Reply to a request whose records end at a byte position of the log."""
        waits_for_sync = self.config.flush == "sync"
        return AfterSync(reply, end_position) if waits_for_sync else Answer(reply)
