"""Objects of your own, named by an import path: `package.module:Name` or `path/to/file.py:Name`."""

import difflib
import importlib
import importlib.util
import os
import re
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any


def is_import_path(name: str) -> bool:
    """Whether this is an import path, rather than a name that babyai knows."""
    return ":" in name


def load_object(path: str, kind: str = "class") -> Any:
    """The object that an import path names. Importing it runs the module or file that it is in.

    Args:
        path: "package.module:Name" or "path/to/file.py:Name".
        kind: What is expected there, for error messages.

    Raises:
        ValueError: There is no such object.
    """
    home, _, name = path.rpartition(":")
    if not home or not name:
        raise ValueError(f"{path!r} is not an import path: 'package.module:Name' or 'path/to/file.py:Name'")
    found: Any = load_module(home)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, vars(found), n=1)
            raise ValueError(f"{home} has no {kind} {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        found = getattr(found, part)
    return found


def load_module(home: str) -> ModuleType:
    """The module or file in the first part of an import path, imported."""
    return _load_file(Path(home)) if home.endswith(".py") else _load_module(home)


def plain_module_name(name: str) -> str:
    """The name of a module as its user knows it: of one loaded from a file, the name of the file."""
    return re.sub(r"^_babyai_(.+)_[0-9a-f]{8}$", r"\1", name)


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only explain that this module, or a package it is in, is missing; not one that it imports.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"no module named {name!r}; install it, add its folder to PYTHONPATH, or name the file itself: "
            f"'path/to/file.py:Name'"
        ) from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"no such file: {path} (relative to {Path.cwd()}); run in its folder, or give its full path")
    # Files of the same name in two folders are different modules.
    name = f"_babyai_{path.stem}_{zlib.crc32(os.path.realpath(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and type hints look their module up here.
    sys.modules[name] = module
    # As with `python file.py`, the file may import others in its folder.
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent.absolute()))
    return module
