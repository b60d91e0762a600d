"""Makes the picture of the page for the docs: python -m tests.web.picture docs/images/play.png."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.web.page import CHROMIUM, Page
from tests.web.running import running


def main(path: str) -> None:
    """Plays a few steps, begins to type a mission, and takes the picture."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = Page(browser, server, width=1180)
        page.open("level=UnlockPickup&seed=0")
        page.press("s", "s", "s", "s")
        page.tab.focus("#own")
        page.tab.keyboard.type("pick up the ")
        page.wait("#phrases", "box")
        page.tab.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
