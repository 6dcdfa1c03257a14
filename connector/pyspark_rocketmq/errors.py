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
Give the facts by position: they are the error's `args`, by which Spark's processes pickle it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rocketmq_client.loss import Loss, LossReason
from rocketmq_wire.errors import LocalProtocolError, RocketMQError, TransportError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_log = logging.getLogger("pyspark_rocketmq")


def _sentence(reason: str) -> str:
    return reason if reason.endswith("?") else f"{reason}."


@dataclass(eq=False, repr=False)
class OptionError(RocketMQError, ValueError):
    """A user option is missing or wrong; `name` is the option, `kind` the condition."""

    name: str
    reason: str
    kind: str = "INVALID"

    def __str__(self) -> str:
        return f"[ROCKETMQ_OPTION.{self.kind}] option '{self.name}' {self.reason}"


@dataclass(eq=False, repr=False)
class SchemaError(RocketMQError, ValueError):
    """The schema asks for a column that does not exist or has another type."""

    reason: str

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_OPTION.SCHEMA] {_sentence(self.reason)} "
            "Name in .schema(...) only columns that the source has, with their types."
        )


@dataclass(eq=False, repr=False)
class SinkSchemaError(RocketMQError, ValueError):
    """The rows to write have a column that a message cannot take, or lack one."""

    reason: str

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.SCHEMA] {_sentence(self.reason)} Nothing was sent. Select the columns "
            "of messages, such as .select('body', 'keys', 'tags')."
        )


@dataclass(eq=False, repr=False)
class SinkRowError(RocketMQError, ValueError):
    """A row cannot be a message; `partition` and `rows` say which."""

    partition: int
    rows: str
    reason: str

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.ROW] partition {self.partition}, {self.rows} {self.reason}. "
            "Correct or leave out such rows before they are written."
        )


@dataclass(eq=False, repr=False)
class BadBodyError(RocketMQError, ValueError):
    """A body does not fit the schema, with `bodyMode=failfast`."""

    queue: QueueId
    offset: int
    reason: str

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


@dataclass(eq=False, repr=False)
class UnfinishedTransactionError(RocketMQError):
    """A batch is decided, but some of its rows are not visible yet."""

    query: str
    batch: int
    count: int
    reason: str

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.UNFINISHED] {plural(self.count, 'row')} of batch {self.batch} of "
            f"{self.query} decided and not visible yet: {self.reason}. Run the query again, or "
            "pyspark_rocketmq.finish_transactions(options). What the broker has given up is in "
            "TRANS_CHECK_MAX_TIME_TOPIC."
        )


@dataclass(eq=False, repr=False)
class DecisionsAwayError(RocketMQError):
    """A broker that stores commit decisions is missing from their topic's route.

    Without names all of them are missing.
    """

    retryable = True

    topic: str
    brokers: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.brokers) or "every broker"
        return (
            f"[ROCKETMQ_SINK.DECISIONS_AWAY] topic={self.topic}: {names} also stores commit "
            "decisions and is unreachable. Restart it. If it is gone for good, run "
            "finish_transactions(options), and then use another decisionTopic."
        )


@dataclass(eq=False, repr=False)
class WriteIdError(RocketMQError):
    """A write has the writeId of another one; nothing of it is visible."""

    write: str
    number: int
    reason: str

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.WRITE_ID] write {self.number} of {self.write} {self.reason}. Nothing "
            "of this one is visible: give every write a writeId of its own, with growing numbers."
        )


@dataclass(eq=False, repr=False)
class ReplayError(RocketMQError):
    """A batch of a stream differs from the decision under its number, or another driver has it."""

    query: str
    batch: int
    reason: str

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SINK.REPLAY] batch {self.batch} of {self.query} {self.reason}. Let one "
            "driver alone run the query. If its checkpoint was copied or set back, or if it gives "
            "other rows when a batch runs again, use a new checkpoint."
        )


@dataclass(eq=False, repr=False)
class UnsupportedError(RocketMQError):
    """This version, Spark or the cluster cannot do it; `feature` is the condition."""

    feature: str
    reason: str

    def __str__(self) -> str:
        return f"[ROCKETMQ_UNSUPPORTED.{self.feature}] {self.reason}"


@dataclass(eq=False, repr=False)
class GroupInUseError(RocketMQError):
    """The consumer group has live members, whose committed offsets a commit would overwrite."""

    group: str
    members: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.members[:3]) + (", ..." if len(self.members) > 3 else "")
        members = plural(len(self.members), "live member")
        return (
            f"[ROCKETMQ_GROUP.IN_USE] group={self.group} has {members} "
            f"({shown}): committing for it would overwrite their offsets. "
            "Use a group of its own for this query, or set commitOffsets=false."
        )


@dataclass(eq=False, repr=False)
class DiscoveryDiedError(RocketMQError):
    """The discovery thread, which finds new queues and lost data, ended by an error."""

    reason: str

    def __str__(self) -> str:
        return (
            "[ROCKETMQ_DISCOVERY.DIED] the search for new queues and topics ended by "
            f"{self.reason}. Restart the query: it resumes from its checkpoint."
        )


@dataclass(eq=False, repr=False)
class CheckpointError(LocalProtocolError):
    """The checkpoint holds an offset that this source did not write."""

    reason: str
    text: str

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
    LossReason.EXPIRED: "{gone}, deleted by retention before they were read",
    LossReason.TRUNCATED: "the queue ends before the wanted offset, {gone}: the broker "
    "lost its tail, or the topic was deleted and created again",
    LossReason.TOPIC_DELETED: "the topic no longer exists, {gone}",
    LossReason.TOPIC_RECREATED: "the topic was deleted and created again since, {gone}",
    LossReason.QUEUE_REMOVED: "the topic has fewer queues than before and this one is no longer "
    "readable, {gone}",
    LossReason.HOLE: "the broker delivered its neighbours but not these offsets, {gone}",
}

_WITHOUT_NEXT = (LossReason.TOPIC_DELETED, LossReason.QUEUE_REMOVED)


@dataclass(eq=False, repr=False)
class DataLossError(RocketMQError):
    """Messages to read are gone; raised only if failOnDataLoss is on."""

    loss: Loss

    @property
    def facts(self) -> str:
        """What happened, without the advice: also the text of the warning if reading continues."""
        loss = self.loss
        if loss.count is None:
            gone = "an unknown number of messages are gone"
        elif loss.count == 0:
            gone = "all known messages were read"
        else:
            gone = f"{loss.count} " + (
                "message is gone" if loss.count == 1 else "messages are gone"
            )
        text = _LOSS_TEXT[loss.reason].format(gone=gone)
        available = f"[{loss.bounds.start},{loss.bounds.end})" if loss.bounds else "unknown"
        return (
            f"[ROCKETMQ_DATA_LOSS.{loss.reason.value}] {loss.queue} requested={loss.start} "
            f"available={available}: {text}."
        )

    def __str__(self) -> str:
        loss, resumes = self.loss, f"from {self.loss.next_offset}"
        if loss.reason in _WITHOUT_NEXT:
            resumes = "without it"
        elif loss.reason is LossReason.TRUNCATED and loss.bounds is not None:
            resumes = f"from {loss.bounds.end}"  # A query reads what is written there from now on.
        return f"{self.facts} Set failOnDataLoss=false to continue {resumes}."


def raise_or_skip_loss(loss: Loss, *, fail_on_data_loss: bool) -> int:
    """Raise DataLossError, or log the loss and return the offset where reading resumes."""
    error = DataLossError(loss)
    if fail_on_data_loss:
        raise error
    _log.warning("%s Continuing, since failOnDataLoss=false.", error.facts)
    return loss.start if loss.next_offset is None else loss.next_offset
