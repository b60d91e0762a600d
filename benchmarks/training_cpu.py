"""How fast PPO is on a processor, beside a plain eager one.

    python -m benchmarks.training_cpu

Ours in float32, ours in bf16 and the peer (`benchmarks.eager_ppo`) play and learn by turns in one process, at the
paper's settings. Time is CPU time of all threads, wall time beside it, and the best round of each counts.
"""

import os

# Threads that wait by spinning would count as working. The variable is read when torch is imported.
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
from babyai.agents.model import Model
from babyai.engine import Engine
from babyai.training.ppo import PPO, PPOSettings
from babyai.training.turns import finish
from benchmarks.eager_ppo import EagerPPO
from benchmarks.provenance import describe_origin, find_version, remember
from benchmarks.report import describe, markdown_table, significant, write_between

TITLES = {
    "eager": "plain eager PyTorch, Minigrid",
    "float32": "babyai, float32",
    "bf16": "babyai, bf16",
}
PARTS = ("worlds", "acting", "learning")
MUST_BE_FASTER = 1.3


@dataclass(frozen=True)
class Settings:
    """Measures PPO on this processor, and appends the result to benchmarks/history.jsonl."""

    level: str = "GoToLocal"
    """What is learned."""
    rounds: int = 3
    """Rounds that count; one goes before to warm up."""
    updates: int = 1
    """Updates of each in a round."""
    threads: int = 2
    """How many cores torch uses."""
    write_docs: bool = False
    """Put the table into docs/speed.md."""
    check: bool = False
    """Exit with status 1 if ours in float32, the default without a GPU, is too slow."""
    ppo: PPOSettings = field(default_factory=PPOSettings)
    """The algorithm's numbers; the paper's, save in tests."""


@dataclass
class Contestant:
    """Somebody who plays and learns, with a watch on the parts of it."""

    update: Callable[[], object]
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """CPU seconds in "worlds", and in "playing", which includes them."""

    def watch(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time added to that of the part."""

        def watched(*arguments: Any) -> Any:
            began = time.process_time()
            result = function(*arguments)
            self.spent[part] += time.process_time() - began
            return result

        return watched


def open_ours(settings: Settings, precision: Literal["float32", "bf16"]) -> Contestant:
    """Our PPO over our worlds."""
    torch.manual_seed(0)
    engine = Engine(settings.level, settings.ppo.worlds)
    engine.reset(0)
    model = place_model(Model(AgentConfig.of()), torch.device("cpu"))
    ppo = PPO(model, engine, settings.ppo, precision=precision)
    contestant = Contestant(ppo.update)
    engine.step = contestant.watch("worlds", engine.step)
    engine.reset_done = contestant.watch("worlds", engine.reset_done)
    collecting = ppo.collector.collecting
    play = contestant.watch("playing", lambda: finish(collecting()))

    def collecting_watched() -> Any:
        # Without a GPU there is nobody to give way to.
        return play()
        yield

    ppo.collector.collecting = collecting_watched
    return contestant


def open_eager(settings: Settings) -> Contestant:
    """The plain one over Minigrid's worlds."""
    torch.manual_seed(0)
    ppo = EagerPPO(Model(AgentConfig.of()), settings.level, settings.ppo)
    contestant = Contestant(ppo.update)
    ppo.step_worlds = contestant.watch("worlds", ppo.step_worlds)
    ppo.play = contestant.watch("playing", ppo.play)
    return contestant


def measure_turn(contestant: Contestant, settings: Settings) -> dict[str, float]:
    """Frames per second of CPU time and of wall time, and the CPU seconds that went into each part."""
    contestant.spent.clear()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(settings.updates):
        contestant.update()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    frames, spent = settings.updates * settings.ppo.frames_an_update, contestant.spent
    parts = spent["worlds"], spent["playing"] - spent["worlds"], cpu - spent["playing"]
    return {"per_cpu_second": frames / cpu, "per_second": frames / wall, **dict(zip(PARTS, parts, strict=True))}


def measure(settings: Settings) -> dict[str, Any]:
    """The best round of each, and the rates over the peer's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        contestants = {
            "eager": open_eager(settings),
            "float32": open_ours(settings, "float32"),
            "bf16": open_ours(settings, "bf16"),
        }
        rounds = [
            {name: measure_turn(contestant, settings) for name, contestant in contestants.items()}
            for _ in range(1 + settings.rounds)
        ]
    finally:
        torch.set_num_threads(threads)
    return summarize(rounds[1:])


def summarize(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The round with the least CPU time of each, the best wall time of any, and both over the peer's."""
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
    """One line each: rates, ratios, and where the CPU time went."""
    rows = []
    for name, figures in results["best"].items():
        total = sum(figures[part] for part in PARTS)
        shares = [f"{100 * figures[part] / total:.1f} %" for part in PARTS]
        rates = [f"{figures['per_cpu_second']:.0f}", f"{figures['per_second']:.0f}"]
        ratios = [f"{figures['ratio']:.2f}", f"{figures['wall_ratio']:.2f}"]
        rows.append([TITLES[name], *rates, *ratios, *shares])
    return markdown_table(["PPO", "frames/CPU-s", "frames/s", "ratio", "ratio, wall", *PARTS], rows)


def is_fast(results: dict[str, Any]) -> bool:
    """Whether ours, in the precision that is the default without a GPU, is as much faster as it must be."""
    return results["best"]["float32"]["ratio"] >= MUST_BE_FASTER


def verdict(results: dict[str, Any]) -> str:
    """The requirement and what became of it, in a sentence."""
    ratio, meets = results["best"]["float32"]["ratio"], "meets" if is_fast(results) else "misses"
    return f"float32 must reach {MUST_BE_FASTER} times the peer's frames per CPU-second; {ratio:.2f} {meets} that."


def main(settings: Settings) -> int:
    """Measures, prints, remembers."""
    origin = describe_origin()
    origin["versions"] |= {"torch": find_version("torch")}
    results = measure(settings)
    waiting = {"waiting": os.environ.get("OMP_WAIT_POLICY")}
    entry = remember("training_cpu", origin, asdict(settings) | waiting, results)
    text = f"{table(results)}\n\n{verdict(results)}"
    print(text)
    if settings.write_docs:
        write_between("training_cpu", f"{text} {describe(entry)}")
    return int(settings.check and not is_fast(results))


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings)))
