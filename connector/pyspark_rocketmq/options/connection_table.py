"""The options of connections: where the cluster is, how long to wait, who asks, and TLS."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import ALL, Section
from pyspark_rocketmq.options.kinds import Addresses, AddressMap, Duration, Flag, Secret, Text

_connect = Section("connect", ALL)
_TEXT: Final = Text()
_FLAG: Final = Flag()

CONNECTION_DEFINITIONS: Final = (
    _connect.option(
        "nameServer",
        Addresses(),
        (),
        "Name servers of the cluster: RocketMQ's own TCP protocol. Or one http:// address of a web "
        "server that lists them, asked every two minutes.",
        aliases=("nameServers", "namesrvAddr", "nameserver.addr"),
    ),
    _connect.option(
        "endpoints",
        _TEXT,
        None,
        "Address of the bundled broker's gRPC service, instead of nameServer.",
    ),
    _connect.option(
        "addressMap",
        AddressMap(),
        (),
        "Reachable addresses for the ones that brokers advertise (brokers behind NAT, containers).",
    ),
    _connect.option(
        "connectTimeoutMs",
        Duration(1, 600_000),
        3_000,
        "How long making a connection may take, and how long the start of a read waits for a "
        "cluster that is unavailable.",
    ),
    _connect.option(
        "requestTimeoutMs",
        Duration(1, 600_000),
        5_000,
        "How long a request other than a pull may go unanswered, its retries included.",
    ),
    _connect.option(
        "retry.delayMs",
        Duration(1, 600_000),
        100,
        "The first pause before a retry; it doubles each time.",
    ),
    _connect.option(
        "retry.maxDelayMs", Duration(1, 600_000), 3_000, "The longest pause before a retry."
    ),
    _connect.option(
        "retry.outageMs",
        Duration(0),
        60_000,
        "How long a task waits for an unavailable broker before it fails, and its query with it; a "
        "query that only waits for new messages keeps waiting. The start of a read waits for "
        "connectTimeoutMs.",
    ),
    _connect.option(
        "accessKey", Secret(), None, "Access key of the account, if the cluster checks access."
    ),
    _connect.option("secretKey", Secret(), None, "Secret key of the account; signs requests."),
    _connect.option("securityToken", Secret(), None, "Token of a temporary account."),
    _connect.option("tls", _FLAG, False, "Encrypt the connections."),
    _connect.option(
        "tls.caFile",
        _TEXT,
        None,
        "Certificates to trust (PEM), instead of the system's. The driver and every worker read "
        "this and the other files.",
    ),
    _connect.option("tls.certFile", _TEXT, None, "Certificate to show, with its chain (PEM)."),
    _connect.option("tls.keyFile", _TEXT, None, "Key of the certificate to show (PEM)."),
    _connect.option(
        "tls.serverName",
        _TEXT,
        None,
        "Name that every server's certificate must show (default: the host of its address).",
    ),
    _connect.option(
        "tls.verify",
        _FLAG,
        True,
        "false accepts any certificate, as RocketMQ's own clients do: a man in the middle can read "
        "the traffic. For clusters with the generated test certificate.",
    ),
    _connect.later("namespace", _TEXT, "Namespace of topics and groups."),
    _connect.later("instanceName", _TEXT, "Instance part of the client id."),
    _connect.later("unitName", _TEXT, "Unit part of the client id."),
)
