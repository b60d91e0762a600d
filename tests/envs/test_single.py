"""The single environment: Gymnasium's contract, reset options, errors, snapshots, rendering."""

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
    """The unwrapped environment."""
    env = gym.make(f"babyai/{level}-v0", **settings).unwrapped
    assert isinstance(env, BabyAIEnv)
    return env


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for key, part in first.items():
        np.testing.assert_array_equal(part, second[key])


@pytest.mark.compiled
@pytest.mark.parametrize("level", babyai.LEVELS)
def test_every_level_passes_gymnasiums_checker(level: str) -> None:
    check_env(make(level), skip_render_check=True)


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
@pytest.mark.parametrize("observation", ["symbolic", "rgb", "one_hot", "full", "full_rgb", "text"])
@pytest.mark.parametrize("level", ["GoToLocal", "PutNextS5N2Carrying"])
def test_every_observation_kind_passes_gymnasiums_checker(level: str, observation: str, rules: str) -> None:
    check_env(make(level, observation=observation, rules=rules, render_mode="rgb_array", tile_size=8))


def test_observations_have_documented_keys_shapes_and_types() -> None:
    env = make("BossLevel", observation="text", view_size=9)
    obs, info = env.reset(seed=4)
    assert info == {"success": False, "effect": ""} and list(obs) == ["image", "direction", "mission", "text"]
    assert obs["image"].shape == (9, 9, 3) and obs["image"].dtype == np.uint8
    assert type(obs["direction"]) is int and obs["mission"] == env.mission
    assert all(line.startswith(("You see ", "You carry ")) for line in obs["text"].split("\n"))
    obs, reward, terminated, truncated, info = env.step(0)
    assert type(reward) is float and terminated is False and truncated is False
    assert info == {"success": False, "effect": "You turned left."}
    assert make(observation="rgb").reset(seed=0)[0]["image"].shape == (56, 56, 3)
    assert make("GoTo", observation="full").reset(seed=0)[0]["image"].shape == (22, 22, 3)


def test_text_of_large_views_fits_its_space() -> None:
    env = make("UnblockPickup", observation="text", view_size=15)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        assert obs in env.observation_space


def test_observations_can_be_flattened() -> None:
    env = FlattenObservation(gym.make("babyai/BossLevel-v0"))
    flat, _ = env.reset(seed=0)
    assert flat in env.observation_space and flat.ndim == 1


def test_seed_determines_the_episode_and_those_after_it() -> None:
    env = make("Pickup")
    twin = make("Pickup")
    first, _ = env.reset(seed=np.int64(11))
    assert env.np_random_seed == 11
    assert_same(first, twin.reset(seed=11)[0])
    second, _ = env.reset()
    third, _ = env.reset()
    assert_same(second, twin.reset()[0])
    assert_same(third, twin.reset()[0])
    assert not np.array_equal(first["image"], second["image"]) or first["mission"] != second["mission"]


def test_first_episode_without_a_seed_is_random() -> None:
    assert len({make("BossLevel").reset()[0]["mission"] for _ in range(4)}) > 1


def test_info_always_has_success() -> None:
    env = make(max_steps=3)
    env.reset(seed=0, options={"layout": ROOM, "mission": "go to the red ball"})
    assert env.max_steps == 3
    assert [env.step(2)[2:] for _ in range(2)] == [
        (False, False, {"success": False}),
        (True, False, {"success": True}),
    ]
    env.reset(seed=0, options={"layout": ROOM, "mission": "pick up the blue key"})
    ends = [env.step(6)[1:] for _ in range(3)]
    assert ends[-1] == (0.0, False, True, {"success": False}) and ends[0] == (0.0, False, False, {"success": False})


def test_max_steps_applies_to_every_episode() -> None:
    env = make("BossLevel", max_steps=5)
    assert env.max_steps == 5
    for seed in range(3):
        env.reset(seed=seed)
        assert env.max_steps == 5
        assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]


def test_with_done_actions_the_episode_ends_at_done() -> None:
    env = make(done_actions=True)
    env.reset(options={"layout": ROOM, "mission": "go to the red ball"})
    assert [env.step(action)[2] for action in (2, 2, 6)] == [False, False, True]


def test_record_episode_statistics_wrapper() -> None:
    env = RecordEpisodeStatistics(gym.make("babyai/GoToLocal-v0", max_steps=4))
    env.reset(seed=0)
    for _ in range(4):
        *_, info = env.step(6)
    assert info["episode"]["l"] == 4 and info["success"] is False


# ---------------------------------------------------------------- options


def test_mission_option_replaces_the_mission() -> None:
    env = make()
    original, _ = env.reset(seed=5)
    color_and_kind = original["mission"].split(" ")[-2:]
    mission = "pick up a " + " ".join(color_and_kind)
    obs, _ = env.reset(seed=5, options={"mission": mission})
    assert obs["mission"] == env.mission
    assert obs["mission"].removeprefix("pick up ").split(" ")[1:] == color_and_kind
    np.testing.assert_array_equal(obs["image"], original["image"])
    after, _ = env.reset(seed=5)
    assert_same(after, original)


def test_layout_option_replaces_the_world() -> None:
    env = make("GoTo")
    obs, _ = env.reset(seed=5, options={"layout": ROOM, "mission": "put the red ball next to the box"})
    assert (env.width, env.height, env.agent_pos, env.agent_dir) == (7, 6, (1, 1), 0)
    assert env.grid.get(4, 1).type == "ball" and env.grid.get(4, 1).color == "red"
    assert obs["mission"] == "put the red ball next to the box"
    assert str(env).split("\n")[1] == "##>>....ro..##" and str(env).endswith(obs["mission"])
    later = env.reset()[0]
    env.reset(seed=5)
    assert_same(later, env.reset()[0])
    assert env.width == 22


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layout": ROOM}, ValueError, "'layout' .* 'mission'"),
        ({"misison": "open a door"}, ValueError, "'misison'.* 'mission', 'layout'"),
        ({"mission": "go to the rde ball"}, MissionError, "did you mean 'red'"),
        ({"mission": 7}, TypeError, "'mission' .* 7$"),
        ({"layout": 7, "mission": "open a door"}, TypeError, "'layout' .* 7$"),
        ({"layout": "##", "mission": "open a door"}, LayoutError, "too small"),
        ({"layout": ROOM, "mission": "open a door"}, ValueError, "no 'door'"),
        ({"mission": "open the door"}, ValueError, "'open the door' does not fit"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], error: type[Exception], message: str) -> None:
    env = gym.make("babyai/GoToLocal-v0")
    with pytest.raises(error, match=message):
        env.reset(seed=0, options=options)
    # The environment still works after the error.
    env.reset(seed=0)
    env.step(0)


def test_layout_of_another_size_is_rejected_with_full_observations() -> None:
    env = make(observation="full")
    with pytest.raises(ValueError, match=r"7 x 6 .* 8 x 8"):
        env.reset(options={"layout": ROOM, "mission": "go to the key"})


# ---------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (7, ValueError, "action 7 .* 0 left, 1 right"),
        (-1, ValueError, "action -1 "),
        (2**80, TypeError, rf"integer 0\.\.6 .* {2**80}"),
        (1.0, TypeError, r"integer 0\.\.6 \(see babyai\.Action\).* 1\.0"),
        ("left", TypeError, "not 'left'"),
        (None, TypeError, "not None"),
        (np.array([1, 2]), TypeError, "not array"),
    ],
)
def test_invalid_actions_are_rejected(action: Any, error: type[Exception], message: str) -> None:
    env = gym.make("babyai/GoToLocal-v0")
    env.reset(seed=0)
    before = env.unwrapped.snapshot()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(error, match=message):
        env.step(action)
    assert env.unwrapped.snapshot() == before  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "action", [2, np.int64(2), np.uint8(2), np.array(2), np.array([2]), np.array([[2]]), babyai.Action.forward]
)
def test_any_integer_type_is_accepted_as_action(action: Any) -> None:
    env = make()
    env.reset(seed=0)
    env.step(action)
    assert env.step_count == 1


def test_calls_without_a_reset_are_rejected() -> None:
    with pytest.raises(ResetNeeded, match="before calling env"):
        gym.make("babyai/GoToLocal-v0").step(0)
    env = make(max_steps=1)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.step(0)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.gen_obs()
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.get_frame()
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(RuntimeError, match=r"is over.* reset\(\)"):
        env.step(0)
    wrapped = gym.make("babyai/GoToLocal-v0", max_steps=1)
    wrapped.reset(seed=0)
    wrapped.step(0)
    with pytest.raises(RuntimeError, match=r"is over.* reset\(\)"):
        wrapped.step(0)


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, ValueError), (2**63, ValueError), (1.5, TypeError), ("1", TypeError), (True, TypeError)]
)
def test_invalid_seeds_are_rejected(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"seed .* {seed!r}$"):
        gym.make("babyai/GoToLocal-v0").reset(seed=seed)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"level": "GoToLocl"}, ValueError, "did you mean 'GoToLocal'"),
        ({"rules": "papre"}, ValueError, "unknown rules 'papre'"),
        ({"observation": "pixels"}, ValueError, "unknown observation 'pixels'.* 'symbolic', 'rgb'"),
        ({"render_mode": "human"}, ValueError, "unknown render_mode 'human'.* None, 'rgb_array', 'ansi'"),
        ({"view_size": 8}, ValueError, "view_size .*odd.* 8$"),
        ({"agent_view_size": 17}, ValueError, "view_size .* 3 and 15.* 17$"),
        ({"max_steps": 0}, ValueError, "max_steps .*at least 1 .* 0$"),
        ({"max_steps": 2.5}, TypeError, r"max_steps .*integer.* 2\.5"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BabyAIEnv(**{"level": "GoToLocal", **settings})


# ---------------------------------------------------------------- snapshots and copies


def play(env: BabyAIEnv, seed: int, steps: int) -> list[Any]:
    actions = np.random.default_rng(seed).integers(6, size=steps)
    return [env.step(action) for action in actions]


def assert_same_play(first: list[Any], second: list[Any]) -> None:
    for (obs, *others), (obs_again, *others_again) in zip(first, second, strict=True):
        assert_same(obs, obs_again)
        assert others == others_again


def test_restored_environment_continues_as_before() -> None:
    env = make("BossLevel", observation="full")
    env.reset(seed=3)
    play(env, 0, 30)
    snapshot = env.snapshot()
    obs = env.gen_obs()
    first = play(env, 1, 50)
    env.reset(seed=99)
    assert_same(env.restore(snapshot), obs)
    assert env.snapshot() == snapshot and env.mission == obs["mission"]
    assert_same_play(first, play(env, 1, 50))
    with pytest.raises(ValueError, match="not a snapshot"):
        env.restore(snapshot[:-1])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copied_environment_continues_independently(duplicate: Any) -> None:
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


def test_custom_levels_need_no_registration() -> None:
    level = babyai.Level("Tiny", "go_to_object", rows=1, columns=1, room_size=5)
    env = BabyAIEnv(level, agent_view_size=3)
    obs, _ = env.reset(seed=0)
    assert obs["image"].shape == (3, 3, 3) and (env.width, env.height) == (5, 5)
    check_env(env, skip_render_check=True)


# ---------------------------------------------------------------- rendering


def test_render_modes() -> None:
    env = make(render_mode="rgb_array", tile_size=16)
    env.reset(seed=0)
    frame = env.render()
    assert isinstance(frame, np.ndarray) and frame.shape == (128, 128, 3)
    env = make(render_mode="ansi")
    env.reset(seed=0)
    text = env.render()
    assert isinstance(text, str) and "\x1b[" in text and text.endswith(f"\n{env.mission}")
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None


def test_rgb_array_list_is_provided_by_gymnasium() -> None:
    env = gym.make("babyai/GoToLocal-v0", render_mode="rgb_array_list", tile_size=8)
    env.reset(seed=0)
    env.step(0)
    frames: Any = env.render()
    assert len(frames) == 2


def test_str_repr_and_html() -> None:
    env = make()
    assert repr(env) == str(env) == "<BabyAIEnv<babyai/GoToLocal-v0>>"
    assert "BabyAIEnv" in env._repr_html_()
    env.reset(seed=0)
    assert repr(env) == "<BabyAIEnv<babyai/GoToLocal-v0>>" and str(env).startswith("##########")
    page = env._repr_html_()
    png = page.split("base64,")[1].split('"')[0]
    assert base64.b64decode(png).startswith(b"\x89PNG") and f"<figcaption>{env.mission}</figcaption>" in page
