"""A recipe from outside must give a complete instruction."""

from typing import Any

import numpy as np
import pytest

from babyai import Engine, Level
from babyai.levels.blocks import ANY, add_object, place_agent
from babyai.levels.instruct import set_clause
from babyai.world.codes import BALL, GO_TO, RED

pytestmark = pytest.mark.compiled


def incomplete(s: Any, d: Any, level: Any) -> Any:
    """Gives no instruction; with `variant` 1, two sides without an order."""
    if not (add_object(s, d, 0, 0, BALL, RED) and place_agent(s, d, ANY, ANY)):
        return False
    return level.variant == 0 or (set_clause(s, 0, GO_TO, BALL, RED, 0) and set_clause(s, 2, GO_TO, BALL, RED, 0))


def test_a_recipe_without_a_complete_instruction_is_rejected() -> None:
    for variant, fault in enumerate(("no instruction", "an incomplete instruction")):
        engine = Engine([Level("Silent", incomplete, rows=1, columns=1, variant=variant), "GoToObj"], 4)
        with pytest.raises(ValueError, match=rf"recipe of level 'Silent' gives {fault}.*go_to"):
            engine.reset(0)
        # Worlds of the faulty level are not playable.
        with pytest.raises(RuntimeError, match="not been reset"):
            engine.step(np.zeros(4, dtype=int))
