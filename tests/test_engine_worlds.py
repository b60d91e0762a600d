"""Single worlds of an engine: snapshots, layouts, missions and custom levels."""

import numpy as np
import pytest

from babyai import Engine, Level
from babyai.levels.blocks import ANY, add_object, last, place_agent
from babyai.levels.instruct import go_to
from babyai.world.codes import BALL, GREEN, Action
from babyai.world.language import detokenize
from tests.reference import differing_fields, objects_of
from tests.scale import scaled
from tests.scenario import play
from tests.test_engine import LEVEL_MIX, OUTPUTS, ROOM, outputs, play_on

# ---------------------------------------------------------------- single worlds


def test_restored_world_continues_exactly_as_the_original() -> None:
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
    single = Engine("BossLevel")
    single.reset(5)
    pair = Engine("BossLevel", 2)
    pair.reset([77, 5])
    assert single.snapshot(0) == pair.snapshot(1) != pair.snapshot(0)


def test_snapshot_of_a_finished_episode_restores_it_as_finished() -> None:
    engine = Engine("GoToObj")
    engine.lay_out(0, ROOM, "go to the red ball")
    engine.step([Action.forward])
    ended = engine.snapshot(0)
    engine.reset(0)
    engine.restore(0, ended)
    assert engine.done[0]
    with pytest.raises(RuntimeError, match="is over"):
        engine.step([Action.left])


def test_layout_replaces_only_one_world() -> None:
    engine = Engine("GoToLocal", 3)
    engine.reset(0)
    worlds = engine.worlds.copy()
    images = engine.images.copy()
    engine.lay_out(1, ROOM, "go to the red ball")
    assert objects_of(engine.worlds[1]) == {(3, 1): "red ball", (1, 3): "blue ball"}
    assert detokenize(engine.missions[1]) == "go to the red ball"
    assert engine.images[1, 3, 4].tolist() == [BALL, 0, 0] and engine.directions[1] == 0
    assert not differing_fields(engine.worlds[[0, 2]], worlds[[0, 2]])
    np.testing.assert_array_equal(engine.images[[0, 2]], images[[0, 2]])


@pytest.mark.parametrize("view_size", [7, 5])
def test_negative_world_index_never_writes_out_of_bounds(view_size: int) -> None:
    """A negative index either counts from the end, as in Python, or is rejected."""
    engine, plain = (Engine("GoToLocal", 3, view_size=view_size) for _ in range(2))
    # A guard region before the views catches writes at negative offsets, harmlessly.
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


def test_instruct_changes_the_mission_but_not_the_world() -> None:
    engine = Engine(["GoToLocal", "UnlockToUnlock"], 2)
    engine.reset(0)
    thing = next(iter(objects_of(engine.worlds[0]).values()))
    cells = engine.worlds[0].cells.copy()
    rng_state = engine.worlds[0].rng_low
    engine.step([Action.left, Action.left])
    engine.instruct(0, f"pick up a {thing}")
    assert detokenize(engine.missions[0]) == f"pick up a {thing}"
    np.testing.assert_array_equal(engine.worlds[0].cells, cells)
    assert engine.worlds[0].step_count == 0 and engine.worlds[0].max_steps == 64
    assert engine.worlds[0].rng_low == rng_state
    # A level's fixed time limit applies to every mission.
    engine.instruct(1, "pick up the ball and go to the ball")
    assert engine.worlds[1].max_steps == 1080


def test_mission_may_refer_to_the_carried_object() -> None:
    engine = Engine("GoToObj")
    engine.lay_out(0, ROOM, "go to the blue ball")
    assert play(engine, "fp") == ".."
    engine.instruct(0, "put the red ball next to the blue ball")
    assert play(engine, "r f r d") == "...W"
    assert objects_of(engine.worlds[0]) == {(1, 2): "red ball", (1, 3): "blue ball"}


# ---------------------------------------------------------------- custom levels


def green_ball(s, d, level):
    """A recipe with one green ball, which fails for seeds from 10 000 on."""
    if s.seed >= 10_000:
        return False
    return place_agent(s, d, ANY, ANY) and add_object(s, d, 0, 0, BALL, GREEN) and go_to(s, last(d))


CUSTOM = Level("GreenBall", green_ball, rows=1, columns=1, room_size=6)


@pytest.fixture(scope="module")
def mixed() -> Engine:
    """Worlds of a custom level alternating with worlds of a catalog level; compiled once for all tests."""
    return Engine([CUSTOM, "GoToLocal"], 6)


def test_custom_and_catalog_levels_share_a_batch(mixed: Engine) -> None:
    mixed.reset(0)
    alone = Engine("GoToLocal", 6)
    alone.reset(0)
    for i in range(0, 6, 2):
        assert list(objects_of(mixed.worlds[i]).values()) == ["green ball"]
        assert detokenize(mixed.missions[i]) == "go to the green ball" and mixed.worlds[i].max_steps == 36
    for i in range(1, 6, 2):
        assert set(differing_fields(mixed.worlds[i], alone.worlds[i])) <= {"level"}
        np.testing.assert_array_equal(mixed.images[i], alone.images[i])
    play_on(mixed, scaled(200, least=40))


def test_custom_level_is_determined_by_its_seed(mixed: Engine) -> None:
    mixed.reset(3)
    first = mixed.worlds.copy()
    mixed.reset(3)
    assert not differing_fields(first, mixed.worlds)
    mixed.reset()
    assert "agent" in differing_fields(first, mixed.worlds)


@pytest.mark.compiled
def test_recipe_that_never_succeeds_is_an_error(mixed: Engine) -> None:
    mixed.reset(0)
    with pytest.raises(RuntimeError, match=r"'GreenBall'.* 100000 attempts"):
        mixed.reset([0, 1, 10_000, 3, 4, 5])
    # The world that failed cannot be stepped until it is reset with another seed.
    with pytest.raises(RuntimeError, match=r"world 2 .*not been reset"):
        mixed.step([Action.left] * 6)
    mixed.reset([6, 7, 8, 9, 10, 11])
    mixed.step([Action.left] * 6)


@pytest.mark.compiled
def test_rooms_too_small_for_their_objects_are_an_error() -> None:
    crowded = Level("Crowded", "go_to_local", room_size=4, rows=1, columns=1, objects=30)
    with pytest.raises(RuntimeError, match=r"'Crowded'.* too small"):
        Engine(crowded).reset(0)


def test_custom_level_may_reuse_a_built_in_recipe() -> None:
    level = Level("Crowd", "go_to_local", rows=1, columns=1, room_size=10, objects=20)
    engine = Engine(level, 5)
    engine.reset(0)
    assert all(len(objects_of(world)) == 20 for world in engine.worlds)
