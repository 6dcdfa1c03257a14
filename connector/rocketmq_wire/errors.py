"""All errors of the wire, client and broker packages, and the response codes they stand for.

    RocketMQError
        ProtocolError                  the bytes, or their order, break the protocol
            LocalProtocolError         the caller asks to send something illegal
                RowRefusedError        a row of columns cannot be a message
                NotOverGrpcError       the bulk gRPC service has no call for the request
                SqlSyntaxError         a filter is no SQL92 expression
            RemoteProtocolError        the peer sent something illegal
                FrameTooLargeError     a frame is over the size limit
                CorruptRecordError     a stored record is damaged
        BrokerError                    the broker refused: response code and remark
            TopicNotFoundError         GroupNotFoundError         ProgressNotFoundError
            NotAuthorizedError         MessageTooLargeError       UnsupportedRequestError
            FilterUnsupportedError
            BrokerBusyError            retryable
        PublicRefusal                  a refusal of the public gRPC service
        WrongSettingsError             no connection is possible with these settings
            TlsError                   WrongPortError             ForkedError
            MissingPackageError
        InflateError                   a body does not decompress
        FilterWordsError               the broker is too old for a word of an SQL92 filter
        EvaluationError                an SQL92 filter cannot compare two values of a message
        TransportError                 the network failed; retryable
            ConnectError               ConnectionLostError        DeadlineExceededError

An error carries facts as attributes and builds its text in `__str__`, so that it survives pickling
between Spark's processes. The text is one line: a stable class in brackets, the facts, what to do.
`retryable` describes the failure alone; a request class says whether the request may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from rocketmq_wire.codes import PublicCode, ResponseCode

K = TypeVar("K")
V = TypeVar("V")
_HELP_LINK: Final = re.compile(r"See https?://\S+ for further details\.?")


class RocketMQError(Exception):
    """Base of every error that the project raises on purpose."""

    retryable = False


class ProtocolError(RocketMQError):
    """The bytes, or their order, break the protocol."""

    @property
    def detail(self) -> str:
        """The text without advice, for use inside another sentence."""
        return str(self)


class LocalProtocolError(ProtocolError):
    """The caller asks to send something illegal."""


class RowRefusedError(LocalProtocolError):
    """A row of columns cannot be a message: its row index and the reason."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row} {self.reason}"


class NotOverGrpcError(LocalProtocolError):
    """The bulk gRPC service has no call for this request."""

    def __init__(self, request: str) -> None:
        super().__init__(request)
        self.request = request

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_UNSUPPORTED] {self.request} cannot be asked over gRPC endpoints: "
            "give the name server's address instead"
        )


_SHOWN_SIZE: Final = 40


class SqlSyntaxError(LocalProtocolError):
    """The text is no SQL92 expression."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(text, position, reason)
        self.text = text
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        near = self.text[self.position : self.position + _SHOWN_SIZE]
        where = f"at character {self.position + 1} ({near!r})" if near else "at its end"
        return f"the SQL92 expression is wrong {where}: {self.reason}"


class EvaluationError(RocketMQError):
    """An SQL92 filter cannot compare two values: the message does not match."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something illegal."""


# The first four bytes of web servers' answers, read as a frame's length field.
_HTTP_BEGINS: Final = tuple(
    int.from_bytes(begin, "big") for begin in (b"HTTP", b"<!DO", b"<htm", b"<HTM")
)


class FrameTooLargeError(RemoteProtocolError):
    """A frame announced more bytes than the limit allows."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(size, size_max)
        self.size = size
        self.size_max = size_max

    @property
    def is_http(self) -> bool:
        """True if the size is text of a web server's answer."""
        return self.size - 4 in _HTTP_BEGINS

    def __str__(self) -> str:
        if self.is_http:
            return (
                "[ROCKETMQ_CONNECTION.FRAME_TOO_LARGE] the peer speaks HTTP, not RocketMQ's "
                "remoting protocol. Give the port of the name server or of a broker."
            )
        return (
            f"[ROCKETMQ_CONNECTION.FRAME_TOO_LARGE] a frame of {self.size} bytes is over the limit "
            f"of {self.size_max}. Check that the port speaks RocketMQ's remoting protocol."
        )


class CorruptRecordError(RemoteProtocolError):
    """A stored record is torn, hostile or fails its checksum."""

    def __init__(self, where: str, position: int, reason: str) -> None:
        super().__init__(where, position, reason)
        self.where = where
        self.position = position
        self.reason = reason

    @property
    def detail(self) -> str:
        """The text without advice, which is for readers only."""
        return f"{self.where} byte={self.position}: {self.reason}"

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CORRUPT_MESSAGE] {self.detail}. "
            "Set corruptMessages=skip or emit to continue without it."
        )


class BrokerError(RocketMQError):
    """The broker understood and refused; carries its response code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(int(code), remark)
        self.code = int(code)
        self.remark = remark

    @property
    def detail(self) -> str:
        """The remark without the line breaks, full stops and links that brokers add."""
        words = _HELP_LINK.sub("", " ".join(self.remark.split()))
        return words.rstrip(" .!") or "no remark"

    def __str__(self) -> str:
        return f"[ROCKETMQ_BROKER.CODE_{self.code}] the broker refused: {self.detail}"


class TopicNotFoundError(BrokerError):
    """The topic is unknown to the name server or to the broker."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_TOPIC_NOT_FOUND] {self.detail}{'' if self.detail[-1] in '.?' else '.'} "
            "Create the topic first, or check its spelling and the name server's address."
        )


class GroupNotFoundError(BrokerError):
    """The consumer group is unknown and may not be created."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_GROUP.NOT_FOUND] {self.detail}. "
            "Create the group at the broker, or let it create groups by itself."
        )


class NotAuthorizedError(BrokerError):
    """The broker refused for lack of permission: credentials, or a topic or group closed to us."""

    @property
    def detail(self) -> str:
        """The remark without the Java class and method that threw the exception."""
        return _JAVA_NOISE.sub("", super().detail)

    def __str__(self) -> str:
        for pattern, kind, advice in _REFUSALS:
            if pattern.search(self.remark):
                return f"[ROCKETMQ_AUTH.{kind}] {self.detail}. {advice}"
        return f"[ROCKETMQ_AUTH] {self.detail}. Check the credentials and the topic's permission."


_JAVA_NOISE: Final = re.compile(
    r"^CODE: \d+ +DESC: |\b(?:org\.apache|java)\.[\w.$]+Exception: ?"
    r"|, org\.apache\.[\w.$]+\(\w+\.java:\d+\)$"
)
# The three kinds in the words of brokers of 4.9 and 5.x, of the proxy and of the bundled broker.
_REFUSALS: Final = (
    (
        re.compile(r"(?i)no accesskey|username (?:is|cannot be) (?:null|blank)|no credentials"),
        "MISSING_KEY",
        "Give the options accessKey and secretKey: this cluster requires credentials.",
    ),
    (
        re.compile(r"(?i)signature|no acl config|user(?::\S+)? (?:is )?not (?:found|exist)"),
        "WRONG_KEY",
        "Check the options accessKey and secretKey against the broker's accounts.",
    ),
    (
        re.compile(r"(?i)permission|forbidden"),
        "NO_PERMISSION",
        "Grant the account the topic and the group, or check the topic's own permission.",
    ),
)


class WrongSettingsError(RocketMQError):
    """No connection is possible with these settings: waiting does not help."""


class MissingPackageError(WrongSettingsError):
    """A package is not installed that gRPC needs, in the client or in the bundled broker."""

    def __init__(self, package: str, needed_by: str) -> None:
        super().__init__(package, needed_by)
        self.package = package
        self.needed_by = needed_by

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_INSTALL.MISSING] {self.needed_by} needs the package {self.package}, which "
            "is not installed. Install it by pip install 'pyspark-rocketmq[broker]'."
        )


class TlsError(WrongSettingsError):
    """No encrypted connection is possible: `kind` is the stable class, `reason` the finding."""

    def __init__(self, kind: str, address: str, reason: str) -> None:
        super().__init__(kind, address, reason)
        self.kind = kind
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        advice = _TLS_ADVICE.get(self.kind, "Check the options tls.* and the server's settings")
        return f"[ROCKETMQ_TLS.{self.kind}] {self.address}: {self.reason}. {advice}."


_TLS_ADVICE: Final = {
    "CERTIFICATE_EXPIRED": "Renew the server's certificate, or check this machine's clock",
    "CERTIFICATE_NAME": "Give the name in the server's certificate as tls.serverName",
    "CERTIFICATE_UNKNOWN": "Give the authority that signed it as tls.caFile",
    "CLIENT_CERTIFICATE": "Give a certificate that the server trusts as tls.certFile and "
    "tls.keyFile",
    "PLAINTEXT_SERVER": "Leave tls out, or switch TLS on at the server (tls.server.mode)",
    "REQUIRED": "Set tls=true, and tls.caFile if its authority is not a public one",
    "FILE": "Check the paths on the machine that reports this: Spark's workers read them, too",
}


class ForkedError(WrongSettingsError):
    """gRPC was in use when this process was forked: its threads stayed with the parent."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.FORKED] cannot connect to {self.address}: gRPC was in use when "
            "this process was forked. Connect in the child first, start it with spawn instead of "
            "fork, or use nameServer."
        )


class WrongPortError(WrongSettingsError):
    """The address speaks the other of RocketMQ's two protocols, or is a web server's."""

    def __init__(self, address: str, speaks_grpc: bool, speaks_http: bool = False) -> None:
        super().__init__(address, speaks_grpc, speaks_http)
        self.address = address
        self.speaks_grpc = speaks_grpc
        self.speaks_http = speaks_http

    def __str__(self) -> str:
        return self.text("nameServer", "endpoints")

    def text(self, name_server: str, endpoints: str) -> str:
        """The error with the names that the two options have for its reader."""
        tcp = "RocketMQ's TCP protocol"
        tcp_port = f"the name server's port (9876 unless set otherwise) as {name_server}"
        grpc_port = f"the gRPC port (8081 unless set otherwise) as {endpoints}"
        if self.speaks_http:
            finding = f"HTTP, not {tcp}. Give {tcp_port}"
        elif self.speaks_grpc:
            finding = f"gRPC, not {tcp}. Give it as {endpoints}, or give {tcp_port}"
        else:
            finding = f"{tcp}, not gRPC. Give it as {name_server}, or give {grpc_port}"
        return f"[ROCKETMQ_CONNECTION.WRONG_PORT] {self.address} speaks {finding}."


class BrokerBusyError(BrokerError):
    """The broker is overloaded or asks clients to slow down; it stored nothing."""

    retryable = True


class MessageTooLargeError(BrokerError):
    """A message or a batch is larger than the broker takes; sending it again cannot help."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SEND.TOO_LARGE] the broker refused: {self.detail}. Make rows smaller, or "
            "raise maxMessageSize at the broker (16 MiB at most, message_bytes_max at the bundled "
            "one); keep maxBatchBytes at or below it."
        )


class FilterUnsupportedError(BrokerError):
    """The broker selects messages by tags only."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_UNSUPPORTED.SQL92] {self.detail}. "
            "Set enablePropertyFilter=true at the broker (property_filter = true at the bundled "
            "one), or select by tags."
        )


class InflateError(RocketMQError):
    """A body does not decompress, or to more than the limit; the text says which."""


class FilterWordsError(RocketMQError):
    """The broker is too old for a word of an SQL92 filter and evaluates another filter."""

    def __init__(self, broker: str, version: str, words: tuple[str, ...]) -> None:
        super().__init__(broker, version, words)
        self.broker = broker
        self.version = version
        self.words = words

    def __str__(self) -> str:
        release = f"is RocketMQ {self.version}" if self.version else "does not report its version"
        return (
            f"[ROCKETMQ_UNSUPPORTED.SQL92_WORDS] broker={self.broker}: {' and '.join(self.words)} "
            f"in an SQL92 filter take RocketMQ 5.1.3 or later, and this broker {release}: it "
            "selects other messages than the filter says. Leave them out, or filter in Spark."
        )


class UnsupportedRequestError(BrokerError):
    """The peer does not know this request code."""

    def __str__(self) -> str:
        return f"[ROCKETMQ_UNSUPPORTED] {self.detail}"


class ProgressNotFoundError(BrokerError):
    """The group has no committed offset in the queue (response code 22)."""


class TransportError(RocketMQError):
    """The network failed; raised only by the client's transports."""

    retryable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason


class ConnectError(TransportError):
    """No connection could be made."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.REFUSED] cannot connect to {self.address}: {self.reason}. "
            "Check the address, and that the name server and brokers are up."
        )


class ConnectionLostError(TransportError):
    """The connection broke; the server may have executed requests in flight."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.LOST] the connection to {self.address} broke: {self.reason}. "
            "Check the broker's log; the request is repeated where that is safe."
        )


class DeadlineExceededError(TransportError):
    """No answer came in time; the server may have executed the request."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.TIMEOUT] {self.address} did not answer in time: {self.reason}. "
            "Raise requestTimeoutMs (pullTimeoutMs for reads), or check the broker's load."
        )


class PublicRefusal(RocketMQError):
    """The public gRPC service refuses a call: the code says why, the text what to do."""

    def __init__(self, code: PublicCode, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


# Brokers before 5.3 have no response code for refusals of access control.
_ACL_REFUSAL: Final = re.compile(r"\bAclException\b")
# Brokers refuse single messages with code 13; those of 5.x refuse batches with code 1.
_TOO_LARGE: Final = re.compile(
    r"\bsize exceeded\b|\bmsg body length limit\b|\bmessage body size [0-9]+ is over the limit\b"
)
_NO_FILTER: Final = "does not support consumer to filter message by"
# Code 29 is code 1 of brokers before 5.3.2: both stay a plain BrokerError.
_ERROR_CLASSES: Final[dict[int, type[BrokerError]]] = {
    ResponseCode.SYSTEM_BUSY: BrokerBusyError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: UnsupportedRequestError,
    ResponseCode.SERVICE_NOT_AVAILABLE: BrokerBusyError,
    ResponseCode.NO_PERMISSION: NotAuthorizedError,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFoundError,
    ResponseCode.QUERY_NOT_FOUND: ProgressNotFoundError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFoundError,
    ResponseCode.FLOW_CONTROL: BrokerBusyError,
    ResponseCode.GO_AWAY: BrokerBusyError,
}


def broker_error(code: int, remark: str) -> BrokerError:
    """The error that a response code stands for; for code 1 only the remark is specific."""
    if code == ResponseCode.SYSTEM_ERROR:
        if _NO_FILTER in remark:
            return FilterUnsupportedError(code, remark)
        if _ACL_REFUSAL.search(remark):
            # Code 1 also means a failure inside the broker, where a repeated request may succeed.
            return NotAuthorizedError(ResponseCode.NO_PERMISSION, remark)
    is_illegal = code in (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)
    if is_illegal and _TOO_LARGE.search(remark):
        return MessageTooLargeError(code, remark)
    return _ERROR_CLASSES.get(code, BrokerError)(code, remark)


def raise_first(answers: Mapping[K, V | RocketMQError]) -> dict[K, V]:
    """Return the values of all answers; raise the first answer that is an error."""
    values, errors = split_answers(answers)
    for error in errors.values():
        raise error
    return values


def split_answers(
    answers: Mapping[K, V | RocketMQError],
) -> tuple[dict[K, V], dict[K, RocketMQError]]:
    """Split answers into the values and the errors, both by their keys and in their order."""
    values: dict[K, V] = {}
    errors: dict[K, RocketMQError] = {}
    for key, answer in answers.items():
        if isinstance(answer, RocketMQError):
            errors[key] = answer
        else:
            values[key] = answer
    return values, errors
