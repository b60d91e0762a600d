"""The five architectures of the paper in two sizes, models of your own, and the files that keep them.

`from babyai.agents import Agent` is the usual way in. Torch is loaded when something here first needs it, so that
settings (`babyai.agents.config`) can be read without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babyai.agents.agent import Agent as Agent
    from babyai.agents.config import AgentConfig as AgentConfig
    from babyai.agents.model import Model as Model

_HOMES = {
    "Agent": "babyai.agents.agent",
    "AgentConfig": "babyai.agents.config",
    "Model": "babyai.agents.model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'babyai.agents' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise ModuleNotFoundError(
            f"babyai's agents need {error.name}: pip install 'babyai[agents]'", name=error.name
        ) from None


def __dir__() -> list[str]:
    return sorted(_HOMES)
