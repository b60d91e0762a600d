"""Watching an agent: it acts as in evaluation, whoever has played before; its name cannot lead out of the folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babyai.agents.agent import Agent
from babyai.evaluation.players import AgentPlayer
from babyai.evaluation.watch import play_scenes
from babyai.web import decisions
from babyai.web.agent_pool import AgentPool
from babyai.web.play_session import PlaySession

LEVEL = "GoToObjS4"


def tell(session: PlaySession, **message: Any) -> dict[str, Any]:
    return session.answer(json.dumps(message))


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web") / "agents"
    Agent.create("bow_endpool_res", seed=3, memory_dim=16).save(folder / "small")
    Agent.create("bow_endpool_res", "big", seed=1, memory_dim=16).save(folder / "run-1.b" / "checkpoints" / "000000001")
    Agent.create("pixels_endpool_res", seed=1, memory_dim=16).save(folder / "pixels")
    Agent.create(seed=0, memory_dim=16).save(folder.parent / "outside")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def session(agents: Path, tmp_path: Path) -> PlaySession:
    session = PlaySession(tmp_path, agents)
    tell(session, do="start", level=LEVEL, seed=4)
    return session


def test_agents_and_runs_are_listed(session: PlaySession, tmp_path: Path) -> None:
    assert tell(session, do="agents")["names"] == ["pixels", "run-1.b", "small"]
    assert tell(PlaySession(tmp_path, tmp_path / "nothing"), do="agents")["names"] == []


def test_listing_agents_needs_no_torch(agents: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('there is no torch')")
    script = (
        "from pathlib import Path; from babyai.web.play_session import PlaySession\n"
        f"session = PlaySession(Path('demos'), Path({str(agents)!r}))\n"
        "assert len(session.answer('{\"do\": \"agents\"}')['names']) == 3\n"
        'session.answer(\'{"do": "start", "level": "GoToObjS4", "seed": 0}\')\n'
        'print(session.answer(\'{"do": "choose", "agent": "small"}\')[\'message\'])\n'
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and "pip install 'babyai[agents]'" in done.stdout, done.stderr


def test_the_server_does_not_import_torch(tmp_path: Path) -> None:
    Agent.create("map", seed=0, layers=1).save(tmp_path / "map")
    script = (
        "import sys; from pathlib import Path; from babyai.web.play_session import PlaySession\n"
        f"session = PlaySession(Path('demos'), Path({str(tmp_path)!r}))\n"
        'session.answer(\'{"do": "start", "level": "GoToObjS4", "seed": 0}\')\n'
        'session.answer(\'{"do": "choose", "agent": "map"}\')\n'
        "assert session.answer('{\"do\": \"agent\"}')['mind']['map'] and 'torch' not in sys.modules\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


@pytest.mark.parametrize("name", ["small", "run-1.b", "pixels"])
def test_an_agent_acts_as_in_evaluation(session: PlaySession, agents: Path, name: str) -> None:
    state = tell(session, do="choose", agent=name)
    player = AgentPlayer(Agent.load(agents / name, device="cpu").model)
    for scene in list(play_scenes(player, LEVEL, 4))[1:]:
        probs = state["mind"]["probs"]
        assert abs(sum(probs.values()) - 1) < 1e-3 and len(state["mind"]["values"]) == scene.step
        state = tell(session, do="agent")
        assert scene.action is not None and state["action"] == scene.action.name == max(
            probs, key=lambda each: probs[each]
        )
    assert state["outcome"] == scene.outcome
    attention = state["mind"]["attention"]
    assert state["mind"]["map"] is None
    if name == "run-1.b":
        assert " ".join(word for word, _ in attention) == state["mission"]
        assert abs(sum(weight for _, weight in attention) - 1) < 1e-3
    else:
        assert attention == []


@pytest.mark.parametrize("name", ["small", "run-1.b"])
def test_its_memory_is_that_of_the_episode(session: PlaySession, name: str) -> None:
    tell(session, do="choose", agent=name)
    thoughts = [tell(session, do="act", action=action)["mind"] for action in (0, 2, 1, 1)]
    # After an undo and another choice, the memory is rebuilt.
    for before in thoughts[-2::-1]:
        assert same(tell(session, do="undo")["mind"], before)
    tell(session, do="choose", agent=None)
    for action in (2, 1):
        assert tell(session, do="act", action=action)["mind"] is None
    assert same(tell(session, do="choose", agent=name)["mind"], thoughts[2])
    # Another mission, and another episode, start without memory.
    assert len(tell(session, do="instruct", mission="pick up a object")["mind"]["values"]) == 1
    assert len(tell(session, do="start", level=LEVEL, seed=5)["mind"]["values"]) == 1


def test_undo_does_not_decide_on_the_episode_again(session: PlaySession, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(session, do="choose", agent="small")
    thoughts = [tell(session, do="act", action=k % 2)["mind"] for k in range(6)]
    decided = []
    decide = AgentPool.decide
    monkeypatch.setattr(AgentPool, "decide", lambda *each, **options: decided.append(1) or decide(*each, **options))
    for before in thoughts[-2::-1]:
        assert tell(session, do="undo")["mind"] == before
    assert not decided
    # As long as the memory of that step is kept; later, all steps are decided on again.
    monkeypatch.setattr("babyai.web.mind.MAX_KEPT", 3)
    for k in range(1, 6):
        assert same(tell(session, do="act", action=k % 2)["mind"], thoughts[k])
    assert len(decided) == 5
    for before in thoughts[-2::-1]:
        assert same(tell(session, do="undo")["mind"], before)
    assert len(decided) > 5


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    numbers = [[*each["probs"].values(), *each["values"]] for each in (first, second)]
    return len(numbers[0]) == len(numbers[1]) and np.allclose(*numbers, atol=1e-3)


def test_the_map_that_an_agent_draws_is_shown(tmp_path: Path) -> None:
    Agent.create("map", seed=0).save(tmp_path / "agents" / "map")
    session = PlaySession(tmp_path, tmp_path / "agents")
    tell(session, do="start", level="GoToLocal", seed=4)
    state = tell(session, do="choose", agent="map")
    # At the start, the map is the view, which faces up.
    drawn = state["mind"]["map"]
    x, y, heading = drawn["agent"]
    assert (y, heading) == (len(drawn["grid"]) - 1, 3)
    seen = [row[2 * (3 - x) : 2 * (3 - x) + len(drawn["grid"][0])] for row in state["view"]][-len(drawn["grid"]) :]
    assert drawn["grid"] == seen
    turned = tell(session, do="act", action="right")["mind"]["map"]
    assert turned["agent"][2] == 0 and "".join(turned["grid"]).count("??") < len("".join(turned["grid"])) / 2
    tell(session, do="choose", agent=None)
    assert tell(session, do="act", action="left")["mind"] is None


def test_what_an_agent_played_is_not_recorded(session: PlaySession, tmp_path: Path) -> None:
    tell(session, do="record", file="mine")
    tell(session, do="choose", agent="small")
    tell(session, do="agent")
    while (state := tell(session, do="expert"))["outcome"] == "playing":
        pass
    assert state["outcome"] == "success" and "an agent" in state["note"] and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["../outside", "..", ".", "", "/etc", "small/../../outside", "linked", "empty", "nobody", 3, ["small"]]
)
def test_names_cannot_leave_the_folder(session: PlaySession, agents: Path, name: Any) -> None:
    if not (agents / "linked").exists():
        (agents / "linked").symlink_to(agents.parent / "outside")
    assert tell(session, do="choose", agent=name)["type"] == "error"
    assert tell(session, do="act", action=0)["mind"] is None
    assert tell(session, do="agent") == {"type": "error", "message": "no agent has been chosen"}
    (agents / "linked").unlink()


def test_checkpoints_of_a_run_cannot_lead_out_of_the_folder(session: PlaySession, agents: Path) -> None:
    run = agents / "run-of-links"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "000000001").symlink_to(agents.parent / "outside")
    try:
        answer = tell(session, do="choose", agent="run-of-links")
        assert answer["type"] == "error" and "leads out" in answer["message"]
    finally:
        shutil.rmtree(run)


def test_code_that_a_checkpoint_names_is_not_run(session: PlaySession, agents: Path) -> None:
    Agent.create("tests.agents.own_policies:Memoryless").save(agents / "custom")
    try:
        answer = tell(session, do="choose", agent="custom")
        assert answer["type"] == "error" and "own_policies" in answer["message"]
    finally:
        (agents / "custom" / "model.safetensors").unlink()
        (agents / "custom").rmdir()


def test_the_game_goes_on_without_an_agent_that_is_gone(session: PlaySession, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(session, do="choose", agent="small")

    def decide(*_: Any, **__: Any) -> None:
        raise ValueError("it is gone")

    monkeypatch.setattr(AgentPool, "decide", decide)
    state = tell(session, do="act", action="left")
    assert state["step"] == 1 and state["mind"] is None and state["note"] == "it is gone"
    answer = tell(session, do="agent")
    assert answer == {"type": "error", "message": "it is gone"}
    assert tell(session, do="undo")["step"] == 0


def test_a_checkpoint_that_is_replaced_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    Agent.create(seed=0, memory_dim=16).save(tmp_path)
    chosen = decisions.find_agent(tmp_path)
    decisions._load.cache_clear()
    os.utime(chosen.path, ns=(1, 1))
    with pytest.raises(ValueError, match="has changed since this agent was chosen; choose it again"):
        decisions._load(chosen)
