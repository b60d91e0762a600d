"""Modules import only from lower layers; the layers are listed in pyproject.toml (import-linter)."""

import subprocess
import sys
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_modules_import_only_from_lower_layers() -> None:
    # In a separate process, because import-linter disables the loggers of the process it runs in.
    script = (
        f"from importlinter.cli import lint_imports; raise SystemExit(lint_imports({str(PYPROJECT)!r}, no_cache=True))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
