"""The README on the package index: no link that leads nowhere."""

import re

import pytest

from tests.run_page import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MOVING_PICTURE = ROOT / "docs" / "images" / "boss_level.gif"


def test_it_opens_with_a_small_moving_picture() -> None:
    assert README.splitlines()[2].endswith(f"({MOVING_PICTURE.relative_to(ROOT)})")
    assert MOVING_PICTURE.stat().st_size < 400_000


@pytest.fixture
def build() -> object:
    pytest.importorskip("hatchling")
    import hatch_build

    return hatch_build


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_links_lead_to_the_repository(build: object) -> None:
    text = build.for_package_index(README, "https://example.org/babyai/")  # pyright: ignore[reportAttributeAccessIssue]
    ours = [link for link in links_of(text) if "example.org" in link]
    assert len(ours) == len([link for link in links_of(README) if not link.startswith("http")]) > 10
    for link in ours:
        place, path = re.fullmatch(r"https://example\.org/babyai/(raw|blob)/HEAD/([^#]+)(?:#.*)?", link).groups()  # type: ignore[union-attr]
        assert (ROOT / path).exists() and (place == "raw") == path.endswith((".gif", ".png"))
    assert all(link.startswith("https://") for link in links_of(text))


def test_without_a_repository_there_are_no_relative_links(build: object) -> None:
    text = build.for_package_index(README, None)  # pyright: ignore[reportAttributeAccessIssue]
    assert all(link.startswith("https://") for link in links_of(text)) and "![" not in text
    assert "tutorial goes through these steps" in " ".join(text.split())
