"""The environment of one world: Gymnasium's contract, options, errors, snapshots, pictures."""

import base64
import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics

import babyai
from babyai.envs.single import BabyAIEnv
from babyai.levels.layout import LayoutError
from babyai.world.language import MissionError

ROOM = """
    ##############
    ##>>....ro..##
    ##..bk......##
    ##......gx..##
    ##..........##
    ##############
"""


def make(level: str = "GoToLocal", **settings: Any) -> BabyAIEnv:
    """The environment itself, without Gymnasium's wrappers."""
    env = gym.make(f"babyai/{level}-v0", **settings).unwrapped
    assert isinstance(env, BabyAIEnv)
    return env


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for key, part in first.items():
        np.testing.assert_array_equal(part, second[key])


@pytest.mark.compiled
@pytest.mark.parametrize("level", babyai.LEVELS)
def test_every_level_keeps_the_contract(level: str) -> None:
    check_env(make(level), skip_render_check=True)


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
@pytest.mark.parametrize("observation", ["symbolic", "rgb", "full", "text"])
@pytest.mark.parametrize("level", ["GoToLocal", "PutNextS5N2Carrying"])
def test_every_observation_keeps_the_contract(level: str, observation: str, rules: str) -> None:
    check_env(make(level, observation=observation, rules=rules, render_mode="rgb_array", tile_size=8))


def test_observations_have_the_promised_parts() -> None:
    env = make("BossLevel", observation="text", view_size=9)
    seen, info = env.reset(seed=4)
    assert info == {} and list(seen) == ["image", "direction", "mission", "text"]
    assert seen["image"].shape == (9, 9, 3) and seen["image"].dtype == np.uint8
    assert type(seen["direction"]) is int and seen["mission"] == env.mission
    assert all(line.startswith(("You see ", "You carry ")) for line in seen["text"].split("\n"))
    seen, reward, terminated, truncated, info = env.step(0)
    assert type(reward) is float and terminated is False and truncated is False and info == {}
    assert make(observation="rgb").reset(seed=0)[0]["image"].shape == (56, 56, 3)
    assert make("GoTo", observation="full").reset(seed=0)[0]["image"].shape == (22, 22, 3)


def test_text_of_large_views_fits_its_space() -> None:
    env = make("UnblockPickup", observation="text", view_size=15)
    for seed in range(20):
        seen, _ = env.reset(seed=seed)
        assert seen in env.observation_space


def test_observations_flatten() -> None:
    env = FlattenObservation(gym.make("babyai/BossLevel-v0"))
    flat, _ = env.reset(seed=0)
    assert flat in env.observation_space and flat.ndim == 1


def test_seeds_name_episodes_and_streams_go_on() -> None:
    env, twin = make("Pickup"), make("Pickup")
    first, _ = env.reset(seed=np.int64(11))
    assert env.np_random_seed == 11
    assert_same(first, twin.reset(seed=11)[0])
    second, third = env.reset()[0], env.reset()[0]
    assert_same(second, twin.reset()[0])
    assert_same(third, twin.reset()[0])
    assert not np.array_equal(first["image"], second["image"]) or first["mission"] != second["mission"]


def test_the_first_episode_without_a_seed_is_drawn_from_entropy() -> None:
    assert len({make("BossLevel").reset()[0]["mission"] for _ in range(4)}) > 1


def test_the_end_says_whether_the_agent_succeeded() -> None:
    env = make(max_steps=3)
    env.reset(seed=0, options={"layout": ROOM, "mission": "go to the red ball"})
    assert env.max_steps == 3
    assert [env.step(2)[2:] for _ in range(2)] == [(False, False, {}), (True, False, {"success": True})]
    env.reset(seed=0, options={"layout": ROOM, "mission": "pick up the blue key"})
    ends = [env.step(6)[1:] for _ in range(3)]
    assert ends[-1] == (0.0, False, True, {"success": False}) and ends[0] == (0.0, False, False, {})


def test_a_step_limit_of_ones_own_holds_in_every_episode() -> None:
    env = make("BossLevel", max_steps=5)
    assert env.max_steps == 5
    for seed in range(3):
        env.reset(seed=seed)
        assert env.max_steps == 5
        assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]


def test_done_actions() -> None:
    env = make(done_actions=True)
    env.reset(options={"layout": ROOM, "mission": "go to the red ball"})
    assert [env.step(action)[2] for action in (2, 2, 6)] == [False, False, True]


def test_recorder_of_gymnasium() -> None:
    env = RecordEpisodeStatistics(gym.make("babyai/GoToLocal-v0", max_steps=4))
    env.reset(seed=0)
    for _ in range(4):
        *_, info = env.step(6)
    assert info["episode"]["l"] == 4 and info["success"] is False


# ---------------------------------------------------------------- options


def test_missions_of_ones_own() -> None:
    env = make()
    own, _ = env.reset(seed=5)
    color_and_kind = own["mission"].split(" ")[-2:]
    mission = "pick up a " + " ".join(color_and_kind)
    seen, _ = env.reset(seed=5, options={"mission": mission})
    assert seen["mission"] == env.mission
    assert seen["mission"].removeprefix("pick up ").split(" ")[1:] == color_and_kind
    np.testing.assert_array_equal(seen["image"], own["image"])
    after, _ = env.reset(seed=5)
    assert_same(after, own)


def test_layouts() -> None:
    env = make("GoTo")
    seen, _ = env.reset(seed=5, options={"layout": ROOM, "mission": "put the red ball next to the box"})
    assert (env.width, env.height, env.agent_pos, env.agent_dir) == (7, 6, (1, 1), 0)
    assert env.grid.get(4, 1).type == "ball" and env.grid.get(4, 1).color == "red"
    assert seen["mission"] == "put the red ball next to the box"
    assert str(env).split("\n")[1] == "##>>....ro..##" and str(env).endswith(seen["mission"])
    later = env.reset()[0]
    env.reset(seed=5)
    assert_same(later, env.reset()[0])
    assert env.width == 22


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"layout": ROOM}, ValueError, "a layout needs an instruction: give the option 'mission' too"),
        ({"misison": "open a door"}, ValueError, "unknown reset option 'misison'; known are 'mission', 'layout'"),
        ({"mission": "go to the rde ball"}, MissionError, "did you mean 'red'?"),
        ({"mission": 7}, TypeError, "the option 'mission' must be a sentence, not 7"),
        ({"layout": 7, "mission": "open a door"}, TypeError, "the option 'layout' must be a drawing in text, not 7"),
        ({"layout": "##", "mission": "open a door"}, LayoutError, "too small"),
        ({"layout": ROOM, "mission": "open a door"}, ValueError, "there is no 'door' in it"),
        ({"mission": "open the door"}, ValueError, "'open the door' does not fit this world"),
    ],
)
def test_options_that_make_no_sense_are_explained(options: dict[str, Any], kind: type, said: str) -> None:
    env = gym.make("babyai/GoToLocal-v0")
    with pytest.raises(kind) as caught:
        env.reset(seed=0, options=options)
    assert said in str(caught.value)
    # What was refused leaves an environment that works.
    env.reset(seed=0)
    env.step(0)


def test_full_images_need_layouts_of_the_same_size() -> None:
    env = make(observation="full")
    with pytest.raises(ValueError, match="7 x 6 cells, but images of the full grid have 8 x 8"):
        env.reset(options={"layout": ROOM, "mission": "go to the key"})


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("action", "kind", "said"),
    [
        (7, ValueError, "was given action 7; actions are 0 left, 1 right"),
        (-1, ValueError, "was given action -1"),
        (2**80, TypeError, "an action must be an integer 0..6"),
        (1.0, TypeError, "an action must be an integer 0..6 (see babyai.Action), not 1.0"),
        ("left", TypeError, "not 'left'"),
        (None, TypeError, "not None"),
        (np.array([1, 2]), TypeError, "not array"),
    ],
)
def test_bad_actions_are_explained(action: Any, kind: type, said: str) -> None:
    env = gym.make("babyai/GoToLocal-v0")
    env.reset(seed=0)
    before = env.unwrapped.snapshot()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(kind) as caught:
        env.step(action)
    assert said in str(caught.value)
    assert env.unwrapped.snapshot() == before  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("action", [2, np.int64(2), np.uint8(2), np.array(2), babyai.Action.forward])
def test_anything_that_is_an_integer_is_an_action(action: Any) -> None:
    env = make()
    env.reset(seed=0)
    env.step(action)
    assert env.step_count == 1


def test_steps_out_of_turn_are_explained() -> None:
    with pytest.raises(ResetNeeded, match="before calling env"):
        gym.make("babyai/GoToLocal-v0").step(0)
    env = make(max_steps=1)
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step"):
        env.step(0)
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.gen_obs()
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.get_frame()
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(RuntimeError, match=r"is over: call reset\(\) before the next step"):
        env.step(0)
    wrapped = gym.make("babyai/GoToLocal-v0", max_steps=1)
    wrapped.reset(seed=0)
    wrapped.step(0)
    with pytest.raises(RuntimeError, match=r"is over: call reset\(\) before the next step"):
        wrapped.step(0)


@pytest.mark.parametrize(
    ("seed", "kind"), [(-1, ValueError), (2**63, ValueError), (1.5, TypeError), ("1", TypeError), (True, TypeError)]
)
def test_bad_seeds_are_explained(seed: Any, kind: type) -> None:
    with pytest.raises(kind, match="a seed must be"):
        gym.make("babyai/GoToLocal-v0").reset(seed=seed)


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"level": "GoToLocl"}, ValueError, "did you mean 'GoToLocal'"),
        ({"rules": "papre"}, ValueError, "unknown rules 'papre'"),
        ({"observation": "pixels"}, ValueError, "unknown observation 'pixels'; it can be 'symbolic', 'rgb'"),
        ({"render_mode": "human"}, ValueError, "unknown render_mode 'human'; it can be None, 'rgb_array', 'ansi'"),
        ({"view_size": 8}, ValueError, "view_size must be odd"),
        ({"agent_view_size": 17}, ValueError, "view_size must be odd and between 3 and 15, not 17"),
        ({"max_steps": 0}, ValueError, "max_steps must be at least 1"),
        ({"max_steps": 2.5}, TypeError, "max_steps must be an integer, not 2.5"),
    ],
)
def test_bad_settings_are_explained(settings: dict[str, Any], kind: type, said: str) -> None:
    with pytest.raises(kind) as caught:
        BabyAIEnv(**{"level": "GoToLocal", **settings})
    assert said in str(caught.value)


# ---------------------------------------------------------------- snapshots and copies


def play(env: BabyAIEnv, seed: int, steps: int) -> list[Any]:
    actions = np.random.default_rng(seed).integers(6, size=steps)
    return [env.step(action) for action in actions]


def assert_same_play(first: list[Any], second: list[Any]) -> None:
    for (seen, *rest), (seen_again, *rest_again) in zip(first, second, strict=True):
        assert_same(seen, seen_again)
        assert rest == rest_again


def test_snapshots_bring_a_world_back() -> None:
    env = make("BossLevel", observation="full")
    env.reset(seed=3)
    play(env, 0, 30)
    kept, before = env.snapshot(), env.gen_obs()
    first = play(env, 1, 50)
    env.reset(seed=99)
    assert_same(env.restore(kept), before)
    assert env.snapshot() == kept and env.mission == before["mission"]
    assert_same_play(first, play(env, 1, 50))
    with pytest.raises(ValueError, match="not a snapshot"):
        env.restore(kept[:-1])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_by_themselves(duplicate: Any) -> None:
    env = make("BossLevel", view_size=5, rules="minigrid")
    assert duplicate(env).step_count == 0
    env.reset(seed=3)
    env.action_space.seed(1)
    play(env, 0, 20)
    twin = duplicate(env)
    assert_same_play(play(env, 1, 50), play(twin, 1, 50))
    assert twin.spec == env.spec and twin.level == env.level and twin.rules == "minigrid"
    assert twin.action_space.sample() == env.action_space.sample()
    assert_same(twin.reset()[0], env.reset()[0])
    assert not np.shares_memory(twin.engine.worlds, env.engine.worlds)


def test_levels_of_ones_own_need_no_registration() -> None:
    level = babyai.Level("Tiny", "go_to_object", rows=1, columns=1, room_size=5)
    env = BabyAIEnv(level, agent_view_size=3)
    seen, _ = env.reset(seed=0)
    assert seen["image"].shape == (3, 3, 3) and (env.width, env.height) == (5, 5)
    check_env(env, skip_render_check=True)


# ---------------------------------------------------------------- pictures


def test_render_modes() -> None:
    env = make(render_mode="rgb_array", tile_size=16)
    env.reset(seed=0)
    frame = env.render()
    assert isinstance(frame, np.ndarray) and frame.shape == (128, 128, 3)
    env = make(render_mode="ansi")
    env.reset(seed=0)
    drawing = env.render()
    assert isinstance(drawing, str) and "\x1b[" in drawing and drawing.endswith(f"\n{env.mission}")
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="no render_mode was chosen"):
        assert env.render() is None


def test_lists_of_pictures_come_from_gymnasium() -> None:
    env = gym.make("babyai/GoToLocal-v0", render_mode="rgb_array_list", tile_size=8)
    env.reset(seed=0)
    env.step(0)
    frames: Any = env.render()
    assert len(frames) == 2


def test_environments_show_themselves() -> None:
    env = make()
    assert repr(env) == str(env) == "<BabyAIEnv<babyai/GoToLocal-v0>>"
    assert "BabyAIEnv" in env._repr_html_()
    env.reset(seed=0)
    assert repr(env) == "<BabyAIEnv<babyai/GoToLocal-v0>>" and str(env).startswith("##########")
    page = env._repr_html_()
    picture = page.split("base64,")[1].split('"')[0]
    assert base64.b64decode(picture).startswith(b"\x89PNG") and f"<figcaption>{env.mission}</figcaption>" in page
