"""`rmq check`: checks what a first query needs, and says how to repair it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import (
    add_connection_options,
    connection_settings,
    names_cluster,
)
from rocketmq_cli.terminal.output import add_json_option, show_json
from rocketmq_cli.usage import EXIT_FAILED

if TYPE_CHECKING:
    from rocketmq_cli.checks import Finding


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "check",
        _check,
        "  rmq check\n  rmq check --name-server mq:9876 --topic orders",
        description="Checks Java, Python, Spark and whether Spark finds the source; with a name "
        "server also whether every broker is reachable, and a topic. Exit code 1: a check failed.",
    )
    parser.add_argument("--topic", help="a topic that a query will read")
    parser.add_argument("--no-spark", action="store_true", help="check only the cluster")
    add_json_option(parser)
    add_connection_options(parser)


def _check(args: argparse.Namespace) -> int:
    is_sound = True
    for finding in _findings(args):
        is_sound = is_sound and finding.state != "FAIL"
        if args.json:
            record = {"check": finding.what, "state": finding.state.strip()}
            show_json(record | {"found": finding.found, "do": finding.remedy})
            continue
        print(f"{finding.state}  {finding.what:<16} {finding.found}", flush=True)
        if finding.remedy:
            print(f"      {'':<16} {finding.remedy}")
    return 0 if is_sound else EXIT_FAILED


def _findings(args: argparse.Namespace) -> Iterator[Finding]:
    from rocketmq_cli import checks

    if not args.no_spark:
        for check in checks.CHECKS:
            yield from check()
    if names_cluster(args):
        yield from checks.check(connection_settings(args), args.topic)
    else:
        yield checks.note("cluster", "not checked", "give --name-server HOST:PORT to check it, too")
