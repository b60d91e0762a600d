"""When an instruction counts as carried out: small stories, one for each clause, join and oddity of the judge."""

import numpy as np
import pytest

from babyai import Engine
from tests.reference import doors_of, objects_of
from tests.scenario import face, judged, laid_out, play

# The agent faces the red ball; two turns and a step later it faces the blue one.
LINE = """
    ##############
    ##bo..>>ro..##
    ##..........##
    ##############
"""
HALL = """
    ################
    ##bo........ro##
    ##..>>........##
    ##............##
    ##gk........ax##
    ################
"""
TWO_DOORS = """
    ##########
    ##..bd..##
    ##..##..##
    ##>>rd..##
    ##########
"""
BLUE_DOOR, RED_DOOR = (2, 1), (2, 3)


# ---------------------------------------------------------------- go to


def test_go_to_means_to_face_it() -> None:
    assert judged(LINE, "go to the blue ball", "llf") == "..W"
    assert judged(HALL, "go to the blue ball", "lf ") == ".."


@pytest.mark.parametrize("letter", list("fptdn"))
def test_go_to_counts_after_any_action(letter: str) -> None:
    assert judged(LINE.replace("ro", "rd"), "go to the red door", letter) == "W"


def test_nothing_is_judged_before_the_first_step() -> None:
    assert judged(LINE, "go to the red ball", "lr") == ".W"


def test_one_of_several_objects_is_enough() -> None:
    both = LINE.replace("bo", "ro")
    assert judged(both, "go to a red ball", "n") == "W"
    assert judged(both, "go to a red ball", "llf") == "..W"


def test_a_place_is_seen_from_where_the_agent_began() -> None:
    pair = """
        ############
        ##ro......##
        ##..>>....##
        ##ro......##
        ############
    """
    assert judged(pair, "go to the red ball on your left", "lfl") == "..W"
    assert judged(pair, "go to the red ball on your left", "rfr") == "..."
    assert judged(pair, "go to the red ball on your right", "rfr") == "..W"
    assert judged(pair, "go to a red ball behind you", "lfl") == "..W"
    with pytest.raises(ValueError, match="there is no 'red ball in front of you' in it"):
        laid_out(pair, "go to a red ball in front of you")


def test_the_old_cell_of_a_picked_up_object_still_counts() -> None:
    engine = laid_out(LINE, "go to the blue ball, then go to the red ball")
    assert play(engine, "p ll f rr") == "......"
    assert objects_of(engine.worlds[0]) == {(1, 1): "blue ball"}
    assert play(engine, "f") == "W"


def test_a_drop_brings_places_up_to_date_even_if_it_fails() -> None:
    engine = laid_out(LINE, "go to the blue ball, then go to the red ball")
    # The blue ball is in the way of this drop.
    assert play(engine, "p ll f d rr f") == "........"
    assert engine.worlds[0].carrying


def test_the_cell_of_an_opened_box_counts_until_the_next_drop() -> None:
    drawing, mission = LINE.replace("ro", "rx"), "go to the blue ball, then go to the red box"
    assert judged(drawing, mission, "t ll f rr f") == "......W"
    # This drop is one of nothing at all.
    assert judged(drawing, mission, "t d ll f rr f") == "........"


def test_a_dropped_object_is_known_in_its_new_cell() -> None:
    engine = laid_out(LINE, "go to the blue ball, then go to the red ball")
    assert play(engine, "p r d r f") == "....."
    assert objects_of(engine.worlds[0]) == {(1, 1): "blue ball", (3, 2): "red ball"}
    assert play(engine, "l f l") == "..W"


def test_a_dropped_object_is_not_mistaken_for_one_that_was_there() -> None:
    # The green key is put where the red box was; only the box was meant.
    engine = laid_out(HALL.replace("ro", "rx"), "go to the grey box, then go to the red box")
    assert face(engine, (6, 1)) == "."
    assert play(engine, "t") == "."
    assert face(engine, (1, 4)) == "." and play(engine, "p") == "."
    assert face(engine, (6, 1)) == "." and play(engine, "d") == "."
    assert face(engine, (6, 4)) == "." and face(engine, (6, 1)) == "."
    assert objects_of(engine.worlds[0])[6, 1] == "green key"


# ---------------------------------------------------------------- pick up


def test_pick_up_the_object_that_is_meant() -> None:
    assert judged(LINE, "pick up the red ball", "p") == "W"
    assert judged(LINE, "pick up the red object", "p") == "W"
    assert judged(LINE, "pick up the blue ball", "p") == "."


def test_pick_up_with_full_hands_does_nothing() -> None:
    assert judged(LINE, "pick up the blue ball", "p ll f p") == "....."


def test_what_was_picked_up_too_early_must_be_put_down_first() -> None:
    engine = laid_out(LINE, "go to the blue ball, then pick up the red ball")
    assert play(engine, "p ll f p") == "....."
    assert play(engine, "l d p") == "..W"


def test_a_clause_that_is_first_looked_at_takes_the_hands_for_empty() -> None:
    # One pickup serves both clauses, since the second knows nothing of the hands before.
    assert judged(LINE, "pick up a ball, then pick up the red ball", "p") == "W"
    assert judged(LINE, "pick up a ball after you pick up the red ball", "p") == "W"


def test_strict_pick_up_fails_on_any_other_object() -> None:
    assert judged(LINE, "pick up the blue ball", "p", strict=1) == "L"
    assert judged(LINE, "pick up the blue ball", "llfp", strict=1) == "...W"
    # A pickup in the void, with empty hands, is no fault.
    assert judged(LINE, "pick up the blue ball", "lplfp", strict=1) == "....W"


# ---------------------------------------------------------------- open


def test_open_a_door() -> None:
    assert judged(TWO_DOORS, "open the red door", "t") == "W"
    assert judged(TWO_DOORS, "open the blue door", "t") == "."
    assert judged(TWO_DOORS, "open a door", "t") == "W"


def test_an_open_door_has_to_be_closed_and_opened() -> None:
    assert judged(TWO_DOORS.replace("rd", "r/"), "open the red door", "tt") == ".W"
    # Walking through it does not count.
    assert judged(TWO_DOORS.replace("rd", "r/"), "open the red door", "fff") == "..."


def test_a_locked_door_needs_its_key_which_stays_in_hand() -> None:
    locked = """
        ############
        ##rk>>rl..##
        ############
    """
    assert judged(locked, "open the red door", "tt") == ".."
    engine = laid_out(locked, "open the red door")
    assert play(engine, "ll p ll t") == ".....W"
    assert doors_of(engine.worlds[0]) == {(3, 1): "open red door"} and engine.worlds[0].carrying
    assert judged(locked.replace("rk", "bk"), "open the red door", "ll p ll t") == "......"
    assert judged(locked.replace("rk", "ro"), "open the red door", "ll p ll t") == "......"


def test_strict_open_fails_on_any_other_toggle_of_a_door() -> None:
    assert judged(TWO_DOORS, "open the blue door", "t", strict=1) == "L"
    assert judged(TWO_DOORS, "open the red door", "t", strict=1) == "W"
    # Closing the right door, or failing at its lock, is a fault too; toggling a wall is none.
    assert judged(TWO_DOORS.replace("rd", "r/"), "open the red door", "t", strict=1) == "L"
    assert judged(TWO_DOORS.replace("rd", "rl"), "open the red door", "t", strict=1) == "L"
    assert judged(TWO_DOORS, "open the red door", "ltrt", strict=1) == "...W"


# ---------------------------------------------------------------- put next


def carry(engine: Engine, start: tuple[int, int], end: tuple[int, int]) -> str:
    """Takes the object at `start`, drops it at `end`, and returns the verdict on the drop."""
    assert face(engine, start) in ("", ".") and play(engine, "p") == "."
    assert face(engine, end) in ("", ".")
    return play(engine, "d")


@pytest.mark.parametrize("end", [(2, 1), (1, 2)])
def test_put_next_means_on_one_of_four_sides(end: tuple[int, int]) -> None:
    assert carry(laid_out(HALL, "put the red ball next to the blue ball"), (6, 1), end) == "W"


@pytest.mark.parametrize("end", [(2, 2), (3, 1), (1, 3), (5, 4)])
def test_put_next_does_not_mean_near(end: tuple[int, int]) -> None:
    assert carry(laid_out(HALL, "put the red ball next to the blue ball"), (6, 1), end) == "."


def test_putting_the_other_object_does_not_count() -> None:
    # The fixed object is carried to the one that should move: they lie side by side, and nothing is won.
    engine = laid_out(HALL, "put the red ball next to the blue ball")
    assert carry(engine, (1, 1), (5, 1)) == "."
    # Lifting the right one and putting it back wins.
    assert carry(engine, (6, 1), (6, 1)) == "W"


def test_a_fixed_object_that_was_moved_counts_where_it_is_now() -> None:
    engine = laid_out(HALL, "put the red ball next to the blue ball")
    assert carry(engine, (1, 1), (4, 3)) == "."
    assert carry(engine, (6, 1), (2, 1)) == "."
    assert carry(engine, (2, 1), (4, 2)) == "W"


def test_next_to_a_box_that_was_opened_is_next_to_nothing() -> None:
    engine = laid_out(HALL, "put the red ball next to the grey box")
    assert face(engine, (6, 4)) == "." and play(engine, "t") == "."
    assert carry(engine, (6, 1), (5, 4)) == "."


def test_next_to_a_door() -> None:
    drawing = """
        ##############
        ##ro....bd..##
        ##>>......####
        ##############
    """
    engine = laid_out(drawing, "put the red ball next to the blue door")
    assert carry(engine, (1, 1), (4, 2)) == "W"


def test_a_drop_that_fails_wins_nothing() -> None:
    engine = laid_out(HALL, "put the red ball next to the blue ball")
    assert face(engine, (6, 1)) == "." and play(engine, "p") == "."
    assert face(engine, (1, 1)) == "." and play(engine, "d") == "."
    assert engine.worlds[0].carrying


def test_a_put_clause_first_looked_at_on_a_drop_knows_of_nothing_carried() -> None:
    near = """
        ############
        ##bo..gk..##
        ##....>>..##
        ##ro......##
        ############
    """
    mission = "put the red ball next to the blue ball, then put the red ball next to the green key"
    engine = laid_out(near, mission)
    # Between them lies a cell that is next to both, but the second clause was not looked at before this drop.
    assert carry(engine, (1, 3), (2, 1)) == "."
    assert engine.worlds[0].first_side_done
    assert carry(engine, (2, 1), (2, 1)) == "W"


def test_a_pickup_that_ends_one_clause_is_remembered_by_the_next() -> None:
    engine = laid_out(HALL, "pick up the red ball, then put the red ball next to the blue ball")
    assert carry(engine, (6, 1), (2, 1)) == "W"


def test_what_was_carried_all_along_can_be_put_down_once_its_turn_has_come() -> None:
    engine = laid_out(HALL, "go to the green key, then put the red ball next to the blue ball")
    assert face(engine, (6, 1)) == "." and play(engine, "p") == "."
    assert face(engine, (1, 4)) == "." and face(engine, (2, 1)) == "."
    assert play(engine, "d") == "W"


@pytest.mark.parametrize(
    "mission", ["put the red ball next to a ball", "put a ball next to the blue ball", "put a ball next to a ball"]
)
def test_an_object_cannot_be_put_next_to_itself(mission: str) -> None:
    with pytest.raises(ValueError, match="an object is to lie next to itself, or already lies there"):
        laid_out(HALL, mission)


def test_an_object_cannot_be_put_where_it_already_lies() -> None:
    with pytest.raises(ValueError, match="already lies there"):
        laid_out(LINE.replace("bo..>>ro", "borogk>>"), "put the red ball next to the blue ball")


# ---------------------------------------------------------------- joins


def test_and_takes_either_order_and_remembers() -> None:
    mission = "go to the red ball and go to the blue ball"
    assert judged(LINE, mission, "n ll f") == "...W"
    assert judged(LINE, mission, "ll f rr f") == ".....W"


def test_then_and_after_keep_the_order() -> None:
    for mission in (
        "go to the blue ball, then go to the red ball",
        "go to the red ball after you go to the blue ball",
    ):
        # Facing the red ball at first counts for nothing.
        assert judged(LINE, mission, "n ll f rr f") == "......W"
    for mission in (
        "go to the red ball, then go to the blue ball",
        "go to the blue ball after you go to the red ball",
    ):
        assert judged(LINE, mission, "n ll f") == "...W"


def test_both_sides_may_be_fulfilled_by_one_step() -> None:
    assert judged(LINE, "go to a ball, then go to the red ball", "n") == "W"
    assert judged(LINE, "go to a ball after you go to the red ball", "n") == "W"
    assert judged(LINE, "go to a ball and go to the red ball", "n") == "W"
    assert judged(LINE, "go to a ball and go to the red ball, then go to a red object", "n") == "W"


def test_two_pairs_in_order() -> None:
    mission = "go to the red ball and go to the blue ball, then go to the green key and go to the grey box"
    engine = laid_out(HALL, mission)
    assert face(engine, (1, 4)) == "." and face(engine, (1, 1)) == "." and face(engine, (6, 1)) == "."
    # The key was visited before its turn.
    assert face(engine, (6, 4)) == "." and face(engine, (1, 4)) == "W"


def test_faults_inside_and_are_forgiven() -> None:
    mission = "open the red door and open the blue door"
    engine = laid_out(TWO_DOORS, mission, strict=3)
    assert play(engine, "t") == "."
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "W"


def test_a_strict_first_door() -> None:
    mission = "open the red door, then open the blue door"
    engine = laid_out(TWO_DOORS, mission, strict=1)
    assert play(engine, "t t t") == "..."
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "W"
    engine = laid_out(TWO_DOORS, mission, strict=1)
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "L"


@pytest.mark.parametrize(
    "mission", ["open the red door, then open the blue door", "open the blue door after you open the red door"]
)
def test_two_strict_doors(mission: str) -> None:
    # In Minigrid, the toggle that opens the first door is a fault of the second clause: nobody can win this.
    assert judged(TWO_DOORS, mission, "t", strict=5) == "L"
    engine = laid_out(TWO_DOORS, mission, strict=5, rules="paper")
    assert play(engine, "t") == "."
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "W"
    # Later faults count under both rules.
    assert judged(TWO_DOORS, mission, "tt", strict=5, rules="paper") == ".L"


# ---------------------------------------------------------------- done actions


def test_done_must_follow_at_once() -> None:
    assert judged(LINE, "go to the blue ball", "ll f n", done=True) == "...W"
    assert judged(LINE, "go to the blue ball", "ll f l n", done=True) == "....L"
    assert judged(LINE, "go to the blue ball", "n", done=True) == "L"
    # The clause still holds after a step that changes nothing.
    assert judged(LINE, "go to the blue ball", "ll f f n", done=True) == "....W"


def test_done_right_at_the_start_comes_too_soon() -> None:
    assert judged(LINE, "go to the red ball", "n", done=True) == "L"


def test_done_after_a_deed() -> None:
    assert judged(LINE, "pick up the red ball", "pn", done=True) == ".W"
    assert judged(LINE, "pick up the red ball", "pln", done=True) == "..L"
    assert judged(TWO_DOORS, "open the red door", "tn", done=True) == ".W"
    engine = laid_out(HALL, "put the red ball next to the blue ball", done=True)
    assert carry(engine, (6, 1), (2, 1)) == "." and play(engine, "n") == "W"


def test_faults_are_not_reported_when_done_decides() -> None:
    assert judged(TWO_DOORS, "open the blue door", "t", strict=1, done=True) == "."
    assert judged(LINE, "pick up the blue ball", "p", strict=1, done=True) == "."


def test_done_inside_and_is_never_a_failure() -> None:
    mission = "go to the red ball and go to the blue ball"
    assert judged(LINE, mission, "nn ln ll f n", done=True) == "........"
    assert judged(LINE, mission, "lr n ll f n", done=True) == "......W"


def test_done_between_two_sides() -> None:
    mission = "go to the red ball, then go to the blue ball"
    # Minigrid lets the `done` that ends the first side fail the second; the paper's rules forgive it.
    assert judged(LINE, mission, "lr n", done=True) == "..L"
    assert judged(LINE, mission, "lr n ll f n", done=True, rules="paper") == "......W"
    assert judged(LINE, mission, "lr n n", done=True, rules="paper") == "...L"


# ---------------------------------------------------------------- pay and time


def test_the_reward_falls_with_every_step() -> None:
    for wait in range(5):
        engine = laid_out(LINE, "go to the blue ball")
        limit = int(engine.worlds[0].max_steps)
        play(engine, "n" * wait + "llf")
        assert engine.rewards[0] == 1 - 0.9 * ((wait + 3) / limit)
        assert engine.terminated[0] and not engine.truncated[0]


def test_the_limit_is_the_room_times_the_trips() -> None:
    area = 8 * 6
    for mission, trips in {
        "go to a ball": 1,
        "put the red ball next to the blue ball": 2,
        "go to a ball and pick up the blue ball": 2,
        "go to a ball and put the red ball next to the blue ball, then go to a ball and go to the blue ball": 5,
    }.items():
        assert laid_out(HALL, mission).worlds[0].max_steps == area * trips


def test_time_runs_out() -> None:
    engine = laid_out(LINE, "go to the blue ball")
    limit = int(engine.worlds[0].max_steps)
    assert play(engine, "n" * (limit - 1)) == "." * (limit - 1)
    assert not engine.done[0]
    assert play(engine, "n") == "."
    assert engine.done[0] and engine.truncated[0] and not engine.terminated[0] and engine.rewards[0] == 0


def test_the_last_step_still_pays() -> None:
    engine = laid_out(LINE, "go to the blue ball")
    limit = int(engine.worlds[0].max_steps)
    play(engine, "n" * (limit - 3) + "llf")
    assert engine.terminated[0] and engine.truncated[0]
    np.testing.assert_allclose(engine.rewards[0], 0.1)
