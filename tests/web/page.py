"""A tab of a real Chromium, and what its console says. Tests that use it are skipped without one."""

import os
import shutil
from typing import Any

import pytest

from babyai.demos.record import KEYS
from babyai.world.codes import Action
from tests.web.running import Running
from tests.web.test_session import solution

NAMES_OF_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# BABYAI_CHROMIUM names another one.
CHROMIUM = os.environ.get("BABYAI_CHROMIUM") or next(filter(None, map(shutil.which, NAMES_OF_CHROMIUM)), None)
BROWSER_MARKS = [
    pytest.mark.browser,
    pytest.mark.compiled,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian, Ubuntu: apt install chromium)"),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
# Machines may be busy with other tests.
sync_api.expect.set_options(timeout=60_000)
LEVEL = "GoToRedBallGrey"
NAMES = {"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", " ": "Space", "\r": "Enter"}
PRESS = {action: NAMES.get(key, key) for key, action in reversed(KEYS.items())}
# Ratios of contrast between text and background.
CONTRAST = """
() => [...document.querySelectorAll("h1, h2, p, dt, dd, label, button, #verdict")]
  .filter((each) => each.offsetParent && !each.disabled && each.textContent.trim())
  .map((each) => {
    const light = (color) => {
      const [r, g, b] = color.match(/[\\d.]+/g).map((part) => part / 255)
        .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let under = each;
    while (/rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(under).backgroundColor)) under = under.parentElement;
    const text = light(getComputedStyle(each).color);
    const background = light(getComputedStyle(under).backgroundColor);
    const ratio = (Math.max(text, background) + 0.05) / (Math.min(text, background) + 0.05);
    return [ratio, each.outerHTML.slice(0, 60)];
  })
"""


class Page:
    """A tab, and what its console says."""

    def __init__(self, browser: Any, server: Running, width: int = 1280, scheme: str = "light") -> None:
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab.set_default_timeout(60_000)
        self.server = server
        self.complaints: list[str] = []
        self.tab.on("console", lambda said: self.complaints.append(said.text))
        self.tab.on("pageerror", lambda problem: self.complaints.append(str(problem)))

    def open(self, query: str, page: str = "") -> None:
        self.tab.goto(f"{self.server.address}{page}?{query}")
        self.tab.wait_for_selector("body[data-ready]")

    def press(self, *keys: str) -> None:
        """Presses keys, each after the answer to the one before was drawn."""
        for key in keys:
            drawn = self.tab.get_attribute("body", "data-ready")
            self.tab.keyboard.press(key)
            sync_api.expect(self.tab.locator("body")).not_to_have_attribute("data-ready", drawn)

    def solve(self, seed: int) -> None:
        self.press(*(PRESS[Action(action)] for action in solution(LEVEL, seed)))

    def text(self, selector: str) -> str:
        return self.tab.inner_text(selector)

    def wait(self, selector: str, words: str) -> None:
        sync_api.expect(self.tab.locator(selector)).to_contain_text(words)

    def pixels(self, canvas: str = "#grid") -> str:
        return self.tab.evaluate("selector => document.querySelector(selector).toDataURL()", canvas)

    def check_readable(self) -> None:
        """Fits the width, and texts have the contrast of WCAG AA."""
        width = self.tab.viewport_size["width"]
        assert self.tab.evaluate("document.documentElement.scrollWidth") <= width
        assert [each for each in self.tab.evaluate(CONTRAST) if each[0] < 4.5] == []
