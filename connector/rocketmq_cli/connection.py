"""Options for the cluster's address and security, and the connection to that cluster."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster
    from rocketmq_client.settings import ConnectionSettings, TlsSettings
    from rocketmq_wire.model import QueueId
    from rocketmq_wire.signing import Credentials

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
# Keys are not options: every user of a machine can read its command lines.
ACCESS_KEY_VARIABLE = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE = "ROCKETMQ_SECURITY_TOKEN"


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster's address and its security."""
    where = parser.add_argument_group("cluster").add_mutually_exclusive_group()
    where.add_argument(
        "-n",
        "--name-server",
        metavar="HOST:PORT[;...]",
        help=f"name servers of the cluster (default: ${NAME_SERVER_VARIABLE})",
    )
    where.add_argument("--endpoints", metavar="HOST:PORT", help="gRPC endpoints instead")
    security = parser.add_argument_group(
        "security",
        f"Keys are taken from ${ACCESS_KEY_VARIABLE}, ${SECRET_KEY_VARIABLE} and"
        f" ${SECURITY_TOKEN_VARIABLE}.",
    )
    security.add_argument("--tls", action="store_true", help="encrypt the connections")
    security.add_argument("--tls-ca-file", metavar="FILE", help="certificates to trust (PEM)")
    security.add_argument("--tls-cert-file", metavar="FILE", help="certificate to show (PEM)")
    security.add_argument("--tls-key-file", metavar="FILE", help="key of that certificate (PEM)")
    security.add_argument(
        "--tls-server-name", metavar="NAME", help="name that the server's certificate must show"
    )
    security.add_argument("--tls-no-verify", action="store_true", help="accept any certificate")


def connection_settings(args: argparse.Namespace) -> ConnectionSettings:
    """The settings from the command line and the environment.

    Raises UsageError if neither names a cluster.
    """
    from rocketmq_client.settings import ConnectionSettings, split_addresses

    text = args.name_server or os.environ.get(NAME_SERVER_VARIABLE, "")
    try:
        credentials, tls = _credentials(), _tls(args)
        if args.endpoints:
            return ConnectionSettings(endpoints=args.endpoints, credentials=credentials, tls=tls)
        name_servers = split_addresses(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not name_servers:
        raise UsageError(
            "the cluster's address is missing: give --name-server or --endpoints,"
            f" or set {NAME_SERVER_VARIABLE}"
        )
    return ConnectionSettings(name_servers=name_servers, credentials=credentials, tls=tls)


def _credentials() -> Credentials | None:
    from rocketmq_wire.signing import Credentials

    access_key = os.environ.get(ACCESS_KEY_VARIABLE)
    secret_key = os.environ.get(SECRET_KEY_VARIABLE)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise UsageError(f"give both {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}, or neither")
    return Credentials(access_key, secret_key, os.environ.get(SECURITY_TOKEN_VARIABLE) or None)


def _tls(args: argparse.Namespace) -> TlsSettings | None:
    from rocketmq_client.settings import TlsSettings

    given = (args.tls_ca_file, args.tls_cert_file, args.tls_key_file, args.tls_server_name)
    if not args.tls:
        if any(given) or args.tls_no_verify:
            raise UsageError("the --tls-... options have no effect without --tls")
        return None
    return TlsSettings(*given, verifies=not args.tls_no_verify)


def open_from(args: argparse.Namespace) -> Cluster:
    """Open the cluster that the command line names; the caller closes it."""
    from rocketmq_client.cluster import open_cluster

    return open_cluster(connection_settings(args))


def queues_of(
    cluster: Cluster, topic: str, index: int | None, broker: str | None = None
) -> list[QueueId]:
    """A topic's queues, filtered by index and broker if given. Raises UsageError for none."""
    queues = [
        queue
        for queue in cluster.queues(topic)
        if index in (None, queue.index) and broker in (None, queue.broker)
    ]
    if not queues:
        raise UsageError(f"topic {topic} has no queue {index}")
    return queues
