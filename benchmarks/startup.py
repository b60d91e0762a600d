"""Startup time: `python -m benchmarks.startup`.

Each program is run in several new processes, and the fastest run counts, since other programs can only slow a start
down. Compilation is measured in CPU seconds, with an empty cache.
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

from benchmarks.provenance import ROOT, append_history, describe_provenance
from benchmarks.report import describe, markdown_table, write_between

HEAVY_MODULES = ("numba", "llvmlite", "torch", "gymnasium", "pyarrow", "scipy", "matplotlib")
# The last line of each child's output; earlier lines are ignored.
PRINT_MODULES = f"import sys; print([name for name in {HEAVY_MODULES} if name in sys.modules])"

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
    """A program whose startup is measured, and its time limit."""

    name: str
    title: str
    program: str
    limit: float
    """Time limit in seconds."""
    unit: str = "s wall"
    cold: bool = False
    """Whether the compile cache is empty."""
    banned: tuple[str, ...] = ()
    """Modules that the program must not import."""


STARTS = (
    Start("import", "`import babyai`", IMPORT, limit=0.6, banned=("numba", "torch")),
    Start("help", "`babyai --help`", HELP, limit=0.4, banned=("numba", "torch", "gymnasium")),
    Start("first_step", "first step, warm cache", FIRST_STEP, limit=1.5, banned=("torch",)),
    Start("compile", "first step, empty cache", FIRST_STEP, limit=60, unit="CPU-s", cold=True),
)


@dataclass(frozen=True)
class Settings:
    """Measure startup times, and append the result to benchmarks/history.jsonl."""

    tries: int = 5
    """Number of runs of each program; the fastest counts."""
    cold_tries: int = 1
    """Number of runs with an empty compile cache; the fastest counts."""
    write_docs: bool = False
    """Write the table to docs/speed.md."""
    check: bool = False
    """Exit with status 1 if a limit is exceeded."""


def run_child(program: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Wall and CPU seconds of a program in a new process, including Python startup, and the heavy modules it loads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", f"{program}\n{PRINT_MODULES}"],
        env=dict(environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode:
        lines = child.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit status {child.returncode}"}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    modules = json.loads(child.stdout.splitlines()[-1].replace("'", '"'))
    return {"wall": wall, "cpu": cpu, "modules": modules}


def try_start(start: Start) -> dict[str, Any]:
    """Runs a program once, with the user's compile cache or with an empty one."""
    if not start.cold:
        return run_child(start.program, os.environ)
    with tempfile.TemporaryDirectory() as empty:
        return run_child(start.program, os.environ | {"BABYAI_CACHE_DIR": empty})


def measure_start(start: Start, tries: int) -> dict[str, Any]:
    """The fastest of several runs, whether it is within its limit, and the banned modules it loaded."""
    if not start.cold:
        try_start(start)
    runs = [try_start(start) for _ in range(tries)]
    if errors := [run["error"] for run in runs if "error" in run]:
        return {"error": errors[0], "fine": False}
    wall, cpu = (min(run[clock] for run in runs) for clock in ("wall", "cpu"))
    modules = runs[0]["modules"]
    unwanted = [name for name in start.banned if name in modules]
    seconds = cpu if start.unit == "CPU-s" else wall
    return {
        "wall": round(wall, 3),
        "cpu": round(cpu, 3),
        "modules": modules,
        "unwanted": unwanted,
        "fine": seconds < start.limit and not unwanted,
    }


def startup_table(results: Mapping[str, Mapping[str, Any]], starts: Sequence[Start] = STARTS) -> str:
    """A table with one row per program: its time, its limit and the verdict."""
    rows = []
    for start in starts:
        result = results[start.name]
        if "error" in result:
            rows.append([start.title, "–", f"< {start.limit} {start.unit}", f"FAIL: {result['error']}"])
            continue
        seconds = result["cpu" if start.unit == "CPU-s" else "wall"]
        verdict = f"FAIL: loads {', '.join(result['unwanted'])}" if result["unwanted"] else "FAIL"
        rows.append(
            [
                start.title,
                f"{seconds:.2f} {start.unit}",
                f"< {start.limit} {start.unit}",
                "pass" if result["fine"] else verdict,
            ]
        )
    return markdown_table(["program", "best", "limit", "verdict"], rows)


def main(settings: Settings) -> int:
    """Measures, appends to the history and prints the table; returns the exit status."""
    origin = describe_provenance()
    results = {}
    for start in STARTS:
        print(f"{start.title} …", flush=True)
        results[start.name] = measure_start(start, settings.cold_tries if start.cold else settings.tries)
    entry = append_history("startup", origin, asdict(settings), {"starts": results})
    page = f"{startup_table(results)}\n\n{describe(entry)}"
    print(f"\n{page}")
    if settings.write_docs:
        write_between("startup", page)
    return 1 if settings.check and not all(result["fine"] for result in results.values()) else 0


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings, prog="python -m benchmarks.startup")))
