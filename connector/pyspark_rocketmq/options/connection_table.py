"""The options of connections: where the cluster is, how long to wait, who asks, and TLS."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options import kinds
from pyspark_rocketmq.options.definition import ALL, Section

_connect = Section("connect", ALL)

CONNECTION_DEFINITIONS: Final = (
    _connect.option(
        "nameServer", kinds.ADDRESSES, (), aliases=("nameServers", "namesrvAddr", "nameserver.addr")
    ).with_help(
        "Name servers of the cluster: RocketMQ's own TCP protocol. Or one http:// address of a web "
        "server that lists them, asked every two minutes."
    ),
    _connect.option("endpoints", kinds.TEXT).with_help(
        "Address of the bundled broker's gRPC service, instead of nameServer."
    ),
    _connect.option("addressMap", kinds.ADDRESS_MAP, ()).with_help(
        "Reachable addresses for the ones that brokers advertise (brokers behind NAT, containers)."
    ),
    _connect.option("connectTimeoutMs", kinds.duration(1, 600_000), 3_000).with_help(
        "How long making a connection may take, and how long the start of a read waits for a "
        "cluster that is unavailable."
    ),
    _connect.option("requestTimeoutMs", kinds.duration(1, 600_000), 5_000).with_help(
        "How long a request other than a pull may go unanswered, its retries included."
    ),
    _connect.option("retry.delayMs", kinds.duration(1, 600_000), 100).with_help(
        "The first pause before a retry; it doubles each time."
    ),
    _connect.option("retry.maxDelayMs", kinds.duration(1, 600_000), 3_000).with_help(
        "The longest pause before a retry."
    ),
    _connect.option("retry.outageMs", kinds.duration(0), 60_000).with_help(
        "How long a task waits for an unavailable broker before it fails, and its query with it; a "
        "query that only waits for new messages keeps waiting. The start of a read waits for "
        "connectTimeoutMs."
    ),
    _connect.option("accessKey", kinds.SECRET).with_help(
        "Access key of the account, if the cluster checks access."
    ),
    _connect.option("secretKey", kinds.SECRET).with_help(
        "Secret key of the account; signs requests."
    ),
    _connect.option("securityToken", kinds.SECRET).with_help("Token of a temporary account."),
    _connect.option("tls", kinds.FLAG, False).with_help("Encrypt the connections."),
    _connect.option("tls.caFile", kinds.TEXT).with_help(
        "Certificates to trust (PEM), instead of the system's. The driver and every worker read "
        "this and the other files."
    ),
    _connect.option("tls.certFile", kinds.TEXT).with_help(
        "Certificate to show, with its chain (PEM)."
    ),
    _connect.option("tls.keyFile", kinds.TEXT).with_help("Key of the certificate to show (PEM)."),
    _connect.option("tls.serverName", kinds.TEXT).with_help(
        "Name that every server's certificate must show (default: the host of its address)."
    ),
    _connect.option("tls.verify", kinds.FLAG, True).with_help(
        "false accepts any certificate, as RocketMQ's own clients do: a man in the middle can read "
        "the traffic. For clusters with the generated test certificate."
    ),
    _connect.later("namespace", kinds.TEXT, "Namespace of topics and groups."),
    _connect.later("instanceName", kinds.TEXT, "Instance part of the client id."),
    _connect.later("unitName", kinds.TEXT, "Unit part of the client id."),
)
