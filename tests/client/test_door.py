"""The names that people import from `rocketmq_client` itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rocketmq_client

NAMES = [
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


def test_the_package_exports_these_names() -> None:
    assert sorted(dir(rocketmq_client)) == NAMES
    for name in NAMES:
        assert getattr(rocketmq_client, name).__name__ == name


def test_type_checkers_see_every_name_where_it_is_loaded_from() -> None:
    tree = ast.parse(Path(rocketmq_client.__file__).read_text())
    imported = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == rocketmq_client._LAZY


def test_a_name_that_is_not_exported_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        rocketmq_client.Consumer  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, rocketmq_client;"
        "print([name for name in sys.modules"
        " if name.startswith(('rocketmq_', 'numpy', 'pyarrow', 'grpc'))])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "['rocketmq_client']"


def test_documents_import_from_the_door_alone() -> None:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").glob("*.md"), *(root / "docs").glob("*.ipynb")]
    assert not [page.name for page in pages if "from rocketmq_client." in page.read_text()]
