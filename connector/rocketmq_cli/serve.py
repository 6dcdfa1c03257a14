"""`rmq serve`: the bundled broker in the foreground, with a status page where wanted."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rocketmq_cli.ui import PORT_DEFAULT

if TYPE_CHECKING:
    from rocketmq_broker_sim.servers.assembly import Addresses

_STOP_TIMEOUT_S = 10


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Lists the verb; its arguments are read by the broker itself."""
    verbs.add_parser("serve", help="run the bundled broker", add_help=False)


def run(words: Sequence[str]) -> int:
    """Serve until told to stop."""
    from rocketmq_broker_sim import __main__ as broker
    from rocketmq_cli.command_line import Parser

    parser = Parser(
        prog="rmq serve", description="Runs the bundled broker until it is told to stop."
    )
    broker.add_arguments(parser)
    parser.add_argument(
        "--ui",
        type=int,
        nargs="?",
        const=PORT_DEFAULT,
        metavar="PORT",
        help=f"serve the status page, too (port {PORT_DEFAULT}; 0 for any)",
    )
    args = parser.parse_args(words)
    if args.ui is None:
        return broker.run(args)
    pages: list[subprocess.Popen[bytes]] = []

    def start_page(addresses: Addresses) -> None:
        # A process of its own: what it renders must not hold up the broker.
        command = [sys.executable, "-m", "rocketmq_cli", "ui", "--exit-with-parent"]
        where = ["--name-server", addresses.name_server, "--port", str(args.ui)]
        pages.append(subprocess.Popen([*command, *where], stdin=subprocess.DEVNULL))

    try:
        return broker.run(args, start_page)
    finally:
        for page in pages:
            page.terminate()
            page.wait(_STOP_TIMEOUT_S)
