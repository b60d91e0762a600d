"""Our vector environment as other libraries want it. None of them is imported before it is asked for."""

from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from babyai.envs.vector import BabyAIVectorEnv
from babyai.world.codes import AGENT_TYPE


def stable_baselines_env(vector_env: VectorEnv) -> Any:
    """The vector environment as a `VecEnv` of Stable-Baselines3, to be given to its algorithms.

    Use a policy for dicts, "MultiInputPolicy". Symbolic images are declared as plain numbers 0..10, so that they are
    flattened rather than taken for pictures; RGB images go through convolutions. Infos of finished episodes have
    `terminal_observation`, `TimeLimit.truncated`, `episode` (so no Monitor is needed) and `is_success`.

    Args:
        vector_env: From `gymnasium.make_vec`, in SAME_STEP mode, with copies.
    """
    base = _require_ours(vector_env)
    if base.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            f"Stable-Baselines3 begins the next episode in the same step: make the environment with "
            f"autoreset_mode='SameStep', not {base.autoreset_mode.value!r}"
        )
    if not base.copy:
        raise ValueError("Stable-Baselines3 keeps the observations it is given: make the environment with copy=True")
    return _stable_baselines_class()(vector_env)


def torchrl_env(vector_env: VectorEnv) -> Any:
    """The vector environment as a `GymWrapper` of TorchRL.

    Args:
        vector_env: From `gymnasium.make_vec`, in DISABLED mode: TorchRL resets by itself. (Its own handling of
            SAME_STEP loses the last observations of episodes where observations are dicts.)
    """
    from torchrl.envs import GymWrapper

    base = _require_ours(vector_env)
    if base.autoreset_mode is not AutoresetMode.DISABLED:
        raise ValueError(
            f"TorchRL resets by itself: make the environment with autoreset_mode='Disabled', not "
            f"{base.autoreset_mode.value!r}"
        )
    return GymWrapper(vector_env)


def _require_ours(vector_env: VectorEnv) -> BabyAIVectorEnv:
    base = getattr(vector_env, "unwrapped", vector_env)
    if not isinstance(base, BabyAIVectorEnv):
        raise TypeError(f"expected a vector environment of babyai, made with gymnasium.make_vec, got {vector_env!r}")
    return base


def _plain_space(env: BabyAIVectorEnv) -> spaces.Dict:
    """The space of one world's observation, with symbolic images declared as the small numbers that they are."""
    space = env.single_observation_space
    assert isinstance(space, spaces.Dict)
    parts = dict(space.spaces)
    if env.observation_kind != "rgb":
        parts["image"] = spaces.Box(0, AGENT_TYPE, parts["image"].shape, np.uint8)
    return spaces.Dict(parts)


@cache
def _stable_baselines_class() -> type:
    """The adapter's class, made when first needed because its base comes from Stable-Baselines3."""
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv

    class StableBaselinesEnv(VecEnv):
        """A vector environment of babyai that speaks the older protocol of Stable-Baselines3."""

        def __init__(self, vector_env: VectorEnv) -> None:
            self.vector_env = vector_env
            self.metadata = vector_env.metadata
            super().__init__(
                vector_env.num_envs, _plain_space(_require_ours(vector_env)), vector_env.single_action_space
            )

        def reset(self) -> dict[str, np.ndarray]:
            seeds = None if all(seed is None for seed in self._seeds) else self._seeds
            observations, _ = self.vector_env.reset(seed=seeds)  # pyright: ignore[reportArgumentType]
            self._reset_seeds()
            self._reset_options()
            return observations

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict[str, Any]]]:
            observations, rewards, terminated, truncated, infos = self.vector_env.step(self._actions)
            ended = terminated | truncated
            said: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
            for i in np.flatnonzero(ended):
                said[i] = {
                    "terminal_observation": {key: part[i] for key, part in infos["final_obs"].items()},
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                    "episode": {key: part[i].item() for key, part in infos["episode"].items()},
                    "is_success": bool(infos["final_info"]["success"][i]),
                }
            return observations, rewards.astype(np.float32), ended, said

        def close(self) -> None:
            self.vector_env.close()

        def get_images(self) -> list[Any]:
            return list(self.vector_env.render() or [None] * self.num_envs)

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self.vector_env.unwrapped, attr_name) for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError("the worlds are one environment, which has no attributes for single worlds")

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            """What a method of the vector environment that takes a world's index says of each world."""
            method = getattr(self.vector_env.unwrapped, method_name)
            return [method(i, *args, **kwargs) for i in self._get_indices(indices)]

        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
            # Infos have what a Monitor would put there.
            return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    return StableBaselinesEnv
