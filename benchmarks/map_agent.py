"""Measures the agent that plays all levels: success, steps next to the expert's, and what its failures are.

    python -m benchmarks.map_agent --levels paper --missions 1000 --out validation.jsonl
    python -m benchmarks.map_agent --levels paper --missions 10000 --test --out results/map/test.jsonl
    python -m benchmarks.map_agent --levels others --missions 500 --test --out results/map/test.jsonl
    python -m benchmarks.map_agent --levels BossLevel,SynthSeq --without history --out ablation.jsonl

Each level is one line of the output. Levels that are in it already, measured in the same way, are skipped, so that a
command can be repeated. Without a GPU, thousands of missions take hours: measure them in parts, with --skip. Test
missions are for a frozen agent only. A failed mission is played again to see what the agent does at its end (see
`find_endings`).
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from babyai.agents import Agent
from babyai.agents.checkpoint import find_checkpoint
from babyai.agents.device import PRECISIONS
from babyai.console import progress
from babyai.engine import Engine
from babyai.evaluation.evaluate import Evaluation, evaluate_levels
from babyai.evaluation.players import AgentPlayer, ExpertPlayer, Player
from babyai.expert.expert import ExpertBatch
from babyai.expert.teacher_search import start_teacher_search
from babyai.expert.teacher_subgoals import TARGET, choose_subgoal
from babyai.levels.catalog import LEVELS, PAPER_LEVELS
from babyai.seeds import TEST_SEED, VALIDATION_SEED
from babyai.training.provenance import describe_provenance

# Long episodes first; see `evaluate_levels`.
PAPER_ORDER = tuple(reversed(PAPER_LEVELS))
OTHERS = tuple(sorted(LEVELS.keys() - set(PAPER_LEVELS), key=lambda name: -LEVELS[name].width))
GROUPS = {"paper": PAPER_ORDER, "others": OTHERS}
# An agent that was this often in a state goes around in circles.
RECURRENCES = 20


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="map", help="Checkpoint (default: the one that comes with the package).")
    parser.add_argument("--levels", default="paper", help="paper, others, or names separated by commas.")
    parser.add_argument("--missions", type=int, default=1000, help="Missions per level (default: 1000).")
    parser.add_argument("--skip", type=int, default=0, help="Leave out as many missions at the start (default: 0).")
    parser.add_argument("--test", action="store_true", help="Test missions instead of validation missions.")
    parser.add_argument("--precision", choices=PRECISIONS, help="Default: bf16 on a GPU, float32 elsewhere.")
    parser.add_argument("--sample", action="store_true", help="Sample actions instead of taking the argmax.")
    parser.add_argument("--without", default="", help="Leave out parts of its memory, joined by +, such as history.")
    parser.add_argument("--failures", type=int, default=100, help="Failures per level to look at (default: 100).")
    parser.add_argument("--out", type=Path, required=True, help="Output file, JSON lines; new levels are appended.")
    arguments = parser.parse_args()
    agent = Agent.load(arguments.agent)
    config = replace(agent.config, without=arguments.without or agent.config.without)
    model = agent.model
    model.without = config.left_out
    player = AgentPlayer(model, device="auto", precision=arguments.precision, sample=arguments.sample)
    first_seed = arguments.skip + (TEST_SEED if arguments.test else VALIDATION_SEED)
    settings = {"missions": arguments.missions, "first_seed": first_seed}
    how = {
        "weights": hashlib.sha256(find_checkpoint(arguments.agent).read_bytes()).hexdigest()[:12],
        "actions": "sampled" if player.sample else "argmax",
        "precision": player.precision,
        "without": config.without,
        **settings,
    }
    measured = {row["level"] for row in read_rows(arguments.out) if how.items() <= row.items()}
    levels = GROUPS.get(arguments.levels) or arguments.levels.split(",")
    left = [level for level in levels if level not in measured]
    for row in measure(player, left, settings, arguments.failures) if left else ():
        with arguments.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(how | row) + "\n")
        print(describe(row), flush=True)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an output file; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def describe(row: dict[str, Any]) -> str:
    """The row of a level as text."""
    rate, low, high = (100 * row[key] for key in ("success_rate", "low", "high"))
    endings = ", ".join(f"{count} {ending}" for ending, count in row["endings"].items())
    steps = "" if row["steps_ratio"] is None else f"{row['steps_ratio']:.2f} x the expert's steps"
    return f"{row['level']:24} {rate:6.2f} ({low:.2f} to {high:.2f})  {steps}  {endings}"


def measure(
    player: AgentPlayer, levels: Sequence[str], settings: dict[str, int], max_failures: int
) -> Iterator[dict[str, Any]]:
    """Success, steps and failures on each level, as JSON."""
    with progress("evaluating", "missions") as report:
        results = evaluate_levels(player, levels, **settings, progress=report)
    experts = evaluate_levels(ExpertPlayer(), levels, **settings)
    for name, result in results.items():
        failed = result.failed_seeds.tolist()
        yield {
            **result.to_dict(),
            "failed_seeds": failed,
            "steps_ratio": compare_steps(result, experts[name]),
            "expert_success_rate": experts[name].success_rate,
            "expert_mean_length": experts[name].mean_length,
            "endings": dict(find_endings(player, name, failed[:max_failures])) if failed[:max_failures] else {},
            "origin": describe_provenance(),
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
