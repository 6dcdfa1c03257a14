"""`rmq checkpoint show`: what a Spark checkpoint says about a query's offsets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketmq_cli.output import Record, add_json_option, show
from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    from pyspark_rocketmq.offsets import SourceOffset

_TITLES = {"topic": "topic", "broker": "broker", "queue": "queue", "next": "next offset"}
_NO_OFFSET = "-"


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `checkpoint` with its own verb."""
    checkpoint = verbs.add_parser("checkpoint", help="what a Spark checkpoint says about offsets")
    actions = checkpoint.add_subparsers(metavar="ACTION", required=True)
    parser = actions.add_parser(
        "show",
        help="the offsets of a batch, the newest finished one by default",
        description="Shows where the RocketMQ sources of a query would go on.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  rmq checkpoint show /data/checkpoints/orders\n"
        "  rmq checkpoint show /data/checkpoints/orders --as-starting-offsets\n"
        '      the text for option("startingOffsets", …) of a new query',
    )
    parser.add_argument("directory", metavar="DIR", help="the query's checkpointLocation")
    parser.add_argument("--batch", type=int, metavar="ID", help="this batch instead")
    parser.add_argument("--source", metavar="N", help="only this source of the query, from 0")
    parser.add_argument(
        "--as-starting-offsets", action="store_true", help="as text for startingOffsets"
    )
    add_json_option(parser)
    parser.set_defaults(run=_show)


def _show(args: argparse.Namespace) -> int:
    from pyspark_rocketmq.offsets import nested

    root = Path(args.directory)
    planned, finished = _batches(root, "offsets"), _batches(root, "commits")
    if not planned:
        raise UsageError(f"{root} is no checkpoint of a query that has run: it has no offsets")
    batch = args.batch if args.batch is not None else _newest(planned, finished)
    if batch not in planned:
        known = f"{min(planned)} to {max(planned)}"
        raise UsageError(f"batch {batch} is not in the checkpoint, which has {known}")
    sources = _sources(planned[batch])
    if args.source is not None:
        if args.source not in sources:
            raise UsageError(f"source {args.source} is none of RocketMQ's in batch {batch}")
        sources = {args.source: sources[args.source]}
    if not sources:
        raise UsageError(f"no source of batch {batch} is RocketMQ's")
    if args.as_starting_offsets:
        if len(sources) > 1:
            numbers = ", ".join(sources)
            raise UsageError(f"the query has several sources ({numbers}): choose with --source")
        (offset,) = sources.values()
        print(json.dumps(nested(offset.offsets), separators=(",", ":")))
        return 0
    state = "finished" if batch in finished else "planned, not finished"
    records: list[Record] = [
        {
            "batch": batch,
            "finished": batch in finished,
            "source": number,
            "topic": queue.topic,
            "broker": queue.broker,
            "queue": queue.index,
            "next": at,
        }
        for number, offset in sources.items()
        for queue, at in sorted(offset.offsets.items())
    ]
    if not args.json:
        pending = [b for b in planned if b not in finished and b > batch]
        print(f"batch {batch}, {state}")
        if pending:
            print(f"batch {pending[0]} is planned and will be run again when the query starts")
    show(
        records, _TITLES if len(sources) == 1 else {"source": "source"} | _TITLES, as_json=args.json
    )
    return 0


def _batches(root: Path, folder: str) -> dict[int, Path]:
    found = {int(p.name): p for p in (root / folder).glob("*") if p.name.isdigit()}
    return dict(sorted(found.items()))


def _newest(planned: dict[int, Path], finished: dict[int, Path]) -> int:
    """The newest finished batch whose offsets are kept; a new query has only its planned one."""
    done = [batch for batch in planned if batch in finished]
    return max(done) if done else min(planned)


def _sources(path: Path) -> dict[str, SourceOffset]:
    """The offsets of RocketMQ's sources, by their number in the query, or their name.

    Spark's file: a version, the batch's metadata, then a line a source; from version 2 on with the
    source's name in front.
    """
    from pyspark_rocketmq.offsets import CheckpointError, SourceOffset

    version, *lines = path.read_text().splitlines()
    if version not in ("v1", "v2") or not lines:
        raise UsageError(f"{path} is written in a form ({version!r}) that is not known here")
    found: dict[str, SourceOffset] = {}
    for number, line in enumerate(lines[1:]):
        name, text = str(number), line
        if version == "v2":
            name, _, text = line.partition(":")
        if text == _NO_OFFSET:
            continue
        try:
            found[name] = SourceOffset.from_json(json.loads(text))
        except (ValueError, CheckpointError):
            continue  # Another source's.
    return found
