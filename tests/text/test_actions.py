"""Names of actions, and reading of answers: every clause of the rule."""

import numpy as np
import pytest

from babyai.text.actions import ACTION_MEANINGS, ACTION_NAMES, list_actions, read_action
from babyai.world.codes import Action


def test_every_action_has_a_name_and_a_meaning() -> None:
    assert list_actions() == ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]
    assert list_actions(done=True) == list(ACTION_NAMES.values()) and len(ACTION_NAMES) == len(Action)
    assert [line.partition(": ")[0] for line in list_actions(done=True, meanings=True)] == list(ACTION_NAMES.values())
    assert all(ACTION_MEANINGS[action] for action in Action)


@pytest.mark.parametrize("action", Action)
def test_names_and_numbers_are_read_in_any_spelling(action: Action) -> None:
    name = ACTION_NAMES[action]
    spellings = [
        name,
        name.upper(),
        name.replace(" ", "_"),
        name.title().replace(" ", ""),
        f" '{name}'.\n",
        f"**{name}**",
    ]
    spellings += [action.name, str(action.value), f"({action.value})", f"- {action.value}."]
    spellings += [f"Action: {each}" for each in (name, action.name, action.value)]
    spellings += [f"I have to think.\n\nAction: {name}.", f'{{"thought": "go forward?", "action": "{name}"}}']
    spellings += [f"<action>{name}</action>", f"Action 0: {name}", f"The answer = {name}", f"Action:\n{name}\nBecause."]
    assert [read_action(each) for each in spellings] == [action] * len(spellings)
    assert read_action(action) is read_action(int(action)) is read_action(np.int64(action)) is action


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("I will move forward.", Action.forward),
        ("Let us walk straight ahead", Action.forward),
        ("Turning to the left now", Action.left),
        ("The ball is 1 step forward and 2 steps right, so I turn right", Action.right),
        ("The key is 1 step forward: picking up", Action.pickup),
        ("I pick it up", Action.pickup),
        ("1. drop the red ball", Action.drop),
        ("go ahead and toggle", Action.toggle),
        # The last line that names an action, the last label, the last tag.
        ("I could turn left.\nNo: go forward.\nThat should do.", Action.forward),
        ("Action: turn left\nWait. Action: turn right", Action.right),
        ("Action: drop\n<action>toggle</action>, rather than turn left", Action.toggle),
    ],
)
def test_actions_in_sentences(answer: str, action: Action) -> None:
    assert read_action(answer) is action


@pytest.mark.parametrize(
    "answer",
    [
        *("", "   ", "jump", "I do not know.", "7", "-1", "1.5", "12", "0 1"),
        # More than one action, or a word that also occurs in other sentences.
        *("turn left, then go forward", "go forward to pick up the ball", "the ball is left", "I am done"),
        # What is marked as the action counts, not what surrounds it.
        *("turn left\nAction: jump", "<action>fly</action> or turn left", "Action:"),
        *(-1, 7, np.int64(9)),
    ],
)
def test_unreadable_answers(answer: object) -> None:
    assert read_action(answer) is None


@pytest.mark.parametrize("answer", [None, True, 2.0, ["turn left"], b"turn left"])
def test_what_is_neither_text_nor_integer_is_an_error(answer: object) -> None:
    with pytest.raises(TypeError, match=r"'go forward'.*not "):
        read_action(answer)
