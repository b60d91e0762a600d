"""Registration with Gymnasium, and the package without Gymnasium."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest

import babyai
import babyai.envs
from babyai.envs.registration import register_level


@pytest.fixture
def level() -> Iterator[babyai.Level]:
    level = babyai.Level("Smallest", "go_to_object", rows=1, columns=1, room_size=4)
    yield level
    babyai.LEVELS.pop(level.name, None)
    gym.registry.pop(level.id, None)


def test_every_level_is_registered() -> None:
    ours = {spec for spec in gym.registry if spec.startswith("babyai/")}
    assert ours == {level.id for level in babyai.LEVELS.values()}
    # A time limit in the registry would override the one that depends on the mission.
    assert all(gym.spec(name).max_episode_steps is None for name in ours)


def test_custom_levels_can_be_registered_and_replaced(level: babyai.Level) -> None:
    assert register_level(level) is level and register_level(level) is level
    env = gym.make("babyai/Smallest-v0")
    env.reset(seed=0)
    assert env.unwrapped.width == 4  # pyright: ignore[reportAttributeAccessIssue]
    envs = gym.make_vec("babyai/Smallest-v0", num_envs=3)
    envs.reset(seed=0)
    envs.step(np.zeros(3, dtype=np.int64))
    register_level(babyai.Level("Smallest", "go_to_object", rows=1, columns=1, room_size=5))
    env = gym.make("babyai/Smallest-v0")
    env.reset(seed=0)
    assert env.unwrapped.width == 5  # pyright: ignore[reportAttributeAccessIssue]


def test_built_in_levels_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match=r"'GoTo' .*built-in"):
        register_level(babyai.Level("GoTo", "go_to_object", rows=1, columns=1))


@pytest.fixture
def registry() -> Iterator[None]:
    """Restores Gymnasium's registry."""
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


@pytest.mark.usefixtures("registry")
def test_minigrids_ids_can_be_registered_for_our_environments() -> None:
    import minigrid  # noqa: F401

    minigrids = {name for name in gym.registry if name.startswith("BabyAI-")}
    with pytest.raises(ValueError, match=r"96 ids such as 'BabyAI-.*replace=True"):
        babyai.register_minigrid_ids()
    assert "minigrid" in str(gym.spec("BabyAI-GoToLocal-v0").entry_point)
    assert set(babyai.register_minigrid_ids(replace=True)) == minigrids
    env = gym.make("BabyAI-GoToObjS6-v1", render_mode="rgb_array")
    assert isinstance(env.unwrapped, babyai.envs.BabyAIEnv)
    assert env.unwrapped.rules == "minigrid" and env.unwrapped.level.name == "GoToObjS6"
    envs = gym.make_vec("BabyAI-GoToLocal-v0", num_envs=2)
    assert isinstance(envs, babyai.envs.BabyAIVectorEnv)
    babyai.register_minigrid_ids("paper", replace=True)
    assert gym.make("BabyAI-GoToLocal-v0").unwrapped.rules == "paper"  # pyright: ignore[reportAttributeAccessIssue]


BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gymnasium":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_without_gymnasium(program: str) -> str:
    """The output of a program in a process that cannot import Gymnasium."""
    result = subprocess.run(
        [sys.executable, "-c", BLOCKER + textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_engine_and_levels_work_without_gymnasium() -> None:
    output = run_without_gymnasium(
        """
        import babyai
        engine = babyai.Engine("GoToLocal", 2)
        engine.reset(0)
        engine.step([0, 1])
        custom = babyai.Level("Mine", "go_to_object", rows=1, columns=1)
        print(engine.images.shape, babyai.register_level(custom).id)
        """
    )
    assert output.strip() == "(2, 7, 7, 3) babyai/Mine-v0"


@pytest.mark.parametrize("name", ["BabyAIEnv", "BabyAIVectorEnv", "stable_baselines_env"])
def test_error_without_gymnasium_says_how_to_install_it(name: str) -> None:
    output = run_without_gymnasium(
        f"""
        import babyai.envs
        try:
            babyai.envs.{name}
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert output.strip().endswith("need Gymnasium: pip install gymnasium")


def test_environment_classes_are_attributes_of_the_package() -> None:
    import babyai.envs

    assert babyai.envs.BabyAIEnv.__name__ == "BabyAIEnv"
    assert babyai.envs.BabyAIVectorEnv.__name__ == "BabyAIVectorEnv"
    with pytest.raises(AttributeError, match="has no attribute 'BabyAI'"):
        babyai.envs.BabyAI  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
