"""Provenance of a result: command, commit, versions and machine, as JSON."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import babyai

SOURCE = Path(babyai.__file__).parent
PACKAGES = ("torch", "numpy", "numba")


def describe_provenance() -> dict[str, Any]:
    """Date, command, versions, commit and machine of this process."""
    commit, dirty = source_commit()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "babyai": babyai.__version__,
        "commit": commit,
        "dirty": dirty,
        "versions": {"python": platform.python_version()} | {name: _find_version(name) for name in PACKAGES},
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def command_line() -> str:
    """The command that started this process. Of absolute paths only the last part: results may be published."""
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    program = [Path(sys.argv[0]).name] if module is None else ["python", "-m", module.name.removesuffix(".__main__")]
    words = [*program, *sys.argv[1:]]
    return shlex.join([Path(word).name if Path(word).is_absolute() else word for word in words])


def source_commit(source: Path = SOURCE) -> tuple[str | None, bool | None]:
    """The commit of a folder of code, and whether the folder differs from it; (None, None) without a repository.

    An installed package may lie inside another repository; it does not count as part of that.
    """
    if not _ask_git(source, "ls-files", "__init__.py"):
        return None, None
    return _ask_git(source, "rev-parse", "HEAD"), bool(_ask_git(source, "status", "--porcelain", "--", "."))


def cpu_model() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _ask_git(folder: Path, *arguments: str) -> str | None:
    """Git's output; None without git or without a repository."""
    try:
        answer = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
