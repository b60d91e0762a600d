"""The kernel that writes mission tokens agrees with `str(mission)`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from babyai import LEVELS, Engine
from babyai.world.language import Mission, detokenize, random_mission, tokenize
from tests.scale import scaled


@settings(max_examples=scaled(100, least=10))
@given(st.integers(0, 2**32))
def test_the_kernel_writes_the_tokens_of_any_mission(seed: int) -> None:
    rng = np.random.default_rng(seed)
    engine = Engine("GoToObj")
    engine.reset(0)
    for _ in range(20):
        mission = random_mission(rng)
        mission.write(engine.worlds[0])
        engine.observe(0)
        assert detokenize(engine.missions[0]) == str(mission)
        np.testing.assert_array_equal(engine.missions[0], tokenize(str(mission)))


def test_missions_of_all_levels_can_be_read_back() -> None:
    engine = Engine(list(LEVELS), len(LEVELS) * scaled(20))
    engine.reset(0)
    for world, tokens in zip(engine.worlds, engine.missions, strict=True):
        assert str(Mission.read(world)) == detokenize(tokens)
