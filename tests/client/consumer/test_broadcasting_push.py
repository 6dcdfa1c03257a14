"""Broadcasting push consumers: every member gets everything, and keeps its offsets in a file."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketmq_client.consumer.common.listener import ConsumeStatus
from rocketmq_client.consumer.common.settings import ConsumeFrom, MessageModel
from rocketmq_client.consumer.membership.client_instance import client_id_of
from rocketmq_client.consumer.membership.offset_store import LocalOffsetFile
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.errors import ClientStateError, ProgressFileError
from rocketmq_client.transport.net.addresses import local_address
from support.consuming import Collector, Topic, settings_of, until


def test_in_broadcasting_every_member_gets_everything(
    topic: Topic, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bodies = topic.send(20)
    settings = settings_of(topic, model=MessageModel.BROADCASTING)
    listeners = [Collector(lambda *_: ConsumeStatus.RECONSUME_LATER), Collector()]
    with ExitStack() as stack:
        for number, listener in enumerate(listeners):
            name = f"{topic.name}-{number}"
            stack.enter_context(
                PushConsumer(topic.connection, settings, listener, instance_name=name)
            )
        for listener in listeners:
            listener.wait(20)
    for listener in listeners:
        assert sorted(listener.bodies) == sorted(bodies)
    # Failures are dropped, so both messages are consumed, and the broker gets no offset.
    again = Collector()
    name = f"{topic.name}-0"
    with PushConsumer(topic.connection, settings, again, instance_name=name) as consumer:
        until(lambda: set(consumer.queues) == set(topic.queues))
        topic.send(4, prefix="new")
        again.wait(4)
    assert sorted(again.bodies) == [b"new0", b"new1", b"new2", b"new3"]


def test_in_broadcasting_a_restart_continues_without_an_instance_name(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    topic.send(20)
    # It starts at the ends: without its offsets it would miss the messages sent meanwhile.
    settings = settings_of(topic, model=MessageModel.BROADCASTING, consume_from=ConsumeFrom.LAST)
    first, second = Collector(), Collector()
    with PushConsumer(topic.connection, settings, first) as consumer:
        until(lambda: set(consumer.queues) == set(topic.queues))
        topic.send(4, prefix="seen")
        first.wait(4)
        name = consumer.client_id
    assert name.endswith("@DEFAULT"), "as Java's"
    topic.send(4, prefix="away")
    with PushConsumer(topic.connection, settings, second):
        second.wait(4)
    assert sorted(second.bodies) == [b"away0", b"away1", b"away2", b"away3"]


def test_two_processes_do_not_store_offsets_in_one_file(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = settings_of(topic, model=MessageModel.BROADCASTING)

    def consumer(name: str | None = None) -> PushConsumer:
        return PushConsumer(topic.connection, settings, Collector(), instance_name=name)

    theirs = LocalOffsetFile(client_id_of(local_address(), "DEFAULT", None), settings.group)
    assert theirs.acquire()
    with pytest.raises(ClientStateError, match="name the instance differently"):
        consumer().start()
    with consumer("another"):
        pass
    theirs.release()
    with consumer():
        assert not theirs.acquire()
    assert theirs.acquire()
    theirs.release()


@pytest.mark.parametrize("refused", ["pathlib.Path.mkdir", "fcntl.flock"])
def test_the_start_raises_if_offsets_cannot_be_stored(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(refused, refuse)
    settings = settings_of(topic, model=MessageModel.BROADCASTING)
    with pytest.raises(ClientStateError, match="Let HOME be a directory that may be written to"):
        PushConsumer(topic.connection, settings, Collector()).start()


def test_the_start_raises_and_names_a_torn_offset_file(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = settings_of(topic, model=MessageModel.BROADCASTING)
    file = LocalOffsetFile(client_id_of(local_address(), "DEFAULT", None), settings.group)
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(b'{"offsetTable":{{"brok')
    words = r"ROCKETMQ_GROUP.PROGRESS_FILE\] .*offsets\.json and its backup .* remove both"
    with pytest.raises(ProgressFileError, match=words):
        PushConsumer(topic.connection, settings, Collector()).start()
    file.path.unlink()
    with PushConsumer(topic.connection, settings, Collector()) as consumer:
        until(lambda: set(consumer.queues) == set(topic.queues))
