"""Arguments of Minigrid's constructors mean the same here."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.envs.minigrid_pairs import iter_states

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize(
    ("level", "arguments"),
    [
        ("GoToRedBall", {"room_size": 6, "num_dists": 3}),
        ("GoToLocal", {"room_size": 7, "num_dists": 4, "screen_size": 320}),
        ("GoToObj", {"room_size": 5}),
        ("GoToRedBlueBall", {"num_dists": 2}),
        ("GoTo", {"room_size": 5, "num_rows": 2, "num_cols": 3, "num_dists": 4, "doors_open": True}),
        ("GoToSeq", {"room_size": 6, "num_rows": 2, "num_cols": 2, "num_dists": 5}),
        ("PutNextLocal", {"room_size": 6, "num_objs": 3}),
        ("PutNextS5N2", {"room_size": 6, "objs_per_room": 3}),
        ("PutNextS5N2", {"room_size": 6, "objs_per_room": 3, "max_steps": 17}),
        ("MoveTwoAcrossS5N2", {"room_size": 6, "objs_per_room": 3}),
        ("FindObjS5", {"room_size": 6}),
        ("OneRoomS8", {"room_size": 9}),
        ("KeyCorridor", {"room_size": 5, "num_rows": 2}),
        ("OpenDoor", {"debug": True, "select_by": "color"}),
        ("OpenDoor", {"select_by": "loc"}),
        ("OpenTwoDoors", {"first_color": "red", "second_color": "grey", "strict": True}),
        ("OpenTwoDoors", {"first_color": "red"}),
        ("OpenDoorsOrderN2", {"num_doors": 3, "debug": True}),
        ("PickupDist", {"debug": True}),
        ("UnlockLocal", {"distractors": True}),
        ("UnlockPickup", {"distractors": True}),
        ("Synth", {"room_size": 6, "num_rows": 2, "num_cols": 2, "num_dists": 6}),
    ],
)
def test_arguments_make_the_same_world_as_in_minigrid(level: str, arguments: dict[str, Any]) -> None:
    for seed in range(3):
        for ours, theirs in iter_states(level, 5, seed=seed, **arguments):
            np.testing.assert_array_equal(ours.grid.encode(), theirs.grid.encode())
            assert (ours.mission, ours.max_steps) == (theirs.mission, theirs.max_steps)
            assert ours.instrs.surface() == theirs.mission
            assert (ours.room_size, ours.num_rows, ours.num_cols) == (
                theirs.room_size,
                theirs.num_rows,
                theirs.num_cols,
            )


def test_random_levels_take_the_arguments_of_minigrids_level_generator() -> None:
    env: Any = gym.make(
        "babyai/BossLevel-v0", action_kinds=["open"], instr_kinds=["action"], locations=False, locked_room_prob=0
    )
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        assert obs["mission"].startswith("open ") and " and " not in obs["mission"] and "your" not in obs["mission"]
    vector = gym.make_vec("babyai/GoToLocal-v0", num_envs=2, room_size=6, observation="full")
    assert vector.reset(seed=0)[0]["image"].shape == (2, 6, 6, 3)


@pytest.mark.parametrize(
    ("level", "arguments", "error", "message"),
    [
        (
            "GoToLocal",
            {"num_rows": 2},
            TypeError,
            "'GoToLocal' has no argument 'num_rows': it has room_size, num_dists",
        ),
        ("Open", {"num_dists": 2}, TypeError, "no argument 'num_dists': it has none"),
        ("GoToLocal", {"veiw_size": 5}, TypeError, "'veiw_size'"),
        ("OpenDoor", {"select_by": "shape"}, ValueError, "select_by='shape'"),
        ("OpenTwoDoors", {"first_color": "pink"}, ValueError, "'pink'"),
        ("BossLevel", {"action_kinds": ["fly"]}, ValueError, "action_kinds"),
        ("GoTo", {"room_size": 12}, ValueError, "at most 24 x 24"),
    ],
)
def test_arguments_that_a_level_does_not_have_are_rejected(
    level: str, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gym.make(f"babyai/{level}-v0", **arguments)
    with pytest.raises(error, match=message):
        gym.make_vec(f"babyai/{level}-v0", num_envs=2, **arguments)
