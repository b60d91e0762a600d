"""No room imports from a room above its own: the contract stands in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_rooms_import_only_from_lower_rooms() -> None:
    # In a process of its own, because it silences the loggers of the one it runs in.
    script = (
        f"from importlinter.cli import lint_imports; raise SystemExit(lint_imports({str(PYPROJECT)!r}, no_cache=True))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
