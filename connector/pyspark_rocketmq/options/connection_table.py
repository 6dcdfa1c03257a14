"""The options of connections: where the cluster is, how long to wait, who asks, and TLS."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import ALL, OptionDefinition, later
from pyspark_rocketmq.options.kinds import Addresses, AddressMap, Duration, Flag, Secret, Text

_O = OptionDefinition
_TEXT: Final = Text()
_FLAG: Final = Flag()

CONNECTION_DEFINITIONS: Final = (
    _O(
        "nameServer",
        Addresses(),
        (),
        ALL,
        "connect",
        "Name servers of the cluster: RocketMQ's own TCP protocol. Or one http:// address of a web "
        "server that lists them, asked every two minutes.",
        ("nameServers", "namesrvAddr", "nameserver.addr"),
    ),
    _O(
        "endpoints",
        _TEXT,
        None,
        ALL,
        "connect",
        "Address of the bundled broker's gRPC service, instead of nameServer.",
    ),
    _O(
        "addressMap",
        AddressMap(),
        (),
        ALL,
        "connect",
        "Reachable addresses for the ones that brokers advertise (brokers behind NAT, containers).",
    ),
    _O(
        "connectTimeoutMs",
        Duration(1, 600_000),
        3_000,
        ALL,
        "connect",
        "How long making a connection may take, and how long the start of a read waits for a "
        "cluster that is unavailable.",
    ),
    _O(
        "requestTimeoutMs",
        Duration(1, 600_000),
        5_000,
        ALL,
        "connect",
        "How long a request other than a pull may go unanswered, its retries included.",
    ),
    _O(
        "retry.delayMs",
        Duration(1, 600_000),
        100,
        ALL,
        "connect",
        "The first pause before a retry; it doubles each time.",
    ),
    _O(
        "retry.maxDelayMs",
        Duration(1, 600_000),
        3_000,
        ALL,
        "connect",
        "The longest pause before a retry.",
    ),
    _O(
        "retry.outageMs",
        Duration(0),
        60_000,
        ALL,
        "connect",
        "How long a task waits for an unavailable broker before it fails, and its query with it; a "
        "query that only waits for new messages keeps waiting. The start of a read waits for "
        "connectTimeoutMs.",
    ),
    _O(
        "accessKey",
        Secret(),
        None,
        ALL,
        "connect",
        "Access key of the account, if the cluster checks access.",
    ),
    _O("secretKey", Secret(), None, ALL, "connect", "Secret key of the account; signs requests."),
    _O("securityToken", Secret(), None, ALL, "connect", "Token of a temporary account."),
    _O("tls", _FLAG, False, ALL, "connect", "Encrypt the connections."),
    _O(
        "tls.caFile",
        _TEXT,
        None,
        ALL,
        "connect",
        "Certificates to trust (PEM), instead of the system's. The driver and every worker read "
        "this and the other files.",
    ),
    _O("tls.certFile", _TEXT, None, ALL, "connect", "Certificate to show, with its chain (PEM)."),
    _O("tls.keyFile", _TEXT, None, ALL, "connect", "Key of the certificate to show (PEM)."),
    _O(
        "tls.serverName",
        _TEXT,
        None,
        ALL,
        "connect",
        "Name that every server's certificate must show (default: the host of its address).",
    ),
    _O(
        "tls.verify",
        _FLAG,
        True,
        ALL,
        "connect",
        "false accepts any certificate, as RocketMQ's own clients do: a man in the middle can read "
        "the traffic. For clusters with the generated test certificate.",
    ),
    later("namespace", _TEXT, ALL, "connect", "Namespace of topics and groups."),
    later("instanceName", _TEXT, ALL, "connect", "Instance part of the client id."),
    later("unitName", _TEXT, ALL, "connect", "Unit part of the client id."),
)
