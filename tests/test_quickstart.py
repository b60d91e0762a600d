"""The quickstart, scaled down: its files, and that the result is the same each time."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from babyai import quickstart
from babyai.agents import Agent
from babyai.demos.store import DemoFile
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.evaluation.watch import play_scenes
from babyai.quickstart import FILMED, LEVEL, Recipe, run
from babyai.render.film import draw_scene
from babyai.seeds import TEST_SEED
from babyai.training.learner import Learner

pytestmark = pytest.mark.compiled

SMALL = Recipe(demos=40, updates=6, lanes=2, steps=5, missions=6)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, because other tests run at the same time."""
    monkeypatch.setattr(quickstart, "THREADS", 1)
    with quickstart._threads(1):
        yield


def weights(folder: Path) -> torch.Tensor:
    model = Agent.load(folder / "agent", device="cpu").model
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


def files(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("demos.parquet", "agent.gif")]


def test_it_writes_demonstrations_an_agent_and_a_gif(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "quick"
    result = run(folder, SMALL)
    assert sorted(path.name for path in folder.iterdir()) == ["agent", "agent.gif", "demos.parquet"]
    with DemoFile(folder / "demos.parquet") as file:
        assert len(file) == 40 and file.levels == (LEVEL,)
    agent = Agent.load(folder / "agent", device="cpu")
    assert evaluate(AgentPlayer(agent.model), LEVEL, missions=6, first_seed=TEST_SEED) == result
    with Image.open(folder / "agent.gif") as film:
        # The untrained agent plays first; an episode takes up to 64 steps.
        assert getattr(film, "n_frames", 1) > 2 * FILMED
        first = np.asarray(film.convert("RGB"))
    [before, *_] = play_scenes(AgentPlayer(agent.model), LEVEL, TEST_SEED)
    np.testing.assert_array_equal(first, draw_scene(before, "before training"))
    output = " ".join(capsys.readouterr().out.split())
    assert "mission: go to the red ball expert: forward x 3, right, forward x 3, left" in output
    assert re.search(r"update 6 .*accuracy \S+ %.* loss \S+ .*frames/s", output) and "\x1b" not in output
    assert f"{100 * result.success_rate:.1f} % (95 % interval {100 * result.low:.1f} to" in output
    assert "99.7 ± 0.1 %" in output and f"babyai evaluate {folder / 'agent'} --levels {LEVEL}," in output


@pytest.mark.long
def test_the_result_is_the_same_each_time(tmp_path: Path) -> None:
    # A file that is in the way is replaced.
    (tmp_path / "demos.parquet").write_bytes(b"not demonstrations")
    first = run(tmp_path, SMALL)
    learned = weights(tmp_path)
    written = files(tmp_path)
    # Nothing depends on torch's global generator.
    torch.manual_seed(1)
    assert run(tmp_path, SMALL) == first
    assert torch.equal(weights(tmp_path), learned) and files(tmp_path) == written
    run(tmp_path, replace(SMALL, seed=1))
    assert not torch.equal(weights(tmp_path), learned)


@pytest.mark.long
def test_an_interruption_leaves_the_older_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, SMALL)
    before = weights(tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "gradient_step", interrupt)
    monkeypatch.setattr(quickstart, "THREADS", 2)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, SMALL)
    assert torch.equal(weights(tmp_path), before) and torch.get_num_threads() == 1


def test_without_torch_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"torch.*pip install 'babyai\[agents\]'"):
        run(tmp_path / "quick", SMALL)
    assert not (tmp_path / "quick").exists()


def test_torch_is_not_imported_before_it_is_set_up() -> None:
    code = "import sys, babyai.quickstart; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
