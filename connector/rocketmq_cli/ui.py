"""`rmq ui`: a cluster's status as web pages, with metrics for Prometheus."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from typing import Any

from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.usage import UsageError

PORT_DEFAULT = 8088
_PARENT_POLL_S = 0.5


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `ui`."""
    parser = verbs.add_parser(
        "ui",
        help="a cluster's topics, groups, lag and messages as web pages",
        description="Serves read-only pages about a cluster, /metrics for Prometheus and /health. "
        "It asks nobody for a password: put a proxy in front before other machines may reach it.",
        epilog="example: rmq ui --name-server mq:9876 --port 8088",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=PORT_DEFAULT, help=f"port, 0 for any (default: {PORT_DEFAULT})"
    )
    parser.add_argument("--interval", default="5s", metavar="TIME", help="between looks (5s)")
    parser.add_argument("--exit-with-parent", action="store_true", help=argparse.SUPPRESS)
    add_connection_options(parser)
    parser.set_defaults(run=_ui)


def _ui(args: argparse.Namespace) -> int:
    from rocketmq_cli.status_page.web import StatusPage
    from rocketmq_cli.times import parse_duration_ms

    interval_ms = parse_duration_ms(args.interval)
    if interval_ms < 500:
        raise UsageError("--interval must be 500ms or more")
    parent = os.getppid()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    settings = connection_settings(args)
    if settings.endpoints is not None:
        raise UsageError(
            "the status page asks what only the name server's brokers know: give --name-server"
        )
    with StatusPage(
        settings, host=args.host, port=args.port, interval_s=interval_ms / 1_000
    ) as page:
        print(f"status page: {page.address}", flush=True)
        while not stopped.wait(_PARENT_POLL_S):
            if args.exit_with_parent and os.getppid() != parent:
                break
    return 0
