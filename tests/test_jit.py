"""Compiled code is never stale: the cache folder's name depends on everything that affects the machine code."""

import ast
import hashlib
import os
import pickle
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
    return set(cache_of(package).rglob("*.kernel"))


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
@pytest.mark.long
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


# ---------------------------------------------------------------- a cache that cannot be written, or is damaged


def run_ask(package: Path, **flags: str) -> subprocess.CompletedProcess[str]:
    done = run(package, ASK, **flags)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def pycache_files(package: Path) -> list[Path]:
    return [file for suffix in ("*.nbi", "*.nbc") for file in package.rglob(suffix)]


def damaged(data: bytes, damage: str) -> bytes:
    middle = len(data) // 2
    if damage == "flipped":
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    if damage == "of another kind":
        payload = pickle.dumps((1, 2, 3))
        return hashlib.sha256(payload).digest() + payload
    return data[: middle if damage == "truncated" else 0]


@pytest.mark.compiled
@pytest.mark.long
def test_a_damaged_file_is_compiled_again(package: Path) -> None:
    assert answer(package, ASK) == "1"
    [file] = compiled_files(package)
    for damage in ("truncated", "flipped", "empty", "of another kind"):
        file.write_bytes(damaged(file.read_bytes(), damage))
        done = run_ask(package)
        assert done.stdout.strip() == "1" and "damaged" in done.stderr, damage
    assert run_ask(package).stderr == ""


@pytest.mark.compiled
def test_a_cache_that_cannot_be_written_never_runs_stale_code(package: Path) -> None:
    """A file where the folder should be: even root cannot write there."""
    cache_of(package).write_text("in the way")
    done = run_ask(package)
    assert done.stdout.strip() == "1" and "cannot write" in done.stderr and "BABYAI_CACHE_DIR" in done.stderr
    (package / "world" / "probe_constants.py").write_text("ANSWER = 2\n")
    assert run_ask(package).stdout.strip() == "2"
    assert not pycache_files(package)


@pytest.mark.compiled
@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_filled_by_somebody_else_is_read(package: Path) -> None:
    run_ask(package)
    for path in [*cache_of(package).rglob("*"), cache_of(package)]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {file: file.stat().st_mtime_ns for file in compiled_files(package)}
    assert run_ask(package).stderr == ""
    assert {file: file.stat().st_mtime_ns for file in compiled_files(package)} == before


@pytest.mark.compiled
@pytest.mark.long
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_code_of_another_user_is_not_run(package: Path) -> None:
    run_ask(package)
    [file] = compiled_files(package)
    os.chown(file, 65534, 65534)
    done = run_ask(package)
    assert done.stdout.strip() == "1" and "another user" in done.stderr
    # It was compiled again, and is ours now.
    assert run_ask(package).stderr == ""


@pytest.mark.compiled
def test_without_a_home_kernels_are_compiled_each_time(package: Path) -> None:
    code = f"""
import pathlib
def home(cls):
    raise RuntimeError("Could not determine home directory.")
pathlib.Path.home = classmethod(home)
{ASK}
"""
    arguments, environment = command(package, code)
    del environment["BABYAI_CACHE_DIR"]
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0 and done.stdout.strip() == "1" and "no home folder" in done.stderr


# ---------------------------------------------------------------- one compiler per machine

# A compiler that takes long, and writes a line for each function it compiles.
SLOW_ASK = """
import sys, time
from numba.core import dispatcher
compile = dispatcher._FunctionCompiler.compile
def slow(self, *arguments):
    if self.py_func.__name__ == "ask":
        print("compiling", flush=True)
        time.sleep({seconds})
    return compile(self, *arguments)
dispatcher._FunctionCompiler.compile = slow
from babyai.world.probe import ask
print(ask())
"""


def start(package: Path, seconds: float) -> subprocess.Popen[str]:
    arguments, environment = command(package, SLOW_ASK.format(seconds=seconds))
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.compiled
@pytest.mark.skipif(os.name != "posix", reason="there are no file locks")
@pytest.mark.long
def test_several_processes_wait_for_one_compiler(package: Path) -> None:
    processes = [start(package, 3) for _ in range(3)]
    outputs = [process.communicate(timeout=600) for process in processes]
    assert all(stdout.endswith("1\n") for stdout, _ in outputs)
    assert sum(stdout.count("compiling") for stdout, _ in outputs) == 1
    assert sum("waiting" in stderr for _, stderr in outputs) == 2


@pytest.mark.compiled
@pytest.mark.skipif(os.name != "posix", reason="there are no file locks")
@pytest.mark.long
def test_a_killed_compiler_blocks_nobody(package: Path) -> None:
    first = start(package, 1000)
    assert first.stdout is not None and first.stdout.readline() == "compiling\n"
    second = start(package, 0)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=4)
    first.kill()
    assert second.communicate(timeout=600)[0] == "compiling\n1\n"
    first.communicate()


@pytest.mark.compiled
@pytest.mark.long
def test_compile_fills_the_cache_for_everything(package: Path) -> None:
    """After `babyai compile`, nothing that the commands and environments do compiles anything."""
    done = run(package, "import sys; sys.argv[1:] = ['compile']; from babyai.cli import main; main()")
    assert done.returncode == 0 and str(cache_of(package)) in done.stdout, done.stderr
    files = compiled_files(package)
    use = """
import gymnasium as gym, numpy as np, babyai, sys
env = gym.make("babyai/BossLevel-v0"); env.reset(seed=0); env.step(2); env.unwrapped.restore(env.unwrapped.snapshot())
babyai.Expert(env).advise()
envs = gym.make_vec("babyai/GoTo-v0", num_envs=8); envs.reset(seed=0); envs.step(envs.action_space.sample())
gym.make("babyai/GoTo-v0", observation="rgb").reset(seed=0)
from babyai.cli import main
for words in (
    "show GoTo", "demos collect --levels GoTo --episodes 20 --out d.parquet", "demos verify d.parquet",
    "demos show d.parquet", "demos merge d.parquet --out e.parquet", "evaluate expert --levels GoTo --missions 16",
):
    sys.argv[1:] = words.split()
    main()
"""
    arguments, environment = command(package, use)
    done = subprocess.run(
        arguments, env=environment, cwd=package.parent, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert compiled_files(package) == files
