"""Foreign clients from their registries -> folders in the user's cache, made once each.

Nothing of theirs is changed, and nothing of theirs shares a process with ours.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from support.real_cluster.jars import cache_folder

HERE: Final = Path(__file__).parent
_INSTALL_SECONDS_MAX: Final = 600
_BUILD_SECONDS_MAX: Final = 1_500
"""Some 250 crates, the first time."""


def need(program: str) -> str:
    """The path of a program; the test is left out when the machine lacks it."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}, which this machine does not have")
    return found


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder called `name`, filled by `make` when it is not there yet.

    A registry that cannot deliver leaves the test out, with the end of what it said.
    """
    folder = cache_folder() / "sdk" / name
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        print(f"{name}: fetching it, the first time", file=sys.stderr, flush=True)
        try:
            make(new)
        except subprocess.SubprocessError as error:
            said = getattr(error, "stdout", None) or b""
            tail = said.decode("utf-8", "replace").strip()[-800:]
            pytest.skip(f"{name} cannot be had here: {error}\n{tail}")
        # Another test run may have been quicker: its folder is equal.
        with suppress(OSError):
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def install(
    *command: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    seconds: float = _INSTALL_SECONDS_MAX,
) -> None:
    """Run a step of an installation. Raises subprocess.SubprocessError."""
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=True,
    )


def python_with(*requirements: str) -> Path:
    """The Python of an environment of its own that holds these packages."""

    def make(folder: Path) -> None:
        install(sys.executable, "-m", "venv", str(folder), folder=folder)
        python = str(folder / "bin" / "python")
        install(python, "-m", "pip", "install", "--quiet", *requirements, folder=folder)

    return made_once("python-" + "-".join(requirements), make) / "bin" / "python"


def node_with(*packages: str) -> Path:
    """A folder whose `node_modules` holds these packages."""
    npm = need("npm")

    def make(folder: Path) -> None:
        (folder / "package.json").write_text('{"name": "interop", "private": true}')
        install(npm, "install", "--no-audit", "--no-fund", *packages, folder=folder)

    return made_once("node-" + "-".join(packages).replace("/", "_"), make)


def java_with(version: str, source: Path) -> tuple[str | Path, ...]:
    """The command that runs a program over the gRPC client of a version; arguments follow."""
    maven, compiler = need("mvn"), need("javac")
    jars = made_once(f"java-{version}", lambda folder: _copy_jars(maven, version, folder))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]

    def compile_(folder: Path) -> None:
        words = ("-encoding", "UTF-8", "-nowarn", "-d", str(folder), "-cp", f"{jars}/*")
        install(compiler, *words, str(source), folder=folder)

    classes = made_once(f"java-{version}-{source.stem}-{digest}", compile_)
    options = ("-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return ("java", *options, "-cp", f"{classes}:{jars}/*", source.stem)


def _copy_jars(maven: str, version: str, folder: Path) -> None:
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    words = [f"-Dclient.version={version}", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    pom = str(HERE / "java" / "public-client.pom.xml")
    install(maven, "--batch-mode", "--quiet", "--file", pom, goal, *words, folder=folder)


def go_built(module: str, source: Path) -> Path:
    """The program that a source file over a module (`path@version`) is built to."""
    go = need("go")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]

    def make(folder: Path) -> None:
        shutil.copy(source, folder / "main.go")
        install(go, "mod", "init", "interop", folder=folder)
        install(go, "get", module, folder=folder)
        install(go, "build", "-o", "client", ".", folder=folder)

    return made_once(f"go-{source.stem}-{digest}", make) / "client"


def rust_built(folder: Path) -> Path:
    """The program of a folder that holds `Cargo.toml` and `public_client.rs`.

    What it depends on is built once and for all, and takes minutes; the program itself seconds.
    """
    cargo = need("cargo")
    sources = [folder / "Cargo.toml", folder / "public_client.rs"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    built = cache_folder() / "sdk" / "rust-target"

    def make(target: Path) -> None:
        for source in sources:
            shutil.copy(source, target / source.name)
        environment = {**os.environ, "CARGO_TARGET_DIR": str(built)}
        words = (cargo, "build", "--quiet")
        install(*words, folder=target, environment=environment, seconds=_BUILD_SECONDS_MAX)
        shutil.copy(built / "debug" / "interop", target / "client")

    return made_once(f"rust-{digest}", make) / "client"


def run_client(
    command: Sequence[str | Path],
    *,
    home: Path,
    cwd: Path | None = None,
    seconds: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Run a client's program: what stood behind the name of each scenario.

    Logs that clients write below their user's home go to `home`.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd or home,
        env={"PATH": _PATH, "HOME": str(home), "LANG": "C.UTF-8", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    printed = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, f"it ended with {done.returncode}:\n{printed[-4_000:]}"
    pairs = (line.partition(": ") for line in printed.splitlines())
    return {name: said for name, divider, said in pairs if divider and " " not in name}


_PATH: Final = ":".join(
    dict.fromkeys(
        str(Path(found).parent) for name in ("sh", "node", "java") if (found := shutil.which(name))
    )
)
