"""A cluster in memory, and runs of a stream's driver over it that are closed after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.driver_queries import Query, Run
from support.fake_cluster import FakeWorld


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def run(world: FakeWorld) -> Iterator[Run]:
    queries: list[Query] = []

    def start(**options: str) -> Query:
        queries.append(Query(world, **options))
        return queries[-1]

    yield start
    for query in queries:
        query.driver.close()
