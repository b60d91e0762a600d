"""BabyAI 1.1: grounded language learning in a gridworld, compiled.

    import babyai
    import gymnasium as gym

    env = gym.make("babyai/GoToLocal-v0")

Importing this package loads neither Numba nor torch; each module is imported when it is first used.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from babyai.engine import Engine as Engine
    from babyai.envs.registration import register_level as register_level
    from babyai.envs.registration import register_minigrid_ids as register_minigrid_ids
    from babyai.expert.expert import Expert as Expert
    from babyai.expert.expert import ExpertBatch as ExpertBatch
    from babyai.levels.catalog import LEVELS as LEVELS
    from babyai.levels.catalog import PAPER_LEVELS as PAPER_LEVELS
    from babyai.levels.catalog import Level as Level
    from babyai.levels.catalog import find_level as find_level
    from babyai.world.codes import VOCABULARY as VOCABULARY
    from babyai.world.codes import Action as Action
    from babyai.world.language import Mission as Mission
    from babyai.world.language import parse_mission as parse_mission

__version__ = "0.1.0"

# The module that defines each public name.
_MODULES = {
    "Engine": "babyai.engine",
    "Expert": "babyai.expert.expert",
    "ExpertBatch": "babyai.expert.expert",
    "LEVELS": "babyai.levels.catalog",
    "PAPER_LEVELS": "babyai.levels.catalog",
    "Level": "babyai.levels.catalog",
    "find_level": "babyai.levels.catalog",
    "register_level": "babyai.envs.registration",
    "register_minigrid_ids": "babyai.envs.registration",
    "VOCABULARY": "babyai.world.codes",
    "Action": "babyai.world.codes",
    "Mission": "babyai.world.language",
    "parse_mission": "babyai.world.language",
}
__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 - they are strings  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'babyai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _RegisterWithGymnasium:
    """Import hook that registers the levels with Gymnasium when Gymnasium is imported, and not before."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                load(module)
                _register_all()

            spec.loader.exec_module = load_and_register
        return spec


def _register_all() -> None:
    from babyai.envs.registration import register_all

    register_all()
    if "IPython" in sys.modules:
        from babyai.render.notebook import register_with_ipython

        register_with_ipython()


if sys.modules.get("gymnasium") is not None:
    _register_all()
else:
    sys.meta_path.insert(0, _RegisterWithGymnasium())  # pyright: ignore[reportArgumentType]
