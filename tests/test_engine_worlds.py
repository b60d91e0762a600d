"""Single worlds of an engine: snapshots, layouts, missions and custom levels."""

import numpy as np
import pytest

from babyai import LEVELS, Engine, Level
from babyai.levels.blocks import (
    ANY,
    add_door,
    add_object,
    at,
    last,
    place_agent,
    put,
    random_thing,
    remove_wall,
)
from babyai.levels.instruct import go_to, put_next, set_clause, set_order
from babyai.world.codes import BALL, BEFORE, GO_TO, GREEN, Action
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


@pytest.mark.long
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


@pytest.mark.long
def test_custom_level_is_determined_by_its_seed(mixed: Engine) -> None:
    mixed.reset(3)
    first = mixed.worlds.copy()
    mixed.reset(3)
    assert not differing_fields(first, mixed.worlds)
    mixed.reset()
    assert "agent" in differing_fields(first, mixed.worlds)


@pytest.mark.long
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


def careless(s, d, level):
    """A recipe with a mistake for each variant; one recipe, because each takes seconds to compile."""
    if level.variant == 3:
        # Rooms, sides, cells and clauses that do not exist: every block returns False.
        return (
            add_door(s, d, 7, 7, ANY, GREEN, 0)
            or add_door(s, d, 0, 0, 2, GREEN, 0)
            or add_object(s, d, 0, -3, BALL, GREEN)
            or place_agent(s, d, 99, 0)
            or remove_wall(s, d, 0, 0, 3)
            or put(s, d, at(0, 0), BALL)
            or put(s, d, 100_000, BALL)
            or put_next(s, 9, 0, 0)
            or set_clause(s, -1, GO_TO, BALL, GREEN, 0)
            or go_to(s, 1_000_000)
            or go_to(s, random_thing(s, d, 700))
        )
    if not (place_agent(s, d, ANY, ANY) and add_object(s, d, 0, 0, BALL, GREEN)):
        return False
    if level.variant == 0:
        return True
    if level.variant == 1:
        return go_to(s, last(d)) and set_order(s, BEFORE, 0)
    s.agent = 800
    return go_to(s, last(d))


# Long, because the recipe is compiled.
@pytest.mark.long
@pytest.mark.parametrize(("variant", "message"), [(0, "no instruction"), (1, "incomplete"), (2, "agent")])
def test_a_recipe_that_builds_an_invalid_world_is_refused(variant: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"'Own'.*{message}"):
        Engine(Level("Own", careless, rows=1, columns=1, variant=variant)).reset(0)


@pytest.mark.long
@pytest.mark.compiled
def test_blocks_refuse_what_does_not_exist() -> None:
    with pytest.raises(RuntimeError, match="could not be generated"):
        Engine(Level("Own", careless, rows=1, columns=1, variant=3)).reset(0)


# ---------------------------------------------------------------- damaged snapshots

DAMAGED = {
    "heading": ("agent_dir", 4, "heading"),
    "agent outside the grid": ("agent", 30_000, "agent"),
    "agent before the grid": ("agent", -5, "agent"),
    "size": ("width", 25, "size"),
    "no size": ("height", 0, "size"),
    "rooms": ("room_width", 1, "size"),
    "clock": ("max_steps", 0, "time limit"),
    "carried wall": ("carrying", 0xD2, "carries"),
    "no instruction": ("verbs", 0, "instruction"),
    "unknown verb": ("verbs", 9, "instruction"),
    "unknown color": ("colors", 7, "instruction"),
    "options": ("options", 8, "flags"),
    "generator": ("rng_inc_low", 2, "generator"),
    "no border": ("cells", 1, "border"),
    "unknown cell": ("hidden", 0xFF, "cell"),
    "level": ("level", 1, "level"),
    "status": ("status", 3, "never reset"),
}


@pytest.mark.parametrize(("field", "value", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_snapshot_is_refused(field: str, value: int, message: str) -> None:
    engine = Engine("GoToLocal")
    engine.reset(0)
    before = engine.snapshot(0)
    damaged = engine.worlds.copy()
    damaged[field] = value
    with pytest.raises(ValueError, match=message):
        engine.restore(0, damaged[0].tobytes())
    assert engine.snapshot(0) == before


def test_every_snapshot_of_every_level_is_accepted() -> None:
    engine = Engine(list(LEVELS), len(LEVELS))
    engine.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(scaled(60, least=5)):
        for index in range(engine.num_worlds):
            engine.restore(index, engine.snapshot(index))
        engine.step(rng.integers(0, 7, engine.num_worlds), skip_done=True)


def test_a_world_restored_without_a_generator_is_seeded_at_its_next_reset() -> None:
    drawn = Engine("GoToLocal")
    drawn.lay_out(0, ROOM, "go to the blue ball")
    engine = Engine("GoToLocal")
    engine.reset(0)
    engine.restore(0, drawn.snapshot(0))
    engine.reset()
    assert engine.worlds[0].rng_inc_low % 2 == 1
