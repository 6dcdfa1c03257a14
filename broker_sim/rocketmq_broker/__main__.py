"""The broker as a process: `python -m rocketmq_broker --config F --port N --ready-file F`."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Final

from rocketmq_broker.config import (
    BrokerConfig,
    check_flush,
    config_from,
    parse_assignment,
    read_values,
)
from rocketmq_broker.errors import ConfigError
from rocketmq_broker.servers.start import Addresses, RunningBroker, start_broker
from rocketmq_broker.storage.errors import StorageError
from rocketmq_wire.errors import MissingPackageError

_PARENT_POLL_SECONDS: Final = 0.5
_PR_SET_PDEATHSIG: Final = 1
# More work between two collections, and old objects seldom visited: requests make no cycles.
_GC_THRESHOLDS: Final = (50_000, 20, 100)
# The time that a thread may keep the interpreter: the flush thread must not wait 5 ms to report.
_SWITCH_SECONDS: Final = 0.000_2


_OPTIONS: Final = ("host", "port", "grpc_port", "data_dir", "name_server", "broker_name")
"""The keys that are options, too."""


class _WithoutPandas(MetaPathFinder):
    """Hides an installed pandas.

    pyarrow would import it with the first batch of records, which takes a second without service,
    and 60 MB. The broker does not use it.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a broker does not use pandas", name=fullname)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with keys as below",
    )
    given = BrokerConfig()
    parser.add_argument("--host", help=f"address to listen on (default: {given.host})")
    parser.add_argument(
        "--port",
        type=int,
        help=f"TCP port (default: {given.port}, a free one that it keeps)",
    )
    parser.add_argument(
        "--grpc-port",
        type=int,
        help=f"gRPC port (default: {given.grpc_port}, a free one)",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help=f"the store (default: {given.data_dir})",
    )
    parser.add_argument(
        "--name-server",
        metavar="ADDR",
        help="register there, and serve no name server",
    )
    parser.add_argument(
        "--broker-name",
        metavar="NAME",
        help=f"its own name (default: {given.broker_name})",
    )
    parser.add_argument("--memory", action="store_true", help="store nothing on the disk")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="assignments",
        help="any of the keys; may be repeated",
    )
    parser.add_argument(
        "--ready-file", type=Path, metavar="FILE", help="written as JSON once the broker serves"
    )
    parser.add_argument(
        "--exit-with-parent", action="store_true", help="end when the starting process ends"
    )
    parser.add_argument("--verbose", action="store_true", help="log what the broker does")
    # The options above have their defaults in their own lines.
    keys = [
        f"{key.name}={_shown(getattr(given, key.name))}"
        for key in fields(given)
        if key.name not in _OPTIONS
    ]
    listed = textwrap.fill(
        " ".join(keys), 79, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    notes = f"more keys of --config and --set, with their defaults:\n{listed}"
    parser.epilog = f"{parser.epilog}\n\n{notes}" if parser.epilog else notes


def _shown(value: object) -> str:
    return json.dumps(value) if value == "" or isinstance(value, bool) else str(value)


def config_of(arguments: argparse.Namespace) -> BrokerConfig:
    """The configuration file's values, overridden by the command line's. Raises ConfigError."""
    values = read_values(arguments.config) if arguments.config else {}
    values.update(parse_assignment(text) for text in arguments.assignments)
    for name in _OPTIONS:
        if getattr(arguments, name) is not None:
            values[name] = getattr(arguments, name)
    if arguments.memory:
        # A wrong flush mode is refused even though --memory overrides it.
        check_flush(values.get("flush", "memory"))
        values["flush"] = "memory"
    if arguments.exit_with_parent:
        values["exit_with_parent"] = True
    return config_from(values, str(arguments.config or "the command line"))


def run(
    arguments: argparse.Namespace, on_ready: Callable[[Addresses], None] = lambda _: None
) -> int:
    """Serve until a signal ends the process; returns the exit status."""
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    parent = os.getppid()
    without_pandas = _WithoutPandas()
    sys.meta_path.insert(0, without_pandas)
    try:
        config = config_of(arguments)
        return asyncio.run(_serve(config, arguments.ready_file, parent, on_ready))
    except (ConfigError, StorageError, MissingPackageError) as error:
        print(f"rocketmq broker: {error}", file=sys.stderr)
        # A wrong setting is as wrong as an option, for which argparse ends with 2.
        return 2 if isinstance(error, ConfigError) else 1
    finally:
        sys.meta_path.remove(without_pandas)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="rocketmq-broker",
        description="A small, durable RocketMQ broker.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


async def _serve(
    config: BrokerConfig,
    ready_file: Path | None,
    parent: int,
    on_ready: Callable[[Addresses], None],
) -> int:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watch = None
    if config.exit_with_parent:
        watch = loop.create_task(_watch_parent(parent, stop))
    broker = await start_broker(config)
    try:
        sys.setswitchinterval(_SWITCH_SECONDS)
        # Imported and opened objects stay, so collections need not visit them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        _announce(broker, config, ready_file)
        on_ready(broker.addresses)
        await stop.wait()
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        await broker.stop()
        if watch is not None:
            watch.cancel()
    return 0


def _announce(broker: RunningBroker, config: BrokerConfig, ready_file: Path | None) -> None:
    addresses = broker.addresses
    where = "memory" if config.in_memory else f"{Path(config.data_dir).resolve()}"
    print(f"RocketMQ broker {config.broker_name} is ready, flush={config.flush}, data in {where}")
    print(f"nameServer={addresses.name_server}")
    if addresses.endpoints is not None:
        print(f"endpoints={addresses.endpoints}")
    sys.stdout.flush()
    if ready_file is None:
        return
    content = {
        "nameServer": addresses.name_server,
        "endpoints": addresses.endpoints,
        "pid": os.getpid(),
    }
    # Renamed into its final name, because readers must never see half of the file.
    draft = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
    draft.write_text(json.dumps(content) + "\n", encoding="utf-8")
    draft.replace(ready_file)


async def _watch_parent(parent: int, stop: asyncio.Event) -> None:
    """Set `stop` when the starting process has ended.

    Linux can send a signal at once, but sends it when the starting *thread* ends, so the signal
    only triggers a check. Other systems check periodically.
    """
    hint = asyncio.Event()
    if sys.platform == "linux":
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, hint.set)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
    while os.getppid() == parent:
        hint.clear()
        try:
            await asyncio.wait_for(hint.wait(), _PARENT_POLL_SECONDS)
        except asyncio.TimeoutError:
            continue
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
