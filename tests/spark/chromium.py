"""A real Chromium that opens a file without a network, asked by its own protocol over a pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_WAIT_S = 110.0
# What keyboards send for keys that are no letters: the code, the number, and the text.
_KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    " ": ("Space", 32, " "),
    "Backspace": ("Backspace", 8, ""),
}


class Chromium:
    """One browser with one page; what the page says to its console, and what it asks for, is kept.

    Attributes:
        console: errors and warnings of the page, in words.
        asked: URLs that the page has asked for.
        dialogs: what it has said in dialogs of its own; they are closed at once.
    """

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        self.console: list[str] = []
        self.asked: list[str] = []
        self.dialogs: list[str] = []
        self._next = 0
        self._loaded = 0
        self._rest = b""
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self._in, self._out = ours_in, ours_out

        def two_pipes() -> None:
            read, write = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(read, 3)
            os.dup2(write, 4)

        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
        quiet = ("--no-first-run", "--disable-extensions", "--disable-background-networking")
        self._process = subprocess.Popen(
            [CHROMIUM, *options, *quiet, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=two_pipes,  # noqa: PLW1509  (it only renames descriptors)
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        self.ask(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, path: Path, *, past_its_policy: bool = False) -> None:
        """Open a file and wait until it is loaded; ``past_its_policy``: scripts of the test may run in it."""
        self.ask("Page.setBypassCSP", enabled=past_its_policy)
        before = self._loaded
        self.ask("Page.navigate", url=path.as_uri())
        end = time.monotonic() + _WAIT_S
        while self._loaded == before:
            assert time.monotonic() < end, "the page is not loaded"
            self._read(end)

    def evaluate(self, expression: str) -> Any:
        """Run JavaScript in the page; return what it returns, or promises."""
        done = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str, *, times: int = 1) -> None:
        """Press and release a key, as a keyboard does: a character, or ``Tab``, ``Enter``, ``Backspace``."""
        code, number, text = _KEYS.get(key, ("", 0, key))
        names = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        for _ in range(times):
            kind = "keyDown" if text else "rawKeyDown"
            self.ask("Input.dispatchKeyEvent", type=kind, text=text, **names)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **names)

    def tab_to(self, selector: str) -> None:
        """Press Tab until what is selected has the focus."""
        for _ in range(200):
            self.press("Tab")
            if self.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
                return
        raise AssertionError(f"no Tab leads to {selector}")

    def look(self, *, scheme: str = "light", medium: str = "screen", width: int = 1280) -> None:
        """Show the page as people with these settings see it."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=medium, features=features)
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )

    def screenshot(self, path: Path, *, height: int | None = None) -> None:
        """Write a picture of the page: all of it, or so many pixels from the top."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": height or size["height"],
            "scale": 1,
        }
        taken = self.ask(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def print(self, path: Path) -> None:
        """Write the page as a PDF, as a printer has it."""
        self.ask("Emulation.setEmulatedMedia", media="", features=[])
        made = self.ask("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        path.write_bytes(base64.b64decode(made["data"]))

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol on the page."""
        return self._call(method, session=self._session, **params)

    def _send(self, method: str, session: str | None, params: dict[str, Any]) -> int:
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._next

    def _call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = self._send(method, session, params)
        end = time.monotonic() + _WAIT_S
        while True:
            answer = self._read(end)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return dict(answer["result"])

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            came = os.read(self._in, 1 << 20)
            assert came, "the browser has ended"
            self._rest += came
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._heard(message)
        return message

    def _heard(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(f"{params['type']}: {params['args']}")
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            # Nobody waits for the answer: until the dialog is closed the page does nothing.
            self._send("Page.handleJavaScriptDialog", self._session, {"accept": False})
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
