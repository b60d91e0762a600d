"""The runs below a folder: which there are, what they are, and that no name leads out of the folder."""

import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from babyai.web.run_log import open_regular

CONFIG = "config.json"
METRICS = "metrics.jsonl"
# How deep runs may lie below the folder, how many are listed, and how many folders are looked at.
MAX_DEPTH = 4
MAX_RUNS = 500
MAX_FOLDERS = 5000
MAX_CONFIG = 2**20
PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,+=@-]{0,150}")
# The name of a run in the folder itself.
ROOT = "."
# Options that the list shows.
SHOWN = ("levels", "architecture", "size", "seed")


def list_runs(root: Path) -> list[dict[str, Any]]:
    """The runs below a folder, those that were written last first."""
    runs = [_describe(path, name) for name, path in _iter_runs(root)]
    return sorted(runs, key=lambda run: (-run["changed"], run["name"]))


def find_run(root: Path, name: Any) -> Path:
    """The folder of a run; its name is its path below the root, and cannot lead out of it.

    Raises:
        ValueError: There is no such run.
    """
    if name == ROOT and _is_run(root):
        return root
    parts = name.split("/") if isinstance(name, str) and len(name) < 600 else []
    if not 0 < len(parts) <= MAX_DEPTH or not all(map(PART.fullmatch, parts)):
        raise ValueError(f"a run's name is its path below {root}; got {str(name)[:80]!r}")
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{path} leads out of the folder {root}")
    if not _is_run(path):
        raise ValueError(f"there is no run in {path}")
    return path


def _iter_runs(root: Path) -> Iterator[tuple[str, Path]]:
    """Names and folders of runs. Links are not followed when searching, because they may lead out or in a circle."""
    if _is_run(root):
        yield ROOT, root
    pending: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    found = 0
    looked_at = 0
    while pending and found < MAX_RUNS and looked_at < MAX_FOLDERS:
        folder, parts = pending.pop(0)
        for entry in _list_folders(folder):
            looked_at += 1
            path = folder / entry
            names = (*parts, entry)
            if _is_run(path):
                found += 1
                yield "/".join(names), path
            elif len(names) < MAX_DEPTH:
                pending.append((path, names))


def _list_folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(name for name in folders if PART.fullmatch(name))


def _is_run(path: Path) -> bool:
    return (path / METRICS).is_file() or (path / CONFIG).is_file()


def _describe(path: Path, name: str) -> dict[str, Any]:
    """What a line of the list says of a run."""
    try:
        status = (path / METRICS).stat()
        changed, size = status.st_mtime, status.st_size
    except OSError:
        changed, size = 0.0, 0
    return {"name": name, "changed": changed, "bytes": size} | _read_config(path / CONFIG)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return dict(_parse_config(path, path.stat().st_mtime_ns))
    except (OSError, ValueError, RecursionError):
        return {"kind": "unknown", "options": ""}


@lru_cache(maxsize=MAX_RUNS)
def _parse_config(path: Path, _changed: int) -> dict[str, Any]:
    """The algorithm and the main options."""
    with open(open_regular(path), "rb") as file:
        content = json.loads(file.read(MAX_CONFIG))
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        raise ValueError(f"{path} does not describe a run")
    options = [f"{name} {str(config[name])[:60]}" for name in SHOWN if config.get(name) is not None]
    return {"kind": str(content.get("kind"))[:40], "options": ", ".join(options)}
