"""A RocketMQ client: producers, consumers, and a cluster's topics, queues and groups.

Start reading at `cluster`, `producer.producer` and `consumer.push`. People import the names below
from here. A name is loaded at its first use, so importing the package stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster, open_cluster
    from rocketmq_client.consumer.allocation import (
        Average,
        AverageByCircle,
        ByConfiguration,
        ByMachineRoom,
        ConsistentHash,
        NearbyMachineRoom,
        Strategy,
    )
    from rocketmq_client.consumer.common.listener import (
        ConsumeContext,
        ConsumeStatus,
        OrderlyStatus,
    )
    from rocketmq_client.consumer.common.messages import ReceivedMessage
    from rocketmq_client.consumer.common.settings import (
        ConsumeFrom,
        ConsumerSettings,
        FlowLimits,
        MessageModel,
        PopSettings,
    )
    from rocketmq_client.consumer.lite_pull import LitePullConsumer
    from rocketmq_client.consumer.pop import PopConsumer
    from rocketmq_client.consumer.pull import PullConsumer, PullResult
    from rocketmq_client.consumer.push import PushConsumer
    from rocketmq_client.download.contract import RangeChunk, ReadLimits, ReadSpec
    from rocketmq_client.errors import (
        EndOutcomeUnknownError,
        RangeLostError,
        SendOutcomeUnknownError,
    )
    from rocketmq_client.loss import LossPolicy
    from rocketmq_client.producer.half_messages import HalfMessage
    from rocketmq_client.producer.producer import MessageColumns, Producer, delayed
    from rocketmq_client.producer.transactional import (
        TransactionListener,
        TransactionProducer,
        TransactionSent,
    )
    from rocketmq_client.settings import ConnectionSettings, TlsSettings
    from rocketmq_wire.errors import RocketMQError
    from rocketmq_wire.model import Bounds, Message, OffsetRange, QueueId, Subscription, TopicConfig
    from rocketmq_wire.requests.groups import ConsumeMode
    from rocketmq_wire.requests.transactions import Resolution
    from rocketmq_wire.signing import Credentials

_LAZY = {
    "Average": "rocketmq_client.consumer.allocation",
    "AverageByCircle": "rocketmq_client.consumer.allocation",
    "Bounds": "rocketmq_wire.model",
    "ByConfiguration": "rocketmq_client.consumer.allocation",
    "ByMachineRoom": "rocketmq_client.consumer.allocation",
    "Cluster": "rocketmq_client.cluster",
    "ConnectionSettings": "rocketmq_client.settings",
    "ConsistentHash": "rocketmq_client.consumer.allocation",
    "ConsumeContext": "rocketmq_client.consumer.common.listener",
    "ConsumeFrom": "rocketmq_client.consumer.common.settings",
    "ConsumeMode": "rocketmq_wire.requests.groups",
    "ConsumeStatus": "rocketmq_client.consumer.common.listener",
    "ConsumerSettings": "rocketmq_client.consumer.common.settings",
    "Credentials": "rocketmq_wire.signing",
    "EndOutcomeUnknownError": "rocketmq_client.errors",
    "FlowLimits": "rocketmq_client.consumer.common.settings",
    "HalfMessage": "rocketmq_client.producer.half_messages",
    "LitePullConsumer": "rocketmq_client.consumer.lite_pull",
    "LossPolicy": "rocketmq_client.loss",
    "Message": "rocketmq_wire.model",
    "MessageColumns": "rocketmq_client.producer.producer",
    "MessageModel": "rocketmq_client.consumer.common.settings",
    "NearbyMachineRoom": "rocketmq_client.consumer.allocation",
    "OffsetRange": "rocketmq_wire.model",
    "OrderlyStatus": "rocketmq_client.consumer.common.listener",
    "PopConsumer": "rocketmq_client.consumer.pop",
    "PopSettings": "rocketmq_client.consumer.common.settings",
    "Producer": "rocketmq_client.producer.producer",
    "PullConsumer": "rocketmq_client.consumer.pull",
    "PullResult": "rocketmq_client.consumer.pull",
    "PushConsumer": "rocketmq_client.consumer.push",
    "QueueId": "rocketmq_wire.model",
    "RangeChunk": "rocketmq_client.download.contract",
    "RangeLostError": "rocketmq_client.errors",
    "ReadLimits": "rocketmq_client.download.contract",
    "ReadSpec": "rocketmq_client.download.contract",
    "ReceivedMessage": "rocketmq_client.consumer.common.messages",
    "Resolution": "rocketmq_wire.requests.transactions",
    "RocketMQError": "rocketmq_wire.errors",
    "SendOutcomeUnknownError": "rocketmq_client.errors",
    "Strategy": "rocketmq_client.consumer.allocation",
    "Subscription": "rocketmq_wire.model",
    "TlsSettings": "rocketmq_client.settings",
    "TopicConfig": "rocketmq_wire.model",
    "TransactionListener": "rocketmq_client.producer.transactional",
    "TransactionProducer": "rocketmq_client.producer.transactional",
    "TransactionSent": "rocketmq_client.producer.transactional",
    "delayed": "rocketmq_client.producer.producer",
    "open_cluster": "rocketmq_client.cluster",
}

__all__ = [
    "Average",
    "AverageByCircle",
    "Bounds",
    "ByConfiguration",
    "ByMachineRoom",
    "Cluster",
    "ConnectionSettings",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeMode",
    "ConsumeStatus",
    "ConsumerSettings",
    "Credentials",
    "EndOutcomeUnknownError",
    "FlowLimits",
    "HalfMessage",
    "LitePullConsumer",
    "LossPolicy",
    "Message",
    "MessageColumns",
    "MessageModel",
    "NearbyMachineRoom",
    "OffsetRange",
    "OrderlyStatus",
    "PopConsumer",
    "PopSettings",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PushConsumer",
    "QueueId",
    "RangeChunk",
    "RangeLostError",
    "ReadLimits",
    "ReadSpec",
    "ReceivedMessage",
    "Resolution",
    "RocketMQError",
    "SendOutcomeUnknownError",
    "Strategy",
    "Subscription",
    "TlsSettings",
    "TopicConfig",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSent",
    "delayed",
    "open_cluster",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
