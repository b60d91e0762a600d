"""Where a GPU's time goes in one update: kernels by what they are for, and a figure of it.

python -m benchmarks.kernels measure --out results/kernels.json     # needs a GPU
python -m benchmarks.kernels draw                                   # docs/images/kernels.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KEPT, PICTURE = ROOT / "results" / "kernels.json", ROOT / "docs" / "images" / "kernels.png"
# What a kernel is for, by the first of these that its name contains.
PURPOSES = {
    "convolutions": ("fprop", "dgrad", "wgrad", "init_device_workspace", "conv2d"),
    "reading the mission (GRU)": ("GRU", "radix_sort", "RNN", "gather_kernel", "indexing_backward"),
    "Adam": ("FusedOpti", "multi_tensor_apply"),
    "batch norm, FiLM, ReLU": ("batch_norm", "native_batch_norm", "threshold", "amax", "triton_poi_fused_convolution"),
    "products (LSTM, heads, attention)": ("nvjet", "gemm", "cutlass", "splitK", "cublas"),
    "LSTM, gate by gate": ("sigmoid", "tanh"),
    "gradients added up": ("CUDAFunctor_add",),
}
SHAPES = {"small": (20, 68, 68, 8), "big": (80, 135, 270, 56)}


def purpose_of(kernel: str) -> str:
    return next(
        (name for name, parts in PURPOSES.items() if any(part in kernel for part in parts)), "copies and others"
    )


def measure(size: str) -> dict[str, Any]:
    """Milliseconds of one update of imitation at the paper's settings, by purpose."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from babyai.agents.config import AgentConfig
    from babyai.agents.device import place_model
    from babyai.agents.model import Model
    from babyai.training.feed import Fed
    from babyai.training.learner import ImitationLearner

    steps, lanes, missions, words = SHAPES[size]
    device, generator = torch.device("cuda"), torch.Generator().manual_seed(0)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator, dtype=torch.uint8).to(device)

    actions, first = draw(7, steps, lanes), draw(7, steps, lanes) == 0
    chunk = Fed(
        *(draw(6, steps, lanes, 7, 7, 3), draw(4, steps, lanes), actions, actions, first),
        *(draw(30, missions, words), draw(min(256, missions), steps, lanes).int()),
    )
    learner = ImitationLearner(place_model(Model(AgentConfig.of(size=size)), device), lanes, precision="bf16")
    for _ in range(5):
        learner.learn(chunk)
    torch.cuda.synchronize()
    rounds = 3
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(rounds):
            learner.learn(chunk)
        torch.cuda.synchronize()
    events = profiled.key_averages()
    return summarize({event.key: event.self_device_time_total / rounds for event in events})


def summarize(microseconds: dict[str, float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for kernel, time in microseconds.items():
        sums[purpose_of(kernel)] = sums.get(purpose_of(kernel), 0.0) + time / 1000
    return {name: round(time, 3) for name, time in sorted(sums.items(), key=lambda item: -item[1])}


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kept = json.loads(KEPT.read_text())
    names = [*PURPOSES, "copies and others"]
    figure, axis = plt.subplots(figsize=(9, 2.6))
    for row, size in enumerate(("small", "big")):
        sums, left = kept[size], 0.0
        total = sum(sums.values())
        for number, name in enumerate(names):
            share = 100 * sums.get(name, 0.0) / total
            axis.barh(row, share, left=left, color=plt.get_cmap("tab10")(number), label=name if row == 0 else None)
            left += share
        axis.text(101, row, f"{total:.1f} ms", va="center")
    axis.set_yticks([0, 1], [f"{size}, {kept['frames'][size]:,} frames" for size in ("small", "big")])
    axis.set_xlim(0, 112)
    axis.set_xlabel("% of the kernels' time in one update of imitation (H200, bf16)")
    axis.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.3), frameon=False, fontsize=8)
    figure.savefig(PICTURE, bbox_inches="tight", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "draw"])
    parser.add_argument("--out", type=Path, default=KEPT)
    arguments = parser.parse_args()
    if arguments.what == "draw":
        draw()
        return
    from babyai.training.origin import describe_origin

    frames = {size: shape[0] * shape[1] for size, shape in SHAPES.items()}
    kept = {"origin": describe_origin(), "frames": frames, **{size: measure(size) for size in SHAPES}}
    arguments.out.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
