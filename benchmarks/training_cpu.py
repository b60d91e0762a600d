"""Speed of PPO on a CPU, compared with a plain eager implementation.

    python -m benchmarks.training_cpu

Ours in float32, ours in bf16 and the peer (`benchmarks.eager_ppo`) take turns in one process, at the paper's settings.
Time is CPU time of all threads, with wall time next to it, and the best round of each counts.
"""

import os

# Threads that wait by spinning would count as working. OpenMP reads the setting when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from babyai.agents.config import AgentConfig
from babyai.agents.device import place_model
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.engine import Engine
from babyai.training.options import PPOHyperparameters
from babyai.training.ppo import PPO
from benchmarks.eager_ppo import EagerPPO
from benchmarks.provenance import append_history, describe_provenance, find_version
from benchmarks.report import describe, markdown_table, significant, write_between

TITLES = {
    "eager": "plain eager PyTorch, Minigrid",
    "float32": "babyai, float32",
    "bf16": "babyai, bf16",
}
PARTS = ("worlds", "acting", "learning")
REQUIRED_RATIO = 1.3


@dataclass(frozen=True)
class Settings:
    """Measures PPO on this CPU and appends the result to benchmarks/history.jsonl."""

    level: str = "GoToLocal"
    """Level to train on."""
    rounds: int = 3
    """Rounds that count, after one to warm up."""
    updates: int = 1
    """Updates of each contestant per round."""
    threads: int = 2
    """Number of torch's threads."""
    write_docs: bool = False
    """Write the table to docs/speed.md."""
    check: bool = False
    """Exit with status 1 if ours in float32, the default without a GPU, is too slow."""
    ppo: PPOHyperparameters = field(default_factory=PPOHyperparameters)
    """Hyperparameters; default: the paper's."""


@dataclass
class Contestant:
    """An implementation of PPO, with the time that its parts take."""

    update: Callable[[], object]
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """CPU seconds in "worlds", and in "playing", which includes them."""

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added to that of the part."""

        def wrapper(*arguments: Any) -> Any:
            began = time.process_time()
            result = function(*arguments)
            self.spent[part] += time.process_time() - began
            return result

        return wrapper


def make_ours(settings: Settings, precision: Literal["float32", "bf16"]) -> Contestant:
    """Our PPO with our worlds."""
    torch.manual_seed(0)
    engine = Engine(settings.level, settings.ppo.worlds)
    engine.reset(0)
    policy = place_model(FilmLSTM(AgentConfig.of()), torch.device("cpu"))
    ppo = PPO(policy, engine, settings.ppo, precision=precision)
    contestant = Contestant(ppo.update)
    engine.step = contestant.timed("worlds", engine.step)
    engine.reset_done = contestant.timed("worlds", engine.reset_done)
    ppo.collector.collect = contestant.timed("playing", ppo.collector.collect)
    return contestant


def make_eager(settings: Settings) -> Contestant:
    """The peer with Minigrid's environments."""
    torch.manual_seed(0)
    ppo = EagerPPO(FilmLSTM(AgentConfig.of()), settings.level, settings.ppo)
    contestant = Contestant(ppo.update)
    ppo.step_envs = contestant.timed("worlds", ppo.step_envs)
    ppo.play = contestant.timed("playing", ppo.play)
    return contestant


def measure_turn(contestant: Contestant, settings: Settings) -> dict[str, float]:
    """Frames per second of CPU time and of wall time, and the CPU seconds that each part took."""
    contestant.spent.clear()
    cpu_began = time.process_time()
    wall_began = time.perf_counter()
    for _ in range(settings.updates):
        contestant.update()
    cpu = time.process_time() - cpu_began
    wall = time.perf_counter() - wall_began
    frames = settings.updates * settings.ppo.frames_per_update
    spent = contestant.spent
    return {
        "per_cpu_second": frames / cpu,
        "per_second": frames / wall,
        "worlds": spent["worlds"],
        "acting": spent["playing"] - spent["worlds"],
        "learning": cpu - spent["playing"],
    }


def measure(settings: Settings) -> dict[str, Any]:
    """The best round of each contestant, and its ratio to the peer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        contestants = {
            "eager": make_eager(settings),
            "float32": make_ours(settings, "float32"),
            "bf16": make_ours(settings, "bf16"),
        }
        rounds = [
            {name: measure_turn(contestant, settings) for name, contestant in contestants.items()}
            for _ in range(1 + settings.rounds)
        ]
    finally:
        torch.set_num_threads(threads)
    return summarize(rounds[1:])


def summarize(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """For each contestant the round with the least CPU time, the best wall time of any, and ratios to the peer."""
    best = {}
    for name in rounds[0]:
        turns = [turn[name] for turn in rounds]
        fastest = max(turns, key=lambda turn: turn["per_cpu_second"])
        best[name] = fastest | {"per_second": max(turn["per_second"] for turn in turns)}
    for figures in best.values():
        figures["ratio"] = figures["per_cpu_second"] / best["eager"]["per_cpu_second"]
        figures["wall_ratio"] = figures["per_second"] / best["eager"]["per_second"]
    rates = {name: [significant(turn[name]["per_cpu_second"]) for turn in rounds] for name in best}
    return {
        "best": {name: {key: significant(value) for key, value in figures.items()} for name, figures in best.items()},
        "rounds": rates,
    }


def table(results: dict[str, Any]) -> str:
    """One row per contestant: rates, ratios, and the share of CPU time of each part."""
    rows = []
    for name, figures in results["best"].items():
        total = sum(figures[part] for part in PARTS)
        shares = [f"{100 * figures[part] / total:.1f} %" for part in PARTS]
        rates = [f"{figures['per_cpu_second']:.0f}", f"{figures['per_second']:.0f}"]
        ratios = [f"{figures['ratio']:.2f}", f"{figures['wall_ratio']:.2f}"]
        rows.append([TITLES[name], *rates, *ratios, *shares])
    return markdown_table(["PPO", "frames/CPU-s", "frames/s", "ratio", "ratio, wall", *PARTS], rows)


def is_fast(results: dict[str, Any]) -> bool:
    """Whether ours in float32, the default without a GPU, meets the requirement."""
    return results["best"]["float32"]["ratio"] >= REQUIRED_RATIO


def verdict(results: dict[str, Any]) -> str:
    """The requirement, and whether it is met."""
    ratio = results["best"]["float32"]["ratio"]
    meets = "meets" if is_fast(results) else "misses"
    return f"Required: float32 has {REQUIRED_RATIO} times the peer's frames per CPU-second; {ratio:.2f} {meets} this."


def main(settings: Settings) -> int:
    """Measures, prints the table, and appends the result to the history."""
    origin = describe_provenance()
    origin["versions"] |= {"torch": find_version("torch")}
    results = measure(settings)
    waiting = {"waiting": os.environ.get("OMP_WAIT_POLICY")}
    entry = append_history("training_cpu", origin, asdict(settings) | waiting, results)
    text = f"{table(results)}\n\n{verdict(results)}"
    print(text)
    if settings.write_docs:
        write_between("training_cpu", f"{text} {describe(entry)}")
    return int(settings.check and not is_fast(results))


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings)))
