"""Minigrid's names that are not offered, each with a sentence that says what to use instead."""

from typing import Any

_BUILD = (
    "write a recipe for a level of your own (docs/adding-a-level.md), draw the world with "
    "reset(options={'layout': ..., 'mission': ...}), or change it with place_obj, put_obj and grid.set"
)
_DRAW = "draw from env.unwrapped.np_random, the world's generator"
_MISSION = "to give another mission, use reset(options={'mission': ...}); to read it, use instrs"
_SETTING = "env.unwrapped.level has the settings of the level"
_WINDOW = "render_mode='human' opens Gymnasium's window"

# Names that a world of Minigrid's has and ours does not.
NOT_OFFERED = {
    **dict.fromkeys(
        ("add_door", "add_object", "add_distractors", "place_in_room", "remove_wall", "connect_all"), _BUILD
    ),
    **dict.fromkeys(("_gen_grid", "gen_mission", "open_all_doors", "check_objs_reachable", "add_locked_room"), _BUILD),
    **dict.fromkeys(("rand_obj", "rand_instr", "validate_instrs", "num_navs_needed", "update_objs_poss"), _MISSION),
    **dict.fromkeys(("_rand_int", "_rand_float", "_rand_bool", "_rand_elem", "_rand_subset"), _DRAW),
    **dict.fromkeys(("_rand_color", "_rand_pos"), _DRAW),
    **dict.fromkeys(("num_dists", "num_objs", "objs_per_room", "num_doors", "distractors", "start_carrying"), _SETTING),
    **dict.fromkeys(
        ("doors_open", "debug", "strict", "select_by", "first_color", "second_color", "obj_type"), _SETTING
    ),
    **dict.fromkeys(("locked_room", "locked_room_prob", "locations", "unblocking", "implicit_unlock"), _SETTING),
    **dict.fromkeys(("action_kinds", "instr_kinds"), _SETTING),
    **dict.fromkeys(("window", "clock", "render_size"), _WINDOW),
    "np_random": "the worlds of a vector environment have no NumPy generator; use a single environment's, or your own",
    "_reward": "the reward of success is 1 - 0.9 * step_count / max_steps; wrap the environment to change it",
    "reward_range": "rewards are between 0 and 1",
    "level_name": "use env.unwrapped.level.name",
    "gym_id": "use env.unwrapped.level.id",
    "surface": "use env.unwrapped.mission",
    "fixed_max_steps": "whether env.unwrapped.level.max_steps is not 0",
}
# Names that can be read but not set, because they are decided when the environment is made.
READ_ONLY = {
    "see_through_walls": "walls and closed doors always block the view; use observation='full' to see the whole grid",
    "agent_view_size": "make the environment with view_size=...",
    "room_size": "make the environment with room_size=...",
    "num_rows": "make the environment with num_rows=...",
    "num_cols": "make the environment with num_cols=...",
    "width": "make the environment with room_size=... and num_cols=..., or draw the world as a layout",
    "height": "make the environment with room_size=... and num_rows=..., or draw the world as a layout",
    "grid": _BUILD,
    "room_grid": _BUILD,
    "instrs": "give another mission with reset(options={'mission': ...})",
    "dir_vec": "set agent_dir",
    "right_vec": "set agent_dir",
    "front_pos": "set agent_pos and agent_dir",
    "steps_remaining": "set max_steps",
    "actions": "wrap the environment to change its actions",
    "level": "make another environment",
    "rules": "make another environment",
}
# Methods that Minigrid calls on a subclass, and ours never does.
_NEVER_CALLED = ("_gen_grid", "gen_mission", "_reward", "validate_instrs", "num_navs_needed", "gen_obs_grid")


def refuse_overrides(cls: type[Any]) -> None:
    """Raises a TypeError for a subclass with a method that Minigrid would call and the compiled world never does."""
    for name in _NEVER_CALLED:
        if name in vars(cls):
            reason = NOT_OFFERED.get(name, "wrap the environment instead")
            raise TypeError(f"{cls.__name__}.{name} would never be called, because the world is compiled; {reason}")
