"""A headless Chromium, driven over its own debugging protocol: sizes, colours, screenshots."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_S = 60.0
_ANSWER_S = 60.0


def find_browser() -> str:
    """The program. Raises FileNotFoundError: `./run test-pages` installs one where it may."""
    for name in _NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    raise FileNotFoundError("no Chromium here: ./run test-pages installs one where it may")


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """A running browser with a profile of its own; the address of its one page's debugger."""
    profile = folder / "profile"
    process = subprocess.Popen(
        [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-port=0",
         "about:blank"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield _page_address(profile / "DevToolsActivePort", process)
    finally:
        process.terminate()
        process.wait(30)


def _page_address(port_file: Path, process: subprocess.Popen[bytes]) -> str:
    give_up_at = time.monotonic() + _START_S
    while not port_file.exists() or not port_file.read_text():
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise RuntimeError(f"the browser did not start: {process.poll()}")
        time.sleep(0.05)
    port = port_file.read_text().splitlines()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=_ANSWER_S) as answer:
        pages = json.load(answer)
    return str(next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"))


class Page:
    """One page, seen at a size and in a colour scheme."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket = socket
        self._count = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str) -> AsyncIterator[Page]:
        # Screenshots come in one message.
        socket = await websocket_connect(address, max_message_size=64 << 20)
        try:
            yield cls(socket)
        finally:
            socket.close()
            while await asyncio.wait_for(socket.read_message(), _ANSWER_S) is not None:
                pass

    async def show(self, url: str, *, width: int, is_dark: bool) -> None:
        """Load an address and wait until it is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self._ask("Emulation.setEmulatedMedia", features=[scheme])
        await self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        # As on a phone: a bar would take a part of the width.
        await self._ask("Emulation.setScrollbarsHidden", hidden=True)
        await self._ask("Page.navigate", url=url)
        give_up_at = time.monotonic() + _ANSWER_S
        ready = f"document.readyState === 'complete' && location.href === {json.dumps(url)}"
        while not await self.value(ready):
            assert time.monotonic() < give_up_at, f"{url} was not loaded"
            await asyncio.sleep(0.05)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = await self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def screenshot(self, path: Path, height_max: int | None = None) -> None:
        """Write the whole page as a picture, or its content up to a height."""
        parameters = {}
        if height_max is not None:
            width = await self.value("innerWidth")
            height = await self.value("document.body.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": min(height, height_max), "scale": 1}
            parameters = {"clip": clip}
        answer = await self._ask("Page.captureScreenshot", captureBeyondViewport=True, **parameters)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def _ask(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        question = {"id": self._count, "method": method, "params": parameters}
        await self._socket.write_message(json.dumps(question))
        while True:
            text = await asyncio.wait_for(self._socket.read_message(), _ANSWER_S)
            assert text is not None, "the browser hung up"
            answer = json.loads(text)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                return answer["result"]
