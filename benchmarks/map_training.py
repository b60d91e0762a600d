"""How fast large-scale DAgger trains the map agent, and where the time of an update goes. Needs a GPU.

    python -m benchmarks.map_training --out results/map/speed.json      # appends

An update is one step of all worlds and, at the same time, one gradient step. Training goes on from the agent that comes
with the package, so that it plays; `frames_per_second` is the median over rows of 100 updates, after a warm-up.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from babyai.training.fit import Session, fit
from babyai.training.online_dagger import ROW_UPDATES, OnlineDagger
from babyai.training.options import OnlineDaggerOptions
from babyai.training.provenance import describe_provenance
from babyai.training.run import read_rows
from benchmarks.kernels import summarize

# A kernel's purpose is the first one here with a part that the kernel's name contains.
PURPOSES = {
    "matrix products": ("nvjet", "gemm", "cutlass", "splitK"),
    "GELU": ("gelu",),
    "layer normalization, residuals": ("layer_norm", "GammaBeta"),
    "embedding gradients": ("radix", "segment", "grad_weight", "embedding_backward", "indexing_backward", "unique"),
    "reductions (mostly gradients of biases)": ("red_fused_sum", "reduce_kernel"),
    "indexing (embedding lookups, memory, replay buffer)": ("gather", "index"),
    "optimizer": ("multi_tensor_apply",),
}
# The names of the kernels of `packed_attention`, which are parts of others' names.
ATTENTION = ("_forward", "_backward")
# Repetitions of each part that is timed, and updates that are profiled.
REPETITIONS = 40
PROFILED = 10


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20, help="Rows of 100 updates that count (default: 20).")
    parser.add_argument("--warm-up", type=int, default=5, help="Rows before them (default: 5).")
    parser.add_argument("--worlds", type=int, default=4096, help="Worlds, and frames of a batch (default: 4096).")
    parser.add_argument("--out", type=Path, required=True, help="Output file, a JSON list.")
    arguments = parser.parse_args()
    measured = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        options = OnlineDaggerOptions(
            levels="all",
            init_from="map",
            worlds=arguments.worlds,
            batch_size=arguments.worlds,
            frames=(arguments.warm_up + arguments.rows + 1) * ROW_UPDATES * arguments.worlds,
            validate_every=0,
            quiet=True,
            out=f"{folder}/run",
        )
        result = measure(options, arguments.warm_up, arguments.rows)
    arguments.out.write_text(json.dumps([*measured, result], indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def measure(options: OnlineDaggerOptions, warm_up: int, rows: int) -> dict[str, Any]:
    """Trains, and then times the parts of an update."""
    algorithms: list[OnlineDagger] = []
    parts: dict[str, Any] = {}

    class Measured(OnlineDagger):
        def __init__(self, session: Session) -> None:
            super().__init__(session)
            algorithms.append(self)

    def is_over() -> bool:
        (algorithm,) = algorithms
        if algorithm.num_updates < (warm_up + rows) * algorithm.updates_per_row:
            return False
        parts.update(time_parts(algorithm))
        return True

    session = fit(options, Measured, stop=is_over)
    speeds = [row["frames_per_second"] for row in read_rows(session.folder)][warm_up:]
    return {
        "origin": describe_provenance(),
        "worlds": options.worlds,
        "frames_per_second": median(speeds),
        "rows": speeds,
        **parts,
    }


def time_parts(algorithm: OnlineDagger) -> dict[str, Any]:
    """Milliseconds of an update and of its parts alone, and the GPU time of its kernels by purpose."""
    rollouts = algorithm.rollouts
    device = rollouts.device
    batch = algorithm._sample()
    parts = {
        "update": algorithm.update,
        "gradient step alone": lambda: algorithm.learner.learn(batch),
        "step of all worlds alone": lambda: algorithm._store(rollouts.start_playing()),
    }
    found: dict[str, Any] = {"ms": {name: milliseconds(part, REPETITIONS, device) for name, part in parts.items()}}
    if device.type == "cuda":
        found["kernels"] = profile_kernels(algorithm.update)
    # Last, because the worlds go on without the agents' memories.
    found["ms"]["of it on the CPU"] = milliseconds(lambda: rollouts.step(None), REPETITIONS, device)
    return found


def milliseconds(part: Callable[[], object], repetitions: int, device: torch.device) -> float:
    """The mean duration of a call."""
    wait(device)
    started = time.perf_counter()
    for _ in range(repetitions):
        part()
    wait(device)
    return 1000 * (time.perf_counter() - started) / repetitions


def wait(device: torch.device) -> None:
    """Waits for all that the device has been given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def profile_kernels(update: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of GPU time per update, by purpose; two streams run at the same time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(PROFILED):
            update()
        torch.cuda.synchronize()
    events = profiled.key_averages()
    return summarize({event.key: event.self_device_time_total / PROFILED for event in events}, purpose_of)


def purpose_of(kernel: str) -> str:
    """The purpose of a kernel, from its name."""
    if kernel in ATTENTION:
        return "attention"
    return next((name for name, parts in PURPOSES.items() if any(part in kernel for part in parts)), "others")


if __name__ == "__main__":
    main()
