"""`rmq ui`: serves a cluster's status as web pages, and metrics for Prometheus."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import threading

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import add_connection_options, connection_settings
from rocketmq_cli.usage import UsageError, parse_duration_ms

PORT_DEFAULT = 8088
_PORT_MAX = 65_535
_PARENT_POLL_S = 0.5


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "ui",
        _ui,
        "  rmq ui --name-server mq:9876 --port 8088",
        description="Serves read-only pages about a cluster, /metrics for Prometheus and /health. "
        "The pages need no password: put a proxy in front before other machines may reach them.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=port_number,
        default=PORT_DEFAULT,
        help=f"port, 0 for any (default: {PORT_DEFAULT})",
    )
    parser.add_argument("--interval", default="5s", metavar="TIME", help="between samples (5s)")
    parser.add_argument("--exit-with-parent", action="store_true", help=argparse.SUPPRESS)
    # A clear refusal follows if it is given, or in the profile.
    add_connection_options(parser, endpoints_help=argparse.SUPPRESS)


def port_number(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give 0 to {_PORT_MAX}, 0 for any")
    return port


def require_free(host: str, port: int, option: str) -> None:
    """Raise OSError if the pages cannot be served there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # The server of the pages does so, too: connections in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            advice = ""
            if error.errno == errno.EADDRINUSE:
                advice = (
                    ". Another program listens there: stop it, or name another port "
                    f"({option} 0 takes a free one)"
                )
            text = f"cannot serve the status pages on {shown}: {error.strerror}{advice}"
            raise OSError(text) from error


def _ui(args: argparse.Namespace) -> int:
    from rocketmq_cli.status_page.web import StatusPage

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
            "the status pages need requests that gRPC endpoints do not answer: give --name-server"
        )
    require_free(args.host, args.port, "--ui" if args.exit_with_parent else "--port")
    with StatusPage(
        settings, host=args.host, port=args.port, interval_s=interval_ms / 1_000
    ) as page:
        print(f"status pages: {page.address}", flush=True)
        while not stopped.wait(_PARENT_POLL_S):
            if args.exit_with_parent and os.getppid() != parent:
                break
    return 0
