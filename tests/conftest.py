"""How the suite is divided among processes: Spark's tests first, each folder of them in one."""

from __future__ import annotations

import pytest

_ROOT = "tests/"


# Before xdist's own hook, which reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The process with Spark's tests ends last, so it must start them at once.

    A folder of them shares a session, any other file its brokers; neither is worth having twice.
    """
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    for item in items:
        file, _, _ = item.nodeid.partition("::")
        needs_spark = item.get_closest_marker("spark") is not None
        group = file.rpartition("/")[0] if needs_spark else file
        item.add_marker(pytest.mark.xdist_group(group.removeprefix(_ROOT)))
