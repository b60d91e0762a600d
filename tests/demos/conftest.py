"""Small files of demonstrations that the tests of this room share."""

from pathlib import Path

import pytest

from babyai.demos import collect as collecting
from tests.scale import scaled


@pytest.fixture(scope="session")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two levels, some hundred demonstrations each; not to be changed."""
    path = tmp_path_factory.mktemp("demos") / "small.parquet"
    collecting.collect(["GoToLocal", "BossLevel"], scaled(300, 6), 100, path, threads=1)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Collecting works in blocks of this size."""
    size = scaled(64, 2)
    monkeypatch.setattr(collecting, "BLOCK", size)
    return size
