"""The quickstart, made small: everything it leaves behind, and that it comes out the same each time."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from babyai import tour
from babyai.agents import Agent
from babyai.demos.store import DemoFile
from babyai.evaluation.evaluate import TEST_SEED, evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.tour import FILMED, GAP, LEVEL, Recipe, run

pytestmark = pytest.mark.compiled

SMALL = Recipe(demos=40, updates=6, lanes=2, steps=5, missions=6)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, since other tests run beside."""
    monkeypatch.setattr(tour, "THREADS", 1)
    with tour._threads(1):
        yield


def weights(folder: Path) -> torch.Tensor:
    model = Agent.load(folder / "agent", device="cpu").model
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("demos.parquet", "agent.gif")]


def test_everything_is_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "quick"
    result = run(folder, SMALL)
    assert sorted(path.name for path in folder.iterdir()) == ["agent", "agent.gif", "demos.parquet"]
    with DemoFile(folder / "demos.parquet") as file:
        assert len(file) == 40 and file.levels == (LEVEL,)
    agent = Agent.load(folder / "agent", device="cpu")
    assert evaluate(AgentPlayer(agent.model), LEVEL, missions=6, first_seed=TEST_SEED) == result
    with Image.open(folder / "agent.gif") as film:
        # A room is eight tiles wide, and a tile 32 pixels.
        assert film.size == (FILMED * 256 + (FILMED - 1) * GAP, 256) and getattr(film, "n_frames", 1) > 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "mission: go to the red ball expert: forward x 3, right, forward x 3, left" in shown
    assert re.search(r"update 6 .*accuracy \S+ %.* loss \S+ .*frames/s", shown) and "\x1b" not in shown
    assert f"{100 * result.success_rate:.1f} % succeed (95 % interval {100 * result.low:.1f} to" in shown
    assert "99.7 ± 0.1 %" in shown and f"babyai evaluate {folder / 'agent'} --levels {LEVEL}," in shown


def test_the_same_comes_out_each_time(tmp_path: Path) -> None:
    # What lies in the way is replaced, whatever it is.
    (tmp_path / "demos.parquet").write_bytes(b"not demonstrations")
    first, learned, left = run(tmp_path, SMALL), weights(tmp_path), files(tmp_path)
    # Nothing is drawn from what others may have drawn from.
    torch.manual_seed(1)
    assert run(tmp_path, SMALL) == first
    assert torch.equal(weights(tmp_path), learned) and files(tmp_path) == left
    run(tmp_path, replace(SMALL, seed=1))
    assert not torch.equal(weights(tmp_path), learned)


def test_an_interrupted_run_leaves_the_older_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, SMALL)
    before = weights(tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("babyai.training.optimizer.set_learning_rate", interrupt)
    monkeypatch.setattr(tour, "THREADS", 2)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, SMALL)
    assert torch.equal(weights(tmp_path), before) and torch.get_num_threads() == 1


def test_without_torch_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"needs torch: pip install 'babyai\[agents\]'"):
        run(tmp_path / "quick", SMALL)
    assert not (tmp_path / "quick").exists()


def test_torch_is_not_imported_before_it_is_set_up() -> None:
    code = "import sys, babyai.tour; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
