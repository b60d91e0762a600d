"""Fixtures for the tests of demonstrations."""

from pathlib import Path

import pytest

from babyai.demos import collect as collecting
from tests.scale import scaled


@pytest.fixture(scope="session")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two levels and a few hundred demonstrations of each, shared by all tests; do not modify it."""
    path = tmp_path_factory.mktemp("demos") / "small.parquet"
    collecting.collect(["GoToLocal", "BossLevel"], scaled(300, 6), 100, path, threads=1)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Reduces the block size of `collect`; returns the new size."""
    size = scaled(64, 2)
    monkeypatch.setattr(collecting, "BLOCK", size)
    return size
