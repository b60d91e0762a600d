"""Observation spaces: missions, batches, whole grids."""

import numpy as np
import pytest
from gymnasium.spaces import flatten, unflatten
from gymnasium.vector.utils import batch_space

from babyai.engine import Engine
from babyai.envs.spaces import MissionSpace, full_views, single_space, world_space
from babyai.render.frame import full_view
from babyai.world.language import parse_mission


def test_samples_are_sentences_and_reproducible_by_seed() -> None:
    space = MissionSpace(seed=3)
    missions = [space.sample() for _ in range(200)]
    assert all(mission in space and str(parse_mission(mission)) == mission for mission in missions)
    space.seed(3)
    assert [space.sample() for _ in range(200)] == missions
    with pytest.raises(ValueError, match=r"mask|probability"):
        space.sample(mask=(3, None))


@pytest.mark.parametrize("other", ["", "go", "go to the rde ball", "GO TO THE BALL", 3, None])
def test_space_contains_only_sentences(other: object) -> None:
    assert other not in MissionSpace()


def test_max_length_is_that_of_the_longest_mission() -> None:
    space = MissionSpace()
    descriptor = "the purple object in front of you"
    half = f"put {descriptor} next to {descriptor} and put {descriptor} next to {descriptor}"
    assert len(f"{half} after you {half}") == space.max_length and f"{half} after you {half}" in space


def test_mission_space_can_be_flattened_and_batched() -> None:
    space = MissionSpace(seed=0)
    mission = space.sample()
    assert unflatten(space, flatten(space, mission)) == mission
    assert len(batch_space(space, 3).sample()) == 3
    assert space == MissionSpace() and repr(space) == "MissionSpace()"


def test_keys_and_shapes_of_observation_spaces() -> None:
    assert list(single_space("text", 7, (8, 8)).spaces) == ["direction", "image", "mission", "text"]
    assert world_space("rgb", 5, (8, 8))["image"].shape == (40, 40, 3)
    assert world_space("full", 5, (22, 8))["image"].shape == (22, 8, 3)


def test_full_views_equal_those_of_single_worlds() -> None:
    engine = Engine("UnlockPickup", 5)
    engine.reset(0)
    for _ in range(30):
        engine.step(np.random.default_rng(1).integers(6, size=5), skip_done=True)
        images = full_views(engine.worlds, (11, 6))
        assert images.flags.c_contiguous and images.dtype == np.uint8
        np.testing.assert_array_equal(images, [full_view(world) for world in engine.worlds])
