"""Fills the cache of compiled kernels: everything that environments, expert, demonstrations and training compile.

A kernel is compiled when it is first called with arguments of some types. So each is called here once, in the ways in
which the package calls it.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from babyai import _jit
from babyai.console import Progress, progress
from babyai.demos.collect import collect
from babyai.demos.replay import Replay
from babyai.demos.sources import DemoSource, ExpertSource, FileSource
from babyai.demos.verify import verify
from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.render.blit import rgb_views

LEVEL = "GoToObjS4"
STEPS = 4


def compile_all() -> str:
    """Compiles what the cache does not have yet; returns a line that says where the cache is."""
    started = time.monotonic()
    jobs = (_use_worlds, _use_expert, _use_demos)
    with progress("compiling", "parts") as report:
        _run(jobs, report)
    folder = _jit.cache_root()
    if folder is None or not folder.exists():
        raise OSError(f"nothing could be written to {folder or 'a cache folder'}; set BABYAI_CACHE_DIR")
    return f"compiled kernels are in {folder} ({time.monotonic() - started:.0f} s)"


def _run(jobs: Sequence[Callable[[], None]], report: Progress) -> None:
    for number, job in enumerate(jobs):
        report(number, len(jobs))
        job()


def _use_worlds() -> None:
    engine = Engine(LEVEL, 2)
    engine.reset(0)
    engine.step([0, 1])
    engine.step([0, 1], skip_done=True)
    engine.restore(0, engine.snapshot(0))
    engine.instruct(0, "go to a object")
    engine.reset_done()
    rgb_views(engine.images)


def _use_expert() -> None:
    engine = Engine(LEVEL, 2)
    engine.reset(0)
    expert = ExpertBatch(engine)
    expert.advise()
    expert.demonstrate()


def _use_demos() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demos.parquet"
        collect(LEVEL, 8, 0, path, threads=1)
        verify(path)
        _replay(FileSource(path))
    _replay(ExpertSource(LEVEL, block=8))


def _replay(source: DemoSource) -> None:
    with Replay(source, steps=STEPS, lanes=2, kind="rgb") as replay:
        next(replay)
        replay.load_state_dict(replay.state_dict())
        next(replay)
