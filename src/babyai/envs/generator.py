"""`env.np_random`: the random generator of the world itself.

A world draws only when it is reset, from the generator in its record. NumPy cannot work on that record directly, so the
generator is lent: `np_random` returns a NumPy generator in the same state, and the next reset, snapshot or copy takes
its state back. What a caller has drawn in between therefore changes the next episode, as in Minigrid.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.utils import seeding

from babyai.engine import Engine

LOW_BITS = (1 << 64) - 1


def generator_state(world: np.record) -> dict[str, Any]:
    """The state of the world's generator, as in `np.random.PCG64.state`."""
    return {
        "bit_generator": "PCG64",
        "state": {
            "state": int(world.rng_high) << 64 | int(world.rng_low),
            "inc": int(world.rng_inc_high) << 64 | int(world.rng_inc_low),
        },
        "has_uint32": int(world.rng_has_spare),
        "uinteger": int(world.rng_spare),
    }


def set_generator_state(world: np.record, state: Mapping[str, Any]) -> None:
    """Sets the world's generator to a state from `np.random.PCG64.state`."""
    world.rng_high, world.rng_low = divmod(state["state"]["state"], LOW_BITS + 1)
    world.rng_inc_high, world.rng_inc_low = divmod(state["state"]["inc"], LOW_BITS + 1)
    world.rng_has_spare = state["has_uint32"]
    world.rng_spare = state["uinteger"]


class GeneratorLoan:
    """Mixin for an environment with one world: Gymnasium's `np_random` and `np_random_seed`."""

    engine: Engine
    _lent: np.random.Generator | None = None
    _np_random_seed: Any = None

    @property
    def np_random(self) -> np.random.Generator:
        """The world's generator. Draws change the next episode, unless `reset` gets a seed."""
        if self._lent is None:
            self._lent, seed = seeding.np_random()
            if self.engine.is_seeded(0):
                self._renew_loan()
            else:
                self._np_random_seed = seed
        return self._lent

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        if not isinstance(value, np.random.Generator) or not isinstance(value.bit_generator, np.random.PCG64):
            raise TypeError(
                f"a world's generator is NumPy's PCG64, so np_random must be from np.random.default_rng; got {value!r}"
            )
        self._lent = value
        self._np_random_seed = -1

    # Gymnasium's own name, which its environment checker reads.
    _np_random = np_random

    @property
    def np_random_seed(self) -> int:
        """The last seed of the world; -1 if it is not known, because `np_random` was set."""
        if self._np_random_seed is None and self.engine.is_seeded(0):
            return int(self.engine.worlds[0].seed)
        if self._np_random_seed is None:
            # As in Gymnasium, asking for the seed before the first reset chooses one.
            self.np_random  # noqa: B018
        assert self._np_random_seed is not None
        return self._np_random_seed

    def _take_back_generator(self) -> None:
        """Puts the state of the lent generator, if any, into the world."""
        if self._lent is not None:
            set_generator_state(self.engine.worlds[0], self._lent.bit_generator.state)
            self.engine.mark_seeded(np.arange(self.engine.num_worlds) == 0)

    def _renew_loan(self) -> None:
        """Sets the lent generator, if any, to the state of the world."""
        if self._lent is not None:
            self._lent.bit_generator.state = generator_state(self.engine.worlds[0])
