"""How long a user waits before anything happens: `python -m benchmarks.startup`.

Each thing is tried in fresh processes, and the best of several tries counts: other processes can only make a start
slower. Compiling is measured in CPU seconds, with an empty cache.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.provenance import ROOT, describe_origin, remember
from benchmarks.report import describe, markdown_table, write_between

HEAVY_MODULES = ("numba", "llvmlite", "torch", "gymnasium", "pyarrow", "scipy", "matplotlib")
# Said last by each child, so that whatever it printed before does not matter.
TELL_MODULES = f"import sys; print([name for name in {HEAVY_MODULES} if name in sys.modules])"

IMPORT = "import babyai"
HELP = """
import sys
sys.argv = ["babyai", "--help"]
try:
    from babyai.cli import main
    main()
except SystemExit:
    pass
"""
FIRST_STEP = """
import babyai
engine = babyai.Engine("GoToLocal", 1024)
engine.reset(0)
engine.step([0] * 1024)
engine.reset_done()
"""


@dataclass(frozen=True)
class Start:
    """One way to start, and how long it may take."""

    name: str
    title: str
    program: str
    must: float
    """Seconds."""
    unit: str = "s wall"
    cold: bool = False
    """Whether the compile cache is empty."""
    banned: tuple[str, ...] = ()
    """Modules that must not be loaded by it."""


STARTS = (
    Start("import", "`import babyai`", IMPORT, must=0.6, banned=("numba", "torch")),
    Start("help", "`babyai --help`", HELP, must=0.4, banned=("numba", "torch", "gymnasium")),
    Start("first_step", "first step, compiled before", FIRST_STEP, must=1.5, banned=("torch",)),
    Start("compile", "first step, nothing compiled", FIRST_STEP, must=60, unit="CPU-s", cold=True),
)


@dataclass(frozen=True)
class Settings:
    """Measures how long starting takes, and appends the result to benchmarks/history.jsonl."""

    tries: int = 5
    """Fresh processes for each number; the best one counts."""
    cold_tries: int = 1
    """The same, for compiling everything anew."""
    write_docs: bool = False
    """Put the table into docs/speed.md."""
    check: bool = False
    """Exit with status 1 if any must is missed."""


def run_child(program: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Runs a program in a fresh process: its wall and CPU seconds, start of Python included, and its heavy modules."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", f"{program}\n{TELL_MODULES}"],
        env=dict(environment), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode:
        lines = child.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit status {child.returncode}"}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    modules = json.loads(child.stdout.splitlines()[-1].replace("'", '"'))
    return {"wall": wall, "cpu": cpu, "modules": modules}


def try_start(start: Start) -> dict[str, Any]:
    """One fresh start, with the user's cache or with an empty one."""
    if not start.cold:
        return run_child(start.program, os.environ)
    with tempfile.TemporaryDirectory() as empty:
        return run_child(start.program, os.environ | {"BABYAI_CACHE_DIR": empty})


def measure_start(start: Start, tries: int) -> dict[str, Any]:
    """The best of several tries, whether it is good enough, and which banned modules it loaded."""
    if not start.cold:
        try_start(start)
    answers = [try_start(start) for _ in range(tries)]
    if failed := [answer["error"] for answer in answers if "error" in answer]:
        return {"error": failed[0], "fine": False}
    wall, cpu = (min(answer[clock] for answer in answers) for clock in ("wall", "cpu"))
    modules = answers[0]["modules"]
    unwanted = [name for name in start.banned if name in modules]
    seconds = cpu if start.unit == "CPU-s" else wall
    return {
        "wall": round(wall, 3), "cpu": round(cpu, 3), "modules": modules, "unwanted": unwanted,
        "fine": seconds < start.must and not unwanted,
    }  # fmt: skip


def startup_table(results: Mapping[str, Mapping[str, Any]], starts: Sequence[Start] = STARTS) -> str:
    """One line a start: its time, its limit and the verdict."""
    rows = []
    for start in starts:
        result = results[start.name]
        if "error" in result:
            rows.append([start.title, "–", f"< {start.must} {start.unit}", f"FAIL: {result['error']}"])
            continue
        seconds = result["cpu" if start.unit == "CPU-s" else "wall"]
        verdict = f"FAIL: loads {', '.join(result['unwanted'])}" if result["unwanted"] else "FAIL"
        rows.append(
            [
                start.title,
                f"{seconds:.2f} {start.unit}",
                f"< {start.must} {start.unit}",
                "pass" if result["fine"] else verdict,
            ]
        )
    return markdown_table(["what", "best", "must", "verdict"], rows)


def main(settings: Settings) -> int:
    """Measures, remembers and shows; returns the exit status."""
    origin, results = describe_origin(), {}
    for start in STARTS:
        print(f"{start.title} …", flush=True)
        results[start.name] = measure_start(start, settings.cold_tries if start.cold else settings.tries)
    entry = remember("startup", origin, asdict(settings), {"starts": results})
    page = f"{startup_table(results)}\n\n{describe(entry)}"
    print(f"\n{page}")
    if settings.write_docs:
        write_between("startup", page)
    return 1 if settings.check and not all(result["fine"] for result in results.values()) else 0


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings, prog="python -m benchmarks.startup")))
