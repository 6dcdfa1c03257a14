"""`rmq cluster`: a cluster's brokers with their addresses, roles, versions and rates."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.terminal.output import (
    Record,
    add_json_option,
    broker_version,
    show,
    titles_of,
)
from rocketmq_cli.usage import EXIT_FAILED, report

if TYPE_CHECKING:
    from rocketmq_wire.model import BrokerAddresses

_TITLES = titles_of(
    *("cluster", "broker", "role", "address", "version"), writeRate="written/s", readRate="read/s"
)


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "cluster",
        _cluster,
        "  rmq cluster\n  rmq cluster --json --name-server mq:9876",
        description="Shows every broker that the name server lists. The rates are messages a "
        "second, averages over the broker's last seconds, which a new broker does not have yet. "
        "Endpoints and replicas report no version and no rates. Exit code 1: a master did not "
        "answer.",
    )
    add_json_option(parser)
    add_connection_options(parser)


def _cluster(args: argparse.Namespace) -> int:
    from rocketmq_wire.errors import NotOverGrpcError, UnsupportedRequestError
    from rocketmq_wire.model import MASTER_ID
    from rocketmq_wire.requests.brokers import GetRuntimeInfo, SettingsReply

    with open_from(args) as cluster:
        brokers = cluster.cluster_info().brokers
        masters = [broker.name for broker in brokers if MASTER_ID in broker.addresses]
        answers = cluster.ask_each(masters, GetRuntimeInfo()) if masters else {}
    settings = {
        name: answer.settings
        for name, answer in answers.items()
        if isinstance(answer, SettingsReply)
    }
    records = [
        _record(broker, broker_id, settings.get(broker.name, {}) if broker_id == MASTER_ID else {})
        for broker in sorted(brokers, key=lambda broker: (broker.cluster, broker.name))
        for broker_id in sorted(broker.addresses)
    ]
    show(records, _TITLES, as_json=args.json)
    silent = {
        name: answer
        for name, answer in answers.items()
        if not isinstance(answer, (SettingsReply, NotOverGrpcError, UnsupportedRequestError))
    }
    for name, error in silent.items():
        report(f"{name} did not answer: {error}")
    return EXIT_FAILED if silent else 0


def _record(broker: BrokerAddresses, broker_id: int, settings: Mapping[str, str]) -> Record:
    return {
        "cluster": broker.cluster,
        "broker": broker.name,
        "role": "replica" if broker_id else "master",
        "address": broker.addresses[broker_id],
        "version": broker_version(settings),
        "writeRate": _rate(settings.get("putTps")),
        # Brokers of 4.9 misspell it.
        "readRate": _rate(settings.get("getTransferredTps", settings.get("getTransferedTps"))),
    }


def _rate(averages: str | None) -> float | None:
    """The first of a broker's averages, which is over the shortest time."""
    try:
        return float((averages or "").split()[0])
    except (IndexError, ValueError):
        return None
