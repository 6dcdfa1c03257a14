"""How the suite is divided among processes, Spark's tests first, and how hypothesis runs."""

from __future__ import annotations

import os

import hypothesis
import pytest

# The time of an example says how busy the machine is: hypothesis' own limit fails now and then.
hypothesis.settings.register_profile("project", deadline=None)
hypothesis.settings.load_profile("project")
# The profiles of the one who runs the tests would lead `rmq` to another cluster.
os.environ["RMQ_PROFILE"] = "none"

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
