"""The command `babyai watch`, and the scenes of an episode."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from babyai.agents.agent import Agent
from babyai.evaluation import watch as watching
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer, ExpertPlayer, RandomPlayer
from babyai.evaluation.watch import play_scenes


def run(*words: str | Path) -> None:
    tyro.cli(watching.watch, args=[str(word) for word in words])


@pytest.mark.parametrize("who", ["expert", "random", "agent"])
def test_the_scenes_are_those_of_an_evaluation(who: str) -> None:
    players = {"expert": ExpertPlayer, "random": RandomPlayer}
    player = AgentPlayer(Agent.create(seed=0, memory_dim=16).model.train()) if who == "agent" else players[who]()
    scenes = list(play_scenes(player, "GoToObjS4", 5))
    result = evaluate(player, "GoToObjS4", missions=1, first_seed=5)
    assert (scenes[-1].reward, scenes[-1].step) == (result.mean_reward, result.mean_length)
    assert [scene.step for scene in scenes] == list(range(len(scenes)))
    assert scenes[0].action is None and all(scene.action is not None for scene in scenes[1:])


def test_in_a_pipe_first_and_last_scene_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run("expert", "--level", "GoToObjS4", "--seed", "1")
    output = capsys.readouterr().out
    assert "expert, GoToObjS4, seed 1" in output and "step 0 of 16" in output and "success, reward" in output
    assert "\x1b" not in output


def test_films_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Agent.create(seed=0, memory_dim=16).save(tmp_path / "agent")
    gif = tmp_path / "film.gif"
    png = tmp_path / "last.PNG"
    run(tmp_path / "agent", "--level", "GoToObjS4", "--gif", gif, "--png", png, "--device", "cpu")
    assert gif.read_bytes().startswith(b"GIF89a") and png.read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr().out
    assert f"written: {gif}" in output and f"written: {png}" in output and "agent: go to " in output


def test_a_mission_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    run("expert", "--level", "GoToObjS4", "--mission", "pick up a object")
    assert "mission: pick up" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["expert", "--level", "GoToObj", "--gif", "film.mp4"], r"--gif .*\.gif, not 'film\.mp4'"),
        (["expert", "--level", "GoToObj", "--png", "nowhere/a.png"], "no folder nowhere"),
        (["expert", "--level", "GoToObj", "--fps", "0"], "fps .*100, not 0"),
        (["expert", "--level", "GoToObjj"], "'GoToObj'"),
        (["nobody", "--level", "GoToObj"], "nobody.*expert, teacher or random"),
    ],
)
def test_mistakes_are_explained(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(*words)


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")
@pytest.mark.compiled
def test_in_a_terminal_every_step_is_drawn() -> None:
    master, slave = os.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "babyai.cli", "watch", "expert", "--level", "GoToObjS4", "--seed", "1", "--fps", "100"],
        stdout=slave,
        stderr=slave,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm"},
    )
    os.close(slave)
    output = bytearray()
    try:
        while piece := os.read(master, 4096):
            output.extend(piece)
    except OSError:
        # The other end is closed.
        pass
    os.close(master)
    assert done.wait(60) == 0
    steps = len(list(play_scenes(ExpertPlayer(), "GoToObjS4", 1)))
    assert output.count(b"\x1b[2J") == steps and b"success, reward" in output
