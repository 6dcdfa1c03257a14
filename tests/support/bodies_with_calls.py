"""Bodies that count how often all or some of them are parsed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rocketmq_arrow.bodies.read import Bodies, Validity
from rocketmq_arrow.kernels.gather import Mask, Positions


@dataclass
class BodiesWithCalls:
    """Other bodies, and the calls of the parser."""

    bodies: Bodies
    calls: int = 0

    def columns(self, rows: Positions) -> list[pa.Array] | str:
        self.calls += 1
        return self.bodies.columns(rows)

    def seem_valid(self, rows: Positions) -> Mask:
        return self.bodies.seem_valid(rows)

    def validity(self, row: int) -> Validity:
        return self.bodies.validity(row)
