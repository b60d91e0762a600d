"""Scenarios for tests: a drawn world, a mission, some actions, and the judge's verdict after each action."""

from babyai import Engine
from babyai.world.codes import Action
from tests.reference import Position, path_to_face

LETTERS = {"l": "left", "r": "right", "f": "forward", "p": "pickup", "d": "drop", "t": "toggle", "n": "done"}
ONGOING, WON, LOST = ".", "W", "L"


def actions_of(letters: str) -> list[Action]:
    """Returns the actions for a string such as "ffp": the first letter of each action, and n for done."""
    return [Action[LETTERS[letter]] for letter in letters if letter != " "]


def make_engine(drawing: str, mission: str, *, rules: str = "minigrid", strict: int = 0, done: bool = False) -> Engine:
    """Returns an engine with one world, as drawn; bit k of `strict` makes clause k strict."""
    engine = Engine("GoToObj", rules=rules, done_actions=done)
    engine.lay_out(0, drawing, mission)
    engine.worlds[0].strict = strict
    return engine


def play(engine: Engine, letters: str | list[Action]) -> str:
    """Plays actions until the episode ends; returns the verdict after each of them."""
    result = ""
    for action in actions_of(letters) if isinstance(letters, str) else letters:
        engine.step([action])
        result += (WON if engine.rewards[0] > 0 else LOST) if engine.terminated[0] else ONGOING
        if engine.done[0]:
            break
    return result


def verdicts(drawing: str, mission: str, letters: str, **options) -> str:
    """Like `play`, in a newly drawn world."""
    return play(make_engine(drawing, mission, **options), letters)


def face(engine: Engine, place: Position) -> str:
    """Walks to a cell and faces it; returns the last verdict ("" if no action was needed)."""
    path = path_to_face(engine.worlds[0], place)
    assert path is not None, f"there is no path to {place}"
    return play(engine, path)[-1:]
