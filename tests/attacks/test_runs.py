"""Forged run folders: a checkpoint that is whole as a file, but holds anything, is refused with a sentence."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babyai.agents.checkpoint import read_tensors, write_tensors
from babyai.training import dagger, imitation, ppo
from babyai.training.run import RunError
from tests.training.same import newest
from tests.training.short_runs import dagger_options, imitation_options, ppo_options

ROOT = Path(__file__).parents[2]
MAKE: dict[str, tuple[Any, Callable[..., Any]]] = {
    "ppo": (ppo, ppo_options),
    "dagger": (dagger, dagger_options),
    "imitation": (imitation, imitation_options),
}
Forge = Callable[[dict[str, Any], dict[str, Any]], object]


def forge(folder: Path, change: Forge) -> None:
    """Changes the tensors and the JSON of the newest checkpoint, and makes its checksum right."""
    path = newest(folder) / "training.safetensors"
    tensors, metadata = read_tensors(path)
    state = json.loads(metadata["state"])
    change(tensors, state)
    write_tensors(path, tensors, metadata | {"state": json.dumps(state)})


def corrupt_bytes(rng: np.random.Generator, value: Any) -> Any:
    """A nested structure with one of its numbers, texts or lists replaced by something else."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return value | {key: corrupt_bytes(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        index = int(rng.integers(len(value)))
        return [*value[:index], corrupt_bytes(rng, value[index]), *value[index + 1 :]]
    if isinstance(value, str) and len(value) > 100:
        data = bytearray(base64.b64decode(value))
        for _ in range(8):
            data[rng.integers(len(data))] = rng.integers(256)
        return base64.b64encode(data).decode()
    options = [-1, 0, 10**6, 2**40, 10**30, 0.5, None, "x", [], {}, [[1]], True]
    return options[rng.integers(len(options))]


@pytest.fixture(scope="module", params=MAKE)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """The module of an algorithm, options for more training, and a finished run; copy it before you change it."""
    module, make = MAKE[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "run"
    longer = {"frames": 1600} if request.param == "ppo" else {"epochs": 3}
    module.train(make(folder))
    return module, lambda out: make(out, **longer), folder


def forged_copy(folder: Path, out: Path, change: Forge) -> Path:
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    forge(out, change)
    return out


def test_a_genuine_run_resumes(run: tuple[Any, Any, Path], tmp_path: Path) -> None:
    module, options, folder = run
    copy = forged_copy(folder, tmp_path / "copy", lambda tensors, state: None)
    assert not module.train(options(copy), resume=True).interrupted


def test_worlds_from_a_forged_run_never_reach_a_kernel(run: tuple[Any, Any, Path], tmp_path: Path) -> None:
    module, options, folder = run

    def break_worlds(tensors: dict[str, Any], state: dict[str, Any]) -> None:
        if "worlds" in tensors:
            tensors["worlds"][:] = 255
        elif "rollouts" in state["algorithm"]["replay"]:
            rollouts = state["algorithm"]["replay"]["rollouts"]
            rollouts["worlds"] = base64.b64encode(b"\xff" * len(base64.b64decode(rollouts["worlds"]))).decode()
        else:
            replay = state["algorithm"]["replay"]
            replay["levels"] = [9999] * len(replay["levels"])
            replay["at"] = [1] * len(replay["at"])

    copy = forged_copy(folder, tmp_path / "copy", break_worlds)
    with pytest.raises(RunError, match="does not fit this run"):
        module.train(options(copy), resume=True)


def test_experts_from_a_forged_run_never_reach_a_kernel(run: tuple[Any, Any, Path], tmp_path: Path) -> None:
    module, options, folder = run
    if module is not dagger:
        pytest.skip("only DAgger has experts")

    def break_experts(tensors: dict[str, Any], state: dict[str, Any]) -> None:
        rollouts = state["algorithm"]["replay"]["rollouts"]
        rollouts["experts"] = base64.b64encode(b"\x7f" * len(base64.b64decode(rollouts["experts"]))).decode()

    copy = forged_copy(folder, tmp_path / "copy", break_experts)
    with pytest.raises(RunError, match="expert is damaged"):
        module.train(options(copy), resume=True)


RESUME = """
import sys
from tests.attacks.test_runs import MAKE
from pathlib import Path
name, *folders = sys.argv[1:]
module, make = MAKE[name]
longer = {"frames": 1600} if name == "ppo" else {"epochs": 3}
for folder in folders:
    try:
        module.train(make(Path(folder), **longer), resume=True)
        print("\\nresumed:", folder, flush=True)
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        print("\\nrefused:", folder, error, flush=True)
"""


@pytest.mark.long
def test_forged_runs_are_survived(run: tuple[Any, Any, Path], tmp_path: Path) -> None:
    module, _, folder = run
    name = module.__name__.rpartition(".")[2]
    rng = np.random.default_rng(0)

    def change(tensors: dict[str, Any], state: dict[str, Any]) -> None:
        if rng.random() < 0.4:
            tensor = tensors[rng.choice(sorted(tensors))]
            flat = tensor.reshape(-1)
            if len(flat):
                flat[rng.integers(len(flat))] = 127
        else:
            state.update(corrupt_bytes(rng, state))

    copies = [str(forged_copy(folder, tmp_path / f"copy{number}", change)) for number in range(25)]
    words = [sys.executable, "-c", RESUME, name, *copies]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"after {done.stdout[-500:]}: {done.stderr[-2000:]}"
    outcomes = [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith(("resumed:", "refused:"))]
    assert len(outcomes) == 25 and {"resumed", "refused"} == set(outcomes)
