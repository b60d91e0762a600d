"""What actions did: each sentence, and the effect in random play."""

import numpy as np
import pytest

from babyai.engine import Engine
from babyai.text.effect import NOTHING, describe_effect, has_effect
from babyai.world.codes import BLUE, BOX, EMPTY, GREEN, KEY, MARKED, cell_of
from babyai.world.state import index_of
from tests.scale import scaled
from tests.scenario import actions_of, make_engine

ROOM = """
    ############
    ##>>rk..ro##
    ##bd##rl####
    ##..bxgx..##
    ############
"""


def effects(engine: Engine, letters: str) -> list[str]:
    """The sentence for each action; see `tests.scenario`."""
    sentences = []
    for action in actions_of(letters):
        before = engine.worlds.copy()
        engine.step([action])
        sentences.append(describe_effect(before[0], action, engine.worlds[0]))
    return sentences


def test_moving_and_carrying() -> None:
    assert effects(make_engine(ROOM, "go to a box"), "dfppfdldrrlffp") == [
        "Nothing happened: you carry nothing.",
        "Nothing happened: a red key is ahead.",
        "You picked up the red key.",
        "Nothing happened: you already carry a red key.",
        "You moved forward.",
        "You dropped the red key.",
        "You turned left.",
        "Nothing happened: you carry nothing.",
        "You turned right.",
        "You turned right.",
        "You turned left.",
        "Nothing happened: a red key is ahead.",
        "Nothing happened: a red key is ahead.",
        "You picked up the red key.",
    ]


def test_what_cannot_be_picked_up_dropped_or_toggled() -> None:
    assert effects(make_engine(ROOM, "go to a box"), "tpldtprptrp") == [
        "Nothing happened: a red key cannot be toggled.",
        "You picked up the red key.",
        "You turned left.",
        "Nothing happened: a wall is ahead, and things can only be dropped into an empty cell.",
        "Nothing happened: a wall cannot be toggled.",
        "Nothing happened: you already carry a red key.",
        "You turned right.",
        "Nothing happened: you already carry a red key.",
        "Nothing happened: there is nothing ahead to toggle.",
        "You turned right.",
        "Nothing happened: you already carry a red key.",
    ]
    assert effects(make_engine(ROOM, "go to a box"), "lprrprtfp")[1::3] == [
        "Nothing happened: a wall cannot be picked up.",
        "Nothing happened: a closed blue door cannot be picked up.",
        "Nothing happened: a wall is ahead.",
    ]
    engine = make_engine(ROOM, "go to a box")
    engine.worlds.cells[0, index_of(2, 1)] = EMPTY
    assert effects(engine, "p") == ["Nothing happened: there is nothing ahead to pick up."]


def test_doors() -> None:
    engine = make_engine(ROOM, "go to a box")
    assert effects(engine, "rtttff") == [
        "You turned right.",
        "You opened the blue door.",
        "You closed the blue door.",
        "You opened the blue door.",
        "You moved forward.",
        "You moved forward.",
    ]
    engine = make_engine(ROOM, "go to a box")
    engine.worlds.cells[0, index_of(2, 1)] = EMPTY
    assert effects(engine, "ffrt")[-1] == "Nothing happened: the red door is locked, and you do not carry a red key."
    assert effects(make_engine(ROOM, "go to a box"), "pffrtt")[-2:] == [
        "You unlocked and opened the red door.",
        "You closed the red door.",
    ]


def test_boxes() -> None:
    engine = make_engine(ROOM, "go to the red ball")
    world = engine.worlds[0]
    world.cells[index_of(3, 3)] = cell_of(BOX, GREEN) | MARKED
    world.hidden = cell_of(KEY, BLUE)
    assert effects(engine, "rtffltft")[-3:] == [
        "You opened the blue box. It was empty, and the box is gone.",
        "You moved forward.",
        "You opened the green box. There was a blue key in it, and the box is gone.",
    ]


def test_done() -> None:
    assert effects(make_engine(ROOM, "go to a box"), "n") == ["Nothing happened."]
    assert effects(make_engine(ROOM, "go to a box", done=True), "n") == ["You said that you are done."]


@pytest.mark.parametrize("level", ["BossLevel", "KeyInBox", "UnblockPickup"])
def test_nothing_happened_is_said_where_nothing_changed(level: str) -> None:
    engine = Engine(level, 16)
    engine.reset(0)
    said = set()
    for actions in np.random.default_rng(0).integers(7, size=(scaled(200, 20), 16)):
        before = engine.worlds.copy()
        engine.step(actions)
        for i in range(16):
            sentence = describe_effect(before[i], int(actions[i]), engine.worlds[i])
            assert sentence.startswith(NOTHING) == (not has_effect(before[i], engine.worlds[i]))
            said.add(sentence)
        engine.reset_done()
    assert len(said) > scaled(20, 5)
