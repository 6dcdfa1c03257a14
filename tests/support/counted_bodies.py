"""Bodies that count how often all or some of them are parsed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rocketmq_arrow.bodies.read import Bodies, Verdict
from rocketmq_arrow.kernels.gather import Mask, Positions


@dataclass
class CountedBodies:
    """Other bodies, and the calls of the parser."""

    bodies: Bodies
    calls: int = 0

    def columns(self, rows: Positions) -> list[pa.Array] | str:
        self.calls += 1
        return self.bodies.columns(rows)

    def looks_good(self, rows: Positions) -> Mask:
        return self.bodies.looks_good(rows)

    def verdict(self, row: int) -> Verdict:
        return self.bodies.verdict(row)
