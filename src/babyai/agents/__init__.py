"""Agents: the paper's five architectures in two sizes, policies of your own, and checkpoints.

`from babyai.agents import Agent` is the usual entry point. Torch is imported when something here first needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babyai.agents.agent import Agent as Agent
    from babyai.agents.config import AgentConfig as AgentConfig
    from babyai.agents.film_lstm.model import FilmLSTM as FilmLSTM
    from babyai.agents.policy import Policy as Policy

_MODULES = {
    "Agent": "babyai.agents.agent",
    "AgentConfig": "babyai.agents.config",
    "FilmLSTM": "babyai.agents.film_lstm.model",
    "Policy": "babyai.agents.policy",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'babyai.agents' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise ModuleNotFoundError(f"agents need {error.name}: pip install 'babyai[agents]'", name=error.name) from None


def __dir__() -> list[str]:
    return sorted(_MODULES)
