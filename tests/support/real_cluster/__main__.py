"""Fetches the jars of the versions named, or of all; says what it does."""

from __future__ import annotations

import sys

from support.real_cluster.jars import VERSIONS, JarsUnavailableError, fetch_jars


def main() -> int:
    try:
        for version in sys.argv[1:] or VERSIONS:
            fetch_jars(version)
    except JarsUnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
