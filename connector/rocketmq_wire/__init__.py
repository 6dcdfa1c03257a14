"""RocketMQ's protocol as values: bytes in, values out, and back. No I/O, no clock, no threads.

Start reading at `model` and `requests`. A name of this package is loaded at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_wire.errors import (
        BrokerBusyError,
        BrokerError,
        ConnectError,
        ConnectionLostError,
        CorruptRecordError,
        DeadlineExceededError,
        FilterUnsupportedError,
        FilterWordsError,
        ForkedError,
        FrameTooLargeError,
        GroupNotFoundError,
        LocalProtocolError,
        MessageTooLargeError,
        NotAuthorizedError,
        NotOverGrpcError,
        ProgressNotFoundError,
        ProtocolError,
        RemoteProtocolError,
        RocketMQError,
        RowRefusedError,
        SqlSyntaxError,
        TlsError,
        TopicNotFoundError,
        TransportError,
        UnsupportedRequestError,
        WrongPortError,
        WrongSettingsError,
        raise_first,
        split_answers,
    )
    from rocketmq_wire.filters.sql92 import Selector, parse_selector
    from rocketmq_wire.filters.tags import TagExpression
    from rocketmq_wire.model import (
        Bounds,
        BrokerAddresses,
        ClusterInfo,
        CommittedOffset,
        ConsumerInfo,
        Host,
        Message,
        OffsetRange,
        QueueId,
        QueueSet,
        QueueStats,
        Route,
        StoredMessage,
        Subscription,
        TopicConfig,
    )
    from rocketmq_wire.requests.contract import Reply, Request
    from rocketmq_wire.requests.groups import ConsumeMode, DeleteGroup, PutGroup, SetConsumeMode
    from rocketmq_wire.requests.messages import (
        PullMessages,
        PullReply,
        PullStatus,
        SendBatch,
        SendMessage,
        SendRecords,
        SendReply,
        SendStatus,
    )
    from rocketmq_wire.requests.offsets import Boundary
    from rocketmq_wire.requests.transactions import Resolution
    from rocketmq_wire.signing import Credentials

# The order of the search for a name: modules that load quickly come first.
_MODULES = (
    "rocketmq_wire.errors",
    "rocketmq_wire.model",
    "rocketmq_wire.signing",
    "rocketmq_wire.filters.tags",
    "rocketmq_wire.filters.sql92",
    "rocketmq_wire.requests.contract",
    "rocketmq_wire.requests.offsets",
    "rocketmq_wire.requests.groups",
    "rocketmq_wire.requests.messages",
    "rocketmq_wire.requests.transactions",
)

__all__ = [
    "Boundary", "Bounds", "BrokerAddresses", "BrokerBusyError", "BrokerError",
    "ClusterInfo", "CommittedOffset", "ConnectError", "ConnectionLostError", "ConsumeMode",
    "ConsumerInfo", "CorruptRecordError", "Credentials", "DeadlineExceededError",
    "DeleteGroup", "FilterUnsupportedError", "FilterWordsError", "ForkedError",
    "FrameTooLargeError", "GroupNotFoundError", "Host", "LocalProtocolError", "Message",
    "MessageTooLargeError", "NotAuthorizedError", "NotOverGrpcError", "OffsetRange",
    "ProgressNotFoundError", "ProtocolError", "PullMessages", "PullReply", "PullStatus",
    "PutGroup", "QueueId", "QueueSet", "QueueStats", "RemoteProtocolError", "Reply",
    "Request", "Resolution", "RocketMQError", "Route", "RowRefusedError", "Selector",
    "SendBatch", "SendMessage", "SendRecords", "SendReply", "SendStatus", "SetConsumeMode",
    "SqlSyntaxError", "StoredMessage", "Subscription", "TagExpression", "TlsError",
    "TopicConfig", "TopicNotFoundError", "TransportError", "UnsupportedRequestError",
    "WrongPortError", "WrongSettingsError", "parse_selector", "raise_first",
    "split_answers",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(importlib.import_module, _MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
