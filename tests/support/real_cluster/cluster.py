"""A RocketMQ cluster of one version: name server, masters, slaves and proxy on loopback."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.signing import Credentials
from support.real_cluster.jars import fetch_jars
from support.real_cluster.java import class_path, make_home, run_admin, run_program
from support.real_cluster.process import JavaProcess, free_port

CLUSTER: Final = "TestCluster"
MASTER: Final = 0
USUAL_NAME_SERVER_PORT: Final = 9876
USUAL_BROKER_PORT: Final = 10911
_HOST: Final = "127.0.0.1"
_REGISTERED_SECONDS: Final = 30.0
# No setting of 5.x lifts it.
_DISK_USED_MAX: Final = 0.9
# 4.9 on Java 17 maps what it finds after a crash through internals; newer versions need nothing.
_OPEN_INTERNALS: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
)
_JVM: Final = ("-XX:+UseSerialGC", "-Xss512k", *_OPEN_INTERNALS)
_BROKER_SETTINGS: Final = {
    "brokerClusterName": CLUSTER,
    "brokerIP1": _HOST,
    "brokerIP2": _HOST,
    # 4.9 does not know it and listens everywhere.
    "bindAddress": _HOST,
    # Small files: several of each, so that their ends are met.
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "diskMaxUsedSpaceRatio": "99",
    "fileReservedTime": "72",
    # At any hour: a test that shortens the time above need not wait for the night.
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "maxMessageSize": str(8 << 20),
    # Heartbeats between brokers and name server: an outage shall end soon after its cause.
    "registerNameServerPeriod": "10000",
    # Producers are asked about their transactions soon, and messages with a time can be recalled.
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    "recallMessageEnable": "true",
}


def require_room(folder: Path) -> None:
    """Say at once what would show up as refused sends (code 14). Raises RuntimeError."""
    disk = shutil.disk_usage(folder)
    used = disk.used / (disk.used + disk.free)
    if used >= _DISK_USED_MAX:
        raise RuntimeError(
            f"the disk of {folder} is {used:.1%} full, and RocketMQ takes no messages from "
            f"{_DISK_USED_MAX:.0%} on. Free some of it, or let the tests use another one "
            "(--basetemp DIR, or TMPDIR)."
        )


class BrokerNode:
    """One broker process with its store; a restart finds the same store at the same port."""

    def __init__(
        self, owner: RealCluster, name: str, broker_id: int, settings: Mapping[str, str]
    ) -> None:
        self.name, self.broker_id = name, broker_id
        self.folder = make_home(owner.folder / f"{name}-{broker_id}")
        self.store = self.folder / "store"
        self.host = settings.get("brokerIP1", _HOST)
        # Beside the port itself: the VIP port two below, the replication port one above.
        self.port = USUAL_BROKER_PORT if owner.has_usual_ports else free_port(-2, 1)
        self.settings = {
            **_BROKER_SETTINGS,
            "brokerName": name,
            "brokerId": str(broker_id),
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "namesrvAddr": owner.name_server,
            "brokerRole": "ASYNC_MASTER" if broker_id == MASTER else "SLAVE",
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "bindAddress": "0.0.0.0" if owner.has_usual_ports else self.host,
            **settings,
        }
        self._owner = owner
        configuration = self.folder / "broker.conf"
        self.process = JavaProcess(
            f"{name}-{broker_id}",
            [
                *owner.server_arguments(self.folder, "256m"),
                *(["-Djava.net.preferIPv4Stack=false"] if ":" in self.host else []),
                # Every sending thread keeps a direct buffer as large as the largest message.
                "-XX:MaxDirectMemorySize=1g",
                "org.apache.rocketmq.broker.BrokerStartup",
                *("-c", str(configuration)),
            ],
            log=self.folder / "broker.out",
            folder=self.folder,
            ready="boot success",
        )
        self._configuration = configuration

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> BrokerNode:
        """Start and wait until the name server knows it. Settings changed since are used."""
        lines = [f"{key}={value}\n" for key, value in self.settings.items()]
        self._configuration.write_text("".join(lines))
        self.process.start()
        self._owner.await_registered(self)
        return self

    def stop(self) -> None:
        """End it in order; takes up to 20 s."""
        self.process.stop()

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()


class RealCluster:
    """Starts its processes on demand below `folder` and stops them all; use it in `with`.

    `has_usual_ports` puts one name server and one broker where RocketMQ's own settings have them,
    open to IPv6 too, for what is recorded there and compared later. `is_brief` leaves the
    optimising compiler out: servers start with half the work, and nothing is measured on them.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        has_usual_ports: bool = False,
        is_brief: bool = False,
    ) -> None:
        self.version, self.folder, self.has_usual_ports = version, folder, has_usual_ports
        self.is_brief = is_brief
        require_room(folder)
        fetch_jars(version)
        port = USUAL_NAME_SERVER_PORT if has_usual_ports else free_port()
        self.name_server = f"{_HOST}:{port}"
        self.brokers: list[BrokerNode] = []
        self.proxy: JavaProcess | None = None
        self.proxy_address: str | None = None
        self.grpc_endpoint: str | None = None
        self._name_server_process: JavaProcess | None = None

    @property
    def is_4(self) -> bool:
        """True for 4.9: no proxy, no pop, older answers."""
        return self.version.startswith("4.")

    def __enter__(self) -> RealCluster:
        try:
            self.start_name_server()
            self.add_broker("broker-a")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything: nothing of it is needed any more."""
        for process in (self.proxy, *(b.process for b in self.brokers), self._name_server_process):
            if process is not None:
                process.kill()

    # --- processes ----------------------------------------------------------------------------

    def start_name_server(self) -> None:
        """Start the name server at its address, or start it again there."""
        home = make_home(self.folder / "namesrv")
        configuration = home / "namesrv.conf"
        port = self.name_server.rpartition(":")[2]
        configuration.write_text(f"listenPort={port}\nbindAddress={_HOST}\n")
        main = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(configuration)]
        self._name_server_process = JavaProcess(
            "name server",
            self.server_arguments(home, "64m") + main,
            log=home / "namesrv.out",
            folder=home,
            ready="The Name Server boot success",
        ).start()

    def stop_name_server(self) -> None:
        """Kill the name server; it keeps nothing that brokers do not tell it again."""
        assert self._name_server_process is not None
        self._name_server_process.kill()

    def add_broker(self, name: str, **settings: str) -> BrokerNode:
        """Start a master of that name, with further lines for its broker.conf."""
        return self._add(name, MASTER, settings)

    def add_slave(self, of: str, broker_id: int = 1, **settings: str) -> BrokerNode:
        """Start a slave of a master."""
        return self._add(of, broker_id, settings)

    def _add(self, name: str, broker_id: int, settings: Mapping[str, str]) -> BrokerNode:
        node = BrokerNode(self, name, broker_id, settings)
        self.brokers.append(node)
        return node.start()

    def remove(self, node: BrokerNode) -> None:
        """Kill a broker and wait until the name server has noticed."""
        node.kill()
        self.brokers.remove(node)
        deadline = time.monotonic() + _REGISTERED_SECONDS
        while self._is_registered(node):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the name server still lists {node.name}")
            time.sleep(0.05)

    def start_proxy(self) -> str:
        """Start a proxy in cluster mode (5.x); returns `proxy_address`, its remoting port.

        `grpc_endpoint` is the other one.
        """
        assert not self.is_4, "there is no proxy before 5.0"
        home = make_home(self.folder / "proxy")
        remoting, grpc = free_port(), free_port()
        configuration = home / "proxy.json"
        settings = {
            "rocketMQClusterName": CLUSTER, "proxyMode": "CLUSTER", "localServeAddr": _HOST,
            "namesrvAddr": self.name_server, "grpcServerPort": grpc,
            "remotingListenPort": remoting,
        }  # fmt: skip
        configuration.write_text(json.dumps(settings))
        main = ["-XX:MaxDirectMemorySize=256m", "org.apache.rocketmq.proxy.ProxyStartup"]
        main += ["-pc", str(configuration), "-pm", "cluster", "-n", self.name_server]
        self.proxy = JavaProcess(
            "proxy",
            self.server_arguments(home, "192m") + main,
            log=home / "proxy.out",
            folder=home,
            ready="rocketmq-proxy startup successfully",
        ).start()
        self.proxy_address, self.grpc_endpoint = f"{_HOST}:{remoting}", f"{_HOST}:{grpc}"
        return self.proxy_address

    def server_arguments(self, home: Path, heap: str) -> list[str]:
        """What a server's JVM gets in front of its main class."""
        properties = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
        if not self.has_usual_ports:
            properties.append("-Djava.net.preferIPv4Stack=true")
        if self.is_brief:
            properties.append("-XX:TieredStopAtLevel=1")
        return [*_JVM, f"-Xms{heap}", f"-Xmx{heap}", *properties, "-cp", class_path(self.version)]

    @property
    def client_arguments(self) -> list[str]:
        """What a client's JVM gets in front of its class path."""
        return []

    # --- using it -----------------------------------------------------------------------------

    @property
    def master(self) -> BrokerNode:
        """The first broker."""
        return self.brokers[0]

    @property
    def settings(self) -> ConnectionSettings:
        """How our client gets there."""
        return ConnectionSettings((self.name_server,), request_timeout_ms=15_000)

    def open(self) -> Cluster:
        """Our client on this cluster."""
        return open_cluster(self.settings)

    def admin(
        self, *command: str, credentials: Credentials | None = None, seconds: float = 60.0
    ) -> str:
        """mqadmin of the same version; see `run_admin`."""
        words, jvm = (self.version, self.name_server, *command), self.client_arguments
        return run_admin(*words, credentials=credentials, jvm=jvm, seconds=seconds)

    def java(self, source: Path, *arguments: str, seconds: float = 60.0) -> str:
        """A program of ours on the same version's client, the name server its first argument."""
        words, jvm = (self.name_server, *arguments), self.client_arguments
        return run_program(self.version, source, *words, jvm=jvm, seconds=seconds)

    def await_registered(self, node: BrokerNode) -> None:
        """Wait until the name server lists a broker. Raises RuntimeError."""
        deadline = time.monotonic() + _REGISTERED_SECONDS
        while not self._is_registered(node):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{node.name} never registered\n{node.process.log_tail()}")
            time.sleep(0.05)

    def _is_registered(self, node: BrokerNode) -> bool:
        with self.open() as cluster:
            try:
                brokers = cluster.cluster_info().brokers
            except RocketMQError:
                return False
        return any(
            broker.name == node.name and broker.addresses.get(node.broker_id) == node.address
            for broker in brokers
        )
