"""A headless Chromium, driven over its own pipe: the DevTools protocol without a library.

The browser reads commands from descriptor 3 and writes answers and events to 4, each a text of JSON
that ends with a zero byte.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Against a hang, not a measure of speed.
WATCHDOG_S = 120
NAMES = ("chromium", "google-chrome")
FLAGS = (
    "--headless=new",
    # A container's root can't have one; the pages are this test's own.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-pipe",
)


def executable() -> str | None:
    """Where a browser is, if this machine has one."""
    found = (shutil.which(name) for name in NAMES)
    return next((path for path in found if path), None)


class Browser:
    """A browser process with a profile of its own."""

    def __init__(self, path: str, profile: Path) -> None:
        commands_out, self._commands = os.pipe()
        self._answers, answers_in = os.pipe()
        # High enough to be in nobody's way when they are moved to 3 and 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (commands_out, answers_in)]
        command = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]} {ends[0]}<&- {ends[1]}>&-', "bash"]
        command += [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.log = profile.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, pass_fds=ends, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # Its helpers end with it.
                start_new_session=True,
            )
        for end in (commands_out, answers_in, *ends):
            os.close(end)
        self._moved = threading.Condition()
        self._number = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while piece := os.read(self._answers, 1 << 16):
            *texts, rest = (rest + piece).split(b"\0")
            with self._moved:
                for text in texts:
                    message = json.loads(text)
                    if "id" in message:
                        self._replies[message["id"]] = message
                    else:
                        self._events.append(message)
                self._moved.notify_all()
        with self._moved:
            self._ended = True
            self._moved.notify_all()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Does what ``method`` says and waits for its result."""
        with self._moved:
            self._number += 1
            number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data):]
        with self._moved:
            self._moved.wait_for(lambda: number in self._replies or self._ended, WATCHDOG_S)
            assert number in self._replies, f"{method}: no answer: {self.log.read_text()}"
            reply = self._replies.pop(number)
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    def events(self, session: str, *methods: str) -> list[dict[str, Any]]:
        """The events of these kinds that a page has had."""
        with self._moved:
            return [
                event["params"] for event in self._events
                if event.get("sessionId") == session and event["method"] in methods
            ]

    def page(self) -> Page:
        """A new, empty page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session)

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(WATCHDOG_S)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._commands)


class Page:
    """A page of a browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.browser, self.target, self.session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)

    def evaluate(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def text(self, name: str) -> str:
        """What the element with this id says."""
        text: str = self.evaluate(f"document.getElementById('{name}')?.textContent ?? ''")
        return text

    def until(self, wanted: Callable[[], Any], what: str = "") -> Any:
        """Looks again and again until ``wanted`` gives something; that."""
        deadline = time.monotonic() + WATCHDOG_S
        while not (found := wanted()):
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body.innerText")
                raise AssertionError(f"{what or 'it'} does not come; the page says:\n{shown}")
            time.sleep(0.01)
        return found

    def events(self, *methods: str) -> list[dict[str, Any]]:
        return self.browser.events(self.session, *methods)

    def complaints(self) -> list[str]:
        """What the browser has to say against the page: exceptions, warnings, failed requests."""
        thrown = [json.dumps(one) for one in self.events("Runtime.exceptionThrown")]
        logged = [
            json.dumps(one) for one in self.events("Log.entryAdded")
            if one["entry"]["level"] in ("warning", "error")
        ]
        said = [
            json.dumps(one) for one in self.events("Runtime.consoleAPICalled")
            if one["type"] in ("warning", "error", "assert")
        ]
        return thrown + logged + said
