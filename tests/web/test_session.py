"""Sessions without a network: playing, undo, missions, completion, demonstrations, and messages that are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babyai.demos.store import DemoFile
from babyai.demos.verify import verify
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.layout import parse_layout
from babyai.web.game import Game
from babyai.web.play_session import PlaySession
from babyai.web.session import BURST, RATE, RateLimit
from babyai.world.codes import Action

LEVEL = "GoToRedBallGrey"


def tell(session: PlaySession, **message: Any) -> dict[str, Any]:
    return session.answer(json.dumps(message))


def solution(level: str, seed: int) -> list[int]:
    engine = Engine(level)
    engine.reset([seed])
    actions, lengths, _ = ExpertBatch(engine).demonstrate()
    return actions[0, : lengths[0]].tolist()


@pytest.fixture
def session(tmp_path: Path) -> PlaySession:
    session = PlaySession(tmp_path / "demos", tmp_path / "agents")
    assert tell(session, do="start", level=LEVEL, seed=0)["type"] == "state"
    return session


def test_the_state_shows_the_world(session: PlaySession) -> None:
    state = tell(session, do="start", level="UnlockPickup", seed=0)
    json.dumps(state)
    world = session._playing.recorder.engine.worlds[0]
    x, y, heading = state["agent"]
    drawn = [
        row[: 2 * x] + ">v<^"[heading] * 2 + row[2 * x + 2 :] if k == y else row for k, row in enumerate(state["grid"])
    ]
    layout = parse_layout("\n".join(drawn))
    assert (layout.width, layout.height) == (world.width, world.height) and layout.agent == (x, y)
    assert len(state["view"]) == 7 and all(len(row) == 14 for row in state["view"])
    assert state["mission"] == "pick up the purple box" and state["step"] == 0 and not state["can_undo"]
    # What is visible in the world is what is not unseen in the view, inside the grid.
    assert "".join(state["visible"]).count("1") <= sum(
        row[k : k + 2] != "??" for row in state["view"] for k in range(0, 14, 2)
    )


def test_playing_to_success_and_undo(session: PlaySession) -> None:
    states = [tell(session, do="act", action=action) for action in solution(LEVEL, 0)]
    assert states[-1]["outcome"] == "success" and states[-1]["reward"] > 0 and states[0]["outcome"] == "playing"
    assert tell(session, do="act", action="forward") == states[-1]
    for before in reversed(states[:-1]):
        assert tell(session, do="undo") == before
    assert tell(session, do="undo")["step"] == 0
    assert tell(session, do="undo") == {"type": "error", "message": "there is nothing to undo"}


def test_missions_of_your_own(session: PlaySession) -> None:
    tell(session, do="act", action="left")
    state = tell(session, do="instruct", mission="Pick up a grey key")
    assert state["mission"] == "pick up a grey key" and state["own_mission"] and not state["can_undo"]
    wrong = tell(session, do="instruct", mission="pick up a green ball")
    assert wrong["type"] == "error" and "there is no 'green ball'" in wrong["message"]
    wrong = tell(session, do="instruct", mission="eat the ball")
    assert wrong["type"] == "error" and "^^^" in wrong["message"]
    # The mission before is still in force, and is judged.
    while (state := tell(session, do="expert"))["outcome"] == "playing":
        pass
    assert state["outcome"] == "success" and state["carried"] == "a grey key"
    phrases = tell(session, do="complete", text="pick up the gr")["phrases"]
    assert phrases == ["green", "grey"]
    linked = tell(session, do="start", level=LEVEL, seed=0, mission="go to a grey box")
    assert linked["mission"] == "go to a grey box" and linked["own_mission"]


@pytest.mark.parametrize("level", ["BossLevel", "GoToImpUnlock", "PutNextLocal"])
def test_the_expert_continues_after_anything(level: str) -> None:
    game = Game(level, 7)
    for action in (Action.left, Action.forward, Action.pickup, Action.drop):
        game.let_expert_act()
        game.act(action)
    game.undo()
    game.act(Action.toggle)
    while not game.recorder.done:
        game.let_expert_act()
    assert game.success


def test_the_plan_of_the_expert_is_shown(session: PlaySession) -> None:
    assert tell(session, do="start", level="UnlockPickup", seed=0)["plan"] == []
    plan = tell(session, do="expert")["plan"]
    assert plan[0].startswith("go to ") and "the purple box" in " ".join(plan)
    assert tell(session, do="undo")["plan"] == []


# ---------------------------------------------------------------- demonstrations


def test_successes_are_recorded_and_can_be_replayed(session: PlaySession, tmp_path: Path) -> None:
    path = tmp_path / "demos" / "mine.parquet"
    assert tell(session, do="demos", file="mine")["rows"] == []
    assert tell(session, do="record", file="mine", person="Ada") == {"type": "recording", "file": str(path)}
    for seed in (0, 1):
        tell(session, do="start", level=LEVEL, seed=seed)
        for action in solution(LEVEL, seed):
            state = tell(session, do="act", action=action)
    assert f"{path} now has 2" in state["note"]
    # Undoing the last step and taking it again does not record it twice.
    tell(session, do="undo")
    assert "note" not in tell(session, do="act", action=solution(LEVEL, 1)[-1])
    with DemoFile(path) as file:
        assert [demo.seed for demo in file] == [0, 1] and file[0].actions.tolist() == solution(LEVEL, 0)
        assert (file.header.sources[0].origin, file.header.sources[0].style) == ("human", "Ada")
    assert verify(path) is None
    rows = tell(session, do="demos", file="mine")["rows"]
    assert [(row["row"], row["level"], row["seed"]) for row in rows] == [(0, LEVEL, 0), (1, LEVEL, 1)]
    states = tell(session, do="replay", file="mine", row=1)["states"]
    assert len(states) == len(solution(LEVEL, 1)) + 1 and states[-1]["outcome"] == "success"
    assert tell(session, do="replay", file="mine", row=2)["type"] == "error"


def test_what_a_person_did_not_play_is_not_recorded(session: PlaySession, tmp_path: Path) -> None:
    tell(session, do="record", file="mine")
    while (state := tell(session, do="expert"))["outcome"] == "playing":
        pass
    assert "the expert" in state["note"]
    tell(session, do="start", level=LEVEL, seed=0, mission="go to the red ball")
    for action in solution(LEVEL, 0):
        state = tell(session, do="act", action=action)
    assert state["outcome"] == "success" and "your own mission" in state["note"]
    tell(session, do="record", file=None)
    tell(session, do="start", level=LEVEL, seed=0)
    for action in solution(LEVEL, 0):
        state = tell(session, do="act", action=action)
    assert "note" not in state and not list((tmp_path / "demos").iterdir())


@pytest.mark.parametrize(
    "name", ["", "../mine", "/etc/passwd", "a/b", "a\\b", ".hidden", "a" * 65, "mine.parquet", "ä", 3, "a\n"]
)
def test_file_names_cannot_leave_the_folder(session: PlaySession, tmp_path: Path, name: Any) -> None:
    for message in ({"do": "record"}, {"do": "demos"}, {"do": "replay", "row": 0}):
        answer = tell(session, file=name, **message)
        assert answer["type"] == "error" and "file name" in answer["message"]
    assert not (tmp_path / "demos").exists()


def test_links_out_of_the_folder_are_refused(session: PlaySession, tmp_path: Path) -> None:
    (tmp_path / "demos").mkdir()
    (tmp_path / "demos" / "mine.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    assert "symbolic link" in tell(session, do="record", file="mine")["message"]


def test_a_damaged_file_is_reported_and_kept(session: PlaySession, tmp_path: Path) -> None:
    path = tmp_path / "demos" / "mine.parquet"
    tell(session, do="record", file="mine")
    path.write_bytes(b"PAR1 not really")
    for action in solution(LEVEL, 0):
        state = tell(session, do="act", action=action)
    assert state["outcome"] == "success" and "mine.parquet is" in state["note"]
    assert path.read_bytes() == b"PAR1 not really"


# ---------------------------------------------------------------- wrong messages


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", "null", '"act"', "[" * 4000, '{"do": 3}', '{"do": "fly"}', '{"do": "__class__"}'),
        *(
            '{"do": "act"}',
            '{"do": "act", "action": 7}',
            '{"do": "act", "action": true}',
            '{"do": "act", "action": 1.0}',
        ),
        *('{"do": "act", "action": "jump"}', '{"do": "act", "action": 0, "self": 1}', '{"do": "undo", "x": 1}'),
        *('{"do": "start", "level": "GoToLocl", "seed": 0}', '{"do": "start", "level": "GoToLocal", "seed": -1}'),
        *('{"do": "start", "level": "GoToLocal", "seed": "0"}', '{"do": "start", "level": 3, "seed": 0}'),
        '{"do": "start", "level": "GoToLocal", "seed": 1e400}',
        '{"do": "start", "level": "GoToLocal", "seed": 99999999999999999999999}',
        json.dumps({"do": "instruct", "mission": "a " * 1000}),
        json.dumps({"do": "complete", "text": None}),
    ],
)
def test_wrong_messages_are_refused_without_harm(session: PlaySession, text: str) -> None:
    before = session._playing.state()
    assert session.answer(text)["type"] == "error"
    assert session._playing.state() == before


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["do", "action", "level", "seed", "file", "row", "text", "mission"]) | st.text(), inner
            )
        ),
    ),
    st.sampled_from(
        ["act", "start", "instruct", "complete", "record", "replay", "demos", "undo", "choose", "agents", "agent"]
    ),
)
def test_any_json_is_answered(content: Any, name: str) -> None:
    session = PlaySession(Path("/nonexistent/folder"), Path("/nonexistent/agents"))
    if isinstance(content, dict):
        content = {**content, "do": name}
    assert session.answer(json.dumps(content))["type"] in (
        "error",
        "state",
        "completions",
        "recording",
        "demos",
        "agents",
    )


def test_before_the_start_there_is_nothing_to_play(tmp_path: Path) -> None:
    for name in ("undo", "expert"):
        assert "no episode" in tell(PlaySession(tmp_path, tmp_path), do=name)["message"]


def test_the_rate_limit_is_a_token_bucket() -> None:
    now = 0.0
    limit = RateLimit(clock=lambda: now)
    assert all(limit.allows() for _ in range(BURST)) and not limit.allows()
    now = 0.1
    assert sum(limit.allows() for _ in range(BURST)) == RATE * 0.1
    now = 1000.0
    assert sum(limit.allows() for _ in range(2 * BURST)) == BURST
