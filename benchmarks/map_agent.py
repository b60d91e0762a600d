"""Measures the agent that plays all levels: success, steps next to the expert's, and what its failures are.

    python -m benchmarks.map_agent --levels paper --missions 1000 --out validation.json
    python -m benchmarks.map_agent --levels others --missions 200 --failures 0 --out others.json
    python -m benchmarks.map_agent --replay results/map/stretches.jsonl --out results/map/failures-3.json

Missions are validation missions; a frozen agent is tested with `babyai evaluate`, whose seeds are those of test
missions. A failed mission is played again to see what the agent does at its end (see `find_endings`). The last command
only does that, for missions that failed before.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from babyai.agents import Agent
from babyai.console import progress
from babyai.engine import Engine
from babyai.evaluation.evaluate import Evaluation, evaluate_levels
from babyai.evaluation.players import AgentPlayer, ExpertPlayer, Player
from babyai.expert.expert import ExpertBatch
from babyai.expert.teacher_search import start_teacher_search
from babyai.expert.teacher_subgoals import TARGET, choose_subgoal
from babyai.levels.catalog import LEVELS, PAPER_LEVELS
from babyai.seeds import VALIDATION_SEED
from babyai.training.provenance import describe_provenance

# Long episodes first; see `evaluate_levels`.
PAPER_ORDER = tuple(reversed(PAPER_LEVELS))
OTHERS = tuple(sorted(LEVELS.keys() - set(PAPER_LEVELS), key=lambda name: -LEVELS[name].width))
# An agent that was this often in a state goes around in circles.
RECURRENCES = 20


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="map", help="Checkpoint (default: the one that comes with the package).")
    parser.add_argument("--levels", default="paper", help="paper, others, or names separated by commas.")
    parser.add_argument("--missions", type=int, default=1000, help="Validation missions per level (default: 1000).")
    parser.add_argument("--sample", action="store_true", help="Sample actions instead of taking the argmax.")
    parser.add_argument("--failures", type=int, default=100, help="Failures per level to look at (default: 100).")
    parser.add_argument("--replay", type=Path, help="Only look at the failures in the last line of this file.")
    parser.add_argument("--out", type=Path, required=True, help="Output file, JSON.")
    arguments = parser.parse_args()
    player = AgentPlayer(Agent.load(arguments.agent).model, device="auto", sample=arguments.sample)
    if arguments.replay:
        report = replay_failures(player, arguments.replay)
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        return
    groups = {"paper": PAPER_ORDER, "others": OTHERS}
    levels = groups.get(arguments.levels) or arguments.levels.split(",")
    report = measure(player, levels, arguments.missions, arguments.failures)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name, row in report["levels"].items():
        rate, low, high = (100 * row[key] for key in ("success_rate", "low", "high"))
        endings = ", ".join(f"{count} {ending}" for ending, count in row["endings"].items())
        steps = "" if row["steps_ratio"] is None else f"{row['steps_ratio']:.2f} x the expert's steps"
        print(f"{name:24} {rate:6.2f} ({low:.2f} to {high:.2f})  {steps}  {endings}")
    print(f"{report['missions_per_second']:.1f} missions/s")


def measure(player: AgentPlayer, levels: Sequence[str], missions: int, max_failures: int) -> dict[str, Any]:
    """Success, steps and failures on each level, as JSON."""
    settings = {"missions": missions, "first_seed": VALIDATION_SEED}
    began = time.perf_counter()
    with progress("evaluating", "missions") as report:
        results = evaluate_levels(player, levels, **settings, progress=report)
    seconds = time.perf_counter() - began
    experts = evaluate_levels(ExpertPlayer(), levels, **settings)
    rows = {}
    for name, result in results.items():
        seeds = result.failed_seeds[:max_failures].tolist()
        endings = find_endings(player, name, seeds) if seeds else Counter()
        rows[name] = {
            **result.to_dict(),
            "steps_ratio": compare_steps(result, experts[name]),
            "expert_success_rate": experts[name].success_rate,
            "endings": dict(endings),
        }
    return {
        "origin": describe_provenance(),
        "actions": "sampled" if player.sample else "argmax",
        "precision": player.precision,
        "missions_per_second": missions * len(levels) / seconds,
        "levels": rows,
    }


def replay_failures(player: AgentPlayer, path: Path) -> dict[str, Any]:
    """How the failed missions of the newest stretch of training end, as JSON."""
    stretch = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    failed = {name: seeds for name, seeds in stretch["failed_seeds"].items() if seeds}
    return {
        "origin": describe_provenance(),
        "stretch": stretch["stretch"],
        "actions": "sampled" if player.sample else "argmax",
        "precision": player.precision,
        "endings": {name: dict(find_endings(player, name, seeds)) for name, seeds in failed.items()},
    }


def compare_steps(result: Evaluation, expert: Evaluation) -> float | None:
    """The median ratio of the agent's steps to the expert's, over missions that both solve; None if there are none."""
    both = (result.rewards > 0) & (expert.rewards > 0)
    return float(np.median(result.lengths[both] / expert.lengths[both])) if both.any() else None


def find_endings(player: Player, level: str, seeds: Sequence[int]) -> Counter[str]:
    """How failed missions end: in circles, by how many states recur, or when the time is over; and why.

    The reason is "search" if the teacher would have to find something first, "target seen" if not, and "impossible" if
    it has no advice any more. Rounding depends on the number of worlds and on the device, so that a mission can be
    solved when it is replayed.
    """
    engine = Engine([level], len(seeds))
    engine.reset(np.array(seeds))
    teacher = ExpertBatch(engine, "teacher")
    player.begin(engine)
    starts = np.ones(len(seeds), dtype=bool)
    endings: list[str | None] = [None] * len(seeds)
    counts = [Counter[bytes]() for _ in seeds]
    with progress(f"failures of {level}", "steps") as report:
        while None in endings:
            advice = teacher.advise()
            for world in [k for k, ending in enumerate(endings) if ending is None]:
                state = describe_state(engine.worlds[world])
                counts[world][state] += 1
                if counts[world][state] == RECURRENCES:
                    recurring = sum(count > RECURRENCES // 2 for count in counts[world].values())
                    reason = find_reason(engine, teacher, world) if advice[world] >= 0 else "impossible"
                    endings[world] = f"{recurring}-state circle, {reason}"
            engine.step(player.act(engine, starts), skip_done=True)
            starts = np.zeros(len(seeds), dtype=bool)
            for world in np.flatnonzero(engine.done):
                if endings[world] is None:
                    endings[world] = "solved when replayed" if engine.rewards[world] > 0 else "time over"
            report(int(engine.worlds.step_count.max()), int(engine.worlds.max_steps.max()))
    return Counter(ending for ending in endings if ending is not None)


def describe_state(world: np.record) -> bytes:
    """A world without its clock."""
    copied = world.copy()
    copied["step_count"] = 0
    return copied.tobytes()


def find_reason(engine: Engine, teacher: ExpertBatch, world: int) -> str:
    """Whether all that the next part of the mission needs has been seen."""
    search = teacher._searches[0][0]
    start_teacher_search(search, engine.kernel_worlds[world])
    subgoal = choose_subgoal(search, engine.kernel_worlds[world], teacher._records[world])
    return "target seen" if subgoal[0] == TARGET else "search"


if __name__ == "__main__":
    main()
