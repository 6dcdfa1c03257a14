"""Options for the cluster's address and security, and the connection to that cluster."""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rocketmq_cli.profiles import (
    NAME_SERVER_VARIABLE,
    PROFILE_VARIABLE,
    apply_profile,
    read_keys,
)
from rocketmq_cli.usage import NotThereError, UsageError

if TYPE_CHECKING:
    from rocketmq_client.cluster import Cluster
    from rocketmq_client.settings import ConnectionSettings, TlsSettings
    from rocketmq_wire.errors import TopicNotFoundError
    from rocketmq_wire.model import QueueId
    from rocketmq_wire.signing import Credentials

# Keys are not options: every user of a machine can read its command lines.
ACCESS_KEY_VARIABLE = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE = "ROCKETMQ_SECURITY_TOKEN"


def add_connection_options(
    parser: argparse.ArgumentParser, *, endpoints_help: str = "gRPC endpoints instead"
) -> None:
    """Add the options for the cluster's address and its security."""
    group = parser.add_argument_group(
        f"connection (${ACCESS_KEY_VARIABLE} and ${SECRET_KEY_VARIABLE} sign requests)"
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "-n",
        "--name-server",
        metavar="HOST:PORT",
        help=f"name servers, ;-separated (${NAME_SERVER_VARIABLE})",
    )
    where.add_argument("--endpoints", metavar="HOST:PORT", help=endpoints_help)
    group.add_argument(
        "--profile", metavar="NAME", help=f"a table of ~/.config/rmq.toml (${PROFILE_VARIABLE})"
    )
    group.add_argument("--tls", action="store_true", help="encrypt the connections")
    group.add_argument("--tls-ca-file", metavar="FILE", help="certificates to trust (PEM)")
    group.add_argument("--tls-cert-file", metavar="FILE", help="certificate to show (PEM)")
    group.add_argument("--tls-key-file", metavar="FILE", help="key of that certificate (PEM)")
    group.add_argument("--tls-server-name", metavar="NAME", help="name in the certificate")
    group.add_argument("--tls-no-verify", action="store_true", help="accept any certificate")


def connection_settings(args: argparse.Namespace) -> ConnectionSettings:
    """The settings from the command line, the environment and the profile.

    Raises UsageError if none of them names a cluster.
    """
    from rocketmq_client.settings import ConnectionSettings
    from rocketmq_wire.addresses import NAME_SERVER_PORT, split_addresses

    apply_profile(args)
    if args.name_server and args.name_server.isdigit():
        counts = [f"--{name}" for name in ("count", "limit") if hasattr(args, name)]
        advice = f"did you mean {counts[0]} {args.name_server}?" if counts else "give HOST:PORT"
        raise UsageError(f"{args.name_server} is no address; {advice}")
    text = args.name_server or os.environ.get(NAME_SERVER_VARIABLE, "")
    try:
        credentials, tls = _credentials(args.credentials_file), _tls(args)
        if args.endpoints:
            return ConnectionSettings(endpoints=args.endpoints, credentials=credentials, tls=tls)
        name_servers = split_addresses(text, NAME_SERVER_PORT)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not name_servers:
        raise UsageError(
            "the cluster's address is missing: give --name-server or --endpoints,"
            f" set {NAME_SERVER_VARIABLE}, or write a profile"
        )
    return ConnectionSettings(name_servers=name_servers, credentials=credentials, tls=tls)


def names_cluster(args: argparse.Namespace) -> bool:
    """Whether the command line, the environment or the profile names a cluster."""
    apply_profile(args)
    is_given = args.name_server or args.endpoints or os.environ.get(NAME_SERVER_VARIABLE)
    return bool(is_given)


def _credentials(path: str | None) -> Credentials | None:
    from rocketmq_wire.signing import Credentials

    access_key = os.environ.get(ACCESS_KEY_VARIABLE)
    secret_key = os.environ.get(SECRET_KEY_VARIABLE)
    if not access_key and not secret_key:
        return None if path is None else Credentials(*read_keys(path))
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


def with_suggestion(
    cluster: Cluster, topics: Iterable[str], error: TopicNotFoundError
) -> TopicNotFoundError:
    """The error of a missing topic, with the nearest name that the cluster has."""
    from rocketmq_client.cluster import no_route
    from rocketmq_wire.errors import RocketMQError

    try:
        missing = set(topics).difference(cluster.topics())
    except RocketMQError:
        return error  # An account may lack the right to list topics.
    return no_route(cluster, missing) if missing else error


def topics_of(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """The topics that names and patterns such as `pay*` select. Raises NotThereError for none.

    A name stays, whether it exists or not; patterns do not select RocketMQ's own topics.
    """
    from rocketmq_wire.model import is_internal_topic

    found: dict[str, None] = {}
    for name in names:
        # No topic's name has these signs.
        if not set(name) & set("*?["):
            found[name] = None
            continue
        listed = [topic for topic in sorted(cluster.topics()) if not is_internal_topic(topic)]
        found.update(dict.fromkeys(fnmatch.filter(listed, name)))
    if not found:
        raise NotThereError(f"no topic matches {' '.join(names)!r}")
    return list(found)


def queues_of(
    cluster: Cluster, topic: str, index: int | None, broker: str | None = None
) -> list[QueueId]:
    """A topic's queues, filtered by index and broker if given. Raises NotThereError for none."""
    queues = [
        queue
        for queue in cluster.queues(topic)
        if index in (None, queue.index) and broker in (None, queue.broker)
    ]
    if not queues:
        raise NotThereError(
            f"topic {topic} has no queue {'' if index is None else index}"
            f"{'' if broker is None else f' at broker {broker}'}: "
            f"{queue_numbers(cluster.queues(topic))}"
        )
    return queues


def queue_numbers(queues: Sequence[QueueId]) -> str:
    """Which queues a topic has: `it has 0 to 3 at broker-a, 0 to 7 at broker-b`."""
    last: dict[str, int] = {}
    for queue in queues:
        last[queue.broker] = max(queue.index, last.get(queue.broker, 0))
    return "it has " + ", ".join(f"0 to {index} at {name}" for name, index in sorted(last.items()))
