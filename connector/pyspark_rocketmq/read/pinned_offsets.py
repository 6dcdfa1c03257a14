"""pin_offsets: fixes the ends of a batch read as numbers, to inspect, repeat and commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.consumer_group.commit import require_free
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.checks import SELECTORS
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options, spellings_of
from pyspark_rocketmq.options.tables import READ_DEFINITIONS
from pyspark_rocketmq.planning.checkpoint import nested
from pyspark_rocketmq.planning.split import Split, divide
from pyspark_rocketmq.read.batch_reader import plan_queues
from rocketmq_client.cluster import open_cluster
from rocketmq_wire.errors import raise_first
from rocketmq_wire.model import OffsetRange

# The options that the pinned read has in another form.
_REPLACED = spellings_of(
    each for each in READ_DEFINITIONS if each.group == "start and end" or each.name in SELECTORS
)


@dataclass(frozen=True, slots=True)
class PinnedOffsets:
    """A batch read whose ends are numbers: reading it twice gives the same rows."""

    given: Mapping[str, str]
    """The options that were pinned."""
    ranges: tuple[OffsetRange, ...]
    """The offsets to read, by queue."""
    tasks: int
    """The number of tasks of the read."""

    @property
    def starting_offsets(self) -> str:
        """The start of every queue, as the option `startingOffsets` takes it."""
        return json.dumps(nested({piece.queue: piece.start for piece in self.ranges}))

    @property
    def ending_offsets(self) -> str:
        """The end of every queue, as the option `endingOffsets` takes it."""
        return json.dumps(nested({piece.queue: piece.end for piece in self.ranges}))

    @property
    def messages(self) -> int:
        """The number of offsets to read."""
        return sum(map(len, self.ranges))

    @property
    def queues(self) -> int:
        """The number of queues with something to read."""
        return sum(1 for piece in self.ranges if len(piece))

    @property
    def options(self) -> dict[str, str]:
        """The options that read exactly this: `spark.read.format("rocketmq").options(**...)`."""
        # The queues by name: a queue created meanwhile is not part of what was pinned.
        assign: dict[str, dict[str, list[int]]] = {}
        for piece in self.ranges:
            of_topic = assign.setdefault(piece.queue.topic, {})
            of_topic.setdefault(piece.queue.broker, []).append(piece.queue.index)
        return {
            **{key: text for key, text in self.given.items() if key.lower() not in _REPLACED},
            "assign": json.dumps(assign),
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
        }

    def check_group(self, group: str | None = None) -> None:
        """Raise GroupInUseError before the work if the group has live members: `commit` would.

        Raises OptionError without a group, and the cluster's errors.
        """
        self._with_free_group(group, commits=False)

    def commit(self, group: str | None = None) -> None:
        """Commit the ends as the group's offsets, after the job is done with the data.

        Raises OptionError without a group, GroupInUseError if the group has live members, and the
        first error of a broker.
        """
        self._with_free_group(group, commits=True)

    def _with_free_group(self, group: str | None, *, commits: bool) -> None:
        options = read_options(self.given)
        name = group or options.consumer.group
        if name is None:
            raise OptionError(
                "group", "is missing: for which group shall the offsets be committed?", "MISSING"
            )
        ends = {piece.queue: piece.end for piece in self.ranges}
        if not ends:
            return
        with open_cluster(connection_settings(options.connection)) as cluster:
            require_free(cluster, name, sorted({queue.topic for queue in ends}))
            if commits:
                raise_first(cluster.commit(name, ends))


def pin_offsets(options: Mapping[str, str]) -> PinnedOffsets:
    """Resolve the start and end of a batch read now: a dry run, and fixed offsets for the job.

    Raises the errors of planning the read.

    Args:
        options: The options of a read, as for `spark.read`.
    """
    given = {key: str(text) for key, text in options.items()}
    parsed = read_options(given, Use.BATCH)
    with open_cluster(connection_settings(parsed.connection)) as cluster:
        queues = plan_queues(cluster, parsed)
    ranges = tuple(OffsetRange(known.queue, known.start, known.end) for known in queues)
    return PinnedOffsets(given, ranges, len(divide(ranges, Split.of(parsed))))
