"""One world of a vector environment, with Minigrid's attributes."""

from typing import Any

from babyai.envs.minigrid_names import MinigridNames
from babyai.world.language import detokenize


class WorldView(MinigridNames):
    """What `get_attr`, `set_attr` and `call` of a vector environment address: world `index` of its engine."""

    _vector_env: Any

    def __init__(self, vector_env: Any, index: int) -> None:
        own = {"_vector_env": vector_env, "engine": vector_env.engine, "_index": index}
        vars(self).update(own)

    @property
    def unwrapped(self) -> "WorldView":
        """The view itself."""
        return self

    @property
    def mission(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The mission in English."""
        return detokenize(self.engine.missions[self._index])

    @property
    def tile_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Side length of a cell in rendered images, in pixels."""
        return self._vector_env.tile_size

    @property
    def render_mode(self) -> str | None:
        """That of the vector environment."""
        return self._vector_env.render_mode

    @property
    def action_space(self) -> Any:
        """The actions of one world."""
        return self._vector_env.single_action_space

    @property
    def observation_space(self) -> Any:
        """The observations of one world."""
        return self._vector_env.single_observation_space

    def snapshot(self) -> bytes:
        """The complete state of the world, for `restore`."""
        return self.engine.snapshot(self._index)

    def restore(self, snapshot: bytes) -> None:
        """Restores the world from a snapshot."""
        self._vector_env.restore(self._index, snapshot)

    def __setattr__(self, name: str, value: Any) -> None:
        attribute = getattr(type(self), name, None)
        if name == "_tracked" or (isinstance(attribute, property) and attribute.fset is not None):
            object.__setattr__(self, name, value)
            return
        raise AttributeError(
            f"a world has no attribute {name!r} to set: agent_pos, agent_dir, carrying, max_steps and step_count can "
            f"be set in one world, everything else in the vector environment, when it is made"
        )
