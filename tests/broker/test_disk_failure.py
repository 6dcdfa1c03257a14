"""A disk that fails under a running broker: the errors, and the state after a restart."""

from __future__ import annotations

import asyncio
import errno
import logging
import os

import pytest

from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.errors import StorageError
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.requests.messages import PullMessages, SendBatch, SendMessage
from rocketmq_wire.requests.offsets import GetMaxOffset
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.engines import PEER, EngineUnderTest, queue_of
from support.storage_blocks import bodies_of

ORDERS_0, ORDERS_1 = queue_of("orders"), queue_of("orders", 1)


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

        vars(file)["sync"] = sync_or_fail
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


class FullQueues(MemoryFiles):
    """Files with no room for consume queues while `is_full` is set; the log's still have some."""

    is_full = False

    def open(self, name, *, create=False):
        file = super().open(name, create=create)
        if name.startswith("consumequeue/"):
            write = file.pwrite

            def write_if_there_is_room(data, position):
                if self.is_full:
                    raise StorageError(name, position, os.strerror(errno.ENOSPC))
                write(data, position)

            vars(file)["pwrite"] = write_if_there_is_room
        return file


def with_shell(scenario, flush="sync", files=None):
    """Run a scenario with a shell over an engine whose queues' files may be full."""

    files = files or FullQueues()

    async def whole():
        broker = EngineUnderTest(files, flush=flush, flush_interval_ms=1)
        shell = EngineShell(broker.engine, broker.store, broker.config)
        await shell.start()
        try:
            await shell.ask(CreateTopic(TopicConfig("orders", 2, 2)), PEER)
            return await asyncio.wait_for(scenario(shell, files), timeout=60)
        finally:
            files.is_full = False
            await shell.stop_serving()
            await shell.close()

    return asyncio.run(whole())


def batch(*bodies, queue=ORDERS_0):
    return SendBatch("p", queue, 1, encode_batch(BatchEntry(0, body, b"") for body in bodies))


def pull(queue=ORDERS_0, **more):
    return PullMessages("g", queue, 0, 1_000, **more)


@pytest.mark.parametrize("flush", ["sync", "async", "memory"])
def test_a_send_whose_queue_cannot_be_written_is_answered_and_seen_once_there_is_room(
    flush, caplog
):
    async def scenario(shell, files):
        await shell.ask(SendMessage("p", ORDERS_0, 1, b"before"), PEER)
        files.is_full = True
        waiting = asyncio.ensure_future(
            shell.ask(PullMessages("g", ORDERS_0, 1, 10, suspend_ms=50_000), PEER)
        )
        with pytest.raises(BrokerError, match=r"may be stored or not.*No space left") as unknown:
            await shell.ask(SendMessage("p", ORDERS_0, 1, b"on the disk"), PEER)
        with pytest.raises(BrokerError, match=r"takes no writes.*No space left") as refused:
            await shell.ask(SendMessage("p", ORDERS_0, 1, b"never"), PEER)
        assert not waiting.done()
        files.is_full = False
        # Without any send, the broker itself tries again and wakes held pulls.
        seen = bodies_of((await waiting).records)
        await shell.ask(SendMessage("p", ORDERS_0, 1, b"after"), PEER)
        found = bodies_of((await shell.ask(pull(), PEER)).records)
        return unknown.value, refused.value, seen, found

    with caplog.at_level(logging.WARNING):
        unknown, refused, seen, found = with_shell(scenario, flush)
    assert (unknown.code, unknown.retryable) == (1, False)
    assert (refused.code, refused.retryable) == (14, True)
    assert seen == [b"on the disk"]
    assert found == [b"before", b"on the disk", b"after"]
    texts = [record.getMessage() for record in caplog.records]
    assert sum("queues cannot be written" in text for text in texts) == 1
    assert sum("can be written again" in text for text in texts) == 1


def test_sends_that_wait_behind_one_whose_queue_cannot_be_written_are_refused(caplog):
    async def scenario(shell, files):
        files.is_full = True
        sends = [
            asyncio.ensure_future(shell.ask(batch(b"%d" % number, queue=queue), PEER))
            for number, queue in enumerate((ORDERS_0, ORDERS_1, ORDERS_0))
        ]
        errors = await asyncio.gather(*sends, return_exceptions=True)
        files.is_full = False
        return errors

    with caplog.at_level(logging.CRITICAL):
        errors = with_shell(scenario)
    # The first is on the disk; the others were never written, and may be sent again.
    assert [error.code for error in errors] == [1, 14, 14]


def test_messages_whose_queue_could_not_be_written_are_seen_after_a_restart():
    files = FullQueues()
    broker = EngineUnderTest(files, flush="sync")
    broker.ask(SendMessage("p", ORDERS_0, 1, b"before"))
    broker.outcome(SendMessage("p", ORDERS_0, 1, b"on the disk"))
    broker.store.sync()
    files.is_full = True
    with pytest.raises(StorageError, match="No space left"):
        broker.store.publish()
    with pytest.raises(StorageError, match="No space left"):
        broker.store.close()
    files.is_full = False
    after = EngineUnderTest(files, flush="sync")
    assert [message.body for message in after.messages(ORDERS_0)] == [b"before", b"on the disk"]


def test_a_full_disk_refuses_changes_by_their_name_and_lets_a_new_group_read(caplog):
    async def scenario(shell, files):
        await shell.ask(SendMessage("p", ORDERS_0, 1, b"stored"), PEER)
        files.is_full = True
        with pytest.raises(BrokerError, match=r"the disk refused, and nothing was changed.*room"):
            await shell.ask(DeleteTopic("orders"), PEER)
        return bodies_of((await shell.ask(pull(), PEER)).records)

    with caplog.at_level(logging.WARNING):
        assert with_shell(scenario, files=FullConfigs()) == [b"stored"]
    assert "groups=g: created, but not saved yet" in caplog.text


class FullConfigs(FullQueues):
    """Files with no room for configuration files while `is_full` is set."""

    def rename(self, old, new):
        if self.is_full:
            raise StorageError(old, 0, "no room")
        super().rename(old, new)
