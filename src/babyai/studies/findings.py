"""Sections of the report besides the paper's tables: comparisons of our own, and what a reader has to know."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from babyai.evaluation.statistics import summarize, welch_test
from babyai.studies.cells import EASY_LEVELS, STUDIES
from babyai.studies.costs import paper_costs, total_speeds
from babyai.studies.disagreements import PLATEAU, explain_disagreements
from babyai.studies.efficiency import efficiency_tables
from babyai.studies.measure import WINDOW
from babyai.studies.spikes import SPIKE
from babyai.studies.statistics import Chosen, early_success, rows_of, study_results
from babyai.studies.store import Row, Rows
from babyai.studies.tables import Table, join, mean_and_std, row_of

# The commit that rewrote the training code.
REWRITE = "cf39b59"
# bf16 and float32 are compared over the first validations only, because the float32 runs have no more.
COMPARED_VALIDATIONS = 40
LOCAL_5K = "imitation/GoToLocal/5k/bow_endpool_res"
RED_BALL_GREY = "ppo/GoToRedBallGrey/bow_endpool_res"


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, list items (`* `) and tables."""

    title: str
    blocks: list[str | Table]


def make_sections(rows: Rows, slices: Sequence[dict[str, Any]] = ()) -> list[Section]:
    """All sections.

    Args:
        rows: All rows.
        slices: How fast slices of studies were.
    """
    chosen = rows.chosen()
    return [
        Section("Demonstrations needed for 99 %", efficiency_tables(chosen)),
        Section("bf16 and float32", precision_blocks(chosen)),
        Section(STUDIES["disagreements"].title, explain_disagreements(chosen)),
        Section("DAgger and imitation learning", dagger_blocks(chosen)),
        Section("Pixels", pixel_blocks(chosen)),
        Section("What the whole paper costs", cost_blocks(chosen, slices)),
        Section("Several runs at once", slice_blocks(slices)),
        Section("Where the paper contradicts itself", contradiction_blocks()),
        Section("Notes", notes(chosen, rows.rows)),
    ]


# ------------------------------------------------------------ formatting


def percent(rate: float) -> str:
    """0.9966 as `99.7`."""
    return f"{100 * rate:.1f}"


def thousands(count: float | None) -> str:
    """21331 as `21.3`."""
    return "not reached" if count is None else f"{count / 1000:.1f}"


# ------------------------------------------------------------ comparisons


def precision_blocks(chosen: Chosen) -> list[str | Table]:
    """bf16 next to float32."""
    first = f"best mean of {WINDOW} of the first {COMPARED_VALIDATIONS} validations, %"
    early = partial(early_success, validations=COMPARED_VALIDATIONS)
    comparisons = (
        ("imitation, GoToLocal, 5,000 demonstrations: " + first, LOCAL_5K, early),
        ("PPO, GoToRedBallGrey: thousands of episodes until 99 %, centered", RED_BALL_GREY, thousand_episodes),
    )
    rows = []
    for title, cell, figure in comparisons:
        groups = [
            [value for row in rows_of(chosen, name) if (value := figure(row)) is not None]
            for name in (cell, f"{cell}/float32")
        ]
        shown = [f"{mean_and_std(summarize(group))} ({len(group)})" if group else "not measured" for group in groups]
        p = f"{welch_test(groups[0], groups[1]).p:.2f}" if min(map(len, groups)) > 1 else ""
        rows.append((title, *shown, p))
    return [(("figure", "bf16 (seeds)", "float32 (seeds)", "Welch's p"), rows)]


def thousand_episodes(row: Row) -> float | None:
    """Thousands of episodes until 99 %."""
    count = row["figures"]["centered"]
    return None if count is None else count / 1000


def dagger_blocks(chosen: Chosen) -> list[str | Table]:
    """DAgger next to imitation learning, with the 95 % interval of the difference."""
    level = "GoToObjMaze/bow_endpool_res/endless"
    imitation = [row for row in rows_of(chosen, f"imitation/{level}") if row["complete"]]
    groups = {"sampled": rows_of(chosen, f"dagger/{level}"), "argmax": rows_of(chosen, f"dagger/{level}-greedy")}
    if min(len(imitation), *map(len, groups.values())) < 2:
        return ["Not measured with two seeds or more."]
    millions = [row["curve"]["frames"][-1] / 1e6 for group in (imitation, *groups.values()) for row in group]
    rows = []
    above = 0
    below = 0
    for how, group in groups.items():
        for which, weights in (("last", "last update"), ("best", "best of 25 validations")):
            ours, theirs = ([row["test"][which]["success_rate"] for row in each] for each in (group, imitation))
            test = welch_test(ours, theirs)
            difference = f"{100 * test.difference:+.1f} ({100 * test.low:+.1f} to {100 * test.high:+.1f})"
            rows.append((how, weights, join(ours, percent), join(theirs, percent), difference))
            above += test.low > 0
            below += test.high < 0
    verdict = "is better" if above == len(rows) else "is not shown to be better"
    return [
        f"GoToObjMaze, {min(millions):.1f} to {max(millions):.1f} million labeled frames, {len(imitation)} seeds, test "
        "success rates in %. Roll-ins are the episodes that DAgger's agent plays during training, with sampled or with "
        "argmax actions.",
        (("roll-ins", "weights", "DAgger", "imitation", "difference (95 % interval)"), rows),
        f"DAgger {verdict}: {above} of {len(rows)} intervals are above 0, and {below} below.",
    ]


def pixel_blocks(chosen: Chosen) -> list[str | Table]:
    """The agent that sees pixels."""
    rows = rows_of(chosen, "imitation/GoToRedBallGrey/5k/pixels_endpool_res")
    if not rows:
        return ["Not measured."]
    row = rows[0]
    test = row["test"]["best"]
    return [
        "`pixels_endpool_res`, imitation learning on GoToRedBallGrey with 5,000 demonstrations, one seed: the best "
        f"mean of {WINDOW} of {row['figures']['validations']} validations is {percent(row['figures']['best_mean'])} %. "
        f"The test success rate over {test['missions']:,} missions is {percent(test['success_rate'])} % (95 % interval "
        f"{percent(test['low'])} to {percent(test['high'])})."
    ]


def cost_blocks(chosen: Chosen, slices: Sequence[dict[str, Any]]) -> list[str | Table]:
    """Hours for all of the paper's runs."""
    totals = total_speeds(slices)
    costs = paper_costs(chosen, totals)
    rates = join(totals.items(), lambda item: f"{item[0]} {item[1]:,.0f}")
    rows = [
        (
            cost.title,
            f"{cost.runs:,}",
            f"{cost.frames / 1e9:,.2f}",
            f"{cost.ours_hours:,.1f}",
            f"{cost.paper_hours:,.0f}",
        )
        for cost in costs
    ]
    total = (
        *("all", f"{sum(cost.runs for cost in costs):,}", f"{sum(cost.frames for cost in costs) / 1e9:,.1f}"),
        *(f"{sum(cost.ours_hours for cost in costs):,.0f}", f"{sum(cost.paper_hours for cost in costs):,.0f}"),
    )
    return [
        "All runs of the paper on one H200: frames as measured or, where nothing is, estimated from the paper's "
        "sample efficiency and demonstration lengths; divided by measured frames per second, of several runs at once "
        "where those were faster than one alone "
        f"({rates}), and by each architecture's relative speed. The last column has the same frames at the paper's "
        "frame rate of PPO (Table 2); it gives none for imitation learning, so that is only an indication. "
        "Starting, validating and testing come on top.",
        (("table", "runs", "billion frames", "hours on one H200", "hours at the paper's frame rate"), [*rows, total]),
    ]


def slice_blocks(slices: Sequence[dict[str, Any]]) -> list[str | Table]:
    """What running several at once brought."""
    shared = [each for each in slices if each["at_once"] > 1]
    if not shared:
        return ["Not measured."]
    rows = [
        (
            *(", ".join(each["kinds"]), f"{each['gpu'] or 'no GPU'}, {each['cores']} cores", str(each["at_once"])),
            *(f"{each['seconds']:,.0f}", f"{each['frames'] / 1e6:,.1f}", f"{each['frames'] / each['seconds']:,.0f}"),
        )
        for each in shared
    ]
    return [
        "Slices of studies: frames trained on by all runs together, divided by the whole time, with starting, "
        "validation and tests.",
        (("study", "machine", "at once", "seconds", "million frames", "frames/s in total"), rows),
    ]


def contradiction_blocks() -> list[str | Table]:
    """Cells where the paper's shading or bold type does not follow from its figures; checked by the tests."""
    return [
        "Welch's test, recomputed from the published means, standard deviations (of the population) and ten runs, "
        "gives the published shading of all cells of Tables 1 and 3, except:",
        "* PutNextLocal with the learning rate 5e-5: both comparisons are significant (p = 0.0008 and 0.003) and not "
        "shaded. The figure of `bow_endpool_res`, 876 ± 104, is the one of the learning rate 1e-4.",
        "* GoToRedBallGrey with 10,000 demonstrations: `bow_endpool_res` is shaded at p = 0.015.",
        "* GoToRedBallGrey with 50,000 and 100,000 and PutNextLocal with 500,000 demonstrations: shaded cells with 100 "
        "next to 100; rounding hides the difference.",
        "* `original_endpool_res` on PutNextLocal is 1009 ± 128 in Table 1a and 1092 ± 143 in Table 1b.",
        "* 97.8, 98.5 and 98.6 are set in bold in Table 3, which means at least 99 %.",
    ]


# ------------------------------------------------------------ notes


def notes(chosen: Chosen, runs: Sequence[Row]) -> list[str | Table]:
    """What a reader of the tables has to know."""
    trailing = [row["figures"]["trailing"] for row in rows_of(chosen, "ppo/GoToRedBall/bow_endpool_res")]
    early = rows_of(chosen, "ppo/GoToLocal/bow_endpool_res/at-3.8M")
    argmax = join((row["test"]["last"]["success_rate"] for row in early), percent)
    sampled = join((row["test"]["sampled"]["success_rate"] for row in early), percent)
    training = join((row["curve"]["success"][-1] for row in early), percent)
    spiked, smooth = split_by_spikes([row for row in runs if row["cell"] == LOCAL_5K])
    on_cpu = [row["figures"]["centered"] for row in rows_of(chosen, f"{RED_BALL_GREY}/cpu")]
    blocks: list[str | Table] = []
    if trailing:
        blocks.append(
            "* **The window of the centered figure sets a lower bound.** It cannot be reached before half a window is "
            "over: 50 rows are 500 updates, or 1.28 million frames. The paper's 177 ± 2 on GoToRedBall says as much "
            "about the window as about the agent. Over the last 1,000 episodes, 99 % was reached after "
            f"{thousands(min(trailing))} to {thousands(max(trailing))} thousand episodes."
        )
    if early:
        blocks.append(
            "* **Sampled actions are better than argmax while the policy is undecided.** PPO's test figures are for "
            "the last weights, with the running averages of batch normalization. On GoToLocal after 3.8 million "
            f"frames, the test success rates are {argmax} % with argmax actions and {sampled} % with sampled ones; at "
            f"the end of these frames, training episodes succeeded at {training} %. The paper's figures for PPO are "
            "for sampled actions."
        )
    blocks += rewrite_blocks(chosen)
    blocks += disagreement_blocks(chosen)
    if min(len(spiked), len(smooth)) > 1:
        blocks.append(
            "* **GoToLocal with 5,000 demonstrations varies between runs.** These are all its runs, with different "
            "seeds and commits; the table above has one per seed. In some of them the loss, after it had fallen to "
            f"almost nothing, rose sharply once more: best means {join(spiked, percent)} % with such a spike, "
            f"{join(smooth, percent)} % without (p = {welch_test(spiked, smooth).p:.2f})."
        )
    if on_cpu:
        blocks.append(
            f"* **Without a GPU** (two cores, float32), PPO on GoToRedBallGrey took {join(on_cpu, thousands)} thousand "
            "episodes."
        )
    blocks.append(
        "* **Few seeds.** The paper has ten runs per cell. With one run of ours, the difference from the paper's mean "
        "cannot be tested."
    )
    return blocks


def disagreement_blocks(chosen: Chosen) -> list[str | Table]:
    """Cells of imitation learning that disagree with the paper, and whether they were still getting better."""
    different = [result for result in study_results(STUDIES["imitation"], chosen) if result.agrees is False]
    if not different:
        return []
    items = []
    for result in different:
        trend = success_trend(result.rows)
        change = "too short to say" if trend is None else f"{trend[0]:+.1f} ± {trend[1]:.1f}"
        items.append(f"{row_of(result)}, {result.cell.architecture} ({change})")
    return [
        f"* **Cells of Table 3 that disagree with the paper:** {'; '.join(items)}. In brackets: by how many points "
        f"success changed in 100 epochs, from epoch {PLATEAU} on, with its 95 % interval. The paper does not say "
        "how long its agents were trained. The authors' instructions for small levels, 40 passes over a million "
        "demonstrations, would be 1,562 epochs; ours have 101. What else could explain the difference: "
        "[see above](#where-imitation-learning-disagrees-with-the-paper)."
    ]


def success_trend(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Slope of the validation success over epochs in points per 100 epochs, and half its 95 % interval.

    None if the runs are too short.
    """
    from scipy.stats import linregress

    points = [
        (epoch, success) for row in rows for epoch, success in enumerate(row["curve"]["success"]) if epoch >= PLATEAU
    ]
    if len(points) < 3:
        return None
    epochs, successes = zip(*points, strict=True)
    line: Any = linregress(epochs, successes)
    return 1e4 * line.slope, 1.96e4 * line.stderr


def rewrite_blocks(chosen: Chosen) -> list[str | Table]:
    """Seeds from before and after the training code was rewritten are pooled; this says whether they differ."""
    comparisons = []
    for level in EASY_LEVELS:
        rows = rows_of(chosen, f"ppo/{level}/bow_endpool_res")
        groups: tuple[list[float], list[float]] = ([], [])
        for row in rows:
            if (count := thousand_episodes(row)) is not None:
                groups[row["origin"]["commit"].startswith(REWRITE)].append(count)
        before, after = groups
        if min(len(before), len(after)) > 1:
            comparisons.append(
                f"{level} {mean_and_std(summarize(before))} before and {mean_and_std(summarize(after))} after "
                f"(p = {welch_test(before, after).p:.2f})"
            )
    if not comparisons:
        return []
    return [
        f"* **Some seeds of PPO are from before the training code was rewritten** (commit {REWRITE}), and some from "
        f"after. Thousands of episodes until 99 %: {'; '.join(comparisons)}."
    ]


def split_by_spikes(runs: Iterable[Row]) -> tuple[list[float], list[float]]:
    """Best means of the runs whose loss rose late in training, and of the others."""
    groups: dict[bool, list[float]] = {True: [], False: []}
    for row in runs:
        best = row["figures"]["best_mean"]
        late = row["curve"]["loss"][COMPARED_VALIDATIONS:]
        if best is not None and late:
            groups[max(late) > SPIKE].append(best)
    return groups[True], groups[False]
