"""Puts what was learned beside what the paper reports, from results/learning/*.json.gz into docs/results.md.

python -m benchmarks.learning_report
"""

import gzip
import json
from pathlib import Path
from typing import Any

from babyai.evaluation.statistics import Summary, best_rolling_mean, summarize, welch_test, welch_test_of_summaries

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results" / "learning", ROOT / "docs" / "results.md"
SPEEDS = ROOT / "results" / "training.json"
WINDOW = 10

# Success in per cent and its deviation over ten runs, Table 3; and the least that ours must reach, if it is not to be
# within so many points of the paper's.
NEAR = 4.0
IMITATION: dict[str, tuple[float, float, float | None]] = {
    "GoToRedBallGrey-5k": (99.7, 0.1, 99.0),
    "GoToRedBall-10k": (99.8, 0.1, 99.0),
    "GoToLocal-50k": (99.8, 0.1, 99.0),
    "PickupLoc-100k": (98.6, 0.3, 98.0),
    "PutNextLocal-100k": (99.5, 0.5, 99.0),
    "GoToLocal-5k-bf16-0": (84.2, 2.0, None),
    "GoToLocal-5k-original": (72.5, 1.0, None),
    "PutNextLocal-5k": (12.5, 1.2, None),
}
# Thousands of episodes until 99 %, Table 1(b).
PPO = {"GoToRedBallGrey": (24, 2), "GoToRedBall": (177, 2), "GoToLocal": (611, 760)}
PAPER_RUNS = 10


def read_runs() -> list[dict[str, Any]]:
    """All runs, oldest first; a cell may have several."""
    runs = []
    for path in sorted(RESULTS.glob("*.json.gz")):
        kept = json.loads(gzip.decompress(path.read_bytes()))
        runs += [cell | {"origin": kept["origin"]} for cell in kept["cells"]]
    return runs


def choose_cells(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A run for each cell: whole ones win over those cut short, of which the longer wins; then the newer."""
    cells: dict[str, dict[str, Any]] = {}
    for run in runs:
        before = cells.get(run["cell"])
        if before is None or worth(run) >= worth(before):
            cells[run["cell"]] = run
    return cells


def worth(run: dict[str, Any]) -> tuple[bool, int]:
    return run["whole"], 0 if run["whole"] else len(run["rows"])


def imitation_table(cells: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| level, demonstrations | paper, 10 runs | ours, 1 run: best mean of 10 validations | test missions won "
        "(95 % interval) | asked for | validations |",
        "|---|---|---|---|---|---|",
    ]
    for name, (mean, std, least) in IMITATION.items():
        asked = f"within {NEAR:.0f} points" if least is None else f"at least {least:.0f}"
        cell = cells.get(f"imitation-{name}")
        if cell is None:
            lines.append(f"| {name} | {mean} ± {std} | not measured | | {asked} | |")
            continue
        successes = [row["success"] for row in cell["rows"]]
        best, test = best_rolling_mean(successes, WINDOW), cell["test"]["best"]
        if best is None:
            lines.append(
                f"| {name} | {mean} ± {std} | fewer than {WINDOW} validations | | {asked} | {len(successes)} |"
            )
            continue
        met = abs(100 * best - mean) <= NEAR if least is None else 100 * best >= least
        lines.append(
            f"| {name} | {mean} ± {std} | **{100 * best:.1f}** | {100 * test['success_rate']:.1f} "
            f"({100 * test['low']:.1f} to {100 * test['high']:.1f}, {test['missions']:,}) "
            f"| {asked}: {'yes' if met else 'no'} | {len(successes)}{'' if cell['whole'] else ', cut short'} |"
        )
    return lines


def ppo_table(cells: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| level | paper, 10 runs | ours, centered window | ours, last 1 000 episodes | at most 1.5 × | Welch's test "
        "| test missions won, %: likeliest action | drawn |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for level, (mean, std) in PPO.items():
        runs = [cell for seed in (1, 2, 3) if (cell := cells.get(f"ppo-{level}-{seed}"))]
        centered = [run["sample_efficiency"]["centred"] for run in runs]
        trailing = [run["sample_efficiency"]["trailing"] for run in runs]
        shown = [
            ", ".join(f"{each / 1000:.1f}" if each else "not reached" for each in figures) or "not measured"
            for figures in (centered, trailing)
        ]
        verdict = p = ""
        if centered and all(centered):
            ours = summarize([each / 1000 for each in centered])
            verdict = "yes" if ours.mean <= 1.5 * mean else "no"
            p = f"p = {welch_test_of_summaries(ours, Summary(mean, std, PAPER_RUNS)).p:.2f}"
        elif runs:
            frames = max(run["rows"][-1]["frames"] for run in runs)
            verdict = f"open: stopped at {frames / 1e6:.1f} M frames at most"
        won = " | ".join(
            ", ".join(percent(run["test"][how]["success_rate"]) if how in run["test"] else "–" for run in runs)
            for how in ("last", "drawn")
        )
        lines.append(f"| {level} | {mean} ± {std} | {shown[0]} | {shown[1]} | {verdict} | {p} | {won} |")
    return lines


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def thousands(count: float) -> str:
    return f"{count / 1000:.1f}"


def precision_table(cells: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["| cell | bf16 | float32 | Welch's test |", "|---|---|---|---|"]
    for kind, measure, what, show in (
        ("imitation-GoToLocal-5k", "success", f"best mean of {WINDOW} of the first 40 validations, %", percent),
        ("ppo-GoToRedBallGrey", "episodes", "thousands of episodes until 99 %, centred", thousands),
    ):
        groups, shown = {}, []
        for precision in ("bf16", "float32"):
            runs = [cell for name, cell in cells.items() if name.startswith(kind) and is_of(name, kind, precision)]
            groups[precision] = [value for run in runs if (value := figure(run, measure)) is not None]
            places = sorted({run["origin"]["gpu"] or f"CPU, {run['origin']['cpus']} cores" for run in runs})
            values = ", ".join(show(value) for value in groups[precision])
            shown.append(f"{values} ({'; '.join(places)})" if values else "not measured")
        enough = all(len(group) > 1 for group in groups.values())
        p = f"p = {welch_test(groups['bf16'], groups['float32']).p:.2f}" if enough else ""
        lines.append(f"| {kind}: {what} | {shown[0]} | {shown[1]} | {p} |")
    return lines


def is_of(name: str, kind: str, precision: str) -> bool:
    rest = name.removeprefix(kind)
    if kind.startswith("ppo") and precision == "bf16":
        return rest in ("-1", "-2", "-3")
    return rest.startswith(f"-{precision}-")


def figure(cell: dict[str, Any], measure: str) -> float | None:
    if measure == "success":
        # As many validations as there are of either.
        return best_rolling_mean([row["success"] for row in cell["rows"]][:40], WINDOW)
    return cell["sample_efficiency"]["centred"]


def pixel_lines(cells: dict[str, dict[str, Any]]) -> list[str]:
    cell = cells.get("imitation-GoToRedBallGrey-5k-pixels")
    if cell is None:
        return ["Not measured yet."]
    best, test = best_rolling_mean([row["success"] for row in cell["rows"]], WINDOW), cell["test"]["best"]
    assert best is not None
    return [
        f"`pixels_endpool_res` by imitation on GoToRedBallGrey, 5 000 demonstrations: best mean of {WINDOW} of "
        f"{len(cell['rows'])}",
        f"validations {percent(best)} %, test missions won {percent(test['success_rate'])} % "
        f"({percent(test['low'])} to {percent(test['high'])}).",
    ]


def dagger_table(cells: dict[str, dict[str, Any]]) -> list[str]:
    """DAgger beside imitation, with the difference's 95 % interval."""
    kinds = {
        "imitation": "imitation-GoToObjMaze",
        "drawn": "dagger-GoToObjMaze",
        "likeliest": "dagger-GoToObjMaze-greedy",
    }
    runs = {
        kind: [cell for seed in range(3) if (cell := cells.get(f"{name}-{seed}")) and cell["whole"]]
        for kind, name in kinds.items()
    }
    if len(runs["imitation"]) < 3:
        return ["GoToObjMaze: the runs of imitation have not ended; nothing can be said yet."]
    millions = [run["rows"][-1]["frames"] / 1e6 for group in runs.values() for run in group]
    lines = [
        f"GoToObjMaze, {min(millions):.1f} to {max(millions):.1f} million labeled frames, three seeds, test missions "
        "won, %:",
        "",
        "| while learning, DAgger's agent does | weights | DAgger | imitation | difference (95 % interval) |",
        "|---|---|---|---|---|",
    ]
    above, below = [], []
    for how, sentence in (("drawn", "what it draws from its policy"), ("likeliest", "its likeliest action")):
        for which, name in (("last", "after the last update"), ("best", "of the best of 25 validations")):
            if len(runs[how]) < 3:
                lines.append(f"| {sentence} | {name} | not measured | | |")
                continue
            rates = [[run["test"][which]["success_rate"] for run in runs[kind]] for kind in (how, "imitation")]
            test = welch_test(*rates)
            figures = " | ".join(", ".join(map(percent, group)) for group in rates)
            interval = f"{100 * test.difference:+.1f} ({100 * test.low:+.1f} to {100 * test.high:+.1f})"
            lines.append(f"| {sentence} | {name} | {figures} | {interval} |")
            above.append(test.low > 0)
            below.append(test.high < 0)
    verdict = "is the better one" if above and all(above) else "is not shown to be better"
    return [*lines, "", f"DAgger {verdict}: {sum(above)} of {len(above)} intervals lie above 0, {sum(below)} below."]


def remarks(cells: dict[str, dict[str, Any]], runs: list[dict[str, Any]]) -> list[str]:
    """What has to be known to read the tables."""
    leapt, smooth = by_leaps([run for run in runs if run["cell"].startswith("imitation-GoToLocal-5k-bf16")])
    on_cpu = [cells[f"ppo-GoToRedBallGrey-cpu-{seed}"]["sample_efficiency"]["centred"] for seed in (1, 2, 3)]
    trailing = [cells[f"ppo-GoToRedBall-{seed}"]["sample_efficiency"]["trailing"] for seed in (1, 2, 3)]
    early = [cells[f"ppo-GoToLocal-{seed}-at-3.8M"] for seed in (1, 2, 3)]
    likeliest, drawn, training = (
        ", ".join(map(percent, rates))
        for rates in (
            *([cell["test"][how]["success_rate"] for cell in early] for how in ("last", "drawn")),
            [cell["rows"][-1]["success"] for cell in early],
        )
    )
    return [
        "* The authors' centered figure cannot come before half a window is over: 50 rows are 500 updates, 1.28",
        "  million frames. The paper's 177 ± 2 on GoToRedBall says as much about the window as about the agent; by",
        f"  the last 1 000 episodes it took {thousands(min(trailing))} to {thousands(max(trailing))} thousand.",
        "* PPO's test figures are of the last weights, with batch norm's running averages. Where the policy is still",
        "  undecided, its likeliest action is worse than one drawn from it: on GoToLocal after 3.8 million frames",
        f"  {likeliest} % of test missions are won by the likeliest, {drawn} % by drawn ones, and the last",
        f"  episodes of training were won at {training} %. The paper's figure of PPO is of drawn actions.",
        "* GoToLocal with 5 000 demonstrations was run several times, with different seeds and commits. In some runs",
        "  the loss, after it had come down to almost nothing, leapt up again, and more missions were won afterwards:",
        f"  best means {leapt} % with such a leap, {smooth} % without.",
        "* Without a GPU (two cores, float32), PPO on GoToRedBallGrey took "
        f"{', '.join(map(thousands, on_cpu))} thousand episodes.",
    ]


def by_leaps(runs: list[dict[str, Any]]) -> tuple[str, str]:
    """Best means of the runs whose loss leapt up late, and of those whose loss did not."""
    groups: dict[bool, list[str]] = {True: [], False: []}
    for run in runs:
        best = best_rolling_mean([row["success"] for row in run["rows"]], WINDOW)
        if best is not None and (late := [row["loss"] for row in run["rows"][40:]]):
            # Without a leap it stays below 0.001 from there on; leaps reached 0.03 to 0.3.
            groups[max(late) > 0.01].append(percent(best))
    return ", ".join(groups[True]), ", ".join(groups[False])


def speed_table() -> list[str]:
    speeds = json.loads(SPEEDS.read_text())
    one, many, small, big = (speeds[name]["frames_per_second"] for name in ("ppo", "many", "imitation", "big"))
    rows = [
        ("PPO, one run, GoToLocal", one, 60_000, 100_000),
        ("PPO, 8 seeds side by side, summed", many, 120_000, 300_000),
        ("imitation, small, GoToLocal", small, 250_000, 800_000),
        ("imitation, big, BossLevel", big, 100_000, 300_000),
    ]
    lines = ["| whole loop, frames per second | measured | must | aim |", "|---|---|---|---|"]
    lines += [f"| {name} | {rate:,.0f} | {must:,} | {aim:,} |" for name, rate, must, aim in rows]
    seconds, origin = min(speeds["evaluation"]["seconds"]), speeds["origin"]
    lines.append(f"| 512 BossLevel missions by a big agent | {seconds:.1f} s | 10 s | |")
    return [*lines, "", f"Measured on {origin['date'][:10]} at {origin['commit'][:7]} on one {origin['gpu']}."]


def main() -> None:
    runs = read_runs()
    cells = choose_cells(runs)
    origins = {json.dumps(cell["origin"], sort_keys=True) for cell in cells.values()}
    seen = [json.loads(origin) for origin in sorted(origins)]
    where = "; ".join(
        f"{each['gpu'] or 'no GPU'}, {each['cpus']} cores, torch {each['versions']['torch']}, "
        f"commit {each['commit'][:7]}, {each['date'][:10]}"
        for each in seen
    )
    text = [
        "# What was measured",
        "",
        "Written by `python -m benchmarks.learning_report` from `results/`, which has the rows of all runs. A cell is",
        "one `babyai train`, which `results/` gives as a command: the paper's settings, but for DAgger and",
        "the imitation beside it, which learn from endless demonstrations. The runs shared a GPU, and some were",
        "stopped and resumed; those of the earliest commit were made from a working tree with changes not committed",
        "yet. Where a run was repeated, the table has the newest that ended or, if none did, the longest.",
        f"Hardware and versions: {where}.",
        "",
        "## Imitation beside Table 3",
        "",
        *imitation_table(cells),
        "",
        f"The paper's figure is the best mean over a window of validations; its window was 100 ({WINDOW} on",
        f"GoToRedBallGrey), ours is {WINDOW} throughout. It is chosen by validation, so the test figure, of the best",
        "checkpoint on missions from seed 2·10⁹ on, stands beside it.",
        "",
        "## PPO beside Table 1: thousands of episodes until 99 %",
        "",
        *ppo_table(cells),
        "",
        "## bf16 beside float32",
        "",
        *precision_table(cells),
        "",
        "## DAgger beside imitation",
        "",
        *dagger_table(cells),
        "",
        "## Pixels",
        "",
        *pixel_lines(cells),
        "",
        "## Speed",
        "",
        *speed_table(),
        "",
        "How fast PPO is without a GPU, beside plain PyTorch over Minigrid, stands in [speed](speed.md).",
        "",
        "![What the kernels of an update are for](images/kernels.png)",
        "",
        "The figure is of imitation, where demonstrations are replayed on another thread meanwhile, and the loop",
        "is as fast as its updates alone.",
        "",
        "## What this says, and what it does not",
        "",
        *remarks(cells, runs),
        "* One seed of imitation, where the paper has ten. The three seeds of PPO are few, too.",
        "",
    ]
    PAGE.write_text("\n".join(text))


if __name__ == "__main__":
    main()
