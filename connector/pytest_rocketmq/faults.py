"""A broker for one test that can be killed, behind proxies that simulate network faults."""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
import time
from collections.abc import Callable

from pytest_rocketmq.handle import RocketMQ
from pytest_rocketmq.logs import last_lines
from rocketmq_cli.support.broker_process import BrokerProcess

_CHUNK = 64 * 1024
_CHUNK_THROTTLED = 4 * 1024


class Link(enum.Enum):
    """The state of the link between client and server."""

    OPEN = "both directions pass"
    BLACK_HOLE = "the proxy accepts connections and drops all bytes"
    HALF_OPEN = "the client's bytes pass, the proxy drops the server's"


class FaultProxy:
    """Forwards from `address` to `target`; a test may change the attributes at any time."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.link = Link.OPEN
        self.delay_ms = 0
        """The delay of every chunk that the server sends."""
        self.bytes_per_second: int | None = None
        """The rate of the server's bytes on each connection; None for no limit."""
        self.cut_after: Callable[[], int] | None = None
        """Returns how many bytes of the server a connection forwards before its reset."""
        self.accepted = 0
        self.asked = 0
        """The number of chunks from clients: about one per request, if they are not pipelined."""
        self._port = 0
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> FaultProxy:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse new connections, reset the present ones, and end all threads."""
        self.refuse()
        self.reset()
        for thread in self._threads:
            thread.join(10)

    def listen(self) -> None:
        """Accept connections, on the same port as before. A second call has no effect."""
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen()
        self._port = listener.getsockname()[1]
        self._listener = listener
        self._spawn(self._accept, listener)

    def refuse(self) -> None:
        """Refuse new connections; the present ones continue."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def reset(self) -> None:
        """Reset every connection."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._break(pair)

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                # Wakes the thread that reads from it.
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            self._spawn(self._carry, pair, False)
            self._spawn(self._carry, pair, True)

    def _carry(self, pair: tuple[socket.socket, socket.socket], is_answer: bool) -> None:
        source, sink = reversed(pair) if is_answer else pair
        limit = self.cut_after() if is_answer and self.cut_after is not None else None
        with contextlib.suppress(OSError):
            # Small chunks pass evenly; a large one would arrive at once, after a long wait.
            while data := source.recv(_CHUNK_THROTTLED if self.bytes_per_second else _CHUNK):
                if not is_answer:
                    self.asked += 1
                if is_answer and self.delay_ms:
                    time.sleep(self.delay_ms / 1_000)
                if self.link is Link.BLACK_HOLE or (is_answer and self.link is Link.HALF_OPEN):
                    continue
                if limit is not None:
                    data, limit = data[:limit], limit - len(data)
                sink.sendall(data)
                if is_answer and self.bytes_per_second:
                    time.sleep(len(data) / self.bytes_per_second)
                if limit is not None and limit <= 0:
                    break
        self._break(pair)


class RocketMQFaults(RocketMQ):
    """`options`, `name_server` and `endpoints` lead through the proxies with the faults.

    `produce`, `consume_all` and `lag` bypass them, and give the real state of the broker.

    Args:
        process: The broker behind the proxies.
        label: The test's name, part of its topics and groups.
    """

    def __init__(self, process: BrokerProcess, *, label: str) -> None:
        super().__init__(
            process.name_server,
            process.endpoints,
            label=label,
            log_lines=lambda: last_lines(process.log_path),
        )
        self._process = process
        self._proxies = [FaultProxy(process.name_server), FaultProxy(process.endpoints)]
        for proxy in self._proxies:
            proxy.listen()

    @property
    def name_server(self) -> str:
        return self._proxies[0].address

    @property
    def endpoints(self) -> str:
        return self._proxies[1].address

    @property
    def address_map(self) -> str:
        """The option `addressMap`, which maps the broker's own address to the proxy."""
        return f"{self._real_name_server}={self.name_server}"

    @property
    def options(self) -> dict[str, str]:
        return {**super().options, "addressMap": self.address_map}

    # --- the network --------------------------------------------------------------------------

    def delay(self, milliseconds: int) -> None:
        """Delay every chunk that the broker sends."""
        for proxy in self._proxies:
            proxy.delay_ms = milliseconds

    def throttle(self, bytes_per_second: int) -> None:
        """Limit the rate of the broker's bytes on each connection."""
        for proxy in self._proxies:
            proxy.bytes_per_second = bytes_per_second

    def drop(self) -> None:
        """Drop all bytes silently: connections are accepted and never answered."""
        self._set_link(Link.BLACK_HOLE)

    def half_open(self) -> None:
        """Drop the broker's answers; requests reach the broker."""
        self._set_link(Link.HALF_OPEN)

    def reset(self) -> None:
        """Reset the present connections; new ones work."""
        for proxy in self._proxies:
            proxy.reset()

    def refuse(self) -> None:
        """Refuse new connections, and reset the present ones."""
        for proxy in self._proxies:
            proxy.refuse()
            proxy.reset()

    def heal(self) -> None:
        """End all faults. If bytes were dropped, connections are reset, because they lack them."""
        for proxy in self._proxies:
            was_silent = proxy.link is not Link.OPEN
            proxy.link = Link.OPEN
            proxy.delay_ms = 0
            proxy.bytes_per_second = None
            if was_silent:
                proxy.reset()
            proxy.listen()

    def _set_link(self, link: Link) -> None:
        for proxy in self._proxies:
            proxy.link = link

    # --- the broker ---------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the broker, as a crash does. Acknowledged messages are on its disk."""
        self._process.kill()

    def stop(self) -> None:
        """Stop the broker in order."""
        self._process.stop()

    def restart(self) -> None:
        """Start the broker again on the same data and addresses; kill it first if it runs."""
        self._process.kill()
        self._process.start()

    def close(self) -> None:
        super().close()
        for proxy in self._proxies:
            proxy.close()
        self._process.stop()
