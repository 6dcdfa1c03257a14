"""`rmq checkpoint show`: shows the offsets in a query's Spark checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketmq_cli.arguments import Verbs, add_noun, add_verb
from rocketmq_cli.terminal.output import Record, add_json_option, show, titles_of
from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    from pyspark_rocketmq.planning.checkpoint import SourceOffset
    from rocketmq_wire.model import QueueId

_QUEUE = titles_of("topic", "broker", "queue")
_FINISHED_TITLES = _QUEUE | {"next": "next offset"}
_PLANNED_TITLES = _QUEUE | {"start": "begins at", "next": "ends before"}
_NO_OFFSET = "-"
# What `pyspark_rocketmq.stream.pop.driver` writes.
_POP_FIELDS = {"batch", "run", "version"}


class _Sources(NamedTuple):
    """RocketMQ's sources in a batch, by their number or name in the query."""

    offsets: Mapping[str, SourceOffset]
    popping: tuple[str, ...] = ()
    """Sources with consumeMode=pop, whose offset is a count."""


def add_parser(verbs: Verbs) -> None:
    actions = add_noun(verbs, "checkpoint", "rmq checkpoint show /data/checkpoints/orders")
    parser = add_verb(
        actions,
        "show",
        _show,
        "  rmq checkpoint show /data/checkpoints/orders\n"
        "  rmq checkpoint show /data/checkpoints/orders --as-starting-offsets\n"
        '      the text for option("startingOffsets", …) of a new query',
        summary="show the offsets of a batch, by default of the newest finished one",
        description="Shows where the RocketMQ sources of a query would resume. For a batch that is "
        "planned but not finished it shows the start and the end: Spark runs the batch again, so "
        "a new query that replaces this one begins at its start.",
    )
    parser.add_argument("directory", metavar="DIR", help="the query's checkpointLocation")
    parser.add_argument("--batch", type=int, metavar="ID", help="this batch instead")
    parser.add_argument("--source", metavar="N", help="only this source of the query, from 0")
    parser.add_argument(
        "--as-starting-offsets", action="store_true", help="as text for startingOffsets"
    )
    add_json_option(parser)


def _show(args: argparse.Namespace) -> int:
    root = Path(args.directory)
    planned, finished = _batches(root, "offsets"), _batches(root, "commits")
    if not root.exists():
        raise UsageError(f"{args.directory} does not exist on this machine")
    if not planned:
        raise UsageError(f"{root} is no checkpoint of a query that has run: it has no offsets")
    batch = args.batch if args.batch is not None else _newest(planned, finished)
    if batch not in planned:
        known = f"{min(planned)} to {max(planned)}"
        raise UsageError(f"batch {batch} is not in the checkpoint, which has {known}")
    is_finished = batch in finished
    sources = _wanted(_sources(planned[batch]), batch, args.source)
    # An unfinished batch is run again from its start.
    starts: dict[str, dict[QueueId, int]] = {}
    if not is_finished:
        before = _sources(planned[batch - 1]) if batch - 1 in planned else _Sources({})
        for number, offset in sources.items():
            ends_before = before.offsets[number].offsets if number in before.offsets else {}
            starts[number] = {**ends_before, **offset.starts}
            if args.as_starting_offsets:
                _require_starts(batch, offset, starts[number])
    if args.as_starting_offsets:
        _print_starting_offsets(
            starts or {number: offset.offsets for number, offset in sources.items()}
        )
        return 0
    records: list[Record] = [
        {
            "batch": batch,
            "finished": is_finished,
            "source": number,
            "topic": queue.topic,
            "broker": queue.broker,
            "queue": queue.index,
            "start": starts[number].get(queue) if number in starts else None,
            "next": at,
        }
        for number, offset in sources.items()
        for queue, at in sorted(offset.offsets.items())
    ]
    if not args.json:
        pending = [b for b in planned if b not in finished and b > batch]
        print(f"batch {batch}, {'finished' if is_finished else 'planned, not finished'}")
        if pending:
            print(f"batch {pending[0]} is planned and will be run again when the query starts")
    titles = _FINISHED_TITLES if is_finished else _PLANNED_TITLES
    show(records, titles if len(sources) == 1 else {"source": "source"} | titles, as_json=args.json)
    return 0


def _wanted(sources: _Sources, batch: int, wanted: str | None) -> Mapping[str, SourceOffset]:
    """The sources to show. Raises UsageError when there are none."""
    if wanted in sources.popping or (sources.popping and not sources.offsets):
        raise UsageError(
            f"source {wanted or ', '.join(sources.popping)} of batch {batch} pops "
            "(consumeMode=pop): its brokers keep the group's offsets, the checkpoint only counts "
            "batches. `rmq lag GROUP` shows the group's lag"
        )
    if wanted is not None:
        if wanted not in sources.offsets:
            raise UsageError(f"source {wanted} is not one of RocketMQ's in batch {batch}")
        return {wanted: sources.offsets[wanted]}
    if not sources.offsets:
        raise UsageError(f"no source of batch {batch} is RocketMQ's")
    return sources.offsets


def _require_starts(batch: int, planned: SourceOffset, starts: Mapping[QueueId, int]) -> None:
    """Raise UsageError if the checkpoint does not contain the start of a batch any more."""
    unknown = sorted(planned.offsets.keys() - starts.keys())
    if unknown:
        raise UsageError(
            f"batch {batch} is not finished, and the checkpoint does not contain its start in "
            f"{unknown[0]}: it has no offsets of batch {batch - 1}"
        )


def _print_starting_offsets(sources: Mapping[str, Mapping[QueueId, int]]) -> None:
    from pyspark_rocketmq.planning.checkpoint import nested

    if len(sources) > 1:
        numbers = ", ".join(sources)
        raise UsageError(f"the query has several sources ({numbers}): choose with --source")
    (offsets,) = sources.values()
    print(json.dumps(nested(offsets), separators=(",", ":")))


def _batches(root: Path, folder: str) -> dict[int, Path]:
    found = {int(p.name): p for p in (root / folder).glob("*") if p.name.isdigit()}
    return dict(sorted(found.items()))


def _newest(planned: dict[int, Path], finished: dict[int, Path]) -> int:
    """The newest finished batch that has offsets, or the only planned one of a new query."""
    done = [batch for batch in planned if batch in finished]
    return max(done) if done else min(planned)


def _sources(path: Path) -> _Sources:
    """Read the offsets of RocketMQ's sources from a batch's file.

    Spark writes a version, the batch's metadata, then one line a source; in version 2 the line
    begins with the source's name.
    """
    from pyspark_rocketmq.errors import CheckpointError
    from pyspark_rocketmq.planning.checkpoint import SourceOffset

    version, *lines = path.read_text().splitlines()
    if version not in ("v1", "v2") or not lines:
        raise UsageError(f"{path} has an unknown format ({version!r})")
    found: dict[str, SourceOffset] = {}
    popping: list[str] = []
    for number, line in enumerate(lines[1:]):
        name, text = str(number), line
        if version == "v2":
            name, _, text = line.partition(":")
        if text == _NO_OFFSET:
            continue
        try:
            value = json.loads(text)
            if isinstance(value, dict) and value.keys() == _POP_FIELDS:
                popping.append(name)
            else:
                found[name] = SourceOffset.from_json(value)
        except (ValueError, CheckpointError):
            continue  # The offset of another kind of source.
    return _Sources(found, tuple(popping))
