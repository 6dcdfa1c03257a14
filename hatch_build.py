"""The package's links: made from `PROJECT_URL` when it is set, as the release workflow does."""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Links(MetadataHookInterface):
    """Adds `[project.urls]`; without an address a build has none."""

    def update(self, metadata: dict[str, Any]) -> None:
        if home := os.environ.get("PROJECT_URL"):
            metadata["urls"] = {
                "Source": home,
                "Documentation": f"{home}/blob/main/docs/index.md",
                "Changelog": f"{home}/blob/main/CHANGELOG.md",
                "Issues": f"{home}/issues",
            }
