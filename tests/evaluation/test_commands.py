"""The command `babyai evaluate` as it is typed."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tyro

from babyai.agents.agent import Agent
from babyai.evaluation import commands
from babyai.evaluation import evaluate as evaluating
from babyai.evaluation.evaluate import Evaluation
from babyai.evaluation.paper import BASELINES
from babyai.levels.catalog import LEVELS, PAPER_LEVELS

FEW = ("--missions", "6")


def run(*words: str | Path) -> None:
    tyro.cli(commands.evaluate, args=[str(word) for word in words])


def row_of(output: str, level: str) -> list[str]:
    """The cells of a level's row."""
    return next(line.split() for line in output.splitlines() if line.startswith(level + " "))


@pytest.fixture(scope="module")
def agent_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents") / "ours"
    Agent.create("bow_endpool_res", seed=0, memory_dim=16).save(folder)
    return folder


# ------------------------------------------------------------ output


def test_the_expert_next_to_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    run("expert", "--levels", "GoToObj, OpenRedBlueDoorsDebug", *FEW)
    output = capsys.readouterr().out
    assert "expert: 6 missions" in output and "2,000,000,000" in output
    _, success, low, to, high, solved, reward, length, paper, demos = row_of(output, "GoToObj")
    assert (success, low, to, high, solved, paper, demos) == ("100.0", "61.0", "to", "100.0", "open", "100.0", "5.2")
    assert 0 < float(reward) < 1 and 1 < float(length) < 20
    # The paper does not have this level, and its long name is not truncated.
    assert len(row_of(output, "OpenRedBlueDoorsDebug")) == 8
    assert re.search(r"99 %: \w+ on 0 of 2 levels, \w+ on 0", output)
    assert re.search(r"GoToObj: .*6 of 6.* 381 missions", output)


def test_the_teacher_and_a_random_player(capsys: pytest.CaptureFixture[str]) -> None:
    run("teacher", "--levels", "GoToObjS4", *FEW)
    assert row_of(capsys.readouterr().out, "GoToObjS4")[1] == "100.0"
    run("random", "--levels", "PutNextLocal", *FEW, "--first-seed", "5")
    output = capsys.readouterr().out
    row = row_of(output, "PutNextLocal")
    assert float(row[1]) < 50 and row[5] == "no"
    assert re.search(r"99 %: \w+ on 0 of 1 levels, \w+ on 1", output) and "seeds from 5" in output


def test_an_agent(agent_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    options = ("--levels", "GoToObjS4", *FEW, "--device", "cpu", "--worlds", "4", "--rules", "minigrid")
    run(agent_folder, *options, "--sample", "--seed", "3", "--json", out)
    output = capsys.readouterr().out
    assert f"{agent_folder} (sampled actions, cpu, float32)" in output and f"written: {out}" in output
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["who"] == str(agent_folder) and written["sample"] is True and written["seed"] == 3
    [result] = written["results"]
    assert result["level"] == "GoToObjS4" and result["rules"] == "minigrid" and result["paper"] is None
    player = commands.find_player(str(agent_folder), "cpu", "auto", True, 3, False, None)
    again = evaluating.evaluate(player, "GoToObjS4", missions=6, rules="minigrid")
    assert result["mean_length"] == again.mean_length and result["successes"] == again.successes


def test_the_best_checkpoint_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in enumerate(("best-000000003", "000000005")):
        Agent.create("bow_endpool_res", seed=seed, memory_dim=16).save(tmp_path / "checkpoints" / name)
    player: Any = commands.find_player(str(tmp_path), "cpu", "bf16", False, 0, False, None)
    assert player.precision == "bf16"
    best = Agent.load(tmp_path / "checkpoints" / "best-000000003", device="cpu").model.state_dict()
    assert all(torch.equal(best[name], value) for name, value in player.model.state_dict().items())


def test_all_means_the_levels_of_the_paper() -> None:
    assert commands._find_levels("all", "paper") == list(PAPER_LEVELS) == list(BASELINES)
    assert set(BASELINES) <= set(LEVELS)


def test_the_table_says_whether_99_percent_are_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    won = {"GoToObj": 512, "GoToLocal": 510, "BossLevel": 450}

    def pretend(_: object, level: str, **__: object) -> Evaluation:
        rewards = np.where(np.arange(512) < won[level], 0.5, 0.0)
        return evaluating._summarize(level, "paper", 0, rewards, np.ones(512, dtype=np.int64), 1.0)

    monkeypatch.setattr(evaluating, "evaluate", pretend)
    run("expert", "--levels", ",".join(won))
    output = capsys.readouterr().out
    assert [row_of(output, level)[5] for level in won] == ["yes", "open", "no"]
    assert re.search(r"99 %: \w+ on 1 of 3 levels, \w+ on 1", output)
    assert re.search(r"GoToLocal: .*510 of 512.* 1,025 missions", output)


def test_an_interrupted_evaluation_shows_the_finished_levels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    play = evaluating.evaluate

    def interrupt(player: Any, level: str, **options: Any) -> Evaluation:
        if level == "GoTo":
            raise KeyboardInterrupt
        return play(player, level, **options)

    monkeypatch.setattr(evaluating, "evaluate", interrupt)
    out = tmp_path / "out.json"
    with pytest.raises(SystemExit, match="1 of 2 levels"):
        run("random", "--levels", "GoToObjS4,GoTo", *FEW, "--json", out)
    assert "GoToObjS4" in capsys.readouterr().out and len(json.loads(out.read_bytes())["results"]) == 1
    with pytest.raises(SystemExit, match="before the first level"):
        run("random", "--levels", "GoTo", *FEW)


# ------------------------------------------------------------ text agents

TEXT_AGENT = """
def act(text):
    return "fly" if "Step 1 of" in text else "turn left" if "wall 1 step forward" in text else "go forward"

def act_all(texts: list[str]):
    return [act(text) for text in texts]

def give_up(text):
    raise OSError("the server does not answer")

def fail_late(text):
    return give_up(text) if "go to the red ball" in text else act(text)

NAME = "turn left"
"""


@pytest.fixture
def text_agent(tmp_path: Path) -> Path:
    file = tmp_path / "agent.py"
    file.write_text(TEXT_AGENT)
    return file


@pytest.mark.parametrize("name", ["act", "act_all"])
def test_a_text_agent(text_agent: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    run(f"{text_agent}:{name}", "--levels", "GoToObjS4", *FEW, "--wording", "plain", "--json", out)
    output = capsys.readouterr().out
    assert f"{text_agent}:{name} (text agent, wording plain)" in output and "unreadable" in output
    written = json.loads(out.read_text(encoding="utf-8"))
    [result] = written["results"]
    # The first answer of every mission.
    assert written["wording"] == "plain" and result["unreadable_answers"] == 6
    assert row_of(output, "GoToObjS4")[-3:] == ["6", "of", str(round(6 * result["mean_length"]))]


def test_a_text_agent_reads_the_wording_of_babyai_text(text_agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(f"{text_agent}:act", "--levels", "GoToObjS4", *FEW, "--wording", "babyai_text")
    output = capsys.readouterr().out
    assert "wording babyai_text" in output and row_of(output, "GoToObjS4")[-3] == "0"


def test_an_agent_that_fails_late_does_not_lose_the_finished_levels(
    text_agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    with pytest.raises(SystemExit, match=r"fail_late failed: OSError.*server.*after 1 of 2 levels"):
        run(f"{text_agent}:fail_late", "--levels", "OpenDoor,GoToRedBall", *FEW, "--json", out)
    assert "OpenDoor" in capsys.readouterr().out and len(json.loads(out.read_bytes())["results"]) == 1


def test_bad_text_agents_are_refused(text_agent: Path) -> None:
    with pytest.raises(ValueError, match=r"'atc'.*'act'"):
        run(f"{text_agent}:atc", "--levels", "GoToObj")
    with pytest.raises(ValueError, match="not 'turn left'"):
        run(f"{text_agent}:NAME", "--levels", "GoToObj")
    with pytest.raises(RuntimeError, match="server does not answer"):
        run(f"{text_agent}:give_up", "--levels", "GoToObj")


# ------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("expert", "--levels", "GoToLocl"), "'GoToLocl'.*'GoToLocal'"),
        (("expert", "--levels", "GoToLocal,"), "level.*''"),
        (("expert", "--levels", "GoTo", "--missions", "0"), "mission.*0"),
        (("expert", "--levels", "GoTo", "--json", "nowhere/out.json"), "nowhere"),
        (("nobody", "--levels", "GoTo"), "nobody.*expert, teacher or random.*file.py:function"),
    ],
)
def test_bad_input_is_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run(*words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_refused(agent_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"'cuda'.*'cpu'"):
        run(agent_folder, "--levels", "GoTo", "--device", "cuda")


def test_a_damaged_agent_is_refused(agent_folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in agent_folder.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        run(damaged, "--levels", "GoTo")


def test_agents_without_torch_say_what_to_install(agent_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "babyai.agents.agent")
    monkeypatch.delitem(sys.modules, "babyai.agents.actor")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"torch.*pip install 'babyai\[agents\]'"):
        run(agent_folder, "--levels", "GoTo")


def test_help_needs_neither_torch_nor_the_compiler() -> None:
    code = "import sys, babyai.evaluation.commands; sys.exit(bool({'torch', 'numba', 'gymnasium'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
