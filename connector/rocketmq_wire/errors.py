"""The error tree that every layer shares, and the table between broker errors and response codes.

An error carries facts as attributes and builds its text in `__str__`, so that it survives pickling
between Spark's processes. The text is one line: a stable class in brackets, the facts, what to do.
`retryable` speaks of the failure alone; whether a request may be repeated, the request says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_HELP_LINK: Final = re.compile(r"See https?://\S+ for further details\.?")


class RocketMQError(Exception):
    """Everything this project raises on purpose."""

    retryable = False


class ProtocolError(RocketMQError):
    """The bytes, or their order, break the protocol."""

    @property
    def told(self) -> str:
        """What is wrong, without advice, as a part of another sentence."""
        return str(self)


class LocalProtocolError(ProtocolError):
    """We were asked to send something illegal."""


class RowRefusedError(LocalProtocolError):
    """A row of columns cannot be a message: its place among them, and why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row, self.reason = row, reason

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


class RemoteProtocolError(ProtocolError):
    """The peer sent something illegal."""


# How the answers of web servers begin, as the number that stands there in a frame.
_HTTP_BEGINS: Final = tuple(
    int.from_bytes(begin, "big") for begin in (b"HTTP", b"<!DO", b"<htm", b"<HTM")
)


class FrameTooLargeError(RemoteProtocolError):
    """A frame announced more bytes than the limit allows."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(size, size_max)
        self.size, self.size_max = size, size_max

    @property
    def is_http(self) -> bool:
        """The size is text: the peer is a web server."""
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
        self.where, self.position, self.reason = where, position, reason

    @property
    def told(self) -> str:
        """Where and what, for who wrote the bytes and reads nothing."""
        return f"{self.where} byte={self.position}: {self.reason}"

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CORRUPT_MESSAGE] {self.told}. "
            "Set corruptMessages=skip or emit to go on without it."
        )


class BrokerError(RocketMQError):
    """The broker understood and refused; carries its response code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(code, remark)
        self.code, self.remark = code, remark

    @property
    def told(self) -> str:
        """The remark as a part of our sentence: brokers add line breaks, full stops and links."""
        words = _HELP_LINK.sub("", " ".join(self.remark.split()))
        return words.rstrip(" .!") or "no remark"

    def __str__(self) -> str:
        return f"[ROCKETMQ_BROKER.CODE_{self.code}] the broker refused: {self.told}"


class TopicNotFoundError(BrokerError):
    """The topic is unknown to the name server or to the broker."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_TOPIC_NOT_FOUND] {self.told}. "
            "Create the topic first, or check its spelling and the name server's address."
        )


class GroupNotFoundError(BrokerError):
    """The consumer group is unknown and may not be created."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_GROUP.NOT_FOUND] {self.told}. "
            "Create the group at the broker, or let it create groups by itself."
        )


class NotAuthorizedError(BrokerError):
    """The broker refused for lack of permission: credentials, or a topic or group closed to us."""

    @property
    def told(self) -> str:
        """The remark without what Java adds to it: its class, and the method that threw it."""
        return _JAVA_NOISE.sub("", super().told)

    def __str__(self) -> str:
        for pattern, kind, advice in _REFUSALS:
            if pattern.search(self.remark):
                return f"[ROCKETMQ_AUTH.{kind}] {self.told}. {advice}"
        return f"[ROCKETMQ_AUTH] {self.told}. Check the credentials and the topic's permission."


_JAVA_NOISE: Final = re.compile(
    r"^CODE: \d+ +DESC: |\b(?:org\.apache|java)\.[\w.$]+Exception: ?"
    r"|, org\.apache\.[\w.$]+\(\w+\.java:\d+\)$"
)
# How brokers of 4.9 and 5.x, the proxy, and our own say which of the three it is.
_REFUSALS: Final = (
    (
        re.compile(r"(?i)no accesskey|username (?:is|cannot be) (?:null|blank)|no credentials"),
        "MISSING_KEY",
        "Give the options accessKey and secretKey: this cluster wants to know who asks.",
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
    """No connection can be had with these settings: waiting does not help."""


class TlsError(WrongSettingsError):
    """No encrypted connection can be had.

    `kind` is the stable class, `reason` what was found.
    """

    def __init__(self, kind: str, address: str, reason: str) -> None:
        super().__init__(kind, address, reason)
        self.kind, self.address, self.reason = kind, address, reason

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
    "FILE": "Check the paths on the machine that says so: Spark's workers read them, too",
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
        self.address, self.speaks_grpc, self.speaks_http = address, speaks_grpc, speaks_http

    def __str__(self) -> str:
        if self.speaks_http:
            told = (
                "speaks HTTP, not RocketMQ's TCP protocol. Give the name server's port (9876 "
                "unless set otherwise) as nameServer"
            )
        elif self.speaks_grpc:
            told = (
                "speaks gRPC, not RocketMQ's TCP protocol. Give it as endpoints, or give the name "
                "server's port (9876 unless set otherwise) as nameServer"
            )
        else:
            told = (
                "speaks RocketMQ's TCP protocol, not gRPC. Give it as nameServer, or give the "
                "gRPC port (8081 unless set otherwise) as endpoints"
            )
        return f"[ROCKETMQ_CONNECTION.WRONG_PORT] {self.address} {told}."


class BrokerBusyError(BrokerError):
    """The broker is overloaded or asks us to slow down; nothing was stored."""

    retryable = True


class MessageTooLargeError(BrokerError):
    """A message, or a batch of them, is larger than the broker takes. Sending again cannot help."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SEND.TOO_LARGE] the broker refused: {self.told}. Make rows smaller, or "
            "raise maxMessageSize at the broker (16 MiB at most, message_bytes_max at the bundled "
            "one); maxBatchBytes must not be above it."
        )


class FilterUnsupportedError(BrokerError):
    """The broker filters by tags only."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_UNSUPPORTED.SQL92] {self.told}. "
            "Set enablePropertyFilter=true at the broker, or select by tags."
        )


class FilterWordsError(RocketMQError):
    """The broker is too old for words of an SQL92 filter, and has read another filter."""

    def __init__(self, broker: str, version: str, words: tuple[str, ...]) -> None:
        super().__init__(broker, version, words)
        self.broker, self.version, self.words = broker, version, words

    def __str__(self) -> str:
        release = f"is RocketMQ {self.version}" if self.version else "does not tell its version"
        return (
            f"[ROCKETMQ_UNSUPPORTED.SQL92_WORDS] broker={self.broker}: {' and '.join(self.words)} "
            f"in an SQL92 filter take RocketMQ 5.1.3 or later, and this broker {release}: it "
            "selects other messages than the filter says. Leave them out, or filter in Spark."
        )


class UnsupportedRequestError(BrokerError):
    """The peer does not know this request code."""

    def __str__(self) -> str:
        return f"[ROCKETMQ_UNSUPPORTED] {self.told}"


class ProgressNotFoundError(BrokerError):
    """The group has no stored progress for the queue (response code 22)."""


class TransportError(RocketMQError):
    """The network failed; raised only by the client's transports."""

    retryable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address, self.reason = address, reason


class ConnectError(TransportError):
    """No connection could be made."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.REFUSED] cannot connect to {self.address}: {self.reason}. "
            "Check the address, and that the name server and brokers are up."
        )


class ConnectionLostError(TransportError):
    """The connection broke; requests in flight may have been executed."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.LOST] the connection to {self.address} broke: {self.reason}. "
            "Check the broker's log; the request is repeated where that is safe."
        )


class DeadlineExceededError(TransportError):
    """No answer came in time; the request may have been executed."""

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.TIMEOUT] {self.address} did not answer in time: {self.reason}. "
            "Raise requestTimeoutMs, or pullTimeoutMs for what is read, or check the broker's load."
        )


# Brokers before 5.3 have no code of their own for what access control refuses.
_SYSTEM_ERROR: Final = 1
_NO_PERMISSION: Final = 16
_ACL_REFUSAL: Final = re.compile(r"\bAclException\b")

_ILLEGAL: Final = 13
# Of single messages brokers say so with code 13; of batches 5.x with code 1 and an exception.
_TOO_LARGE: Final = re.compile(
    r"\bsize exceeded\b|\bmsg body length limit\b|\bmessage body size [0-9]+ is over the limit\b"
)

_NO_FILTER: Final = "does not support consumer to filter message by"
# Response codes with a class of their own. Code 1 is the catch-all of brokers before 5.3.2, where
# later ones answer 29: both stay a plain BrokerError.
ERROR_CLASSES: dict[int, type[BrokerError]] = {
    2: BrokerBusyError,
    3: UnsupportedRequestError,
    14: BrokerBusyError,
    16: NotAuthorizedError,
    17: TopicNotFoundError,
    22: ProgressNotFoundError,
    26: GroupNotFoundError,
    215: BrokerBusyError,
    1500: BrokerBusyError,
}


def broker_error(code: int, remark: str) -> BrokerError:
    """The error that a response code stands for; of code 1 only the remark says more."""
    if code == 1 and _NO_FILTER in remark:
        return FilterUnsupportedError(code, remark)
    if code == _SYSTEM_ERROR and _ACL_REFUSAL.search(remark):
        # Code 1 also means that something went wrong at the broker, where asking again may help.
        return NotAuthorizedError(_NO_PERMISSION, remark)
    if code in (_SYSTEM_ERROR, _ILLEGAL) and _TOO_LARGE.search(remark):
        return MessageTooLargeError(code, remark)
    return ERROR_CLASSES.get(code, BrokerError)(code, remark)


def raise_first(answers: Mapping[K, V | RocketMQError]) -> dict[K, V]:
    """The values of answers of which none is an error; raises the first one that is."""
    values: dict[K, V] = {}
    for key, answer in answers.items():
        if isinstance(answer, RocketMQError):
            raise answer
        values[key] = answer
    return values
