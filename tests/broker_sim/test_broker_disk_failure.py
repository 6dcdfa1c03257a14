"""A disk that fails under a running broker: what is told, and what a restart finds."""

from __future__ import annotations

import pytest

from rocketmq_broker_sim.storage.errors import StorageError
from rocketmq_broker_sim.storage.memory_files import MemoryFiles
from rocketmq_wire.requests import GetMaxOffset, SendMessage
from support.engines import EngineUnderTest, queue_of

ORDERS_0 = queue_of("orders")


class FailingFiles(MemoryFiles):
    """Files whose syncs fail while `fails` is set."""

    fails = False

    def open(self, name, *, create=False):
        file = super().open(name, create=create)
        sync = file.sync

        def sync_or_fail():
            if self.fails:
                raise StorageError(name, 0, "input/output error")
            sync()

        file.sync = sync_or_fail
        return file


def test_store_that_cannot_be_closed_in_order_can_be_opened_again():
    files = FailingFiles()
    broker = EngineUnderTest(files, flush="sync")
    broker.ask(SendMessage("p", ORDERS_0, 1, b"acknowledged"))
    broker.outcome(SendMessage("p", ORDERS_0, 1, b"on its way"))
    files.fails = True
    with pytest.raises(StorageError, match="input/output error"):
        broker.store.close()
    files.fails = False
    after = EngineUnderTest(files, flush="sync")
    assert not after.store.report.was_clean
    assert after.ask(GetMaxOffset(ORDERS_0)).value >= 1


def test_failed_sync_is_never_followed_by_one_that_seems_to_work():
    files = FailingFiles()
    broker = EngineUnderTest(files, flush="sync")
    broker.outcome(SendMessage("p", ORDERS_0, 1, b"lost"))
    files.fails = True
    with pytest.raises(StorageError):
        broker.store.sync()
    files.fails = False
    with pytest.raises(StorageError):
        broker.store.sync()
    assert broker.ask(GetMaxOffset(ORDERS_0)).value == 0
