"""Writes the tables of these pages that follow from the code: `python docs/tables.py`.

A table stands between two comments, `<!-- name: begin -->` and `<!-- name: end -->`. `tests/test_docs.py` checks that
running this would change nothing.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from babyai.levels.catalog import JOINS, LEVELS, PAPER_LEVELS, VERBS, Level
from babyai.world.codes import BLUE, RED, VOCABULARY
from babyai.world.state import WORLD

DOCS = Path(__file__).parent

# What the missions of a recipe ask for; "{n}" stands for the level's number of objects.
ASKS = {
    "go_to_red_ball": "go to a red ball, among {n} other objects",
    "go_to_object": "go to the one object there is",
    "go_to_local": "go to one of {n} objects",
    "go_to_maze": "go to one of {n} objects in the maze, all doors closed",
    "go_to_red_blue_ball": "go to the only ball that is red or blue, among {n} other objects",
    "go_to_door": "go to one of the four doors of the agent's room",
    "go_to_object_or_door": "go to one of the 8 objects and 4 doors of the agent's room",
    "open_maze": "open a door of the maze",
    "open_red_door": "open the red door",
    "open_one_door": "open one of four doors, named by its color or by where it is",
    "open_two_doors": "open the door on one side of the room, then the one on the other",
    "open_doors_in_order": "open one of {n} doors, or two of them in order",
    "pick_up_maze": "pick up one of {n} objects in the maze",
    "pick_up_distinct": "pick up one of five objects, named by its kind, its color, or both",
    "pick_up_above": "pick up the object in the room above",
    "one_room": "pick up the ball",
    "find_object": "pick up the object that lies in one of the nine rooms",
    "act_on_object_or_door": "go to, pick up or open one of the 5 objects and 4 doors of the agent's room",
    "put_next_local": "put one of {n} objects next to another",
    "put_next_maze": "put one of {n} objects in the maze next to another",
    "put_next_across": "put an object of one half of the room next to one of the other half; {n} objects in each",
    "move_two_across": "put an object next to one of the other half, then one from there next to one of this half",
    "go_to_behind_locked_door": "go to an object in the locked room, whose key lies elsewhere",
    "unlock": "open the locked door, whose key lies elsewhere",
    "unlock_local": "open the locked door with the key in the same room",
    "key_in_box": "open the locked door with the key that is hidden in a box",
    "unlock_pickup": "pick up the box behind a locked door",
    "unlock_to_unlock": "pick up the ball behind a locked door whose key lies behind another locked door",
    "key_corridor": "pick up the ball in a locked room off the corridor",
    "go_to_blocked": "go to a ball in a corner that others block",
    "put_next_to_blocked": "put a ball next to one in a blocked corner",
    "put_next_close_to_closed_door": "put a ball next to one that lies behind a door",
    "put_next_to_identical": "put a ball next to a box, then the box next to a ball",
    "unblocking_loop": "put a key next to a door, then go to a ball and a box",
    "put_next_close_to_door": "put a box next to a ball in a crowded doorway",
    "lots_of_blockers": "put a ball next to another behind many boxes",
}
# What the variants of a recipe add.
VARIANTS = {
    ("go_to_red_ball", 1): ", all of them grey",
    ("pick_up_maze", 1): "; something lies out of reach until the way is cleared",
    ("put_next_close_to_closed_door", 1): ", having opened that door",
    ("unlock_pickup", 1): ", with a ball in the way",
}
# What strict levels add.
STRICT = {
    "open_one_door": "; a wrong door fails",
    "open_two_doors": "; a wrong door first fails",
    "open_doors_in_order": "; a wrong door fails",
    "pick_up_distinct": "; a wrong object fails",
}
ASKS_BY_VARIANT = {
    ("go_to_maze", 1): "go to one of {n} objects in the maze, all doors open",
    ("open_one_door", 1): "open one of four doors, named by its color",
    ("open_one_door", 2): "open one of four doors, named by where it is",
}


def what_it_asks(level: Level) -> str:
    """One line on the missions of a level."""
    if level.recipe == "random_level":
        return _what_random_missions_ask(level)
    at = str(level.recipe), level.variant
    text = ASKS_BY_VARIANT.get(at, ASKS[at[0]] + VARIANTS.get(at, "")).format(n=level.objects)
    text = (
        text.replace("one of 1 objects", "the one object")
        .replace(", among 0 other objects", "")
        .replace("; 1 objects", "; 1 object")
    )
    if level.recipe in ("unlock_local", "unlock_pickup") and level.objects:
        text += f", among {level.objects} other objects"
    if level.colors == (RED, BLUE):
        text = "open the red door, then the blue one"
    if level.strict:
        text += STRICT[at[0]]
    return text + "; the agent starts with the object in hand" * level.carrying


def _what_random_missions_ask(level: Level) -> str:
    anything = len(level.verbs) == len(VERBS)
    text = "any clause" if anything else f"{' or '.join(level.verbs)} something"
    if level.joins == JOINS:
        text += ", two joined by *and*, or up to four in order"
    text += f"; {level.objects} objects"
    if level.locations:
        text += ", places (*on your left*)"
    if level.locked_room:
        text += f", a locked room in {level.locked_room:.0%} of the worlds"
        text += "" if level.implicit_unlock else " (no mission needs it)"
    return text


def levels_table() -> str:
    """Every level of the catalog; the paper's in bold."""
    rows = []
    for level in LEVELS.values():
        per_trip = level.room_size**2 * level.rows * level.columns
        name = f"**{level.name}**" if level.name in PAPER_LEVELS else level.name
        rooms = f"{level.rows}×{level.columns} of {level.room_size}"
        limit = str(level.max_steps) if level.max_steps else f"{per_trip} a trip"
        rows.append([name, rooms, f"{level.width}×{level.height}", limit, what_it_asks(level)])
    return markdown_table(["level", "rooms", "cells", "steps", "what it asks"], rows)


def vocabulary_table() -> str:
    """Every word with its token id."""
    words = [f"{token} {word or '(padding)'}" for token, word in enumerate(VOCABULARY)]
    return markdown_table([""] * 11, [words[k : k + 11] for k in range(0, len(words), 11)])


def record_table() -> str:
    """The fields of a world's record."""
    rows = []
    for name in WORLD.names or ():
        dtype, offset = (WORLD.fields or {})[name][:2]
        kind = dtype.base.name + (f"[{dtype.shape[0]}]" if dtype.shape else "")
        rows.append([str(offset), f"`{name}`", kind, FIELDS[name]])
    return markdown_table(["byte", "field", "type", "meaning"], rows)


FIELDS = {
    "rng_high": "PCG64 state, upper half",
    "rng_low": "PCG64 state, lower half",
    "rng_inc_high": "PCG64 increment, upper half",
    "rng_inc_low": "PCG64 increment, lower half",
    "seed": "the last seed this world was given",
    "rng_spare": "the buffered half of the last 64-bit output",
    "step_count": "steps taken in this episode",
    "max_steps": "the time limit of this episode",
    "level": "number in the engine's list of levels",
    "rng_has_spare": "whether `rng_spare` is still to be used",
    "status": "0 never reset, 1 running, 2 over",
    "options": "bit 0 lenient (rules of the paper), bit 1 done actions",
    "agent_dir": "0 right, 1 down, 2 left, 3 up",
    "agent": "flat index of the agent's cell",
    "carrying": "cell byte of what is in hand, or 0",
    "carried_tracks": "track bits of what is in hand",
    "width": "cells of the grid, across",
    "height": "cells of the grid, down",
    "room_width": "cells of a room with both walls, across",
    "room_height": "cells of a room with both walls, down",
    "hidden": "cell byte of what the marked box holds",
    "stale": "whether tracks show places that objects have left",
    "first_side_done": "whether the side that comes first has been carried out",
    "clauses_done": "one bit a clause: done (of two joined by *and*)",
    "clauses_checked": "one bit a clause: looked at since the episode began",
    "clauses_matched": "one bit a clause: fulfilled on the last step (done actions)",
    "order": "0 one side, 1 *then*, 2 *after you*",
    "strict": "one bit a clause: a wrong toggle or pickup fails",
    "definite": "one bit a descriptor: *the* rather than *a*",
    "verbs": "of each clause: 0 none, 1 go to, 2 pick up, 3 open, 4 put next",
    "nouns": "of each descriptor: its kind, 0 for *object*",
    "colors": "of each descriptor: its color, 6 for any",
    "places": "of each descriptor: 0 anywhere, 1 left, 2 right, 3 front, 4 behind",
    "tracks": "one bit a descriptor where it knows one of its objects to be",
    "cells": "the grid with its margin of wall",
    "unused": "rounds the record up to whole words",
}


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; short rows are filled up."""
    lines = [titles, ["---"] * len(titles), *([*row, *[""] * (len(titles) - len(row))] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "levels": ("levels.md", levels_table),
    "vocabulary": ("language.md", vocabulary_table),
    "record": ("architecture.md", record_table),
}


def with_table(page: str, name: str, table: str) -> str:
    """The text of a page with a table put between its two comments."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, rest = page.split(begin)
    return f"{head}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"


if __name__ == "__main__":
    for name, (file, make) in TABLES.items():
        path = DOCS / file
        path.write_text(with_table(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")
