"""Provenance of measurements (commit, versions, machine), and the history of all measurements."""

import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "benchmarks" / "history.jsonl"
PACKAGES = ("numpy", "numba", "gymnasium", "minigrid", "envpool")
# Files that benchmarks write themselves; changes in them do not make the working tree dirty.
OUTPUT_FILES = ("benchmarks/history.jsonl", "docs/speed.md", "docs/expert.md")


def describe_provenance() -> dict[str, Any]:
    """Commit, versions, machine and date, as JSON types."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": ask_git("rev-parse", "HEAD"),
        "dirty": is_dirty(),
        "versions": {"python": platform.python_version()} | {name: find_version(name) for name in PACKAGES},
        "cpu": cpu_model(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def ask_git(*arguments: str) -> str | None:
    """The output of a git command, or None outside a repository."""
    try:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.rstrip()


def is_dirty() -> bool | None:
    """Whether the working tree has uncommitted changes other than results; None outside a repository."""
    changes = ask_git("status", "--porcelain", "--untracked-files=all")
    return None if changes is None else any(line[3:] not in OUTPUT_FILES for line in changes.splitlines())


def find_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    """The processor's name, as the operating system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def append_history(
    benchmark: str,
    origin: dict[str, Any],
    settings: dict[str, Any],
    results: dict[str, Any],
    history: Path = HISTORY,
) -> dict[str, Any]:
    """Appends one entry to the history; returns the entry.

    Args:
        benchmark: Name of the benchmark.
        origin: `describe_provenance()` from before the measurement. If the commit has changed, the entry is dirty.
        settings: Settings of the benchmark.
        results: Results of the benchmark.
        history: History file (JSON lines).
    """
    changed = ask_git("rev-parse", "HEAD") != origin["commit"]
    entry = {"benchmark": benchmark, **origin, "dirty": changed or origin["dirty"], "settings": settings, **results}
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    return entry
