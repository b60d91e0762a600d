"""Where a measurement comes from, and the file that remembers all of them."""

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
# Files that a benchmark writes itself do not make the commit dirty.
WRITTEN_HERE = ("benchmarks/history.jsonl", "docs/speed.md", "docs/expert.md")


def describe_origin() -> dict[str, Any]:
    """Commit, versions, machine and date, as JSON can hold them."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": ask_git("rev-parse", "HEAD"),
        "dirty": is_dirty(),
        "versions": {"python": platform.python_version()} | {name: find_version(name) for name in PACKAGES},
        "cpu": cpu_model(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def ask_git(*arguments: str) -> str | None:
    """What git answers, or None outside a repository."""
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.rstrip()


def is_dirty() -> bool | None:
    """Whether the working tree differs from the commit in more than the results; None outside a repository."""
    changes = ask_git("status", "--porcelain", "--untracked-files=all")
    return None if changes is None else any(line[3:] not in WRITTEN_HERE for line in changes.splitlines())


def find_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    """The processor's name, as the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def remember(
    benchmark: str,
    origin: dict[str, Any],
    settings: dict[str, Any],
    results: dict[str, Any],
    history: Path = HISTORY,
) -> dict[str, Any]:
    """Appends one line to the history; returns what it says.

    Args:
        benchmark: Which benchmark it was.
        origin: `describe_origin()` from before measuring; a commit since then counts as dirty.
        settings: How it was measured.
        results: What was measured.
        history: The file.
    """
    moved = ask_git("rev-parse", "HEAD") != origin["commit"]
    entry = {"benchmark": benchmark, **origin, "dirty": moved or origin["dirty"], "settings": settings, **results}
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    return entry
