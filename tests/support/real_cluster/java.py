"""Short-lived Java beside a cluster: RocketMQ's own mqadmin, and small programs of ours."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocketmq_wire.signing import Credentials
from support.real_cluster.jars import cache_folder, fetch_jars

# Starts in half the time: nothing here runs long enough for the optimising compiler to pay.
_SMALL_JVM: Final = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k",
    "-Dfile.encoding=UTF-8", "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip
_ADMIN: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"
_SECONDS_MAX: Final = 60.0
_LOGBACK: Final = """<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>rocketmq.log</file>
    <encoder><pattern>%d %p %t %c - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="F"/></root>
</configuration>
"""


class JavaError(RuntimeError):
    """A Java program failed; the text holds what it printed."""


def class_path(version: str, *before: Path) -> str:
    """What `-cp` wants: the folders given, then every jar of that version."""
    return ":".join([*map(str, before), f"{fetch_jars(version)}/*"])


def make_home(folder: Path) -> Path:
    """Give a folder what RocketMQ expects below ROCKETMQ_HOME; 4.9 does not start without."""
    configuration = folder / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        (configuration / f"logback_{name}.xml").write_text(_LOGBACK)
    return folder


def jvm_arguments(version: str, home: Path, *before: Path) -> list[str]:
    """Options of a small JVM whose logs and files stay below `home`, and its class path."""
    properties = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    return [*_SMALL_JVM, *properties, "-cp", class_path(version, *before)]


def run_admin(
    version: str,
    name_server: str,
    *command: str,
    credentials: Credentials | None = None,
    jvm: Sequence[str] = (),
    seconds: float = _SECONDS_MAX,
) -> str:
    """`mqadmin COMMAND -n NAME_SERVER`: what it prints. Raises JavaError when it fails."""
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as folder:
        home = make_home(Path(folder))
        if credentials is not None:
            keys = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
            lines = [f"{name}: {text}\n" for name, text in keys.items()]
            (home / "conf" / "tools.yml").write_text("".join(lines))
        arguments = [*jvm_arguments(version, home), *jvm, _ADMIN, *command, "-n", name_server]
        printed = _run("mqadmin " + " ".join(command), arguments, home, seconds)
    # It ends with code 0 whatever happened.
    if "SubCommandException" in printed or "Exception:" in printed:
        raise JavaError(f"mqadmin {' '.join(command)} failed:\n{printed}")
    return printed


def run_program(
    version: str,
    source: Path,
    *arguments: str,
    jvm: Sequence[str] = (),
    seconds: float = _SECONDS_MAX,
) -> str:
    """Compile `X.java` (once), run its class X on that version's jars: what it prints.

    Raises JavaError when it ends with another code than 0 or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="java-") as folder:
        home = Path(folder)
        command = program_arguments(version, source, home, jvm=jvm)
        return _run(source.name, [*command, *arguments], home, seconds)


def program_arguments(
    version: str, source: Path, home: Path, *, jvm: Sequence[str] = ()
) -> list[str]:
    """What `java` wants in front of a program's own arguments, for a JavaProcess say."""
    classes = compile_program(version, source)
    return [*jvm_arguments(version, home, classes), *jvm, source.stem]


def compile_program(version: str, source: Path) -> Path:
    """The folder with a source file's classes; kept in the cache until the source changes."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "classes" / f"{source.stem}-{version}-{digest}"
    if folder.exists():
        return folder
    compiler = shutil.which("javac")
    if compiler is None:
        raise JavaError(
            "no Java compiler found. Install a JDK 17 or newer (Debian, Ubuntu: "
            "apt-get install openjdk-17-jdk-headless), then repeat."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        done = subprocess.run(
            [compiler, "-encoding", "UTF-8", "-nowarn", "-proc:none", "-d", str(new),
             "-cp", class_path(version), str(source)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise JavaError(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def _run(name: str, arguments: Sequence[str], folder: Path, seconds: float) -> str:
    java = shutil.which("java")
    if java is None:
        raise JavaError("no java on the path: ./run test-real finds or installs one")
    try:
        done = subprocess.run(
            [java, *arguments],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode("utf-8", "replace")
        raise JavaError(f"{name} did not end within {seconds:g} s:\n{printed}") from error
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise JavaError(f"{name} ended with {done.returncode}:\n{printed}")
    return printed
