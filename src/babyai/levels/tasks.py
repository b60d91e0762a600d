"""One line per level that says what the agent is asked to do, built from the recipe and the settings of the level."""

from typing import TYPE_CHECKING

from babyai.world.codes import BLUE, RED

if TYPE_CHECKING:
    from babyai.levels.catalog import Level

# By recipe; "{any}" is "one of 8 objects" or "the only object", "{n}" the number of objects, "{extra}" "3 distractors".
_TASKS = {
    "go_to_red_ball": "go to a red ball in a single room with {extra}",
    "go_to_object": "go to the only object in a single room",
    "go_to_local": "go to {any} in a single room",
    "go_to_maze": "go to {any} in a maze with closed doors",
    "go_to_red_blue_ball": "go to the only red or blue ball in a single room with {extra}",
    "go_to_door": "go to one of the four doors of a room",
    "go_to_object_or_door": "go to one of the 8 objects and 4 doors of a room",
    "open_maze": "open a door in a maze",
    "open_red_door": "open the red door",
    "open_one_door": "open one of four doors, named by its color or location",
    "open_two_doors": "open two doors in the given order",
    "open_doors_in_order": "open one of {n} doors, or two of them in the given order",
    "pick_up_maze": "pick up {any} in a maze",
    "pick_up_distinct": "pick up one of 5 objects, named by its kind, color or both",
    "pick_up_above": "pick up the object in the room above",
    "one_room": "pick up the ball in a single room",
    "find_object": "find and pick up the only object in a maze",
    "act_on_object_or_door": "go to, pick up or open one of the 5 objects and 4 doors of a room",
    "put_next_local": "put one of {n} objects in a single room next to another",
    "put_next_maze": "put one of {n} objects in a maze next to another",
    "put_next_across": "put an object next to one in the other half of the room; {n} per half",
    "move_two_across": "put an object next to one in the other half of the room, then another one the other way",
    "go_to_behind_locked_door": "go to an object in a locked room, after finding the key",
    "unlock": "open a locked door, after finding the key",
    "unlock_local": "open a locked door with the key in the same room; {extra}",
    "key_in_box": "open a locked door with the key hidden in a box",
    "unlock_pickup": "pick up the box behind a locked door; {extra}",
    "unlock_to_unlock": "pick up the ball behind a locked door whose key is behind another locked door",
    "key_corridor": "pick up the ball in a locked room off a corridor, after finding the key",
    "go_to_blocked": "go to a ball in a corner blocked by other balls",
    "put_next_to_blocked": "put a ball next to one in a blocked corner",
    "put_next_close_to_closed_door": "put a ball next to one behind a door",
    "put_next_to_identical": "put a ball next to a box, then the box next to a ball",
    "unblocking_loop": "put a key next to a door, then go to a ball and a box",
    "put_next_close_to_door": "put a box next to a ball in a crowded doorway",
    "lots_of_blockers": "put a ball next to one behind many boxes",
}
_VARIANT_TASKS = {
    ("go_to_red_ball", 1): "go to the red ball in a single room with {n} grey distractors",
    ("go_to_maze", 1): "go to {any} in a maze with open doors",
    ("open_one_door", 1): "open one of four doors, named by its color",
    ("open_one_door", 2): "open one of four doors, named by its location",
    ("pick_up_maze", 1): "pick up {any} in a maze, moving objects that block the way",
    ("unlock_pickup", 1): "pick up the box behind a locked door that a ball blocks",
    ("put_next_close_to_closed_door", 1): "open a door, then put a ball next to one behind it",
}
_STRICT_TASKS = {
    "open_one_door": "; a wrong door fails",
    "open_two_doors": "; a wrong first door fails",
    "open_doors_in_order": "; a wrong door fails",
    "pick_up_distinct": "; a wrong object fails",
}
_VERB_TASKS = {
    "go to": "go to an object or door",
    "pick up": "pick up an object",
    "open": "open a door",
    "put next": "put an object next to another",
}


def describe_task(level: "Level") -> str:
    """Returns what the agent is asked to do; for a custom recipe, the first line of its docstring."""
    if callable(level.recipe):
        return (level.recipe.__doc__ or "").strip().partition("\n")[0]
    if level.recipe == "random_level":
        return _describe_random_task(level)
    template = _VARIANT_TASKS.get((level.recipe, level.variant), _TASKS.get(level.recipe, ""))
    if level.recipe == "open_two_doors" and level.colors == (RED, BLUE):
        template = "open the red door, then the blue door"
    any_object = "the only object" if level.objects == 1 else f"one of {level.objects} objects"
    distractors = f"{level.objects or 'no'} distractors"
    task = template.format(any=any_object, n=level.objects, extra=distractors)
    if level.strict:
        task += _STRICT_TASKS.get(level.recipe, "")
    return task + "; starts carrying it" * level.carrying


def _describe_random_task(level: "Level") -> str:
    where = "a single room" if level.rows * level.columns == 1 else "a maze"
    is_sequence = len(level.joins) > 1
    if len(level.verbs) == 1:
        task = f"{_VERB_TASKS[level.verbs[0]]} in {where}" + ", up to four in sequence" * is_sequence
        task += ", named by kind, color or location" * level.locations
    else:
        kind = "" if len(level.verbs) == len(_VERB_TASKS) else f" ({', '.join(level.verbs)})"
        task = f"follow {'up to four instructions' if is_sequence else 'one instruction'}{kind} in {where}"
        task += ", with locations" * level.locations
    if level.locked_room:
        task += "; may need to unlock a room" if level.implicit_unlock else "; a room may be locked"
    return task
