"""Makes the pictures of the pages for the docs: python -m tests.web.picture docs/images."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.web.page import CHROMIUM, Page, sync_api
from tests.web.running import RESULTS, running

MODELS = Path(__file__).parents[2] / "models"
# Runs of studies, whose stored curves are written as logs again.
CELLS = [f"imitation/GoToLocal/5k/{name}" for name in ("original", "bow_endpool_res")] + [
    "imitation/GoToLocal/50k/bow_endpool_res"
]


def draw_play(page: Page) -> None:
    """A few steps, and a mission that is being typed."""
    page.open("level=UnlockPickup&seed=0")
    page.press("s", "s", "s", "s")
    page.tab.focus("#own")
    page.tab.keyboard.type("pick up the ")
    page.wait("#phrases", "box")


def draw_compare(page: Page) -> None:
    """The expert and the agent that draws a map, a few steps into a mission."""
    page.open("level=UnlockPickup&seed=0&left=expert&right=agent:map", "compare")
    page.press(*"sssssssss")


def draw_runs(page: Page) -> None:
    """Three runs."""
    page.open("smooth=0.6&metric=success&metric=loss&metric=accuracy&metric=frames_per_second", "runs")
    sync_api.expect(page.tab.locator("polyline.line")).to_have_count(12)


def write_logs(folder: Path, cells: Iterable[str]) -> None:
    """Folders of runs with the curves of the first run of each cell."""
    rows = [json.loads(line) for line in (RESULTS / "imitation.jsonl").read_text().splitlines()]
    for cell in cells:
        row = next(row for row in rows if row["cell"] == cell and row["complete"])
        run = folder / f"{cell.replace('/', '-')}-{row['seed']}"
        run.mkdir(parents=True)
        config = {"levels": row["level"], "architecture": row["architecture"], "size": row["size"], "seed": row["seed"]}
        (run / "config.json").write_text(json.dumps({"kind": row["kind"], "config": config}))
        columns = {name: values for name, values in row["curve"].items() if isinstance(values, list)}
        lines = [json.dumps(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def main(out: Path) -> None:
    """Makes the pictures."""
    out = out.resolve()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        playwright = stack.enter_context(sync_api.sync_playwright())
        folder = Path(name)
        write_logs(folder / "runs", CELLS)
        # The page shows the folder's name as it was given.
        stack.enter_context(contextlib.chdir(folder))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for picture, draw, agents in (
            ("play", draw_play, folder),
            ("compare", draw_compare, MODELS),
            ("runs", draw_runs, Path("runs")),
        ):
            with running(folder / "demos", agents=agents) as server:
                page = Page(browser, server, width=1180)
                draw(page)
                page.tab.evaluate("scrollTo(0, 0)")
                page.tab.screenshot(path=out / f"{picture}.png")
                page.tab.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
