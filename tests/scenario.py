"""Small stories for tests: a drawing, an instruction, some actions, and what the judge said after each of them."""

from babyai import Engine
from babyai.world.codes import Action
from tests.reference import Position, way_to_face

LETTERS = {"l": "left", "r": "right", "f": "forward", "p": "pickup", "d": "drop", "t": "toggle", "n": "done"}
GOES_ON, WON, LOST = ".", "W", "L"


def actions_of(letters: str) -> list[Action]:
    """The actions that a word such as "ffp" stands for: the first letter of each, and n for done."""
    return [Action[LETTERS[letter]] for letter in letters if letter != " "]


def laid_out(drawing: str, mission: str, *, rules: str = "minigrid", strict: int = 0, done: bool = False) -> Engine:
    """An engine of one world, as drawn; `strict` has a bit for each clause that a wrong deed fails."""
    engine = Engine("GoToObj", rules=rules, done_actions=done)
    engine.lay_out(0, drawing, mission)
    engine.worlds[0].strict = strict
    return engine


def play(engine: Engine, letters: str | list[Action]) -> str:
    """What the judge says after each action, up to the end of the episode."""
    verdicts = ""
    for action in actions_of(letters) if isinstance(letters, str) else letters:
        engine.step([action])
        verdicts += (WON if engine.rewards[0] > 0 else LOST) if engine.terminated[0] else GOES_ON
        if engine.done[0]:
            break
    return verdicts


def judged(drawing: str, mission: str, letters: str, **options) -> str:
    """Like `play`, in a world just drawn."""
    return play(laid_out(drawing, mission, **options), letters)


def face(engine: Engine, place: Position) -> str:
    """Walks up to a cell and faces it; returns the last verdict ("" if there was nothing to do)."""
    way = way_to_face(engine.worlds[0], place)
    assert way is not None, f"there is no way to {place}"
    return play(engine, way)[-1:]
