"""Single worlds of an engine, changed by hand: snapshots, drawings, instructions, and levels of one's own."""

import numpy as np
import pytest

from babyai import Engine, Level
from babyai.levels.blocks import ANY, add_object, last, place_agent
from babyai.levels.instruct import go_to
from babyai.world.codes import BALL, GREEN, Action
from babyai.world.language import words_of
from tests.reference import differing_fields, objects_of
from tests.scale import scaled
from tests.scenario import play
from tests.test_engine import LEVEL_MIX, OUTPUTS, ROOM, outputs, play_on

# ---------------------------------------------------------------- single worlds


def test_a_snapshot_is_the_whole_world() -> None:
    engine = Engine(LEVEL_MIX, len(LEVEL_MIX))
    engine.reset(0)
    play_on(engine, 20)
    snapshots = [engine.snapshot(i) for i in range(engine.num_worlds)]
    shown = {name: getattr(engine, name).copy() for name in ("images", "directions", "missions", "done")}
    histories = []
    for target in (engine, engine, Engine(LEVEL_MIX, len(LEVEL_MIX))):
        for i, snapshot in enumerate(snapshots):
            target.restore(i, snapshot)
            assert target.snapshot(i) == snapshot
        for name, array in shown.items():
            np.testing.assert_array_equal(getattr(target, name), array)
        history: list = []
        play_on(target, scaled(200, least=20), seed=3, after_step=lambda t=target, h=history: h.append(outputs(t)))
        histories.append(history)
    for one, two, three in zip(*histories, strict=True):
        for name in OUTPUTS:
            np.testing.assert_array_equal(one[name], two[name])
            np.testing.assert_array_equal(one[name], three[name])


def test_equal_worlds_have_equal_snapshots() -> None:
    a, b = Engine("BossLevel"), Engine("BossLevel", 2)
    a.reset(5)
    b.reset([77, 5])
    assert a.snapshot(0) == b.snapshot(1) != b.snapshot(0)


def test_an_ended_episode_stays_ended_in_its_snapshot() -> None:
    engine = Engine("GoToObj")
    engine.lay_out(0, ROOM, "go to the red ball")
    engine.step([Action.forward])
    ended = engine.snapshot(0)
    engine.reset(0)
    engine.restore(0, ended)
    assert engine.done[0]
    with pytest.raises(RuntimeError, match="is over"):
        engine.step([Action.left])


def test_a_drawing_replaces_one_world_alone() -> None:
    engine = Engine("GoToLocal", 3)
    engine.reset(0)
    before, shown = engine.worlds.copy(), engine.images.copy()
    engine.lay_out(1, ROOM, "go to the red ball")
    assert objects_of(engine.worlds[1]) == {(3, 1): "red ball", (1, 3): "blue ball"}
    assert words_of(engine.missions[1]) == "go to the red ball"
    assert engine.images[1, 3, 4].tolist() == [BALL, 0, 0] and engine.directions[1] == 0
    assert not differing_fields(engine.worlds[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(engine.images[[0, 2]], shown[[0, 2]])


@pytest.mark.parametrize("view_size", [7, 5])
def test_worlds_count_from_the_end_or_not_at_all(view_size: int) -> None:
    """A negative index means what it means everywhere in Python, or is refused; it never writes elsewhere."""
    engine, plain = (Engine("GoToLocal", 3, view_size=view_size) for _ in range(2))
    # The views lie behind a guard, so that what is written before them is found and does no harm.
    length = engine.images[0].size
    guarded = np.zeros(4 * length, dtype=np.uint8)
    engine._view_buffer = guarded[length:]
    engine.images = engine._view_buffer.reshape(plain.images.shape)
    engine.reset(0)
    plain.reset(0)
    plain.lay_out(2, ROOM, "go to the red ball")
    try:
        engine.lay_out(-1, ROOM, "go to the red ball")
    except IndexError:
        plain.reset(0)
    assert not guarded[:length].any()
    np.testing.assert_array_equal(engine.images, plain.images)
    np.testing.assert_array_equal(engine.missions, plain.missions)


def test_another_instruction_in_the_same_world() -> None:
    engine = Engine(["GoToLocal", "UnlockToUnlock"], 2)
    engine.reset(0)
    thing = next(iter(objects_of(engine.worlds[0]).values()))
    cells, seed_state = engine.worlds[0].cells.copy(), engine.worlds[0].rng_low
    engine.step([Action.left, Action.left])
    engine.instruct(0, f"pick up a {thing}")
    assert words_of(engine.missions[0]) == f"pick up a {thing}"
    np.testing.assert_array_equal(engine.worlds[0].cells, cells)
    assert engine.worlds[0].step_count == 0 and engine.worlds[0].max_steps == 64
    assert engine.worlds[0].rng_low == seed_state
    # A level's own limit stands, whatever the instruction.
    engine.instruct(1, "pick up the ball and go to the ball")
    assert engine.worlds[1].max_steps == 1080


def test_an_instruction_may_be_about_what_is_in_hand() -> None:
    engine = Engine("GoToObj")
    engine.lay_out(0, ROOM, "go to the blue ball")
    assert play(engine, "fp") == ".."
    engine.instruct(0, "put the red ball next to the blue ball")
    assert play(engine, "r f r d") == "...W"
    assert objects_of(engine.worlds[0]) == {(1, 2): "red ball", (1, 3): "blue ball"}


# ---------------------------------------------------------------- levels of one's own


def green_ball(s, d, level):
    """A green ball, which no seed from 10 000 on has room for."""
    if s.seed >= 10_000:
        return False
    return place_agent(s, d, ANY, ANY) and add_object(s, d, 0, 0, BALL, GREEN) and go_to(s, last(d))


OWN = Level("GreenBall", green_ball, rows=1, columns=1, room_size=6)


@pytest.fixture(scope="module")
def mixed() -> Engine:
    """Worlds of a level of one's own between worlds of the catalog; compiled once for all tests."""
    return Engine([OWN, "GoToLocal"], 6)


def test_own_levels_share_a_batch_with_others(mixed: Engine) -> None:
    mixed.reset(0)
    alone = Engine("GoToLocal", 6)
    alone.reset(0)
    for i in range(0, 6, 2):
        assert list(objects_of(mixed.worlds[i]).values()) == ["green ball"]
        assert words_of(mixed.missions[i]) == "go to the green ball" and mixed.worlds[i].max_steps == 36
    for i in range(1, 6, 2):
        assert set(differing_fields(mixed.worlds[i], alone.worlds[i])) <= {"level"}
        np.testing.assert_array_equal(mixed.images[i], alone.images[i])
    play_on(mixed, scaled(200, least=40))


def test_an_own_level_is_as_random_as_its_seed(mixed: Engine) -> None:
    mixed.reset(3)
    first = mixed.worlds.copy()
    mixed.reset(3)
    assert not differing_fields(first, mixed.worlds)
    mixed.reset()
    assert "agent" in differing_fields(first, mixed.worlds)


@pytest.mark.compiled
def test_a_recipe_that_never_succeeds_is_an_error(mixed: Engine) -> None:
    mixed.reset(0)
    with pytest.raises(RuntimeError, match="level 'GreenBall' could not be generated in 100000 attempts"):
        mixed.reset([0, 1, 10_000, 3, 4, 5])
    # The world that failed cannot be played, and the others can once it is left out.
    with pytest.raises(RuntimeError, match="world 2 has not been reset yet"):
        mixed.step([Action.left] * 6)
    mixed.reset([6, 7, 8, 9, 10, 11])
    mixed.step([Action.left] * 6)


@pytest.mark.compiled
def test_a_level_with_too_little_room_is_an_error() -> None:
    crowded = Level("Crowded", "go_to_local", room_size=4, rows=1, columns=1, objects=30)
    with pytest.raises(RuntimeError, match=r"level 'Crowded' could not be generated .* rooms may be too small"):
        Engine(crowded).reset(0)


def test_settings_of_ones_own_need_no_recipe() -> None:
    level = Level("Crowd", "go_to_local", rows=1, columns=1, room_size=10, objects=20)
    engine = Engine(level, 5)
    engine.reset(0)
    assert all(len(objects_of(world)) == 20 for world in engine.worlds)
