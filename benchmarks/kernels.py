"""GPU time of one imitation update by purpose of its kernels, and a chart of it.

python -m benchmarks.kernels measure --out results/kernels.json     # needs a GPU
python -m benchmarks.kernels draw                                   # docs/images/kernels.png
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from babyai.batch import Batch

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "kernels.json"
CHART = ROOT / "docs" / "images" / "kernels.png"
# A kernel's purpose is the first one here with a part that the kernel's name contains.
PURPOSES = {
    "convolutions": ("fprop", "dgrad", "wgrad", "init_device_workspace", "conv2d"),
    "reading the mission (GRU)": ("GRU", "radix_sort", "RNN", "gather_kernel", "indexing_backward"),
    "Adam": ("FusedOpti", "multi_tensor_apply"),
    "batch norm, FiLM, ReLU": ("batch_norm", "native_batch_norm", "threshold", "amax", "triton_poi_fused_convolution"),
    "products (LSTM, heads, attention)": ("nvjet", "gemm", "cutlass", "splitK", "cublas"),
    "LSTM, gate by gate": ("sigmoid", "tanh"),
    "gradients added up": ("CUDAFunctor_add",),
}
# The paper's (steps, lanes, missions, words) of a batch, by agent size.
SHAPES = {"small": (20, 68, 68, 8), "big": (80, 135, 270, 56)}
# Updates before the profiled ones, and profiled ones.
WARM_UP = 5
ROUNDS = 3


def purpose_of(kernel: str) -> str:
    """The purpose of a kernel, from its name."""
    return next(
        (name for name, parts in PURPOSES.items() if any(part in kernel for part in parts)), "copies and others"
    )


def make_batch(steps: int, lanes: int, missions: int, words: int, device: "torch.device") -> "Batch":
    """A random batch of T steps of N lanes, with all that imitation learning reads."""
    import torch

    from babyai.batch import Batch

    generator = torch.Generator().manual_seed(0)

    def random_integers(high: int, *shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator, dtype=dtype).to(device)

    return Batch(
        images=random_integers(6, steps, lanes, 7, 7, 3),
        directions=random_integers(4, steps, lanes),
        last_actions=random_integers(7, steps, lanes, dtype=torch.int8),
        missions=random_integers(30, missions, words),
        mission_index=random_integers(missions, steps, lanes, dtype=torch.int32),
        starts=random_integers(7, steps, lanes) == 0,
        labels=random_integers(7, steps, lanes),
    )


def measure(size: str) -> dict[str, Any]:
    """Milliseconds of one imitation update at the paper's settings, by purpose."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from babyai.agents.config import AgentConfig
    from babyai.agents.device import place_model
    from babyai.agents.film_lstm.model import FilmLSTM
    from babyai.training.imitation import ImitationLearner

    device = torch.device("cuda")
    batch = make_batch(*SHAPES[size], device)
    policy = place_model(FilmLSTM(AgentConfig.of(size=size)), device)
    learner = ImitationLearner(policy, batch.num_lanes, precision="bf16")
    for _ in range(WARM_UP):
        learner.learn(batch)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(ROUNDS):
            learner.learn(batch)
        torch.cuda.synchronize()
    events = profiled.key_averages()
    return summarize({event.key: event.self_device_time_total / ROUNDS for event in events})


def summarize(microseconds: dict[str, float], find_purpose: Callable[[str], str] = purpose_of) -> dict[str, float]:
    """Milliseconds by purpose, largest first, from microseconds by kernel."""
    sums: dict[str, float] = {}
    for kernel, time in microseconds.items():
        purpose = find_purpose(kernel)
        sums[purpose] = sums.get(purpose, 0.0) + time / 1000
    return {name: round(time, 3) for name, time in sorted(sums.items(), key=lambda item: -item[1])}


def draw() -> None:
    """Draws the chart from the stored results."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = json.loads(RESULTS.read_text())
    names = [*PURPOSES, "copies and others"]
    figure, axis = plt.subplots(figsize=(9, 2.6))
    for row, size in enumerate(("small", "big")):
        sums = results[size]
        total = sum(sums.values())
        left = 0.0
        for number, name in enumerate(names):
            share = 100 * sums.get(name, 0.0) / total
            axis.barh(row, share, left=left, color=plt.get_cmap("tab10")(number), label=name if row == 0 else None)
            left += share
        axis.text(101, row, f"{total:.1f} ms", va="center")
    axis.set_yticks([0, 1], [f"{size}, {results['frames'][size]:,} frames" for size in ("small", "big")])
    axis.set_xlim(0, 112)
    axis.set_xlabel("% of the kernels' time in one update of imitation (H200, bf16)")
    axis.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.3), frameon=False, fontsize=8)
    figure.savefig(CHART, bbox_inches="tight", dpi=110)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["measure", "draw"], help="Measure on a GPU, or draw the chart.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="Output file (JSON) (default: results/kernels.json).")
    arguments = parser.parse_args()
    if arguments.command == "draw":
        draw()
        return
    from babyai.training.provenance import describe_provenance

    frames = {size: shape[0] * shape[1] for size, shape in SHAPES.items()}
    results = {"origin": describe_provenance(), "frames": frames, **{size: measure(size) for size in SHAPES}}
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
