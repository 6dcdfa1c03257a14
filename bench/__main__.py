"""`python -m bench [names]`: runs measurements and prints one JSON line for each figure."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import time
from importlib.metadata import version

from bench.bed import Bed, say
from bench.registry import FULL, REGISTRY, SHORT

# In the order in which they run: what needs no Spark comes first.
_MODULES = (
    "decode",
    "planning",
    "broker",
    "startup",
    "command_line",
    "fetch",
    "push",
    "pop",
    "delays",
    "batch_read",
    "typed",
    "write",
    "available_now",
    "micro_batch",
    "latency",
    "idle",
    "memory",
    "profile",
    "real",
)


_DURATION = (
    "All measurements take about a quarter of an hour on two quiet cores, and up to twice as long "
    "on a busy machine, where runs are repeated; --short takes two to three minutes."
)


def main(argv: list[str] | None = None) -> int:
    for module in _MODULES:
        importlib.import_module(f"bench.measures.{module}")
    args = _parse(argv)
    if args.list:
        width = max(map(len, REGISTRY))
        for entry in REGISTRY.values():
            print(f"{entry.name:<{width}}  {entry.about}")
        return 0
    bed = Bed(SHORT if args.short else FULL)
    try:
        _emit("machine", _machine(short=args.short))
        for name in args.names or _usual_names():
            say(REGISTRY[name].about)
            began = time.monotonic()
            for figures in REGISTRY[name].measure(bed):
                _emit(name, figures)
            say(f"{name} took {time.monotonic() - began:.0f} s")
    finally:
        bed.close()
    return 0


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__, epilog=_DURATION)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (see --list)")
    parser.add_argument("--short", action="store_true", help="small and quick: does it all work?")
    parser.add_argument("--list", action="store_true", help="the measurements there are")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in REGISTRY]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(REGISTRY)}")
    return args


def _usual_names() -> list[str]:
    return [name for name, entry in REGISTRY.items() if not entry.is_extra]


def _machine(*, short: bool) -> dict[str, object]:
    packages = ("pyspark", "pyarrow", "numpy", "grpcio")
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "short": short,
    }


def _emit(name: str, figures: dict[str, object]) -> None:
    print(json.dumps({"measurement": name, **figures}), flush=True)


if __name__ == "__main__":
    # After SIGTERM it still stops what it started and leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
