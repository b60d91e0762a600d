"""What each action changes in a world, and what it leaves unchanged."""

import pytest

from babyai import Engine
from babyai.world.codes import BALL, KEY, TRIPLES, Action
from babyai.world.state import position_of
from tests.reference import differing_fields, doors_of, objects_of, path_to_face, things_of
from tests.scenario import make_engine, play

YARD = """
    ############
    ##..rd..ro##
    ##..>>..bx##
    ##..b/..gk##
    ############
"""
MISSION = "pick up the green key"


def test_turning_changes_the_heading() -> None:
    engine = make_engine(YARD, MISSION)
    headings = []
    for letter in "rrrrllll":
        play(engine, letter)
        headings.append(int(engine.worlds[0].agent_dir))
    assert headings == [1, 2, 3, 0, 3, 2, 1, 0]
    assert engine.directions[0] == 0


@pytest.mark.parametrize(
    ("letters", "place"),
    [
        ("f", (3, 2)),
        ("ff", (3, 2)),  # blocked by a box
        ("lf", (2, 2)),  # blocked by a closed door
        ("llfff", (1, 2)),  # blocked by the wall
        ("rf", (2, 3)),  # an open door can be entered
        ("lltltf", (2, 2)),
        ("ltf", (2, 1)),
    ],
)
def test_forward_moves_onto_free_cells_only(letters: str, place: tuple[int, int]) -> None:
    engine = make_engine(YARD, MISSION)
    play(engine, letters)
    assert position_of(engine.worlds[0].agent) == place


def test_toggle_opens_and_closes_a_door() -> None:
    engine = make_engine(YARD, MISSION)
    play(engine, "lt")
    assert doors_of(engine.worlds[0])[2, 1] == "open red door"
    play(engine, "t")
    assert doors_of(engine.worlds[0])[2, 1] == "closed red door"


def test_pickup_and_drop_move_an_object() -> None:
    engine = make_engine(YARD, MISSION)
    world = engine.worlds[0]
    play(engine, "f l f r p")
    assert TRIPLES[world.carrying].tolist() == [BALL, 0, 0]
    assert (4, 1) not in things_of(world)
    assert engine.images[0, 3, 6].tolist() == [BALL, 0, 0]
    # A second pickup does nothing while carrying.
    play(engine, "r f p")
    assert TRIPLES[world.carrying].tolist() == [BALL, 0, 0]
    play(engine, "l l f r d")
    assert objects_of(world)[4, 1] == "red ball" and not world.carrying
    assert engine.images[0, 3, 6].tolist() == [1, 0, 0]
    assert len(objects_of(world)) == 3


@pytest.mark.parametrize("letters", ["f p", "l p", "r p", "ll p"])
def test_doors_walls_and_empty_cells_cannot_be_picked_up(letters: str) -> None:
    engine = make_engine(YARD.replace("bx", "##"), "go to a ball")
    before = things_of(engine.worlds[0])
    play(engine, letters)
    assert not engine.worlds[0].carrying and things_of(engine.worlds[0]) == before


@pytest.mark.parametrize("turns", ["", "l", "r"])
def test_drop_needs_an_empty_cell(turns: str) -> None:
    engine = make_engine(YARD.replace(">>..bx", ">>bxgk"), "go to a ball")
    # Carrying the box, the agent faces the key, a closed door, or an open door.
    play(engine, "p f" if not turns else f"p {turns}")
    before = things_of(engine.worlds[0])
    play(engine, "d")
    assert engine.worlds[0].carrying and things_of(engine.worlds[0]) == before


def test_opening_a_box_removes_it() -> None:
    engine = make_engine(YARD, MISSION)
    play(engine, "ft")
    assert (4, 2) not in things_of(engine.worlds[0])


def test_actions_without_effect_only_advance_the_step_count() -> None:
    engine = make_engine(YARD, MISSION)
    for letter in "ntdp":
        before = engine.worlds.copy()
        play(engine, letter)
        assert set(differing_fields(before, engine.worlds)) <= {"step_count", "clauses_checked"}


def test_a_locked_door_opens_with_its_key_and_is_never_locked_again() -> None:
    engine = make_engine(
        """
        ############
        ##gkrkrl..##
        ##..>>....##
        ############
        """,
        "go to the green key",
    )
    world = engine.worlds[0]
    play(engine, "f l t")
    assert doors_of(world)[3, 1] == "locked red door"
    play(engine, "l f r p")
    play(engine, "r f l t")
    assert doors_of(world)[3, 1] == "open red door"
    assert TRIPLES[world.carrying].tolist() == [KEY, 0, 0]
    play(engine, "t")
    assert doors_of(world)[3, 1] == "closed red door"


def test_opening_a_box_reveals_its_content() -> None:
    """KeyInBox is the only level whose box contains something: the key to the locked door."""
    for seed in range(20):
        engine = Engine("KeyInBox")
        engine.reset(seed)
        world = engine.worlds[0]
        (box,) = objects_of(world)
        (door,) = [place for place, thing in doors_of(world).items() if thing.startswith("locked")]
        color = doors_of(world)[door].split()[1]
        play(engine, path_to_face(world, box))
        play(engine, [Action.toggle])
        assert objects_of(world) == {box: f"{color} key"}
        assert play(engine, [Action.pickup]) == "."
        play(engine, path_to_face(world, door))
        assert play(engine, [Action.toggle]) == "W"
