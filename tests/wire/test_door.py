"""The names that other packages and people import from `rocketmq_wire` itself."""

from __future__ import annotations

import subprocess
import sys

import rocketmq_wire


def test_the_package_exports_these_names() -> None:
    assert sorted(dir(rocketmq_wire)) == [
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
    for name in dir(rocketmq_wire):
        assert getattr(rocketmq_wire, name).__name__ == name


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    assert not hasattr(rocketmq_wire, "Bound")


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import sys, rocketmq_wire; print([m for m in sys.modules if 'rocketmq_wire.' in m])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
