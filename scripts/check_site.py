#!/usr/bin/env python3
"""Looks at the documentation site in a browser without a window: check_site.py FOLDER | --find.

FOLDER is what scripts/docs.sh built, opened from disk as a reader does. The browser is the first
Chromium on PATH; --find prints it, and fails where there is none. Checks on the start page, on the
page of settings, which it reaches by a click, and on the page of the C API that Doxygen wrote:

- the browser reports no error: no exception, no file that is missing,
- every page of the navigation in mkdocs.yml is linked, and its file is there,
- all pictures have loaded and take room; the start page has an SVG picture,
- the page has its heading and its contents.

The search must find a term, too. The browser lets pages read files, as they read them from a web
server: otherwise it refuses the search its index.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: Seconds for one answer of the browser.
TIMEOUT = 60


class Browser:
    """A browser that is controlled by the DevTools protocol over two pipes, with one page."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command_end, self._commands = os.pipe()
        self._events, event_end = os.pipe()
        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}"]
        options += ["--allow-file-access-from-files"]
        options += ["--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1024"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")
        # The browser reads from descriptor 3 and writes to 4.
        script = f'exec "$@" 3<&{command_end} 4>&{event_end}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *options, "about:blank"],
            pass_fds=(command_end, event_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_end)
        os.close(event_end)
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(TIMEOUT)
        except (OSError, EOFError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._events)
        self._profile.cleanup()

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([self._events], [], [], wait)[0]:
                raise TimeoutError(f"the browser is silent for {TIMEOUT} s")
            data = os.read(self._events, 1 << 16)
            if not data:
                raise EOFError("the browser has ended")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that arrive meanwhile are kept in `events`."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._last_id:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_loaded(self) -> None:
        """Until a page has loaded, with its pictures and scripts."""
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page, or of what it promises."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def errors(self) -> list[str]:
        """What the page reported since it was asked for."""
        errors = []
        for event in self.events:
            detail = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                thrown = detail["exceptionDetails"]
                errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and detail["type"] == "error":
                errors.append(" ".join(str(value.get("value")) for value in detail["args"]))
            elif event["method"] == "Log.entryAdded" and detail["entry"]["level"] == "error":
                errors.append(f"{detail['entry']['text']} {detail['entry'].get('url', '')}")
            elif event["method"] == "Network.loadingFailed" and not detail.get("canceled"):
                errors.append(f"not loaded, {detail['type']}: {detail['errorText']}")
        return errors


def pages_of_navigation() -> list[str]:
    """The files of the site that mkdocs.yml names."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r": (\S+)\.md$", text, re.MULTILINE)
    return ["index.html" if page == "README" else f"{page}.html" for page in pages]


#: Pictures of the page that a reader does not see, and the number of those in SVG.
PICTURES = """(async () => {
  const images = [...document.images];
  await Promise.allSettled(images.map(image => image.decode()));  // scripts add some
  const is_loaded = image => image.complete && image.naturalWidth > 0;
  const is_hidden = image => image.offsetParent === null;  // by a style, as Doxygen's buttons
  const has_room = image => image.offsetWidth > 0 && image.offsetHeight > 0;
  const is_seen = image => is_loaded(image) && has_room(image);
  return {unseen: images.filter(image => !is_loaded(image) ||
              !(is_hidden(image) || has_room(image))).map(image => image.src),
          svg: images.filter(image => image.src.endsWith('.svg') && is_seen(image)).length};
})()"""
LINKS = "[...document.querySelectorAll('nav a[href]')].map(link => link.href.split('#')[0])"
HEADING = "document.querySelector('h1')?.innerText ?? ''"
CLICK = """[...document.querySelectorAll('nav a[href]')]
  .find(link => link.href.endsWith('/docs/settings.html')).click()"""


#: The number of pages that the search has found, once it shows any.
FOUND = """new Promise(resolve => {
  const results = document.getElementById('mkdocs-search-results');
  const look = () => {
    const found = results.querySelectorAll('article').length;
    if (found > 0) resolve(found);
    return found > 0;
  };
  if (!look()) new MutationObserver(look).observe(results, {childList: true, subtree: true});
})"""


def problems_of_page(browser: Browser, name: str) -> list[str]:
    """What is wrong with the page that is loaded, which `name` names in messages."""
    pictures = browser.evaluate(PICTURES)
    problems = [f"{name}: picture {source} is not to be seen" for source in pictures["unseen"]]
    if name == "start page" and pictures["svg"] == 0:
        problems.append(f"{name}: no SVG picture")
    return problems + [f"{name}: {error}" for error in browser.errors()]


def problems_of(site: Path, browser: Browser) -> list[str]:
    def open_page(page: str) -> None:
        browser.events.clear()
        browser.call("Page.navigate", url=f"{site.as_uri()}/{page}")
        browser.wait_loaded()

    open_page("index.html")
    problems = problems_of_page(browser, "start page")
    links = set(browser.evaluate(LINKS))
    for page in pages_of_navigation():
        if (site / page).as_uri() not in links:
            problems.append(f"start page: the navigation does not link {page}")
        if not (site / page).is_file():
            problems.append(f"no file {page}")
    browser.events.clear()
    browser.evaluate(CLICK)
    browser.wait_loaded()
    heading = browser.evaluate(HEADING)
    rows = browser.evaluate("document.querySelectorAll('table tr').length")
    if heading != "Settings" or rows < 10:
        problems.append(f"settings, by a click: heading '{heading}', {rows} rows of tables")
    problems += problems_of_page(browser, "settings")
    open_page("api/polypath_8h.html")
    if "polypath_copy_async" not in browser.evaluate("document.body.innerText"):
        problems.append("C API: polypath_copy_async is not described")
    problems += problems_of_page(browser, "C API")
    open_page("search.html?q=symmetric")
    browser.evaluate(FOUND)
    return problems + problems_of_page(browser, "search")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    program = next(filter(shutil.which, BROWSERS), None)
    if program is None:
        print(f"none of {', '.join(BROWSERS)} is on PATH", file=sys.stderr)
        return 2
    if sys.argv[1] == "--find":
        print(program)
        return 0
    site = Path(sys.argv[1]).resolve()
    with Browser(program) as browser:
        problems = problems_of(site, browser)
    print("\n".join(problems) or f"site: four pages looked at with {program}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
