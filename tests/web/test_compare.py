"""Two players in lockstep, without a network."""

import json
from pathlib import Path
from typing import Any

import pytest

from babyai.agents.agent import Agent
from babyai.evaluation.players import AgentPlayer
from babyai.evaluation.watch import play_scenes
from babyai.expert.expert import UnsolvableError
from babyai.web.compare_session import CompareSession
from babyai.web.game import Game
from tests.web.test_session import solution

LEVEL = "GoToObjS4"


def tell(session: CompareSession, **message: Any) -> dict[str, Any]:
    return json.loads(json.dumps(session.answer(json.dumps(message))))


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web") / "agents"
    Agent.create("bow_endpool_res", seed=3, memory_dim=16).save(folder / "small")
    Agent.create("bow_endpool_res", "big", seed=1, memory_dim=16).save(folder / "expert")
    return folder


@pytest.fixture
def session(agents: Path) -> CompareSession:
    return CompareSession(agents)


def start(session: CompareSession, *players: str, **options: Any) -> dict[str, Any]:
    return tell(session, **{"do": "start", "level": LEVEL, "seed": 4, "players": list(players)} | options)


def test_two_agents_play_as_in_evaluation(session: CompareSession, agents: Path) -> None:
    """Each as if it were alone; when one has finished, the other goes on."""
    assert tell(session, do="agents")["names"] == ["expert", "small"]
    pair = start(session, "agent:small", "agent:expert")
    names = ("small", "expert")
    alone = [list(play_scenes(AgentPlayer(Agent.load(agents / name, device="cpu").model), LEVEL, 4)) for name in names]
    steps = 0
    while not pair["over"]:
        pair = tell(session, do="step")
        steps += 1
        for side, scenes in zip(pair["sides"], alone, strict=True):
            scene = scenes[min(steps, len(scenes) - 1)]
            assert scene.action is not None
            assert (side["step"], side["action"], side["outcome"]) == (scene.step, scene.action.name, scene.outcome)
    assert steps == max(map(len, alone)) - 1
    assert tell(session, do="step") == pair


def test_the_expert_and_an_agent(session: CompareSession) -> None:
    pair = start(session, "expert", "agent:small", level="GoToRedBallGrey", seed=0)
    assert (
        pair["sides"][0]["mission"] == pair["sides"][1]["mission"]
        and pair["sides"][0]["grid"] == pair["sides"][1]["grid"]
    )
    for _ in solution("GoToRedBallGrey", 0):
        assert not pair["over"] and not pair["person"]
        pair = tell(session, do="step")
        assert pair["sides"][0]["step"] == pair["sides"][1]["step"]
    expert, agent = pair["sides"]
    assert expert["outcome"] == "success" and expert["verdict"].startswith("success") and expert["plan"]
    assert agent["outcome"] == "playing" and len(agent["mind"]["probs"]) == 7 and expert["mind"] is None
    assert not pair["over"]
    # The expert waits at its end.
    again = tell(session, do="step")
    assert again["sides"][0]["step"] == expert["step"] and again["sides"][1]["step"] == agent["step"] + 1


def test_a_person_sets_the_pace(session: CompareSession) -> None:
    pair = start(session, "person", "expert", level="GoToRedBallGrey", seed=0)
    assert pair["person"]
    assert "person's turn" in tell(session, do="step")["message"]
    pair = tell(session, do="step", action="left")
    assert [side["step"] for side in pair["sides"]] == [1, 1] and pair["sides"][0]["action"] == "left"
    assert tell(session, do="step", action="fly")["type"] == "error"
    while pair["sides"][1]["outcome"] == "playing":
        pair = tell(session, do="step", action="left")
    ended = pair["sides"][1]["step"]
    pair = tell(session, do="step", action="right")
    assert pair["sides"][1]["step"] == ended and pair["sides"][0]["step"] == ended + 1 and pair["person"]


def test_a_mission_of_your_own(session: CompareSession) -> None:
    pair = start(session, "expert", "agent:small", level="GoToRedBallGrey", seed=0, mission="pick up a grey key")
    assert all(side["mission"] == "pick up a grey key" and side["own_mission"] for side in pair["sides"])
    while pair["sides"][0]["outcome"] == "playing":
        pair = tell(session, do="step")
    assert pair["sides"][0]["carried"] == "a grey key"


@pytest.mark.parametrize(
    "options",
    [
        {"players": ["person", "person"]},
        {"players": ["expert"]},
        {"players": "expert"},
        {"players": ["expert", 3]},
        {"players": ["expert", "nobody"]},
        {"players": ["expert", "agent:nobody"]},
        {"players": ["expert", "agent:../agents/small"]},
        {"players": ["agent:", "expert"]},
        {"level": "GoToLocl"},
        {"seed": -1},
        {"mission": "eat the ball"},
    ],
)
def test_what_is_wrong_is_refused_without_harm(session: CompareSession, options: dict[str, Any]) -> None:
    assert "no episode" in tell(session, do="step")["message"]
    start(session, "expert", "agent:small", level="GoToRedBallGrey", seed=0)
    tell(session, do="step")
    assert start(session, "expert", "expert", **options)["type"] == "error"
    assert [side["step"] for side in tell(session, do="step")["sides"]] == [2, 2]


def test_if_the_expert_knows_no_way_the_other_goes_on(session: CompareSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(_: Game) -> None:
        raise UnsolvableError("the key is out of reach")

    start(session, "expert", "agent:small")
    monkeypatch.setattr(Game, "let_expert_act", give_up)
    pair = tell(session, do="step")
    assert "out of reach" in pair["sides"][0]["problem"] and pair["sides"][1]["step"] == 1 and not pair["over"]
    pair = tell(session, do="step")
    assert [side["step"] for side in pair["sides"]] == [0, 2]
