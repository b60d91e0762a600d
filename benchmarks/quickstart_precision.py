"""Success of the quickstart's agent, trained in float32 and in bf16.

    python -m benchmarks.quickstart_precision --write-docs

Both train on the same demonstrations, and both agents play the same test missions, in float32. A processor without
instructions for bf16 would take hours, so there they are emulated; see `EmulatedBf16`.
"""

import os

# Waiting threads must not spin. OpenMP reads the setting when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from babyai.agents.device import has_bf16_instructions
from babyai.evaluation.statistics import summarize, welch_test
from babyai.quickstart import Recipe, run
from babyai.tree import tree_map
from benchmarks.provenance import append_history, describe_provenance, find_version
from benchmarks.report import describe, markdown_table, write_between

PRECISIONS = ("float32", "bf16")
aten: Any = torch.ops.aten
PRODUCTS = {aten.convolution, aten.convolution_backward, aten.mm, aten.addmm, aten.bmm}


@dataclass(frozen=True)
class Settings:
    """Runs the quickstart in both precisions and appends the result to benchmarks/history.jsonl."""

    seeds: int = 5
    """Number of training seeds."""
    write_docs: bool = False
    """Write the table to docs/speed.md."""
    recipe: Recipe = field(default_factory=Recipe)
    """Hyperparameters; default: the quickstart's."""


class EmulatedBf16(TorchDispatchMode):
    """Computes products of bf16 tensors in float32 and rounds the results, as the instructions do."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called for each operation."""
        settings = dict(kwargs or {})
        if func.overloadpacket not in PRODUCTS or args[0].dtype != torch.bfloat16:
            return func(*args, **settings)
        out = settings.pop("out", None)
        wide = [arg.float() if torch.is_tensor(arg) else arg for arg in args]
        product = func.overloadpacket(*wide, **settings)
        return tree_map(torch.Tensor.bfloat16, product) if out is None else out.copy_(product)


def measure(settings: Settings) -> dict[str, Any]:
    """The success rate of each seed in both precisions, and Welch's p of their difference."""
    emulated = not has_bf16_instructions()
    rates: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    with tempfile.TemporaryDirectory() as folder, EmulatedBf16() if emulated else nullcontext():
        for seed in range(settings.seeds):
            for precision in PRECISIONS:
                result = run(folder, replace(settings.recipe, seed=seed, precision=precision))
                rates[precision].append(result.success_rate)
    return {"emulated": emulated, "success_rates": rates, "p": welch_test(rates["float32"], rates["bf16"]).p}


def table(results: dict[str, Any]) -> str:
    """One row per precision, and the test."""
    rows = []
    for precision, rates in results["success_rates"].items():
        summary = summarize([100 * rate for rate in rates])
        shown = [f"{summary.mean:.2f} ± {summary.std:.2f}", f"{100 * min(rates):.1f}", str(summary.count)]
        rows.append([precision, *shown])
    how = "The instructions for bf16 were emulated" if results["emulated"] else "The processor has bf16 instructions"
    test = f"Welch's test of the difference: p = {results['p']:.2f}. {how}."
    return f"{markdown_table(['precision', 'success rate, %', 'lowest', 'seeds'], rows)}\n\n{test}"


def main(settings: Settings) -> None:
    """Measures, prints the table, and appends the result to the history."""
    origin = describe_provenance()
    origin["versions"] |= {"torch": find_version("torch")}
    results = measure(settings)
    entry = append_history("quickstart_precision", origin, asdict(settings), results)
    text = table(results)
    print(text)
    if settings.write_docs:
        write_between("quickstart_precision", f"{text} {describe(entry)}")


if __name__ == "__main__":
    import tyro

    main(tyro.cli(Settings))
