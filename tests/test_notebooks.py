"""The notebooks of the docs run from the first cell to the last, and show what they talk about."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
# In a process of its own, because nbclient and its kernel have threads and event loops.
SCRIPT = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def execute(notebook: Path, folder: Path) -> list[dict[str, Any]]:
    """The outputs of a notebook that is executed in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(notebook), str(folder / "done.ipynb")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "IPYTHONDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((folder / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_there_are_two_notebooks_without_stored_outputs() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["agents", "worlds"]
    for path in NOTEBOOKS:
        assert not any(cell.get("outputs") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    outputs = execute(notebook, tmp_path)
    pages = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    if notebook.stem == "worlds":
        # Twice a wrapped environment, then a vector environment.
        assert [page.count("<img") for page in pages] == [1, 1, 4]
        assert any("image/gif" in output.get("data", {}) for output in outputs)
    else:
        assert "500 demonstrations" in pages[0] and pages[0].count("<img") == 2 and "bow_endpool_res" in pages[1]
        text = "".join("".join(output.get("text", "")) for output in outputs)
        before, after = (int(part.split()[-1]) for part in text.splitlines()[-1].split(" %")[:2])
        assert after > before
