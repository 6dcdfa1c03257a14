"""Queries as members of groups, and streams that pop, on unmodified RocketMQ."""

from __future__ import annotations

import pytest

import spark.test_joined_group as joined_group
import spark.test_pop as pop
from real.adoption import adopt
from support.real_cluster import VERSIONS

# Brokers of 4.9 know no pop.
_on_5 = pytest.mark.parametrize("broker", VERSIONS[:1], indirect=True)
_popping = adopt(
    pop,
    without={
        "test_a_stream_pops_through_the_public_service_alone": "test_spark_proxy has its proxy",
    },
)

globals().update(adopt(joined_group, without={}))
globals().update({name: _on_5(test) for name, test in _popping.items()})
