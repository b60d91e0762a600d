"""Compiled code is never stale: the cache folder's name depends on everything that affects the machine code."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from babyai import _jit

# A kernel in three files, added to a copy of the package: an entry point, a helper and a constant.
PROBE = {
    "probe_constants.py": "ANSWER = 1\n",
    "probe_helper.py": """
from babyai._jit import njit
from babyai.world.probe_constants import ANSWER

@njit
def answer():
    return ANSWER
""",
    "probe.py": """
from babyai._jit import entry
from babyai.world.probe_helper import answer

@entry
def ask():
    return answer()

@entry
def read(array, index):
    return array[index]
""",
}
ASK = "from babyai.world.probe import ask; print(ask())"
# The array is a slice of a larger one, so an unchecked read past its end is harmless.
READ = "import numpy as np; from babyai.world.probe import read; print(read(np.arange(100)[:5], 50))"
PLAY = "from babyai import Engine; e = Engine('GoToLocal'); e.reset(0); e.step([2]); print(e.worlds[0].step_count)"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package with the probe in it, which tests may edit."""
    copy = tmp_path / "source" / "babyai"
    shutil.copytree(_jit.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in PROBE.items():
        (copy / "world" / name).write_text(text)
    return copy


def command(package: Path, code: str, **flags: str) -> tuple[list[str], dict[str, str]]:
    """Command line and environment that run `code` with that package in a new process, with a cache of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")} | flags
    environment |= {"PYTHONPATH": str(package.parent), "BABYAI_CACHE_DIR": str(cache_of(package))}
    return [sys.executable, "-c", code], environment


def cache_of(package: Path) -> Path:
    return package.parent.parent / "cache"


def compiled_files(package: Path) -> set[Path]:
    return set(cache_of(package).rglob("*.nbc"))


def run(package: Path, code: str, **flags: str) -> subprocess.CompletedProcess[str]:
    arguments, environment = command(package, code, **flags)
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=600)


def answer(package: Path, code: str) -> str:
    done = run(package, code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.compiled
def test_a_second_process_finds_the_compiled_code(package: Path) -> None:
    assert answer(package, ASK) == "1"
    files = compiled_files(package)
    assert files
    assert answer(package, ASK) == "1"
    assert compiled_files(package) == files


@pytest.mark.compiled
def test_editing_a_constant_or_a_helper_invalidates_the_cache(package: Path) -> None:
    assert answer(package, ASK) == "1"
    # Numba itself only checks probe.py, which does not change.
    (package / "world" / "probe_constants.py").write_text("ANSWER = 2\n")
    assert answer(package, ASK) == "2"
    helper = package / "world" / "probe_helper.py"
    helper.write_text(helper.read_text().replace("return ANSWER", "return 10 * ANSWER"))
    assert answer(package, ASK) == "20"
    # Reverting the edits selects the first cache folder again.
    helper.write_text(PROBE["probe_helper.py"])
    (package / "world" / "probe_constants.py").write_text(PROBE["probe_constants.py"])
    files = compiled_files(package)
    assert answer(package, ASK) == "1"
    assert compiled_files(package) == files


@pytest.mark.compiled
def test_bounds_are_checked_only_with_numba_boundscheck(package: Path) -> None:
    assert answer(package, READ) == "50"
    checked = run(package, READ, NUMBA_BOUNDSCHECK="1")
    assert checked.returncode != 0 and "IndexError" in checked.stderr
    # Checked code is cached too, and separately from unchecked code.
    checked = run(package, READ, NUMBA_BOUNDSCHECK="1")
    assert checked.returncode != 0 and "IndexError" in checked.stderr
    assert answer(package, READ) == "50"


@pytest.mark.compiled
@pytest.mark.skipif(not _jit.CHECKED, reason="only with NUMBA_BOUNDSCHECK=1")
def test_this_run_checks_bounds() -> None:
    """Shows as skipped if the suite was meant to check bounds but does not."""
    import numpy as np

    from babyai.world.state import make_worlds

    @_jit.njit
    def read_cell(worlds, p):
        return worlds[0].cells[p]

    with pytest.raises(IndexError):
        read_cell(make_worlds(1).view(np.ndarray), 10_000)


def test_digest_depends_on_every_file_that_a_kernel_can_use(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jit, "PACKAGE", package)
    for layer in _jit.KERNEL_LAYERS:
        files = _jit.kernel_files(layer)
        digests = {first := _jit.source_digest(layer)}
        for file in files:
            original = file.read_bytes()
            file.write_bytes(original + b"\n# edited\n")
            digests.add(_jit.source_digest(layer))
            file.write_bytes(original)
        assert len(digests) == len(files) + 1
        assert _jit.source_digest(layer) == first


def test_digest_depends_on_file_names_and_flags(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jit, "PACKAGE", package)
    first = _jit.source_digest("world")
    with monkeypatch.context() as patch:
        patch.setattr(_jit, "CHECKED", not _jit.CHECKED)
        assert _jit.source_digest("world") != first
    (package / "world" / "probe.py").rename(package / "world" / "probe_renamed.py")
    assert _jit.source_digest("world") != first


# Tiles are drawn in plain Python and passed to the kernels as arrays.
NOT_COMPILED = {_jit.PACKAGE / "render" / "tiles.py"}


def imports_of(file: Path) -> set[Path]:
    """The files of the package that a file imports, at module level or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "babyai":
            base = _jit.PACKAGE.joinpath(*node.module.split(".")[1:])
            inner = [base / f"{alias.name}.py" for alias in node.names]
            found |= {path for path in (base.with_suffix(".py"), *inner) if path.is_file()}
    return found


def test_digest_covers_every_kernel_and_everything_it_imports() -> None:
    for file in _jit.PACKAGE.rglob("*.py"):
        if "babyai._jit import" not in file.read_text() or "entry" not in file.read_text():
            continue
        used = set()
        queue = [file]
        while queue:
            new = imports_of(queue.pop()) - used
            used |= new
            queue += new
        missing = used - set(_jit.kernel_files(_jit.layer_of(file))) - NOT_COMPILED
        assert not missing, f"{file.name} uses {missing}, which its digest does not cover"


def test_entry_rejects_functions_outside_the_kernel_layers() -> None:
    def outside() -> int:
        return 1

    with pytest.raises(RuntimeError, match=r"test_jit\.py .*KERNEL_LAYERS"):
        _jit.entry(outside)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"BABYAI_CACHE_DIR": "/here"}, "/here"),
        ({"BABYAI_CACHE_DIR": "/here", "XDG_CACHE_HOME": "/there"}, "/here"),
        ({"XDG_CACHE_HOME": "/there"}, "/there/babyai"),
        ({"HOME": "/home/me"}, "/home/me/.cache/babyai"),
    ],
)
def test_cache_root(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BABYAI_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _jit.cache_root() == Path(expected)


@pytest.mark.compiled
@pytest.mark.long
def test_two_processes_can_compile_at_the_same_time(package: Path) -> None:
    arguments, environment = command(package, PLAY)
    processes = [
        subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        stdout, stderr = process.communicate(timeout=600)
        assert process.returncode == 0, stderr
        assert stdout.strip() == "1"
    files = compiled_files(package)
    assert answer(package, PLAY) == "1"
    assert compiled_files(package) == files
