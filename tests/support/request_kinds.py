"""Every class of requests that the protocols have."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import rocketmq_wire
from rocketmq_wire.requests.contract import Request


def request_kinds() -> dict[str, type[Request[Any]]]:
    """The request classes of every module, but for the bases that others share."""
    names = [one.name for one in pkgutil.walk_packages(rocketmq_wire.__path__, "rocketmq_wire.")]
    kinds = {
        kind
        for module in map(importlib.import_module, names)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Request)
    }
    bases = {base for kind in kinds for base in kind.__mro__[1:]}
    return {kind.__name__: kind for kind in kinds if "access" in vars(kind) or kind not in bases}
