"""All errors of the Spark source, the sink and their jobs.

    RocketMQError                          of rocketmq_wire, as are ProtocolError and TransportError
        OptionError                        a user option is missing or wrong
        SchemaError                        the schema of a read has an unknown column
        SinkSchemaError                    the rows to write have a wrong column
        SinkRowError                       a row cannot be a message
        BadBodyError                       a body does not fit the schema
        UnsupportedError                   this version, Spark or RocketMQ cannot do it
        GroupInUseError                    the consumer group has live members
        DiscoveryDiedError                 the discovery thread failed
        DataLossError                      messages to read are gone
        NothingWrittenError                Spark committed a batch that no task wrote
        UnfinishedTransactionError         a decided batch is not visible yet
        DecisionsAwayError                 a broker that stores decisions is unreachable; retryable
        WriteIdError                       a write has the writeId of another one
        ReplayError                        a batch differs from what was decided under its number
        LocalProtocolError
            CheckpointError                the checkpoint holds an offset of another source
        TransportError                     retryable
            ClusterUnreachableError        a read cannot be planned
            ReadOutageError                a running read waited for its broker in vain
    JobError                               a job cannot do what it was asked for

The text of an error is one line: a stable condition in brackets, the facts, and what to do.
"""

from __future__ import annotations

import logging

from rocketmq_client.loss import Loss, LossReason
from rocketmq_wire.errors import LocalProtocolError, RocketMQError, TransportError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")


class OptionError(RocketMQError, ValueError):
    """A user option is missing or wrong."""

    def __init__(self, name: str, reason: str, kind: str = "INVALID") -> None:
        super().__init__(name, reason, kind)
        self.name = name
        self.reason = reason
        self.kind = kind

    def __str__(self) -> str:
        return f"[ROCKETMQ_OPTION.{self.kind}] option '{self.name}' {self.reason}"


class SchemaError(RocketMQError, ValueError):
    """The schema asks for a column that does not exist or has another type."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        stop = "" if self.reason.endswith("?") else "."
        return (
            f"[ROCKETMQ_OPTION.SCHEMA] {self.reason}{stop} "
            "Name in .schema(...) only columns that the source has, with their types."
        )


class SinkSchemaError(RocketMQError, ValueError):
    """The rows to write have a column that a message cannot take, or lack one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        stop = "" if self.reason.endswith("?") else "."
        return (
            f"[ROCKETMQ_SINK.SCHEMA] {self.reason}{stop} Nothing was sent. Select the columns of "
            "messages, such as .select('body', 'keys', 'tags')."
        )


class SinkRowError(RocketMQError, ValueError):
    """A row cannot be a message."""

    def __init__(self, partition: int, rows: str, reason: str) -> None:
        super().__init__(partition, rows, reason)
        self.partition = partition
        self.rows = rows
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.ROW] partition {self.partition}, {self.rows}: {self.reason}. "
            "Correct or leave out such rows before they are written."
        )


class BadBodyError(RocketMQError, ValueError):
    """A body does not fit the schema."""

    def __init__(self, queue: QueueId, offset: int, reason: str) -> None:
        super().__init__(queue, offset, reason)
        self.queue = queue
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_BAD_BODY] {self.queue} offset={self.offset}: {self.reason}. "
            "bodyMode=permissive keeps such a row with nulls, and dropmalformed leaves it out."
        )


class NothingWrittenError(RocketMQError):
    """Spark committed a batch, but no task wrote anything."""

    def __str__(self) -> str:
        return (
            "[ROCKETMQ_SINK.NOTHING_WRITTEN] no task of the batch reported what it wrote: Spark "
            "drops the rows in this mode. Use a micro-batch trigger, not trigger(continuous=...)."
        )


class UnfinishedTransactionError(RocketMQError):
    """A batch is decided, but some of its rows are not visible yet."""

    def __init__(self, query: str, batch: int, count: int, reason: str) -> None:
        super().__init__(query, batch, count, reason)
        self.query = query
        self.batch = batch
        self.count = count
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.UNFINISHED] {plural(self.count, 'row')} of batch {self.batch} of "
            f"{self.query} decided and not visible yet: {self.reason}. Run the query again, or "
            "pyspark_rocketmq.finish_transactions(options). What the broker has given up is in "
            "TRANS_CHECK_MAX_TIME_TOPIC."
        )


class DecisionsAwayError(RocketMQError):
    """A broker that stores commit decisions is missing from their topic's route.

    Without names all of them are missing.
    """

    retryable = True

    def __init__(self, topic: str, brokers: tuple[str, ...]) -> None:
        super().__init__(topic, brokers)
        self.topic = topic
        self.brokers = brokers

    @property
    def _who(self) -> str:
        return ", ".join(self.brokers) or "every broker"

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.DECISIONS_AWAY] topic={self.topic}: {self._who} also "
            "stores commit decisions and is unreachable. Restart it. If it is gone for good, run "
            "finish_transactions(options), and then use another decisionTopic."
        )


class WriteIdError(RocketMQError):
    """A write has the writeId of another one; nothing of it is visible."""

    def __init__(self, write: str, number: int, reason: str) -> None:
        super().__init__(write, number, reason)
        self.write = write
        self.number = number
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.WRITE_ID] write {self.number} of {self.write} {self.reason}. Nothing "
            "of this one is visible: give every write a writeId of its own, with growing numbers."
        )


class ReplayError(RocketMQError):
    """A batch of a stream differs from the decision under its number, or another driver has it."""

    def __init__(self, query: str, batch: int, reason: str) -> None:
        super().__init__(query, batch, reason)
        self.query = query
        self.batch = batch
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.REPLAY] batch {self.batch} of {self.query} {self.reason}. Let one "
            "driver alone run the query. If its checkpoint was copied or set back, or if it gives "
            "other rows when a batch runs again, use a new checkpoint."
        )


class UnsupportedError(RocketMQError):
    """This version, this Spark or RocketMQ cannot do it."""

    def __init__(self, feature: str, reason: str) -> None:
        super().__init__(feature, reason)
        self.feature = feature
        self.reason = reason

    def __str__(self) -> str:
        return f"[ROCKETMQ_UNSUPPORTED.{self.feature}] {self.reason}"


class GroupInUseError(RocketMQError):
    """The consumer group has live members, whose committed offsets a commit would overwrite."""

    def __init__(self, group: str, members: tuple[str, ...]) -> None:
        super().__init__(group, members)
        self.group = group
        self.members = members

    def __str__(self) -> str:
        shown = ", ".join(self.members[:3]) + (", ..." if len(self.members) > 3 else "")
        members = plural(len(self.members), "live member")
        return (
            f"[ROCKETMQ_GROUP.IN_USE] group={self.group} has {members} "
            f"({shown}): committing for it would overwrite their offsets. "
            "Use a group of its own for this query, or set commitOffsets=false."
        )


class DiscoveryDiedError(RocketMQError):
    """The discovery thread, which finds new queues and lost data, ended by an error."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            "[ROCKETMQ_DISCOVERY.DIED] the search for new queues and topics ended by "
            f"{self.reason}. Restart the query: it resumes from its checkpoint."
        )


class CheckpointError(LocalProtocolError):
    """The checkpoint holds an offset that this source did not write."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_OPTION.CHECKPOINT] the checkpoint's offset {self.text} {self.reason}. "
            "Use the checkpoint that this query wrote, or a new one."
        )


class ClusterUnreachableError(TransportError):
    """A read cannot be planned: the cluster did not answer while planning may wait.

    `address` is the one that failed last, `where` what the user gave.
    """

    def __init__(self, where: str, address: str, reason: str, tries: int, waited_ms: int) -> None:
        super().__init__(address, reason)
        self.args = (where, address, reason, tries, waited_ms)
        self.where = where
        self.tries = tries
        self.waited_ms = waited_ms

    def __str__(self) -> str:
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return (
            f"[ROCKETMQ_CONNECTION.UNREACHABLE] {self.where}: {self.address} does not answer "
            f"({self.reason}). Asked {times} in {self.waited_ms / 1_000:.1f} s. Check the address, "
            "and that the name server and the brokers are up; where brokers advertise an address "
            "that is not reachable from here, give addressMap. Raise connectTimeoutMs to wait "
            "longer."
        )


class ReadOutageError(TransportError):
    """A running read has waited for its broker for as long as it may; `last` is the last error."""

    def __init__(self, last: TransportError, waited_ms: int) -> None:
        super().__init__(last.address, last.reason)
        self.args = (last, waited_ms)
        self.last = last
        self.waited_ms = waited_ms

    def __str__(self) -> str:
        return (
            f"{self.last} The read waited for {self.waited_ms / 1_000:.0f} s (retry.outageMs). A "
            "streaming query that is started again resumes from its checkpoint."
        )


class JobError(Exception):
    """A job cannot do what it was asked for; its text says what to do next."""


_LOSS_TEXT = {
    LossReason.EXPIRED: "{gone} are gone, deleted by retention before they were read",
    LossReason.TRUNCATED: "the queue ends before the wanted offset, {gone} are gone: the broker "
    "lost its tail, or the topic was deleted and created again",
    LossReason.TOPIC_DELETED: "the topic no longer exists, {gone} are gone",
    LossReason.TOPIC_RECREATED: "the topic was deleted and created again since, {gone} of the old "
    "one are gone",
    LossReason.QUEUE_REMOVED: "the topic has fewer queues than before and this one is no longer "
    "readable, {gone} are gone",
    LossReason.HOLE: "the broker delivered its neighbours but not these offsets, {gone} are gone",
}

_LOSS_RESUMES = {
    LossReason.EXPIRED: "from {next}",
    LossReason.TRUNCATED: "from {next}",
    LossReason.TOPIC_DELETED: "without it",
    LossReason.TOPIC_RECREATED: "from {next}",
    LossReason.QUEUE_REMOVED: "without it",
    LossReason.HOLE: "from {next}",
}


class DataLossError(RocketMQError):
    """Messages to read are gone; raised only if failOnDataLoss is on."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        self.loss = loss

    @property
    def facts(self) -> str:
        """What happened, without the advice: also the text of the warning if reading continues."""
        loss = self.loss
        if loss.count is None:
            gone = "an unknown number of messages"
        else:
            gone = f"{loss.count} message" + ("" if loss.count == 1 else "s")
        text = _LOSS_TEXT[loss.reason].format(gone=gone)
        if loss.count == 1:
            text = text.replace("1 message are", "1 message is")
        available = f"[{loss.bounds.start},{loss.bounds.end})" if loss.bounds else "unknown"
        return (
            f"[ROCKETMQ_DATA_LOSS.{loss.reason.value}] {loss.queue} requested={loss.start} "
            f"available={available}: {text}."
        )

    def __str__(self) -> str:
        resumes = _LOSS_RESUMES[self.loss.reason].format(next=self.loss.next_offset)
        return f"{self.facts} Set failOnDataLoss=false to continue {resumes}."


def raise_or_skip_loss(loss: Loss, *, fail_on_data_loss: bool) -> int:
    """Raise DataLossError, or log the loss and return the offset where reading resumes."""
    error = DataLossError(loss)
    if fail_on_data_loss:
        raise error
    _log.warning("%s Continuing, since failOnDataLoss=false.", error.facts)
    return loss.start if loss.next_offset is None else loss.next_offset
