"""Checks a built sdist and wheel: `python -m support.distributions FOLDER`, from a checkout."""

from __future__ import annotations

import email.parser
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("connector", "broker_sim")
# What a checkout holds for itself only.
NOT_SHIPPED = (".ci", ".github", ".gitignore", ".gitattributes", "pyproject.toml")


def tracked_files() -> set[str]:
    """What the repository holds, as far as it is still there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def wheel_problems(wheel: Path, tracked: set[str]) -> list[str]:
    """What the wheel lacks, has too much, or says wrongly of itself."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (metadata_name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(archive.read(metadata_name).decode())
    shipped = {name for name in names if ".dist-info/" not in name}
    wanted = {name.partition("/")[2] for name in tracked if name.partition("/")[0] in SOURCE_ROOTS}
    problems = [f"the wheel lacks {name}" for name in sorted(wanted - shipped)]
    # What is not tracked yet may come along in a checkout that is worked on.
    waste = [name for name in shipped if "__pycache__" in name or name.endswith((".pyc", ".log"))]
    problems += [f"the wheel holds {name}" for name in sorted(waste)]
    unexpected = {
        name for name in shipped if not any((ROOT / r / name).is_file() for r in SOURCE_ROOTS)
    }
    problems += [
        f"the wheel holds {name}, which is no source of ours" for name in sorted(unexpected)
    ]
    packages = {name.partition("/")[0] for name in shipped}
    problems += [
        f"{package} has no py.typed"
        for package in sorted(packages)
        if f"{package}/py.typed" not in shipped
    ]
    for field in ("Name", "Version", "Summary", "Requires-Python", "License-Expression"):
        if not metadata[field]:
            problems.append(f"the metadata has no {field}")
    home = os.environ.get("PROJECT_URL")
    if home and f"Source, {home}" not in metadata.get_all("Project-URL", []):
        problems.append(f"the metadata has no link to {home}")
    if not any(name.endswith("LICENSE") for name in names - shipped):
        problems.append("the wheel has no licence")
    return problems


def sdist_problems(sdist: Path, tracked: set[str]) -> list[str]:
    """What the sdist lacks or has too much."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    wanted = {name for name in tracked if not name.startswith(NOT_SHIPPED)} | {"pyproject.toml"}
    problems = [f"the sdist lacks {name}" for name in sorted(wanted - names)]
    waste = [
        name for name in names if "__pycache__" in name or name.startswith((".venv", "build/"))
    ]
    return problems + [f"the sdist holds {name}" for name in sorted(waste)]


def main(folder: Path) -> int:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    tracked = tracked_files()
    problems = wheel_problems(wheel, tracked) + sdist_problems(sdist, tracked)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(
            f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,}"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
