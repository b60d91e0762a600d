"""Adapters of the vector environment for Stable-Baselines3 and TorchRL, which are imported only when needed."""

from functools import cache
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from babyai.envs.vector import BabyAIVectorEnv
from babyai.world.codes import AGENT_TYPE


def stable_baselines_env(vector_env: VectorEnv) -> Any:
    """The vector environment as a Stable-Baselines3 `VecEnv`.

    Use "MultiInputPolicy", since observations are dicts. Symbolic images are declared as a Box of 0..10, so that
    Stable-Baselines3 flattens them instead of treating them as images; RGB images go through its CNN. Infos of finished
    episodes have `terminal_observation`, `TimeLimit.truncated`, `episode` (so no Monitor is needed) and `is_success`.

    Args:
        vector_env: From `gymnasium.make_vec`, with SAME_STEP autoreset and `copy=True`.
    """
    base = _require_babyai(vector_env)
    if base.autoreset_mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            f"Stable-Baselines3 needs an environment made with autoreset_mode='SameStep', not "
            f"{base.autoreset_mode.value!r}"
        )
    if not base.copy:
        raise ValueError("Stable-Baselines3 stores observations without copying: make the environment with copy=True")
    return _stable_baselines_class()(vector_env)


def torchrl_env(vector_env: VectorEnv) -> Any:
    """The vector environment as a TorchRL `GymWrapper`.

    Args:
        vector_env: From `gymnasium.make_vec`, with DISABLED autoreset: TorchRL calls reset itself. (With SAME_STEP,
            TorchRL loses the final observations of episodes if observations are dicts.)
    """
    from torchrl.envs import GymWrapper

    base = _require_babyai(vector_env)
    if base.autoreset_mode is not AutoresetMode.DISABLED:
        raise ValueError(
            f"TorchRL calls reset itself: make the environment with autoreset_mode='Disabled', not "
            f"{base.autoreset_mode.value!r}"
        )
    return GymWrapper(vector_env)


def _require_babyai(vector_env: VectorEnv) -> BabyAIVectorEnv:
    base = getattr(vector_env, "unwrapped", vector_env)
    if not isinstance(base, BabyAIVectorEnv):
        raise TypeError(f"expected a babyai vector environment, made with gymnasium.make_vec, got {vector_env!r}")
    return base


def _stable_baselines_space(env: BabyAIVectorEnv) -> spaces.Dict:
    """The observation space of one world, with symbolic images in 0..10 instead of 0..255."""
    space = env.single_observation_space
    assert isinstance(space, spaces.Dict)
    parts = dict(space.spaces)
    if env.observation_kind != "rgb":
        parts["image"] = spaces.Box(0, AGENT_TYPE, parts["image"].shape, np.uint8)
    return spaces.Dict(parts)


@cache
def _stable_baselines_class() -> type:
    """The adapter class, defined on first use because its base class comes from Stable-Baselines3."""
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv

    class StableBaselinesEnv(VecEnv):
        """A babyai vector environment with the `VecEnv` interface of Stable-Baselines3."""

        def __init__(self, vector_env: VectorEnv) -> None:
            self.vector_env = vector_env
            self.metadata = vector_env.metadata
            observation_space = _stable_baselines_space(_require_babyai(vector_env))
            super().__init__(vector_env.num_envs, observation_space, vector_env.single_action_space)

        def reset(self) -> dict[str, np.ndarray]:
            seeds = None if all(seed is None for seed in self._seeds) else self._seeds
            observations, _ = self.vector_env.reset(seed=seeds)  # pyright: ignore[reportArgumentType]
            self._reset_seeds()
            self._reset_options()
            return observations

        def step_async(self, actions: np.ndarray) -> None:
            self._actions = actions

        def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict[str, Any]]]:
            observations, rewards, terminated, truncated, vector_infos = self.vector_env.step(self._actions)
            dones = terminated | truncated
            infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
            for i in np.flatnonzero(dones):
                infos[i] = {
                    "terminal_observation": {key: part[i] for key, part in vector_infos["final_obs"].items()},
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                    "episode": {key: part[i].item() for key, part in vector_infos["episode"].items()},
                    "is_success": bool(vector_infos["final_info"]["success"][i]),
                }
            return observations, rewards.astype(np.float32), dones, infos

        def close(self) -> None:
            self.vector_env.close()

        def get_images(self) -> list[Any]:
            return list(self.vector_env.render() or [None] * self.num_envs)

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self.vector_env.unwrapped, attr_name) for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError("all worlds share one environment, so single worlds have no attributes to set")

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            """Calls a method of the vector environment that takes a world's index, once for each world."""
            method = getattr(self.vector_env.unwrapped, method_name)
            return [method(i, *args, **kwargs) for i in self._get_indices(indices)]

        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
            # Infos already have what a Monitor would add.
            return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    return StableBaselinesEnv
