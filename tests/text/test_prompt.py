"""Prompts of both wordings."""

from babyai.text.actions import list_actions
from babyai.text.prompt import TextObservation, babyai_text_prompt, plain_prompt

PAST = [(["You see a wall 1 step left"], "turn left"), (["You see a red key 1 step forward"], "pick up"), ([], "drop")]


def observation(effect: str = "", past: int = 0) -> TextObservation:
    sentences = ["You see a red ball 2 steps forward", "You carry a blue key"]
    return TextObservation("go to the red ball", sentences, effect, past, 64, list_actions(), PAST[:past])


def test_the_plain_prompt() -> None:
    assert plain_prompt(observation("You turned left.", past=3)).split("\n") == [
        "Your mission: go to the red ball",
        "Step 4 of 64. You turned left.",
        "You see a red ball 2 steps forward",
        "You carry a blue key",
        "Answer with one action: turn left, turn right, go forward, pick up, drop, toggle",
    ]
    assert plain_prompt(observation()).split("\n")[1] == "Step 1 of 64."


def test_the_prompt_of_babyai_text() -> None:
    """Spaces before and after line ends, and commas after observations, as published."""
    head = (
        "Possible action of the agent: turn left, turn right, go forward, pick up, drop, toggle \n "
        "Goal of the agent: go to the red ball \n "
    )
    seen = "You see a red ball 2 steps forward, You carry a blue key, "
    assert babyai_text_prompt(observation()) == f"{head}Observation 0: {seen}\n Action 0: "
    assert babyai_text_prompt(observation(past=1)) == (
        f"{head}Observation 0: You see a wall 1 step left, \n Action 0: turn left \n Observation 1: {seen}\n Action 1: "
    )
    assert babyai_text_prompt(observation(past=3)) == (
        f"{head}Observation 0: You see a red key 1 step forward, \n Action 0: pick up \n Observation 1: \n Action 1: "
        f"drop \n Observation 2: {seen}\n Action 2: "
    )
