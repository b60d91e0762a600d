"""The page of runs in a real Chromium."""

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from babyai.web import runs_session
from babyai.web.study_results import describe_results
from tests.web.page import BROWSER_MARKS, Page, sync_api
from tests.web.running import Running, running
from tests.web.test_runs_session import write_run

pytestmark = BROWSER_MARKS
ROWS = 40


def append_rows(folder: Path, first: int, count: int, last_line: str = "") -> None:
    rows = [{"frames": 1000 * k, "loss": math.exp(-k / 20), "success": k / 100} for k in range(first, first + count)]
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows) + last_line)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("web") / "runs"
    for name, kind in (
        ("imitation-GoToLocal-0", "imitation"),
        ("group/ppo-GoToLocal-1", "ppo"),
        ("group/other", "dagger"),
    ):
        append_rows(write_run(root / name, 0, kind), 1, ROWS)
    os.utime(root / "group" / "other" / "metrics.jsonl", (1e9, 1e9))
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Running]:
    # In this process, which has imported everything already; test_runs_session.py has it made by another.
    with pytest.MonkeyPatch.context() as patch, running(root.parent / "demos", agents=root) as server:
        patch.setattr(runs_session, "_make_report", describe_results)
        yield server


def chart(page: Page, name: str) -> Any:
    return page.tab.locator("figure.chart", has=page.tab.locator(f"figcaption:text-is('{name}')"))


def open_runs(page: Page, query: str = "") -> None:
    page.open(query, "runs")
    page.wait("#last", "40")


def look_again(page: Page) -> None:
    """Pauses and goes on, which asks for what is new at once."""
    page.tab.click("#live")
    page.tab.click("#live")


def test_curves_of_several_runs_are_overlaid(page: Page) -> None:
    open_runs(page)
    assert page.tab.locator("#runs li").count() == 3 and "dagger" in page.text("#runs")
    assert page.tab.locator("figure.chart figcaption").all_inner_texts() == ["success", "loss"]
    lines = chart(page, "loss").locator("polyline.line")
    sync_api.expect(lines).to_have_count(3)
    assert len(lines.first.get_attribute("points").split()) == ROWS
    # Not by color alone: dashes and marks differ, too.
    dashes = {lines.nth(k).get_attribute("stroke-dasharray") for k in range(3)}
    marks = {chart(page, "loss").locator(f".style-{k} .mark").first.text_content() for k in range(3)}
    assert len(dashes) == 3 and len(marks) == 3
    assert "0.1353" in page.text("#last") and "40 %" in page.text("#last")


def test_rows_appear_while_a_run_is_written(page: Page, root: Path) -> None:
    folder = write_run(root / "live", 0)
    append_rows(folder, 1, 5, last_line='{"frames": 6000, "lo')
    try:
        page.open("run=live&metric=loss", "runs")
        line = chart(page, "loss").locator("polyline.line")
        sync_api.expect(line).to_have_count(1)
        assert len(line.get_attribute("points").split()) == 5 and "could not" not in page.text("#status")
        with open(folder / "metrics.jsonl", "a") as file:
            file.write('ss": 0.5}\n')
        look_again(page)
        sync_api.expect(page.tab.locator("#last")).to_contain_text("0.5")
        # A resumed run drops rows.
        (folder / "metrics.jsonl").write_text("")
        append_rows(folder, 1, 3)
        # By itself, after two seconds.
        sync_api.expect(page.tab.locator("#last td").first).to_have_text("3")
        assert len(line.get_attribute("points").split()) == 3
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_what_is_shown_is_chosen_and_in_the_address(page: Page) -> None:
    open_runs(page, "run=imitation-GoToLocal-0&metric=loss")
    sync_api.expect(page.tab.locator("polyline.line")).to_have_count(1)
    page.tab.fill("#filter", "ppo")
    sync_api.expect(page.tab.locator("#runs li")).to_have_count(2)
    page.tab.check("#runs input[value='group/ppo-GoToLocal-1']")
    sync_api.expect(page.tab.locator("polyline.line")).to_have_count(2)
    page.tab.click("#metrics-part summary")
    page.tab.check("#metrics input[value=success]")
    sync_api.expect(page.tab.locator("figure.chart")).to_have_count(2)
    linear = chart(page, "loss").locator("polyline.line").first.get_attribute("points")
    page.tab.check("#log")
    assert chart(page, "loss").locator("polyline.line").first.get_attribute("points") != linear
    page.tab.fill("#smooth", "0.9")
    sync_api.expect(page.tab.locator("polyline.raw")).to_have_count(4)
    assert "30K" in chart(page, "loss").locator("svg").text_content()
    page.tab.select_option("#axis", "row")
    page.tab.wait_for_url("**x=row*")
    sync_api.expect(chart(page, "loss").locator("svg")).not_to_contain_text("30K")
    sync_api.expect(page.tab.locator("polyline.raw")).to_have_count(4)
    address = page.tab.url
    assert re.search(r"run=imitation.*run=group.*metric=loss&metric=success.*smooth=0.9&log=1", address)
    page.tab.goto("about:blank")
    page.tab.goto(address)
    sync_api.expect(page.tab.locator("polyline.raw")).to_have_count(4)
    assert page.tab.is_checked("#log") and page.tab.input_value("#axis") == "row"
    page.tab.uncheck("#runs input[value='group/ppo-GoToLocal-1']")
    sync_api.expect(page.tab.locator("polyline.raw")).to_have_count(2)


def test_values_are_read_with_mouse_keyboard_and_as_a_table(page: Page) -> None:
    open_runs(page, "run=imitation-GoToLocal-0&metric=success")
    plot = chart(page, "success").locator(".plot")
    plot.hover(position={"x": 60, "y": 100})
    sync_api.expect(plot.locator(".tip")).to_be_visible()
    page.tab.mouse.move(0, 0)
    sync_api.expect(plot.locator(".tip")).to_be_hidden()
    plot.focus()
    page.tab.keyboard.press("Home")
    assert plot.get_attribute("aria-valuetext") == "1K frames: imitation-GoToLocal-0 1 %"
    page.tab.keyboard.press("ArrowRight")
    assert "2 %" in plot.locator(".tip").inner_text()
    page.tab.keyboard.press("End")
    assert plot.get_attribute("aria-valuetext").startswith("40K frames") and plot.get_attribute("aria-valuenow") == "39"
    page.tab.keyboard.press("Escape")
    sync_api.expect(plot.locator(".tip")).to_be_hidden()
    page.tab.keyboard.press("Tab")
    page.tab.keyboard.press("Enter")
    rows = chart(page, "success").locator("tbody tr")
    sync_api.expect(rows).to_have_count(12)
    assert rows.last.inner_text().split() == ["40K", "40", "%"]


def test_results_of_studies_are_shown(page: Page) -> None:
    open_runs(page)
    page.tab.click("#studies summary")
    page.wait("#grids", "Table 3: success of imitation learning")
    text = page.text("#grids")
    assert re.search(r"\d\d of 81 cells measured", text)
    assert "paper 99.7" in text and "ours 99.7" in text and "▲" in text
    rows = page.tab.locator("#grids tbody tr").count()
    page.tab.uncheck("#measured")
    assert page.tab.locator("#grids tbody tr").count() > rows + 50
    sync_api.expect(page.tab.locator("#study-charts figure").nth(11)).to_be_attached()
    page.wait("#study-charts .legend >> nth=0", "bow_endpool_res")
    assert "studies=1" in page.tab.url


@pytest.mark.long
def test_an_empty_folder_and_a_stopped_server_are_explained(browser: Any, tmp_path: Path) -> None:
    with running(tmp_path, results=tmp_path / "none") as server:
        page = Page(browser, server)
        page.open("studies=1", "runs")
        page.wait("#more", "babyai train imitation")
        page.wait("#study-status", "no results")
    page.wait("#message", "reload this page")
    page.tab.close()
    assert page.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), pytest.param(1280, "light", marks=pytest.mark.long)])
def test_every_screen_is_readable(browser: Any, server: Running, width: int, scheme: str) -> None:
    page = Page(browser, server, width, scheme)
    open_runs(page, "studies=1")
    page.wait("#grids", "Table 3")
    page.check_readable()
    colors = "[...document.querySelectorAll('.curve .line')].map((line) => getComputedStyle(line).stroke)"
    assert len(set(page.tab.evaluate(colors))) >= 3
    for selector in ("#filter", "figure.chart .plot >> nth=0", "#live"):
        box = page.tab.locator(selector).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.tab.close()
    assert page.complaints == []


@pytest.mark.long
def test_everything_can_be_reached_with_tab(page: Page) -> None:
    open_runs(page)
    reached = set()
    for _ in range(30):
        page.tab.keyboard.press("Tab")
        focused = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
        reached.add(page.tab.evaluate(focused))
    assert {"filter", "live", "axis", "smooth", "log", "plot", "INPUT", "SUMMARY", "A"} <= reached
    # Choosing a run by keyboard keeps the focus in the list.
    box = page.tab.locator("#runs input").first
    box.focus()
    page.tab.keyboard.press("Space")
    sync_api.expect(box).not_to_be_checked()
    sync_api.expect(box).to_be_focused()
