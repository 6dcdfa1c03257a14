"""What an installed wheel and an editable install must give: our packages, and Spark finds ours."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from trove_classifiers import classifiers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "rocketmq_wire",
    "rocketmq_arrow",
    "rocketmq_client",
    "pyspark_rocketmq",
    "rocketmq_cli",
    "pytest_rocketmq",
    "rocketmq_broker",
}
# Spark's own search for Python sources, run in a fresh interpreter as Spark runs it.
LOOKUP = """
import io
from pyspark.serializers import read_int
from pyspark.sql.worker.lookup_data_sources import _main
answer = io.BytesIO()
_main(io.BytesIO(), answer)
answer.seek(0)
for _ in range(read_int(answer)):
    name = answer.read(read_int(answer)).decode()
    answer.read(read_int(answer))
    print("found", name)
"""


def _python(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as a release builds it but with the build backend that is installed."""
    out = tmp_path_factory.mktemp("wheel")
    built = _python(
        *("-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)), cwd=out
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


def test_spark_finds_the_source_without_any_registration(tmp_path: Path) -> None:
    found = _python("-I", "-c", LOOKUP, cwd=tmp_path)
    assert found.stdout.splitlines() == ["found rocketmq"], found.stderr


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_the_wheel_carries_every_source_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    expected = {
        str(path.relative_to(base))
        for base in (ROOT / "connector", ROOT / "broker_sim")
        for path in base.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        # Data files count too: the descriptor set of our gRPC service, the typing markers.
        if path.suffix != ".pyc"
    }
    assert expected - shipped == set()


def test_spark_finds_the_source_in_an_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    empty = tmp_path / "empty"
    empty.mkdir()
    # First on the path, the unpacked wheel hides the editable install.
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n{LOOKUP}"
    code += "import pyspark_rocketmq; print(pyspark_rocketmq.__file__)"
    found = _python("-I", "-c", code, cwd=empty)
    assert found.stdout.splitlines() == [
        "found rocketmq",
        str(site / "pyspark_rocketmq" / "__init__.py"),
    ], found.stderr


def test_the_command_is_installed_and_starts_without_heavy_imports(tmp_path: Path) -> None:
    code = (
        "import sys; from rocketmq_cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'grpc', 'google.protobuf'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    helped = _python("-I", "-c", code, cwd=tmp_path)
    assert "usage: rmq" in helped.stdout
    assert helped.stdout.splitlines()[-1] == "heavy: []", helped.stderr


def _names(requirements: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9._-]+", text) for text in requirements)
    return {name.group().lower().replace("_", "-") for name in found if name}


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements-dev.lock", ("spark", "connect", "broker", "test", "dev")),
        ("requirements-spark-4.0.lock", ("spark", "connect", "broker", "test")),
    ],
)
def test_the_locks_pin_every_requirement_with_hashes(lock: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = _names(project["dependencies"])
    for extra in extras:
        wanted |= _names(project["optional-dependencies"][extra])
    text = (ROOT / lock).read_text()
    pinned = [line for line in text.splitlines() if "==" in line]
    assert wanted - {"pyspark-rocketmq"} - _names(pinned) == set()
    assert all(line.endswith("\\") for line in pinned), "a pin without hashes"
    assert "://" not in text, "a lock names no registry"


def test_the_package_says_what_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = project["classifiers"]
    assert set(said) <= set(classifiers)
    assert said == sorted(said)
    assert re.fullmatch(r"\d+\.\d+\.\d+", project["version"])
    # The Pythons that `./run` takes, and no other.
    lowest, above = re.findall(r"\((3), (\d+)\)", (ROOT / "run").read_text())[:2]
    pythons = [f"3.{minor}" for minor in range(int(lowest[1]), int(above[1]))]
    prefix = "Programming Language :: Python :: 3."
    named = [name.removeprefix(prefix) for name in said if name.startswith(prefix)]
    assert [f"3.{minor}" for minor in named] == pythons
    assert project["requires-python"] == f">={pythons[0]}"
