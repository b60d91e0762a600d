"""When a mission succeeds or fails: scenarios for every verb, join and special case of the judge."""

import numpy as np
import pytest

from babyai import Engine
from tests.reference import doors_of, objects_of
from tests.scenario import face, make_engine, play, verdicts

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
BLUE_DOOR = (2, 1)


# ---------------------------------------------------------------- go to


def test_go_to_succeeds_when_the_agent_faces_the_object() -> None:
    assert verdicts(LINE, "go to the blue ball", "llf") == "..W"
    assert verdicts(HALL, "go to the blue ball", "lf ") == ".."


@pytest.mark.parametrize("letter", list("fptdn"))
def test_go_to_succeeds_after_any_action(letter: str) -> None:
    assert verdicts(LINE.replace("ro", "rd"), "go to the red door", letter) == "W"


def test_nothing_is_judged_before_the_first_step() -> None:
    assert verdicts(LINE, "go to the red ball", "lr") == ".W"


def test_one_of_several_objects_is_enough() -> None:
    both = LINE.replace("bo", "ro")
    assert verdicts(both, "go to a red ball", "n") == "W"
    assert verdicts(both, "go to a red ball", "llf") == "..W"


def test_a_place_is_relative_to_the_starting_position() -> None:
    pair = """
        ############
        ##ro......##
        ##..>>....##
        ##ro......##
        ############
    """
    assert verdicts(pair, "go to the red ball on your left", "lfl") == "..W"
    assert verdicts(pair, "go to the red ball on your left", "rfr") == "..."
    assert verdicts(pair, "go to the red ball on your right", "rfr") == "..W"
    assert verdicts(pair, "go to a red ball behind you", "lfl") == "..W"
    with pytest.raises(ValueError, match="'red ball in front of you'"):
        make_engine(pair, "go to a red ball in front of you")


def test_the_old_cell_of_a_picked_up_object_still_counts() -> None:
    engine = make_engine(LINE, "go to the blue ball, then go to the red ball")
    assert play(engine, "p ll f rr") == "......"
    assert objects_of(engine.worlds[0]) == {(1, 1): "blue ball"}
    assert play(engine, "f") == "W"


def test_even_a_failed_drop_refreshes_tracked_positions() -> None:
    engine = make_engine(LINE, "go to the blue ball, then go to the red ball")
    # The blue ball blocks this drop.
    assert play(engine, "p ll f d rr f") == "........"
    assert engine.worlds[0].carrying


def test_the_cell_of_an_opened_box_counts_until_the_next_drop() -> None:
    drawing = LINE.replace("ro", "rx")
    mission = "go to the blue ball, then go to the red box"
    assert verdicts(drawing, mission, "t ll f rr f") == "......W"
    # A drop without a carried object has the same effect.
    assert verdicts(drawing, mission, "t d ll f rr f") == "........"


def test_a_dropped_object_is_tracked_in_its_new_cell() -> None:
    engine = make_engine(LINE, "go to the blue ball, then go to the red ball")
    assert play(engine, "p r d r f") == "....."
    assert objects_of(engine.worlds[0]) == {(1, 1): "blue ball", (3, 2): "red ball"}
    assert play(engine, "l f l") == "..W"


def test_an_object_dropped_on_a_tracked_cell_does_not_count() -> None:
    # The green key is dropped where the red box was, but the mission names the box.
    engine = make_engine(HALL.replace("ro", "rx"), "go to the grey box, then go to the red box")
    assert face(engine, (6, 1)) == "."
    assert play(engine, "t") == "."
    assert face(engine, (1, 4)) == "." and play(engine, "p") == "."
    assert face(engine, (6, 1)) == "." and play(engine, "d") == "."
    assert face(engine, (6, 4)) == "." and face(engine, (6, 1)) == "."
    assert objects_of(engine.worlds[0])[6, 1] == "green key"


# ---------------------------------------------------------------- pick up


def test_pick_up_succeeds_for_a_matching_object() -> None:
    assert verdicts(LINE, "pick up the red ball", "p") == "W"
    assert verdicts(LINE, "pick up the red object", "p") == "W"
    assert verdicts(LINE, "pick up the blue ball", "p") == "."


def test_pick_up_while_carrying_does_nothing() -> None:
    assert verdicts(LINE, "pick up the blue ball", "p ll f p") == "....."


def test_an_object_picked_up_too_early_must_be_dropped_first() -> None:
    engine = make_engine(LINE, "go to the blue ball, then pick up the red ball")
    assert play(engine, "p ll f p") == "....."
    assert play(engine, "l d p") == "..W"


def test_a_clause_checked_for_the_first_time_assumes_nothing_was_carried() -> None:
    # One pickup fulfills both clauses, because the second has not been checked before.
    assert verdicts(LINE, "pick up a ball, then pick up the red ball", "p") == "W"
    assert verdicts(LINE, "pick up a ball after you pick up the red ball", "p") == "W"


def test_strict_pick_up_fails_on_any_other_object() -> None:
    assert verdicts(LINE, "pick up the blue ball", "p", strict=1) == "L"
    assert verdicts(LINE, "pick up the blue ball", "llfp", strict=1) == "...W"
    # A pickup of nothing does not fail the mission.
    assert verdicts(LINE, "pick up the blue ball", "lplfp", strict=1) == "....W"


# ---------------------------------------------------------------- open


def test_open_succeeds_for_a_matching_door() -> None:
    assert verdicts(TWO_DOORS, "open the red door", "t") == "W"
    assert verdicts(TWO_DOORS, "open the blue door", "t") == "."
    assert verdicts(TWO_DOORS, "open a door", "t") == "W"


def test_an_open_door_must_be_closed_and_opened_again() -> None:
    assert verdicts(TWO_DOORS.replace("rd", "r/"), "open the red door", "tt") == ".W"
    # Walking through it does not count.
    assert verdicts(TWO_DOORS.replace("rd", "r/"), "open the red door", "fff") == "..."


def test_a_locked_door_needs_a_key_of_its_color_and_the_key_is_kept() -> None:
    locked = """
        ############
        ##rk>>rl..##
        ############
    """
    assert verdicts(locked, "open the red door", "tt") == ".."
    engine = make_engine(locked, "open the red door")
    assert play(engine, "ll p ll t") == ".....W"
    assert doors_of(engine.worlds[0]) == {(3, 1): "open red door"} and engine.worlds[0].carrying
    assert verdicts(locked.replace("rk", "bk"), "open the red door", "ll p ll t") == "......"
    assert verdicts(locked.replace("rk", "ro"), "open the red door", "ll p ll t") == "......"


def test_strict_open_fails_on_any_other_toggle_of_a_door() -> None:
    assert verdicts(TWO_DOORS, "open the blue door", "t", strict=1) == "L"
    assert verdicts(TWO_DOORS, "open the red door", "t", strict=1) == "W"
    # Closing the right door or failing to unlock it fails too; toggling a wall does not.
    assert verdicts(TWO_DOORS.replace("rd", "r/"), "open the red door", "t", strict=1) == "L"
    assert verdicts(TWO_DOORS.replace("rd", "rl"), "open the red door", "t", strict=1) == "L"
    assert verdicts(TWO_DOORS, "open the red door", "ltrt", strict=1) == "...W"


# ---------------------------------------------------------------- put next


def carry(engine: Engine, start: tuple[int, int], end: tuple[int, int]) -> str:
    """Carries the object at `start` to `end`; returns the verdict after the drop."""
    assert face(engine, start) in ("", ".") and play(engine, "p") == "."
    assert face(engine, end) in ("", ".")
    return play(engine, "d")


@pytest.mark.parametrize("end", [(2, 1), (1, 2)])
def test_put_next_succeeds_on_the_four_neighbors(end: tuple[int, int]) -> None:
    assert carry(make_engine(HALL, "put the red ball next to the blue ball"), (6, 1), end) == "W"


@pytest.mark.parametrize("end", [(2, 2), (3, 1), (1, 3), (5, 4)])
def test_put_next_fails_on_cells_that_are_not_adjacent(end: tuple[int, int]) -> None:
    assert carry(make_engine(HALL, "put the red ball next to the blue ball"), (6, 1), end) == "."


def test_moving_the_second_object_does_not_count() -> None:
    # The target is carried to the object that should be moved: they are adjacent, but the mission is not won.
    engine = make_engine(HALL, "put the red ball next to the blue ball")
    assert carry(engine, (1, 1), (5, 1)) == "."
    # Picking up the right object and dropping it again wins.
    assert carry(engine, (6, 1), (6, 1)) == "W"


def test_a_moved_target_counts_at_its_new_position() -> None:
    engine = make_engine(HALL, "put the red ball next to the blue ball")
    assert carry(engine, (1, 1), (4, 3)) == "."
    assert carry(engine, (6, 1), (2, 1)) == "."
    assert carry(engine, (2, 1), (4, 2)) == "W"


def test_an_opened_box_is_no_longer_a_target() -> None:
    engine = make_engine(HALL, "put the red ball next to the grey box")
    assert face(engine, (6, 4)) == "." and play(engine, "t") == "."
    assert carry(engine, (6, 1), (5, 4)) == "."


def test_put_next_to_a_door() -> None:
    drawing = """
        ##############
        ##ro....bd..##
        ##>>......####
        ##############
    """
    engine = make_engine(drawing, "put the red ball next to the blue door")
    assert carry(engine, (1, 1), (4, 2)) == "W"


def test_a_failed_drop_does_not_count() -> None:
    engine = make_engine(HALL, "put the red ball next to the blue ball")
    assert face(engine, (6, 1)) == "." and play(engine, "p") == "."
    assert face(engine, (1, 1)) == "." and play(engine, "d") == "."
    assert engine.worlds[0].carrying


def test_a_put_clause_first_checked_on_a_drop_does_not_count_it() -> None:
    near = """
        ############
        ##bo..gk..##
        ##....>>..##
        ##ro......##
        ############
    """
    mission = "put the red ball next to the blue ball, then put the red ball next to the green key"
    engine = make_engine(near, mission)
    # The cell (2, 1) is next to both, but the second clause was not checked before this drop.
    assert carry(engine, (1, 3), (2, 1)) == "."
    assert engine.worlds[0].first_side_done
    assert carry(engine, (2, 1), (2, 1)) == "W"


def test_a_pickup_that_completes_one_clause_counts_for_the_next() -> None:
    engine = make_engine(HALL, "pick up the red ball, then put the red ball next to the blue ball")
    assert carry(engine, (6, 1), (2, 1)) == "W"


def test_an_object_picked_up_early_can_be_dropped_when_its_clause_is_active() -> None:
    engine = make_engine(HALL, "go to the green key, then put the red ball next to the blue ball")
    assert face(engine, (6, 1)) == "." and play(engine, "p") == "."
    assert face(engine, (1, 4)) == "." and face(engine, (2, 1)) == "."
    assert play(engine, "d") == "W"


@pytest.mark.parametrize(
    "mission", ["put the red ball next to a ball", "put a ball next to the blue ball", "put a ball next to a ball"]
)
def test_an_object_cannot_be_put_next_to_itself(mission: str) -> None:
    with pytest.raises(ValueError, match="next to itself"):
        make_engine(HALL, mission)


def test_an_object_cannot_be_put_where_it_already_is() -> None:
    with pytest.raises(ValueError, match="already"):
        make_engine(LINE.replace("bo..>>ro", "borogk>>"), "put the red ball next to the blue ball")


# ---------------------------------------------------------------- joins


def test_and_accepts_either_order() -> None:
    mission = "go to the red ball and go to the blue ball"
    assert verdicts(LINE, mission, "n ll f") == "...W"
    assert verdicts(LINE, mission, "ll f rr f") == ".....W"


def test_then_and_after_require_the_order() -> None:
    for mission in (
        "go to the blue ball, then go to the red ball",
        "go to the red ball after you go to the blue ball",
    ):
        # Facing the red ball first does not count.
        assert verdicts(LINE, mission, "n ll f rr f") == "......W"
    for mission in (
        "go to the red ball, then go to the blue ball",
        "go to the blue ball after you go to the red ball",
    ):
        assert verdicts(LINE, mission, "n ll f") == "...W"


def test_one_step_can_fulfill_both_sides() -> None:
    assert verdicts(LINE, "go to a ball, then go to the red ball", "n") == "W"
    assert verdicts(LINE, "go to a ball after you go to the red ball", "n") == "W"
    assert verdicts(LINE, "go to a ball and go to the red ball", "n") == "W"
    assert verdicts(LINE, "go to a ball and go to the red ball, then go to a red object", "n") == "W"


def test_two_pairs_in_order() -> None:
    mission = "go to the red ball and go to the blue ball, then go to the green key and go to the grey box"
    engine = make_engine(HALL, mission)
    assert face(engine, (1, 4)) == "." and face(engine, (1, 1)) == "." and face(engine, (6, 1)) == "."
    # The visit to the key came too early, so it must be visited again.
    assert face(engine, (6, 4)) == "." and face(engine, (1, 4)) == "W"


def test_strict_clauses_joined_by_and_do_not_fail() -> None:
    mission = "open the red door and open the blue door"
    engine = make_engine(TWO_DOORS, mission, strict=3)
    assert play(engine, "t") == "."
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "W"


def test_a_strict_first_clause() -> None:
    mission = "open the red door, then open the blue door"
    engine = make_engine(TWO_DOORS, mission, strict=1)
    assert play(engine, "t t t") == "..."
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "W"
    engine = make_engine(TWO_DOORS, mission, strict=1)
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "L"


@pytest.mark.parametrize(
    "mission", ["open the red door, then open the blue door", "open the blue door after you open the red door"]
)
def test_two_strict_clauses_in_order(mission: str) -> None:
    # In Minigrid, the toggle that opens the first door fails the second clause, so the mission cannot be won.
    assert verdicts(TWO_DOORS, mission, "t", strict=5) == "L"
    engine = make_engine(TWO_DOORS, mission, strict=5, rules="paper")
    assert play(engine, "t") == "."
    assert face(engine, BLUE_DOOR) == "." and play(engine, "t") == "W"
    # Later mistakes fail the mission under both rule sets.
    assert verdicts(TWO_DOORS, mission, "tt", strict=5, rules="paper") == ".L"


# ---------------------------------------------------------------- done actions


def test_done_must_follow_immediately() -> None:
    assert verdicts(LINE, "go to the blue ball", "ll f n", done=True) == "...W"
    assert verdicts(LINE, "go to the blue ball", "ll f l n", done=True) == "....L"
    assert verdicts(LINE, "go to the blue ball", "n", done=True) == "L"
    # The clause is still fulfilled after a step that changes nothing.
    assert verdicts(LINE, "go to the blue ball", "ll f f n", done=True) == "....W"


def test_done_as_the_first_action_fails() -> None:
    assert verdicts(LINE, "go to the red ball", "n", done=True) == "L"


def test_done_after_pick_up_open_and_put_next() -> None:
    assert verdicts(LINE, "pick up the red ball", "pn", done=True) == ".W"
    assert verdicts(LINE, "pick up the red ball", "pln", done=True) == "..L"
    assert verdicts(TWO_DOORS, "open the red door", "tn", done=True) == ".W"
    engine = make_engine(HALL, "put the red ball next to the blue ball", done=True)
    assert carry(engine, (6, 1), (2, 1)) == "." and play(engine, "n") == "W"


def test_strict_clauses_do_not_fail_with_done_actions() -> None:
    assert verdicts(TWO_DOORS, "open the blue door", "t", strict=1, done=True) == "."
    assert verdicts(LINE, "pick up the blue ball", "p", strict=1, done=True) == "."


def test_done_never_fails_clauses_joined_by_and() -> None:
    mission = "go to the red ball and go to the blue ball"
    assert verdicts(LINE, mission, "nn ln ll f n", done=True) == "........"
    assert verdicts(LINE, mission, "lr n ll f n", done=True) == "......W"


def test_done_between_two_sides() -> None:
    mission = "go to the red ball, then go to the blue ball"
    # In Minigrid, the `done` that completes the first side fails the second; under the paper's rules it does not.
    assert verdicts(LINE, mission, "lr n", done=True) == "..L"
    assert verdicts(LINE, mission, "lr n ll f n", done=True, rules="paper") == "......W"
    assert verdicts(LINE, mission, "lr n n", done=True, rules="paper") == "...L"


# ---------------------------------------------------------------- reward and time limit


def test_the_reward_decreases_with_every_step() -> None:
    for wait in range(5):
        engine = make_engine(LINE, "go to the blue ball")
        limit = int(engine.worlds[0].max_steps)
        play(engine, "n" * wait + "llf")
        assert engine.rewards[0] == 1 - 0.9 * ((wait + 3) / limit)
        assert engine.terminated[0] and not engine.truncated[0]


def test_the_time_limit_is_the_area_times_the_trips() -> None:
    area = 8 * 6
    for mission, trips in {
        "go to a ball": 1,
        "put the red ball next to the blue ball": 2,
        "go to a ball and pick up the blue ball": 2,
        "go to a ball and put the red ball next to the blue ball, then go to a ball and go to the blue ball": 5,
    }.items():
        assert make_engine(HALL, mission).worlds[0].max_steps == area * trips


def test_the_episode_is_truncated_at_the_time_limit() -> None:
    engine = make_engine(LINE, "go to the blue ball")
    limit = int(engine.worlds[0].max_steps)
    assert play(engine, "n" * (limit - 1)) == "." * (limit - 1)
    assert not engine.done[0]
    assert play(engine, "n") == "."
    assert engine.done[0] and engine.truncated[0] and not engine.terminated[0] and engine.rewards[0] == 0


def test_success_on_the_last_step_is_rewarded() -> None:
    engine = make_engine(LINE, "go to the blue ball")
    limit = int(engine.worlds[0].max_steps)
    play(engine, "n" * (limit - 3) + "llf")
    assert engine.terminated[0] and engine.truncated[0]
    np.testing.assert_allclose(engine.rewards[0], 0.1)
