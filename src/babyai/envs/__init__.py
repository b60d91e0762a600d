"""Gymnasium environments, single and vector, and adapters for other libraries.

Use `gymnasium.make("babyai/GoToLocal-v0")` and `gymnasium.make_vec`. Importing this package does not import Gymnasium,
so `import babyai` is fast and works without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babyai.envs.adapters import stable_baselines_env as stable_baselines_env
    from babyai.envs.adapters import torchrl_env as torchrl_env
    from babyai.envs.minigrid_objects import GridObject as GridObject
    from babyai.envs.single import BabyAIEnv as BabyAIEnv
    from babyai.envs.vector import BabyAIVectorEnv as BabyAIVectorEnv

# The module that defines each public name.
_MODULES = {
    "BabyAIEnv": "babyai.envs.single",
    "BabyAIVectorEnv": "babyai.envs.vector",
    "GridObject": "babyai.envs.minigrid_objects",
    "stable_baselines_env": "babyai.envs.adapters",
    "torchrl_env": "babyai.envs.adapters",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'babyai.envs' has no attribute {name!r}")
    try:
        import gymnasium  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise ModuleNotFoundError(
            "babyai's environments need Gymnasium: pip install gymnasium", name=error.name
        ) from None
    return getattr(import_module(_MODULES[name]), name)
