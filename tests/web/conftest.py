"""A server and a browser for the tests of one file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.web.page import Page
    from tests.web.running import Running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.web.page import CHROMIUM, sync_api

    with sync_api.sync_playwright() as playwright:
        # Containers often run as root, where Chromium's sandbox does not work.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, server: "Running") -> Iterator["Page"]:
    from tests.web.page import Page

    page = Page(browser, server)
    yield page
    page.tab.close()
    assert page.complaints == []
