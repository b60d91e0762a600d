"""Descriptions of views, in both wordings."""

import gymnasium
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest

from babyai.engine import Engine
from babyai.text.view import WORDINGS, describe_view

WALL = (2, 5, 0)


def view_with(*objects: tuple[int, int, tuple[int, int, int]], size: int = 7) -> np.ndarray:
    """A view of empty floor with these (ahead, right, triple) objects."""
    image = np.zeros((size, size, 3), dtype=np.uint8)
    image[:, :, 0] = 1
    for ahead, right, triple in objects:
        image[size // 2 + right, size - 1 - ahead] = triple
    return image


# ------------------------------------------------------------ plain


def test_objects_are_described_nearest_first() -> None:
    image = view_with((3, 0, (4, 1, 1)), (2, 1, (6, 0, 0)), (0, -1, (7, 4, 0)), (1, 0, (5, 5, 0)), (0, 0, (5, 2, 0)))
    assert describe_view(image) == [
        "You see a grey key 1 step forward",
        "You see a yellow box 1 step left",
        "You see a closed green door 3 steps forward",
        "You see a red ball 2 steps forward and 1 step right",
        "You carry a blue key",
    ]


@pytest.mark.parametrize(("state", "words"), [(0, "an open"), (1, "a closed"), (2, "a locked")])
def test_doors_are_described_with_their_state(state: int, words: str) -> None:
    assert describe_view(view_with((1, 2, (4, 3, state)))) == [
        f"You see {words} purple door 1 step forward and 2 steps right"
    ]


def test_only_the_nearest_walls_ahead_left_and_right_are_described() -> None:
    image = view_with((4, 0, WALL), (5, 0, WALL), (0, -2, WALL), (0, 3, WALL), (2, 2, WALL), size=9)
    assert describe_view(image) == [
        "You see a wall 2 steps left",
        "You see a wall 3 steps right",
        "You see a wall 4 steps forward",
    ]


def test_walls_behind_unseen_cells_are_not_described() -> None:
    image = view_with((3, 0, WALL))
    image[3, 4] = 0
    assert describe_view(image) == []


@pytest.mark.parametrize("wording", WORDINGS)
def test_every_object_in_minigrid_views_gets_one_sentence(wording: str) -> None:
    env = gymnasium.make("BabyAI-BossLevel-v0")
    observation, _ = env.reset(seed=5)
    for action in np.random.default_rng(0).integers(0, 6, size=100):
        sentences = describe_view(observation["image"], wording)  # pyright: ignore[reportArgumentType]
        objects = [sentence for sentence in sentences if "wall" not in sentence]
        assert len(objects) == (observation["image"][:, :, 0] > 2).sum()
        assert len(set(sentences)) == len(sentences)
        observation, *_ = env.step(int(action))


def test_an_unknown_wording_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'babyai-text'.*'plain', 'babyai_text'"):
        describe_view(view_with(), "babyai-text")  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------ BabyAI-Text


def test_babyai_text_as_published() -> None:
    """Three observations of one episode of GoToLocal, as in an example prompt of BabyAI-Text's authors."""
    engine = Engine("GoToLocal", rules="minigrid")
    engine.reset([0])
    observations = [describe_view(engine.images[0], "babyai_text")]
    for action in (2, 1):
        engine.step([action])
        observations.append(describe_view(engine.images[0], "babyai_text"))
    published = [
        "wall 2 steps left, purple key 1 step left and 2 steps forward, yellow key 1 step left and 1 step forward, "
        "green ball 3 steps forward, grey ball 1 step right and 5 steps forward, green key 1 step right and 2 steps "
        "forward, grey ball 1 step right and 1 step forward, green key 2 steps right and 4 steps forward, red box 2 "
        "steps right and 2 steps forward",
        "purple key 1 step left and 1 step forward, yellow key 1 step left, green ball 2 steps forward, grey ball 1 "
        "step right and 4 steps forward, green key 1 step right and 1 step forward, grey ball 1 step right, green key "
        "2 steps right and 3 steps forward, red box 2 steps right and 1 step forward",
        "wall 2 steps right, green key 3 steps left and 2 steps forward, green ball 2 steps left, red box 1 step left "
        "and 2 steps forward, green key 1 step left and 1 step forward, grey ball 1 step forward",
    ]
    assert observations == [[f"You see a {part}" for part in each.split(", ")] for each in published]


def test_babyai_text_puts_the_carried_object_first_and_writes_a_open() -> None:
    image = view_with((2, 0, (4, 1, 0)), (3, 0, WALL), (0, -2, WALL), (0, 0, (5, 2, 0)))
    # The wall ahead is behind the door, so it is not described.
    assert describe_view(image, "babyai_text") == [
        "You carry a blue key",
        "You see a wall 2 steps left",
        "You see a open green door 2 steps forward",
    ]
