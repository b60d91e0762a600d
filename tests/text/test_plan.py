"""The checker of plans: what a list of actions achieves."""

import gymnasium as gym
import numpy as np
import pytest

from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import PAPER_LEVELS
from babyai.text.plan import check_plan, read_plan
from babyai.world.codes import Action
from tests.scale import scaled
from tests.scenario import actions_of, make_engine

ROOM = """
    ############
    ##>>..ro..##
    ##......gk##
    ##bx......##
    ############
"""


def expert_plan(level: str, seed: int) -> tuple[Engine, np.ndarray, float]:
    """An engine at the start of an episode, the actions of the expert, and its reward."""
    engine = Engine(level)
    engine.reset([seed])
    played = Engine(level)
    played.reset([seed])
    actions, lengths, rewards = ExpertBatch(played).demonstrate()
    return engine, actions[0, : lengths[0]], float(rewards[0])


@pytest.mark.parametrize("level", PAPER_LEVELS)
def test_the_expert_has_good_plans(level: str) -> None:
    for seed in range(scaled(5)):
        engine, plan, reward = expert_plan(level, seed)
        start = engine.snapshot(0)
        result = check_plan(engine, plan)  # pyright: ignore[reportArgumentType]
        assert result.success and result.outcome == "success" and result.reward == reward
        assert result.steps == len(plan) == len(result.effects) and all(done for _, done in result.clauses)
        # One action less is not enough, and the world itself has not changed.
        shorter = check_plan(engine, plan[:-1])  # pyright: ignore[reportArgumentType]
        assert shorter.outcome == "playing" and not all(done for _, done in shorter.clauses)
        assert engine.snapshot(0) == start


def test_the_final_state_is_that_of_the_environment() -> None:
    env = gym.make("babyai/BossLevel-v0")
    for seed in range(scaled(20, 2)):
        env.reset(seed=seed)
        plan = np.random.default_rng(seed).integers(0, 6, size=40).tolist()
        result = check_plan(env, plan)
        for action in plan[: result.steps]:
            env.step(action)
        world = env.unwrapped
        assert (result.position, result.direction) == (tuple(world.agent_pos), world.agent_dir)  # pyright: ignore[reportAttributeAccessIssue]
        carried = world.carrying  # pyright: ignore[reportAttributeAccessIssue]
        assert result.carrying == (f"a {carried.color} {carried.type}" if carried else None)


def test_actions_without_effect_are_named() -> None:
    result = check_plan(make_engine(ROOM, "pick up the key"), actions_of("ffprfp"))
    assert result.outcome == "playing" and result.first_without_effect == 1 and not result.success
    assert result.effects[1] == "Nothing happened: a red ball is ahead."
    assert (result.position, result.direction, result.carrying) == ((2, 2), 1, "a red ball")
    assert str(result).split("\n") == [
        "playing after 6 of 6 actions",
        "  to do: pick up the key",
        "action 2, go forward: Nothing happened: a red ball is ahead.",
        "at (2, 2), facing south, carrying a red ball",
    ]


def test_the_plan_ends_with_the_episode() -> None:
    result = check_plan(make_engine(ROOM, "go to the ball"), "forward, left, left, left")
    assert (result.outcome, result.steps, len(result.plan)) == ("success", 1, 4)
    failed = check_plan(make_engine(ROOM, "pick up the key", strict=1), "forward, pickup, drop")
    assert (failed.outcome, failed.steps, failed.reward) == ("failure", 2, 0.0)
    engine = make_engine(ROOM, "pick up the key")
    engine.worlds[0].max_steps = 3
    assert check_plan(engine, ["left"] * 5).outcome == "timeout"
    empty = check_plan(engine, [])
    assert (empty.outcome, empty.steps, empty.position) == ("playing", 0, (1, 1))


@pytest.mark.parametrize(
    ("mission", "plan", "done"),
    [
        ("go to the ball and go to the box", "f", [True, False]),
        ("go to the box and go to the ball", "f", [False, True]),
        ("go to the ball, then go to the box", "f", [True, False]),
        ("go to the box after you go to the ball", "f", [False, True]),
        # The sides must be carried out in order.
        ("go to the box, then go to the ball", "f", [False, False]),
        ("go to the box and go to the ball, then go to the key", "f", [False, True, False]),
        ("go to the box, then go to the key and go to the ball", "rfl", [True, False, False]),
        ("go to the box, then go to the key and go to the ball", "rflflfr", [True, False, True]),
        ("go to the ball, then go to the box and go to the key", "frrflf", [True, True, False]),
    ],
)
def test_progress_of_the_clauses(mission: str, plan: str, done: list[bool]) -> None:
    result = check_plan(make_engine(ROOM, mission), actions_of(plan))
    assert [is_done for _, is_done in result.clauses] == done
    clauses = mission.replace(", then ", " and ").replace(" after you ", " and ").split(" and ")
    assert [clause for clause, _ in result.clauses] == clauses


def test_one_world_of_a_vector_environment() -> None:
    envs = gym.make_vec("babyai/GoToLocal-v0", num_envs=3)
    envs.reset(seed=4)
    _, plan, reward = expert_plan("GoToLocal", 6)
    result = check_plan(envs, plan.tolist(), index=2)
    assert result.success and result.reward == reward


@pytest.mark.parametrize(
    "plan",
    [
        "left, forward, pickup",
        "turn left; go forward; pick up",
        "1. turn left\n2. go forward\n3. pick up the ball\n",
        "1) left\n2) forward\n3) pickup",
        "- Turn left.\n- Go forward.\n- Pick up.",
        "Turn left. Go forward. Pick up.",
        '["left", "forward", "pickup"]',
        "0, 2, 3",
        [0, 2, 3],
        ["left", 2, Action.pickup],
        np.array([0, 2, 3]),
    ],
)
def test_plans_are_read(plan: object) -> None:
    assert read_plan(plan) == [Action.left, Action.forward, Action.pickup]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("plan", "fact"),
    [
        ("left, jump, forward", "action 2 of the plan, ' jump'.*turn left"),
        (["left", "left", 7], "action 3 of the plan, 7,"),
        (["left", None], "action 2 of the plan, None"),
        ([2.0], "action 1 of the plan, 2.0"),
        (None, "None"),
        (2, "2"),
    ],
)
def test_bad_plans_are_refused(plan: object, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        check_plan(make_engine(ROOM, "go to the ball"), plan)  # pyright: ignore[reportArgumentType]


def test_an_episode_that_is_over_or_has_not_begun_is_refused() -> None:
    env = gym.make("babyai/GoToObj-v0", max_steps=1)
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        check_plan(env, "left")
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(RuntimeError, match=r"over.*reset\(\)"):
        check_plan(env, "left")
