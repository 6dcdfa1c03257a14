"""`rmq serve`: runs the bundled broker in the foreground, with status pages if wanted."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.commands.ui import PORT_DEFAULT, port_number, require_free
from rocketmq_cli.profiles import NAME_SERVER_VARIABLE, NO_PROFILE

if TYPE_CHECKING:
    from rocketmq_broker.servers.start import Addresses

_STOP_TIMEOUT_S = 10
_PAGE_HOST = "127.0.0.1"


def add_parser(verbs: Verbs) -> None:
    from rocketmq_broker import __main__ as broker

    parser = add_verb(
        verbs,
        "serve",
        run,
        "  rmq serve --port 9876 --data-dir /var/lib/rocketmq\n"
        "  rmq serve --memory --port 0 --ready-file ready.json\n"
        "  rmq serve --config broker.toml --ui",
        description="Runs the bundled broker until a signal stops it.",
    )
    broker.add_arguments(parser)
    parser.add_argument(
        "--ui",
        type=port_number,
        nargs="?",
        const=PORT_DEFAULT,
        metavar="PORT",
        help=f"serve the status pages, too (port {PORT_DEFAULT}; 0 for any)",
    )


def run(args: argparse.Namespace) -> int:
    from rocketmq_broker import __main__ as broker

    def print_export(addresses: Addresses) -> None:
        print(f"export {NAME_SERVER_VARIABLE}={addresses.name_server}", flush=True)

    if args.ui is None:
        return broker.run(args, print_export)
    # Checked before the broker reports that it is ready.
    require_free(_PAGE_HOST, args.ui, "--ui")
    pages: list[subprocess.Popen[bytes]] = []

    def start_page(addresses: Addresses) -> None:
        print_export(addresses)
        # A process of its own, so that rendering does not delay the broker.
        command = [sys.executable, "-m", "rocketmq_cli", "ui", "--exit-with-parent"]
        where = ["--host", _PAGE_HOST, "--port", str(args.ui)]
        cluster = ["--name-server", addresses.name_server, "--profile", NO_PROFILE]
        pages.append(subprocess.Popen([*command, *where, *cluster], stdin=subprocess.DEVNULL))

    try:
        return broker.run(args, start_page)
    finally:
        for page in pages:
            page.terminate()
            page.wait(_STOP_TIMEOUT_S)
