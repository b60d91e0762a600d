"""Levels of your own on the command line: `file.py:Level` or `package.module:Level`.

Only commands and training options call this. Names of levels in files, such as demonstrations, are never import paths:
reading a file must not run code.
"""

import difflib
import functools
import os
from types import ModuleType

from babyai.envs.registration import register_level
from babyai.import_path import is_import_path, load_module
from babyai.levels.catalog import LEVELS, PAPER_LEVELS, Level, Rules, find_level

# The name of the paper's nineteen levels together.
ALL_LEVELS = "all"


def load_levels(names: str, rules: Rules = "paper") -> list[Level]:
    """The levels in a list separated by commas, each by its name or by its import path.

    Args:
        names: Such as "GoToLocal" or "GoToLocal,my_levels.py:BallBehindDoor"; "all" for the paper's nineteen.
        rules: The rule set.
    """
    if is_all(names):
        return [find_level(name, rules) for name in PAPER_LEVELS]
    return [load_level(name.strip(), rules) for name in names.split(",")]


def is_all(names: str) -> bool:
    """Whether this is not a list of levels, but "all"."""
    return names.strip().lower() == ALL_LEVELS


def load_level(name: str, rules: Rules = "paper") -> Level:
    """The level with this name or import path. One of your own is registered, so that its name works from then on.

    Args:
        name: Name of a level, or "path/to/file.py:Level" or "package.module:Level", whose code is run. The part after
            the colon is a variable that holds a `babyai.Level`, or the name of a level that the file registers.
        rules: The rule set.

    Raises:
        ValueError: There is no such level.
    """
    if not is_import_path(name):
        return find_level(name, rules)
    home, _, wanted = name.rpartition(":")
    if not home or not wanted:
        raise ValueError(
            f"{name!r} is not the import path of a level: 'path/to/file.py:Level' or 'package.module:Level'"
        )
    module, registered = _run(os.path.abspath(home) if home.endswith(".py") else home)
    found = getattr(module, wanted, registered.get(wanted))
    if found is None:
        known = [*registered, *(key for key, value in vars(module).items() if isinstance(value, Level))]
        near = difflib.get_close_matches(wanted, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"its levels are: {', '.join(known) or 'none'}"
        raise ValueError(f"{home} has no level {wanted!r}; {hint}")
    if not isinstance(found, Level):
        raise ValueError(
            f"{wanted} in {home} is not a babyai.Level, but {_describe(found)}; "
            f"a level is a recipe with settings, such as babyai.Level('MyLevel', my_recipe, rows=1, columns=2)"
        )
    return register_level(found)


# Once per process: each import would compile the recipe again.
@functools.cache
def _run(home: str) -> tuple[ModuleType, dict[str, Level]]:
    """A module or file, imported, and the levels that it registers."""
    before = dict(LEVELS)
    module = load_module(home)
    return module, {name: level for name, level in LEVELS.items() if before.get(name) is not level}


def _describe(found: object) -> str:
    if callable(found) and not isinstance(found, type):
        return "a function"
    return f"a {type(found).__name__}" if not isinstance(found, type) else f"the class {found.__name__}"
