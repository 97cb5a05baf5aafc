"""A headless Chromium, spoken to over its DevTools pipe: no port, no driver, nothing to install but the browser.

Timing: every answer of the browser is waited for with a deadline on the real clock.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS = 30.0
READ, WRITE = 3, 4
"""Chromium takes commands from the one and answers on the other."""


def find(environ: Mapping[str, str] = os.environ) -> str | None:
    """The browser of this machine, or the one that `LASTBUS_TEST_BROWSER` names."""
    named = environ.get("LASTBUS_TEST_BROWSER")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page. What the page complained about is in `complaints`."""

    def __init__(self, executable: str, profile: Path) -> None:
        self.complaints: list[str] = []
        self._number = 0
        self._buffer = b""
        self._commands, self._answers, self._process = _start(executable, profile)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    _session = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Give one command and return its result; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._note(answer)

    def _read(self, deadline: float, awaited: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._answers], [], [], left)[0]
            assert ready, f"the browser did not answer {awaited} within {ANSWER_SECONDS} s"
            data = os.read(self._answers, 1 << 16)
            assert data, f"the browser ended before it answered {awaited}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def open(self, page: Path, width: int, height: int, dark: bool = False, fragment: str = "") -> None:
        """Show a file in a window of this size; returns when it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.call("Page.navigate", url=page.resolve().as_uri() + fragment)
        deadline = time.monotonic() + ANSWER_SECONDS
        while self.value("document.readyState") != "complete" or self.value("location.href") == "about:blank":
            assert time.monotonic() < deadline, "the page did not load"

    def value(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, which is first brought into view."""
        quoted = json.dumps(selector)
        x, y = self.value(
            f"(() => {{ const one = document.querySelector({quoted}); one.scrollIntoView({{block: 'center'}});"
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Put text in at the cursor, as a keyboard would."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release one key."""
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, file: Path) -> None:
        """Save what is seen as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """End the browser and everything that it started."""
        with contextlib.suppress(AssertionError, OSError):
            self._session = None
            self.call("Browser.close")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._commands)
        os.close(self._answers)


def _start(executable: str, profile: Path) -> tuple[int, int, int]:
    """Start the browser in a process group of its own; returns where to write, where to read, and its id."""
    ours_in, theirs_out = _high_pipe()
    theirs_in, ours_out = _high_pipe()
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
    ]
    log = os.open(profile.parent / "browser.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    moved = [(theirs_in, READ), (theirs_out, WRITE), (log, 1), (log, 2)]
    process = os.posix_spawn(
        executable,
        [executable, *flags],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, old, new) for old, new in moved],
        setpgroup=0,
    )
    for number in (theirs_in, theirs_out, log):
        os.close(number)
    return ours_out, ours_in, process


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are out of the way of the numbers that the browser wants."""
    low = os.pipe()
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10) for number in low]
    for number in low:
        os.close(number)
    return high[0], high[1]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Browser]:
    """A browser for the block; without one on this machine the test is skipped, and says what to install."""
    executable = find()
    if executable is None:
        pytest.skip(f"no browser here: apt-get install chromium, or set LASTBUS_TEST_BROWSER (looked for {NAMES})")
    browser = Browser(executable, folder / "profile")
    try:
        yield browser
    finally:
        browser.close()
