"""Writes docs/results.md: learning results next to the paper's tables, and training speed.

    python -m benchmarks.learning_report

Reads results/learning/*.json.gz and results/training.json. A cell with several runs of the same seed is represented by
one of them, see `choose_runs`; all seeds that exist are used.
"""

import gzip
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from babyai.evaluation.statistics import Summary, best_rolling_mean, summarize, welch_test, welch_test_of_summaries

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "learning"
PAGE = ROOT / "docs" / "results.md"
SPEEDS = ROOT / "results" / "training.json"
WINDOW = 10
PAPER_RUNS = 10
# bf16 and float32 are compared over the first validations only, because the float32 runs have no more.
COMPARED_VALIDATIONS = 40

# The commit that rewrote the training code.
REWRITE = "cf39b59"
# A loss above this, late in training, is a spike. Without one it stays far below.
SPIKE = 0.01

# Table 3: success rate in percent and its standard deviation over ten runs. The third value is the success rate that is
# required of ours; None requires it to be within NEAR points of the paper's.
NEAR = 4.0
IMITATION: dict[str, tuple[float, float, float | None]] = {
    "GoToRedBallGrey-5k": (99.7, 0.1, 99.0),
    "GoToRedBall-10k": (99.8, 0.1, 99.0),
    "GoToLocal-50k": (99.8, 0.1, 99.0),
    "PickupLoc-100k": (98.6, 0.3, 98.0),
    "PutNextLocal-100k": (99.5, 0.5, 99.0),
    "GoToLocal-5k-bf16": (84.2, 2.0, None),
    "GoToLocal-5k-original": (72.5, 1.0, None),
    "PutNextLocal-5k": (12.5, 1.2, None),
}
# Table 1(b): thousands of episodes until a success rate of 99 %. Ours may take MAX_RATIO times as many.
PPO = {"GoToRedBallGrey": (24, 2), "GoToRedBall": (177, 2), "GoToLocal": (611, 760)}
MAX_RATIO = 1.5
# Key in results/training.json, heading, required and target frames per second.
SPEED_COLUMNS = (
    ("ppo", "PPO, one run", 60_000, 100_000),
    ("many", "PPO, 8 seeds", 120_000, 300_000),
    ("imitation", "imitation, small", 250_000, 800_000),
    ("big", "imitation, big", 100_000, 300_000),
)
MAX_EVALUATION_SECONDS = 10

Run = dict[str, Any]
Cells = Mapping[str, Run]

# ------------------------------------------------------------ reading


def read_runs() -> list[Run]:
    """All runs, oldest first, each with the provenance of its file."""
    runs = []
    for path in sorted(RESULTS.glob("*.json.gz")):
        content = json.loads(gzip.decompress(path.read_bytes()))
        runs += [run | {"origin": content["origin"]} for run in content["cells"]]
    return runs


def choose_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """One run per cell (and so per seed): the newest complete one or, if none is complete, the longest."""
    chosen: dict[str, Run] = {}
    for run in runs:
        before = chosen.get(run["cell"])
        if before is None or _rank(run) >= _rank(before):
            chosen[run["cell"]] = run
    return chosen


def _rank(run: Run) -> tuple[bool, int]:
    return run["whole"], 0 if run["whole"] else len(run["rows"])


def find_seeds(cells: Cells, base: str) -> dict[int, Run]:
    """The runs of a cell by seed: `base-<seed>`, or just `base` for seed 0."""
    found = {}
    for name, run in cells.items():
        if match := re.fullmatch(rf"{re.escape(base)}(?:-(\d+))?", name):
            found[int(match[1] or 0)] = run
    return dict(sorted(found.items()))


# ------------------------------------------------------------ formatting


def percent(rate: float) -> str:
    """0.9966 as `99.7`."""
    return f"{100 * rate:.1f}"


def thousands(count: float | None) -> str:
    """21331 as `21.3`."""
    return "not reached" if count is None else f"{count / 1000:.1f}"


def join(values: Iterable[Any], show: Callable[[Any], str]) -> str:
    """The values as text, separated by commas."""
    return ", ".join(show(value) for value in values)


def mean_and_std(summary: Summary) -> str:
    """`21.7 ± 2.0`, or just the mean of one value."""
    return f"{summary.mean:.1f}" if summary.count == 1 else f"{summary.mean:.1f} ± {summary.std:.1f}"


def compare(ours: Summary, mean: float, std: float) -> str:
    """The p-value of Welch's test against the paper's runs; empty with fewer than two of ours."""
    return f"p = {welch_test_of_summaries(ours, Summary(mean, std, PAPER_RUNS)).p:.2f}" if ours.count > 1 else ""


def format_test(test: dict[str, Any]) -> str:
    """A success rate on test missions with its interval and the number of missions."""
    interval = f"{percent(test['low'])} to {percent(test['high'])}"
    return f"{percent(test['success_rate'])} ({interval}, {test['missions']:,})"


def wrap(*parts: str) -> list[str]:
    """A paragraph or, if it starts with `* `, a list item, as lines of at most 120 characters."""
    text = " ".join(parts)
    indent = "  " if text.startswith("* ") else ""
    return textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table as lines."""
    return [f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *rows)]


# ------------------------------------------------------------ imitation learning


def best_mean(run: Run, validations: int | None = None) -> float | None:
    """The best rolling mean of a run's validations, or of its first ones."""
    return best_rolling_mean([row["success"] for row in run["rows"]][:validations], WINDOW)


def imitation_table(cells: Cells) -> list[str]:
    """Ours next to Table 3."""
    headings = (
        *("level, demonstrations", "paper, 10 runs", "seeds", f"ours: best mean of {WINDOW} validations"),
        *("Welch's test", "test success (95 % interval, missions)", "requirement", "validations"),
    )
    rows = []
    for name, (mean, std, required) in IMITATION.items():
        rule = f"within {NEAR:.0f} points" if required is None else f"at least {required:.0f}, in test too"
        runs = [run for run in find_seeds(cells, f"imitation-{name}").values() if best_mean(run) is not None]
        title = name.removesuffix("-bf16")
        if not runs:
            rows.append((title, f"{mean} ± {std}", "0", "not measured", "", "", rule, ""))
            continue
        rates = [100 * (best_mean(run) or 0.0) for run in runs]
        ours = summarize(rates)
        # A threshold is met only if the test figures, which nothing was selected by, meet it too.
        tested = min(100 * run["test"]["best"]["success_rate"] for run in runs)
        met = abs(ours.mean - mean) <= NEAR if required is None else min(ours.mean, tested) >= required
        each = f" ({join(rates, lambda rate: f'{rate:.1f}')})" if len(runs) > 1 else ""
        rows.append(
            (
                *(title, f"{mean} ± {std}", str(len(runs)), f"**{mean_and_std(ours)}**{each}"),
                *(compare(ours, mean, std), "; ".join(format_test(run["test"]["best"]) for run in runs)),
                f"{rule}: {'yes' if met else 'no'}",
                join(runs, lambda run: f"{len(run['rows'])}{'' if run['whole'] else ' (cut short)'}"),
            )
        )
    return table(headings, rows)


def pixel_lines(cells: Cells) -> list[str]:
    """The agent that sees pixels."""
    run = cells.get("imitation-GoToRedBallGrey-5k-pixels")
    if run is None:
        return ["Not measured."]
    best = best_mean(run)
    assert best is not None
    test = run["test"]["best"]
    return wrap(
        "`pixels_endpool_res`, imitation learning on GoToRedBallGrey with 5,000 demonstrations, one seed: the best",
        f"mean of {WINDOW} of {len(run['rows'])} validations is {percent(best)} %. The test success rate over",
        f"{test['missions']:,} missions is {percent(test['success_rate'])} % (95 % interval {percent(test['low'])} to",
        f"{percent(test['high'])}).",
    )


# ------------------------------------------------------------ PPO


def centered(runs: Iterable[Run]) -> list[float | None]:
    """The authors' sample efficiency of each run, in episodes. The key of stored results keeps its spelling."""
    return [run["sample_efficiency"]["centred"] for run in runs]


def ppo_table(cells: Cells) -> list[str]:
    """Ours next to Table 1: means over all seeds."""
    headings = ("level", "paper, 10 runs", "our seeds", "ours", "Welch's test", f"at most {MAX_RATIO} × the paper's")
    rows = []
    significant = []
    for level, (mean, std) in PPO.items():
        runs = list(find_seeds(cells, f"ppo-{level}").values())
        figures = [figure / 1000 for figure in centered(runs) if figure is not None]
        count = str(len(runs)) if len(figures) == len(runs) else f"{len(figures)} of {len(runs)}"
        if not figures:
            rows.append((level, f"{mean} ± {std}", count, "not measured", "", ""))
            continue
        ours = summarize(figures)
        if ours.count > 1 and welch_test_of_summaries(ours, Summary(mean, std, PAPER_RUNS)).p < 0.05:
            significant.append(f"on {level} ours takes {'fewer' if ours.mean < mean else 'more'} episodes")
        met = len(figures) == len(runs) and ours.mean <= MAX_RATIO * mean
        verdict = "yes" if met else "no"
        rows.append((level, f"{mean} ± {std}", count, f"**{mean_and_std(ours)}**", compare(ours, mean, std), verdict))
    found = ", ".join(significant) or "none"
    return [*table(headings, rows), "", f"Significant differences (p < 0.05): {found}."]


def ppo_seed_table(cells: Cells) -> list[str]:
    """Each seed of each level."""
    headings = (
        *("level", "seeds", "commit", "centered window", "last 1,000 episodes"),
        *("test success, %: argmax", "sampled"),
    )
    rows = []
    for level in PPO:
        for commit, group in group_by_commit(find_seeds(cells, f"ppo-{level}")).items():
            runs = list(group.values())
            tests = [
                join(
                    runs, lambda run, how=how: percent(run["test"][how]["success_rate"]) if how in run["test"] else "–"
                )
                for how in ("last", "drawn")
            ]
            trailing = [run["sample_efficiency"]["trailing"] for run in runs]
            rows.append(
                (level, join(group, str), commit, join(centered(runs), thousands), join(trailing, thousands), *tests)
            )
    return table(headings, rows)


def group_by_commit(seeds: Mapping[int, Run]) -> dict[str, dict[int, Run]]:
    """Runs by the commit they were trained with."""
    groups: dict[str, dict[int, Run]] = {}
    for seed, run in seeds.items():
        groups.setdefault(run["origin"]["commit"][:7], {})[seed] = run
    return groups


# ------------------------------------------------------------ comparisons


def precision_table(cells: Cells) -> list[str]:
    """bf16 next to float32, all seeds of either."""
    first = f"best mean of {WINDOW} of the first {COMPARED_VALIDATIONS} validations, %"
    comparisons = (
        ("imitation, GoToLocal, 5,000 demonstrations: " + first, "imitation-GoToLocal-5k", "-bf16", early_success),
        ("PPO, GoToRedBallGrey: thousands of episodes until 99 %, centered", "ppo-GoToRedBallGrey", "", episodes),
    )
    rows = []
    for title, base, suffix, figure in comparisons:
        bf16, float32 = (
            [value for run in find_seeds(cells, f"{base}{end}").values() if (value := figure(run)) is not None]
            for end in (suffix, "-float32")
        )
        p = f"p = {welch_test(bf16, float32).p:.2f}" if min(len(bf16), len(float32)) > 1 else ""
        shown = [
            f"{mean_and_std(summarize(group))} ({len(group)})" if group else "not measured" for group in (bf16, float32)
        ]
        rows.append((title, *shown, p))
    return table(("figure", "bf16 (seeds)", "float32 (seeds)", "Welch's test"), rows)


def early_success(run: Run) -> float | None:
    """Success in percent over the first validations."""
    best = best_mean(run, COMPARED_VALIDATIONS)
    return None if best is None else 100 * best


def episodes(run: Run) -> float | None:
    """Thousands of episodes until 99 %."""
    (count,) = centered([run])
    return None if count is None else count / 1000


def dagger_table(cells: Cells) -> list[str]:
    """DAgger next to imitation learning, with the 95 % interval of the difference."""
    bases = {
        "imitation": "imitation-GoToObjMaze",
        "sampled": "dagger-GoToObjMaze",
        "argmax": "dagger-GoToObjMaze-greedy",
    }
    runs = {name: [run for run in find_seeds(cells, base).values() if run["whole"]] for name, base in bases.items()}
    if any(len(group) < 2 for group in runs.values()):
        return ["GoToObjMaze: not all runs are complete."]
    millions = [run["rows"][-1]["frames"] / 1e6 for group in runs.values() for run in group]
    rows = []
    above = 0
    below = 0
    for how in ("sampled", "argmax"):
        for which, weights in (("last", "last update"), ("best", "best of 25 validations")):
            dagger, imitation = (
                [run["test"][which]["success_rate"] for run in runs[name]] for name in (how, "imitation")
            )
            test = welch_test(dagger, imitation)
            difference = f"{100 * test.difference:+.1f} ({100 * test.low:+.1f} to {100 * test.high:+.1f})"
            rows.append((how, weights, join(dagger, percent), join(imitation, percent), difference))
            above += test.low > 0
            below += test.high < 0
    headings = ("roll-ins", "weights", "DAgger", "imitation", "difference (95 % interval)")
    verdict = "is better" if above == len(rows) else "is not shown to be better"
    return [
        *wrap(
            f"GoToObjMaze, {min(millions):.1f} to {max(millions):.1f} million labeled frames,",
            f"{len(runs['imitation'])} seeds, test success rates in %. Roll-ins are the episodes that DAgger's agent",
            "plays during training, with sampled or with argmax actions.",
        ),
        "",
        *table(headings, rows),
        "",
        f"DAgger {verdict}: {above} of {len(rows)} intervals are above 0, and {below} below.",
    ]


def remarks(cells: Cells, runs: list[Run]) -> list[str]:
    """What a reader of the tables has to know."""
    red_ball = find_seeds(cells, "ppo-GoToRedBall").values()
    trailing = [run["sample_efficiency"]["trailing"] for run in red_ball]
    early = [cells[f"ppo-GoToLocal-{seed}-at-3.8M"] for seed in (1, 2, 3)]
    argmax = join((run["test"]["last"]["success_rate"] for run in early), percent)
    sampled = join((run["test"]["drawn"]["success_rate"] for run in early), percent)
    training = join((run["rows"][-1]["success"] for run in early), percent)
    spiked, smooth = split_by_spikes([run for run in runs if run["cell"].startswith("imitation-GoToLocal-5k-bf16")])
    on_cpu = centered(find_seeds(cells, "ppo-GoToRedBallGrey-cpu").values())
    return [
        *wrap(
            "* **The window of the centered figure sets a lower bound.** It cannot be reached before half a window is",
            "over: 50 rows are 500 updates, or 1.28 million frames. The paper's 177 ± 2 on GoToRedBall says as much",
            "about the window as about the agent. Over the last 1,000 episodes, 99 % was reached after",
            f"{thousands(min(trailing))} to {thousands(max(trailing))} thousand episodes.",
        ),
        *wrap(
            "* **Sampled actions are better than argmax while the policy is undecided.** PPO's test figures are for",
            "the last weights, with the running averages of batch normalization. On GoToLocal after 3.8 million",
            f"frames, the test success rates are {argmax} % with argmax actions and {sampled} % with sampled ones; at",
            f"the end of these frames, training episodes succeeded at {training} %. The paper's figures for PPO are",
            "for sampled actions.",
        ),
        *redesign_lines(cells),
        *wrap(
            "* **GoToLocal with 5,000 demonstrations varies between runs.** These are all its runs, with different",
            "seeds and commits; the table above has one per seed. In some of them the loss, after it had fallen to",
            f"almost nothing, rose sharply once more: best means {join(spiked, percent)} % with such a spike,",
            f"{join(smooth, percent)} % without (p = {welch_test(spiked, smooth).p:.2f}).",
        ),
        *wrap(
            f"* **Without a GPU** (two cores, float32), PPO on GoToRedBallGrey took {join(on_cpu, thousands)}",
            "thousand episodes.",
        ),
        *wrap(
            "* **Few seeds.** The paper has ten runs per cell. Where a table says one seed, the difference from the",
            "paper's mean cannot be tested.",
        ),
    ]


def redesign_lines(cells: Cells) -> list[str]:
    """Seeds from before and after the training code was rewritten are pooled; this says whether they differ."""
    comparisons = []
    for level in PPO:
        groups = group_by_commit(find_seeds(cells, f"ppo-{level}"))
        new = groups.pop(REWRITE, {}).values()
        old = [run for group in groups.values() for run in group.values()]
        before, after = ([count / 1000 for count in centered(group) if count is not None] for group in (old, new))
        if min(len(before), len(after)) > 1:
            comparisons.append(
                f"{level} {mean_and_std(summarize(before))} before and {mean_and_std(summarize(after))} after "
                f"(p = {welch_test(before, after).p:.2f})"
            )
    if not comparisons:
        return []
    return wrap(
        f"* **Some seeds of PPO are from before the training code was rewritten** (commit {REWRITE}), and some from",
        f"after. Thousands of episodes until 99 %: {'; '.join(comparisons)}.",
    )


def split_by_spikes(runs: list[Run]) -> tuple[list[float], list[float]]:
    """Best means of the runs whose loss rose late in training, and of the others."""
    groups: dict[bool, list[float]] = {True: [], False: []}
    for run in runs:
        best = best_mean(run)
        late = [row["loss"] for row in run["rows"][COMPARED_VALIDATIONS:]]
        if best is not None and late:
            groups[max(late) > SPIKE].append(best)
    return groups[True], groups[False]


# ------------------------------------------------------------ speed


def speed_lines() -> list[str]:
    """One row per measurement of results/training.json, and what each was."""
    measurements = json.loads(SPEEDS.read_text(encoding="utf-8"))["measurements"]
    headings = (
        *("frames per second", *(heading for _, heading, _, _ in SPEED_COLUMNS)),
        "512 BossLevel missions",
    )
    rows = [
        ("required", *(f"{required:,}" for _, _, required, _ in SPEED_COLUMNS), f"{MAX_EVALUATION_SECONDS} s"),
        ("target", *(f"{target:,}" for _, _, _, target in SPEED_COLUMNS), ""),
    ]
    for entry in measurements:
        title = f"{entry['group']}: {entry.get('label') or entry['origin']['commit'][:7]}"
        rates = [format_speed(entry.get(key)) for key, _, _, _ in SPEED_COLUMNS]
        seconds = f"{min(entry['evaluation']['seconds']):.1f} s" if "evaluation" in entry else "–"
        rows.append((title, *rates, seconds))
    gpus = sorted({entry["origin"]["gpu"] for entry in measurements})
    return [
        *wrap(
            f"The whole training loop on one {', '.join(gpus)}: worlds or replay, acting, gradient steps; without",
            "validation, after a warm-up, best of three rounds. PPO is on GoToLocal, imitation learning on GoToLocal",
            "(small agent) and BossLevel (big agent), evaluation with a big agent. Only measurements with the same",
            "letter were made on the same machine, one right after the other; between letters, the same commit",
            "differs, too.",
        ),
        "",
        *table(headings, rows),
        "",
        *(line for entry in measurements if "note" in entry for line in wrap(f"* {entry['note']}")),
        "",
        *parallel_lines(measurements),
    ]


def format_speed(result: dict[str, Any] | None) -> str:
    """Frames per second."""
    return "–" if result is None else f"{result['frames_per_second']:,.0f}"


def parallel_lines(measurements: list[dict[str, Any]]) -> list[str]:
    """Ways of training eight seeds at once on one GPU."""
    ways = {
        "one process, runs as generators that take turns": "generators",
        "processes without MPS": "processes",
        "processes with MPS": "mps",
    }
    groups = dict.fromkeys(entry["group"] for entry in measurements if "many" in entry)
    figures = {}
    for entry in measurements:
        # Before there was a choice, results did not say which way they used.
        if many := entry.get("many"):
            way = {None: "generators", False: "processes", True: "mps"}[many.get("mps")]
            figures[entry["group"], way] = many["frames_per_second"]
        for way, rate in entry.get("parallel", {}).items():
            figures[entry["group"], way] = rate
    rows = [
        (title, *(f"{figures[group, way]:,.0f}" if (group, way) in figures else "–" for group in groups))
        for title, way in ways.items()
    ]
    return [
        "Ways of training 8 seeds of PPO on one GPU, frames per second in total:",
        "",
        *table(("", *groups), rows),
    ]


# ------------------------------------------------------------ the page


def origin_table(cells: Cells) -> list[str]:
    """The machines, versions and commits of the runs that the tables show."""
    counts: dict[str, int] = {}
    for run in cells.values():
        key = json.dumps(run["origin"], sort_keys=True)
        counts[key] = counts.get(key, 0) + 1
    origins = sorted(((json.loads(key), count) for key, count in counts.items()), key=lambda item: item[0]["date"])
    rows = [
        (
            f"{origin['commit'][:7]}{' with uncommitted changes' if origin['dirty'] else ''}",
            *(origin["date"][:10], f"{origin['gpu'] or 'no GPU'}, {origin['cpus']} cores"),
            *(origin["versions"]["torch"], str(count)),
        )
        for origin, count in origins
    ]
    return table(("commit", "date", "machine", "torch", "runs shown here"), rows)


def make_page() -> str:
    """The text of docs/results.md."""
    runs = read_runs()
    cells = choose_runs(runs)
    lines = [
        "# Results",
        "",
        *wrap(
            "Generated by `python -m benchmarks.learning_report` from `results/`, which holds the log rows of all",
            "runs and the command of each. Runs use the paper's settings, except for DAgger and the imitation",
            "learning it is compared with, which learn from endless demonstrations. Several runs shared a GPU, and",
            "some were stopped and resumed.",
        ),
        "",
        *wrap(
            "**Which runs count:** all seeds that exist. If a seed was trained more than once, the newest complete",
            "run counts or, if none is complete, the longest.",
        ),
        "",
        *origin_table(cells),
        "",
        "## Imitation learning and Table 3",
        "",
        "Success rates in %, with standard deviations over seeds where there are several.",
        "",
        *imitation_table(cells),
        "",
        *wrap(
            "The paper's figure is the best rolling mean of validations, with a window of 100 (10 on",
            f"GoToRedBallGrey); ours always has a window of {WINDOW}. Because this figure is selected by validation,",
            "the test success rate of the best checkpoint, on missions with seeds from 2·10⁹ on, is next to it.",
        ),
        "",
        "## PPO and Table 1",
        "",
        *wrap(
            "Thousands of episodes until a success rate of 99 % over the authors' centered window, mean ± standard",
            "deviation over seeds.",
        ),
        "",
        *ppo_table(cells),
        "",
        "Each seed:",
        "",
        *ppo_seed_table(cells),
        "",
        "## bf16 and float32",
        "",
        *precision_table(cells),
        "",
        "## DAgger and imitation learning",
        "",
        *dagger_table(cells),
        "",
        "## Pixels",
        "",
        *pixel_lines(cells),
        "",
        "## Speed",
        "",
        *speed_lines(),
        "",
        "[Speed](speed.md#training-without-a-gpu) compares PPO without a GPU with plain PyTorch and Minigrid.",
        "",
        "![GPU time of an imitation update by purpose of its kernels](images/kernels.png)",
        "",
        *wrap(
            "The chart shows imitation learning (`results/kernels.json`). Demonstrations are replayed on other",
            "threads meanwhile, so the loop is about as fast as its gradient steps alone.",
        ),
        "",
        "## Notes",
        "",
        *remarks(cells, runs),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(make_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
