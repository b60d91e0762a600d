"""The levels that only the original BabyAI has: PutNext, OpenTwoDoorsDebug, and eight hand-placed worlds."""

import re

import numpy as np
import pytest

from babyai import Engine
from babyai.world.codes import COLORS, VECTORS, Action
from babyai.world.language import detokenize
from babyai.world.state import position_of
from tests.reference import (
    Position,
    doors_of,
    everything_is_reachable,
    objects_of,
    path_to_face,
    rooms_joined_by,
    things_of,
)
from tests.scale import scaled
from tests.scenario import play

SEEDS = scaled(200, least=20)


def reset_engine(name: str, rules: str = "paper") -> Engine:
    engine = Engine(name, SEEDS, rules=rules)
    engine.reset(0)
    return engine


# ---------------------------------------------------------------- PutNext


def test_put_next_matches_the_paper() -> None:
    engine = reset_engine("PutNext")
    mission = re.compile(
        rf"put (the|a) ({'|'.join(COLORS)}) (key|ball|box) next to (the|a) ({'|'.join(COLORS)}) (key|ball|box)"
    )
    for world, tokens in zip(engine.worlds, engine.missions, strict=True):
        assert (world.width, world.height, world.max_steps) == (22, 22, 1152)
        objects = objects_of(world)
        assert len(objects) == 18 and everything_is_reachable(world)
        assert all(door.startswith("closed") for door in doors_of(world).values())
        article, color, kind, other_article, other_color, other_kind = mission.fullmatch(detokenize(tokens)).groups()
        moved = [place for place, thing in objects.items() if thing == f"{color} {kind}"]
        fixed = [place for place, thing in objects.items() if thing == f"{other_color} {other_kind}"]
        assert (article == "the") == (len(moved) == 1) and (other_article == "the") == (len(fixed) == 1)
        assert not set(moved) & set(fixed)
        assert all(abs(x - u) + abs(y - v) > 1 for x, y in moved for u, v in fixed)


def test_put_next_is_identical_under_both_rule_sets() -> None:
    paper = reset_engine("PutNext")
    minigrid = reset_engine("PutNext", "minigrid")
    np.testing.assert_array_equal(paper.worlds.cells, minigrid.worlds.cells)
    np.testing.assert_array_equal(paper.missions, minigrid.missions)


# ---------------------------------------------------------------- OpenTwoDoorsDebug


def test_open_two_doors_debug_is_a_strict_open_two_doors() -> None:
    debug = reset_engine("OpenTwoDoorsDebug")
    plain = reset_engine("OpenTwoDoors")
    np.testing.assert_array_equal(debug.worlds.cells, plain.worlds.cells)
    np.testing.assert_array_equal(debug.missions, plain.missions)
    # Only the first of the two clauses is strict.
    assert (debug.worlds.strict == 1).all() and (plain.worlds.strict == 0).all()
    assert (debug.worlds.max_steps == 720).all()


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_open_two_doors_debug_is_won_in_order_and_fails_otherwise(rules: str) -> None:
    engine = Engine("OpenTwoDoorsDebug", rules=rules)
    for seed in range(scaled(30, least=4)):
        for order, verdicts in (((0, 1), ".W"), ((1, 0), "L")):
            engine.reset(seed)
            world = engine.worlds[0]
            named = [COLORS[world.colors[0]], COLORS[world.colors[4]]]
            place_of = {door.split()[1]: place for place, door in doors_of(world).items()}
            result = ""
            for k in order:
                if not engine.done[0]:
                    play(engine, path_to_face(world, place_of[named[k]]))
                    result += play(engine, [Action.toggle])
            assert result == verdicts


# ---------------------------------------------------------------- hand-placed levels

# By level: (rows, columns, room size), the agent's cell and heading, the objects, the mission, the number of trips.
HAND_PLACED: dict[str, tuple] = {
    "TestGoToBlocked": (
        (1, 1, 9),
        ((3, 3), 0),
        {(1, 1): "yellow ball"}
        | {(x, y): "red ball" for x in (1, 2, 3) for y in (1, 2, 3) if (x, y) not in ((1, 1), (3, 3))},
        "go to the yellow ball",
        1,
    ),
    "TestPutNextToBlocked": (
        (1, 1, 9),
        ((3, 3), 0),
        {(4, 4): "yellow ball", (1, 1): "blue ball", (1, 2): "red ball", (2, 1): "red ball"},
        "put the yellow ball next to the blue ball",
        2,
    ),
    "TestPutNextToIdentical": (
        (1, 1, 9),
        ((3, 3), 0),
        {(1, 1): "yellow box", (4, 4): "blue ball", (2, 2): "red ball"},
        "put the blue ball next to the yellow box, then put the yellow box next to a ball",
        4,
    ),
    "TestUnblockingLoop": (
        (2, 2, 9),
        ((15, 4), 2),
        {(9, 1): "yellow box", (5, 3): "blue ball", (6, 2): "yellow ball", (15, 15): "blue key"},
        "put the blue key next to the blue door, then go to the yellow ball and go to the yellow box",
        4,
    ),
    "TestLotsOfBlockers": (
        (1, 1, 8),
        ((5, 5), 0),
        dict.fromkeys([(2, 1), (2, 2), (2, 3), (3, 4), (2, 6), (1, 3)], "yellow box")
        | {(1, 2): "blue ball", (3, 6): "red ball"},
        "put the red ball next to the blue ball",
        2,
    ),
}


def check_frame(engine: Engine, index: int, geometry: tuple, agent: tuple, mission: str, trips: int) -> np.record:
    """Checks the size, agent, mission and time limit of the world at `index`; returns the world."""
    world = engine.worlds[index]
    rows, columns, size = geometry
    assert (world.width, world.height) == ((size - 1) * columns + 1, (size - 1) * rows + 1)
    assert (position_of(world.agent), int(world.agent_dir)) == agent
    assert detokenize(engine.missions[index]) == mission
    assert world.max_steps == trips * size**2 * rows * columns
    return world


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
@pytest.mark.parametrize("name", HAND_PLACED)
def test_hand_placed_worlds(name: str, rules: str) -> None:
    geometry, agent, objects, mission, trips = HAND_PLACED[name]
    engine = reset_engine(name, rules)
    for index in range(SEEDS):
        world = check_frame(engine, index, geometry, agent, mission, trips)
        assert objects_of(world) == objects
        if geometry[:2] == (1, 1):
            assert doors_of(world) == {}


def check_three_doors(world: np.record) -> tuple[Position, Position, Position]:
    """Checks the three doors of the two levels with 2 x 2 rooms; returns their positions."""
    doors = doors_of(world)
    joins = {frozenset(rooms_joined_by(world, place)): (place, door) for place, door in doors.items()}
    below, right, above = (joins[frozenset(rooms)] for rooms in ([(0, 0), (0, 1)], [(0, 1), (1, 1)], [(1, 1), (1, 0)]))
    assert [below[1], right[1], above[1]] == ["closed red door", "closed red door", "closed blue door"]
    assert len(doors) == 3
    return below[0], right[0], above[0]


def test_unblocking_loop_has_three_doors() -> None:
    engine = reset_engine("TestUnblockingLoop")
    doors = {check_three_doors(world) for world in engine.worlds}
    assert len(doors) > SEEDS // 20


@pytest.mark.parametrize(
    ("name", "mission", "trips"),
    [
        (
            "TestPutNextToCloseToDoor1",
            "open the red door, then put the yellow ball next to the blue ball",
            3,
        ),
        ("TestPutNextToCloseToDoor2", "put the yellow ball next to the blue ball", 2),
    ],
)
def test_put_next_to_close_to_door_has_a_ball_behind_the_door(name: str, mission: str, trips: int) -> None:
    engine = reset_engine(name)
    columns = set()
    for index in range(SEEDS):
        world = check_frame(engine, index, (2, 1, 9), ((3, 3), 0), mission, trips)
        ((x, y),) = doors_of(world)
        assert y == 8 and things_of(world) == {
            (x, y): "closed red door",
            (x, y + 1): "blue ball",
            (4, 4): "yellow ball",
        }
        columns.add(x)
    # The door can be anywhere along the wall.
    assert columns <= set(range(1, 8)) and len(columns) > 2


def test_put_next_close_to_door_has_objects_around_the_door() -> None:
    engine = reset_engine("TestPutNextCloseToDoor")
    for index in range(SEEDS):
        world = check_frame(
            engine, index, (2, 2, 9), ((5, 10), 2), "put the yellow box next to a blue ball", 2
        )  # fmt: skip
        (x, y), *_ = check_three_doors(world)
        crowd = {(x, y - 1): "blue ball", (x, y - 2): "blue ball", (3, 15): "yellow box"}
        crowd |= {(side, y - 1): "green box" for side in (x - 1, x + 1) if 1 <= side < 8}
        assert objects_of(world) == crowd


def test_go_to_blocked_can_be_won_by_moving_blockers() -> None:
    """TestGoToBlocked, played with fixed actions."""
    engine = Engine("TestGoToBlocked")
    engine.reset(0)
    world = engine.worlds[0]
    play(engine, [Action.left])
    # Facing up, pick up the red ball at (3, 2), drop it to the right, step up, and repeat up to the corner.
    assert play(engine, "p r d l f") == "....."
    assert position_of(world.agent) == (3, 2) and VECTORS[world.agent_dir] == (0, -1)
    assert play(engine, "p r d l f") == "....."
    assert play(engine, "l p l d r f") == ".....W"
