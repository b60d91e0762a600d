"""The spaces of observations: sentences, batches, whole grids."""

import numpy as np
import pytest
from gymnasium.spaces import flatten, unflatten
from gymnasium.vector.utils import batch_space

from babyai.engine import Engine
from babyai.envs.spaces import MissionSpace, full_views, single_space, token_space
from babyai.render.frame import full_view
from babyai.world.language import parse_mission


def test_samples_are_sentences_and_seeds_repeat_them() -> None:
    space = MissionSpace(seed=3)
    missions = [space.sample() for _ in range(200)]
    assert all(mission in space and str(parse_mission(mission)) == mission for mission in missions)
    space.seed(3)
    assert [space.sample() for _ in range(200)] == missions
    with pytest.raises(ValueError, match="no mask or probability"):
        space.sample(mask=(3, None))


@pytest.mark.parametrize("stranger", ["", "go", "go to the rde ball", "GO TO THE BALL", 3, None])
def test_only_sentences_are_contained(stranger: object) -> None:
    assert stranger not in MissionSpace()


def test_the_longest_mission_just_fits() -> None:
    space = MissionSpace()
    thing = "the purple object in front of you"
    side = f"put {thing} next to {thing} and put {thing} next to {thing}"
    assert len(f"{side} after you {side}") == space.max_length and f"{side} after you {side}" in space


def test_sentences_flatten_and_batch() -> None:
    space = MissionSpace(seed=0)
    mission = space.sample()
    assert unflatten(space, flatten(space, mission)) == mission
    assert len(batch_space(space, 3).sample()) == 3
    assert space == MissionSpace() and repr(space) == "MissionSpace()"


def test_parts_of_observations() -> None:
    assert list(single_space("text", 7, (8, 8)).spaces) == ["direction", "image", "mission", "text"]
    assert token_space("rgb", 5, (8, 8))["image"].shape == (40, 40, 3)
    assert token_space("full", 5, (22, 8))["image"].shape == (22, 8, 3)


def test_full_views_equal_those_of_single_worlds() -> None:
    engine = Engine("UnlockPickup", 5)
    engine.reset(0)
    for _ in range(30):
        engine.step(np.random.default_rng(1).integers(6, size=5), skip_done=True)
        images = full_views(engine.worlds, (11, 6))
        assert images.flags.c_contiguous and images.dtype == np.uint8
        np.testing.assert_array_equal(images, [full_view(world) for world in engine.worlds])
