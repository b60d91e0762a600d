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
    episodes have `terminal_observation`, `TimeLimit.truncated`, `is_success` and, unless the environment was made with
    `statistics=False`, `episode`, so that no Monitor is needed.

    Args:
        vector_env: From `gymnasium.make_vec`, with `copy=True` and missions as tokens. Its autoreset mode becomes
            SAME_STEP, which is how Stable-Baselines3 resets.
    """
    base = _require_babyai(vector_env)
    if not base.copy:
        raise ValueError("Stable-Baselines3 stores observations without copying: make the environment with copy=True")
    if "text" in (base.missions_kind, base.observation_kind):
        raise ValueError(
            "Stable-Baselines3 cannot read text: make the environment with missions='tokens' and another observation "
            "than 'text'"
        )
    _use_mode(vector_env, base, AutoresetMode.SAME_STEP, "Stable-Baselines3")
    return _stable_baselines_class()(vector_env)


def torchrl_env(vector_env: VectorEnv) -> Any:
    """The vector environment as a TorchRL `GymWrapper`.

    Args:
        vector_env: From `gymnasium.make_vec`. Its autoreset mode becomes DISABLED, because TorchRL calls reset itself.
            (With SAME_STEP, TorchRL loses the final observations of episodes if observations are dicts.)
    """
    from torchrl.envs import GymWrapper

    base = _require_babyai(vector_env)
    _use_mode(vector_env, base, AutoresetMode.DISABLED, "TorchRL")
    return GymWrapper(vector_env)


def _use_mode(vector_env: VectorEnv, base: BabyAIVectorEnv, mode: AutoresetMode, library: str) -> None:
    """Gives the environment the autoreset mode that a library needs, if nobody relies on another one."""
    if base.autoreset_mode is mode:
        return
    if vector_env is not base or base.was_reset:
        raise ValueError(
            f"{library} needs an environment made with autoreset_mode={mode.value!r}, not "
            f"{base.autoreset_mode.value!r}; it cannot be changed once the environment is wrapped or has been reset"
        )
    base.set_autoreset_mode(mode)


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
    if env.observation_kind in ("symbolic", "full"):
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
                    "is_success": bool(vector_infos["final_info"]["success"][i]),
                }
                if "episode" in vector_infos:
                    infos[i]["episode"] = {key: part[i].item() for key, part in vector_infos["episode"].items()}
            return observations, rewards.astype(np.float32), dones, infos

        def close(self) -> None:
            self.vector_env.close()

        def get_images(self) -> list[Any]:
            return list(self.vector_env.render() or [None] * self.num_envs)

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            """An attribute of the vector environment, or of single worlds if it has none of that name."""
            base = _require_babyai(self.vector_env)
            if attr_name in vars(base):
                return [getattr(base, attr_name) for _ in self._get_indices(indices)]
            values = base.get_attr(attr_name)
            return [values[i] for i in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            """Sets an attribute of single worlds, such as `agent_dir`."""
            base = _require_babyai(self.vector_env)
            for i in self._get_indices(indices):
                setattr(base.world(i), attr_name, value)

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            """Calls a method of single worlds, or one of the vector environment that takes a world's index."""
            base = _require_babyai(self.vector_env)
            chosen = list(self._get_indices(indices))
            if hasattr(base, method_name):
                return [getattr(base, method_name)(i, *args, **kwargs) for i in chosen]
            return [getattr(base.world(i), method_name)(*args, **kwargs) for i in chosen]

        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
            # With statistics, infos already have what a Monitor would add.
            recorded = wrapper_class is Monitor and _require_babyai(self.vector_env).statistics
            return [recorded for _ in self._get_indices(indices)]

    return StableBaselinesEnv
