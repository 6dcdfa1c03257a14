"""`python -m bench.chaos`: disturbs queries in every way at hand, then counts their messages."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from bench.accounting.submitted import ROOT
from bench.chaos.scenarios import Run, Scenario, say
from bench.chaos.site import Site
from bench.chaos.table import FULL, SHORT

_LOGS = ROOT / "build" / "chaos"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a minute: few of each, small volume")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only this; repeatable")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's random choices")
    parser.add_argument(
        "--control",
        action="store_true",
        help="count without recognising replays: repeated rows must make the run fail",
    )
    args = parser.parse_args(argv)
    table = {scenario.name: scenario for scenario in (SHORT if args.short else FULL)}
    if args.list:
        for scenario in table.values():
            print(f"{scenario.name:<16} {scenario.about}")
        return 0
    if unknown := set(args.scenario or ()) - set(table):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; --list lists them")
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    say(f"seed {seed}")
    lines = []
    is_clean = True
    for name in args.scenario or table:
        line, is_one_clean = _run(table[name], seed, is_control=args.control)
        lines.append(f"chaos: {name:<16} {'ok    ' if is_one_clean else 'FAILED'} {line}")
        is_clean &= is_one_clean
    print(*lines, sep="\n")
    print("chaos: every message is accounted for" if is_clean else "chaos: FAILED")
    return 0 if is_clean else 1


def _run(scenario: Scenario, seed: int, *, is_control: bool) -> tuple[str, bool]:
    """Run a scenario on a broker of its own; its line of the table, and whether it is clean."""
    directory, is_clean = Path(tempfile.mkdtemp(prefix="rocketmq-chaos-")), False
    try:
        with Site(directory, random.Random(seed)) as site:
            result = Run(scenario, site, directory, seed).whole(is_control=is_control)
        for text in (*result.outcome.examples, *result.missed):
            say(f"{scenario.name}: {text}")
        print(json.dumps({"chaos": scenario.name, "seed": seed, **result.figures()}), flush=True)
        is_clean = result.is_clean
    except Exception as error:  # noqa: BLE001 - the other scenarios run all the same.
        say(f"{scenario.name}: {type(error).__name__}: {error}")
        return type(error).__name__, False
    else:
        return result.line(), is_clean
    finally:
        if not is_clean:
            say(f"{scenario.name}: FAILED; its logs are in {_keep_logs(directory, scenario.name)}")
        shutil.rmtree(directory, ignore_errors=True)


def _keep_logs(directory: Path, name: str) -> Path:
    kept = _LOGS / name
    kept.mkdir(parents=True, exist_ok=True)
    for path in (directory / "query.log", directory / "broker" / "broker.out"):
        if path.exists():
            shutil.copy(path, kept)
    return kept


if __name__ == "__main__":
    # After SIGTERM it still stops what it started and leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
