"""Gymnasium environments, single and vector, and adapters for other libraries.

`gymnasium.make("babyai/GoToLocal-v0")` and `gymnasium.make_vec` are the usual ways in; importing this page loads none
of it, so that `import babyai` stays cheap and works without Gymnasium.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babyai.envs.adapters import stable_baselines_env as stable_baselines_env
    from babyai.envs.adapters import torchrl_env as torchrl_env
    from babyai.envs.single import BabyAIEnv as BabyAIEnv
    from babyai.envs.vector import BabyAIVectorEnv as BabyAIVectorEnv

_HOMES = {
    "BabyAIEnv": "babyai.envs.single",
    "BabyAIVectorEnv": "babyai.envs.vector",
    "stable_baselines_env": "babyai.envs.adapters",
    "torchrl_env": "babyai.envs.adapters",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'babyai.envs' has no attribute {name!r}")
    try:
        import gymnasium  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise ModuleNotFoundError(
            "babyai's environments need Gymnasium: pip install gymnasium", name=error.name
        ) from None
    return getattr(import_module(_HOMES[name]), name)
