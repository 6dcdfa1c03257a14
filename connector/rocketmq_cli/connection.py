"""The options that say where the cluster is, and the cluster they lead to."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster
    from rocketmq_client.settings import ConnectionSettings

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add --name-server and --endpoints: one of them, or the environment, must be there."""
    where = parser.add_argument_group("cluster").add_mutually_exclusive_group()
    where.add_argument(
        "-n",
        "--name-server",
        metavar="HOST:PORT[;...]",
        help=f"name servers of the cluster (default: ${NAME_SERVER_VARIABLE})",
    )
    where.add_argument("--endpoints", metavar="HOST:PORT", help="gRPC endpoints instead")


def connection_settings(args: argparse.Namespace) -> ConnectionSettings:
    """The settings that the command line and the environment give.

    Raises UsageError when neither names a cluster.
    """
    from rocketmq_client.settings import ConnectionSettings, split_addresses

    text = args.name_server or os.environ.get(NAME_SERVER_VARIABLE, "")
    try:
        if args.endpoints:
            return ConnectionSettings(endpoints=args.endpoints)
        name_servers = split_addresses(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not name_servers:
        raise UsageError(
            "where is the cluster? Give --name-server or --endpoints,"
            f" or set {NAME_SERVER_VARIABLE}"
        )
    return ConnectionSettings(name_servers=name_servers)


def open_from(args: argparse.Namespace) -> Cluster:
    """The cluster named on the command line; close it."""
    from rocketmq_client.cluster import open_cluster

    return open_cluster(connection_settings(args))
