"""Where imitation learning disagrees with the paper, and what could explain it."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from babyai.evaluation.paper import RUNS
from babyai.evaluation.statistics import Summary, summarize, welch_test, welch_test_of_summaries
from babyai.studies.cells import DISAGREEING, EXPLANATION_EPOCHS, EXPLANATIONS, STUDIES, Cell, find_cells
from babyai.studies.measure import WINDOW
from babyai.studies.spikes import AROUND, FITTED, SPIKE, spike_changes
from babyai.studies.statistics import CellResult, Chosen, early_success, rows_of, study_results
from babyai.studies.store import Row
from babyai.studies.tables import NOT_MEASURED, Table, join, mean_and_std

TITLES = {
    "": "as in the tables",
    "cpu": "as in the tables",
    "code": "as in the authors' code",
    "entropy": "entropy bonus",
    "step-norm": "statistics over each time step",
    "float32": "float32 instead of bf16",
    **dict.fromkeys(("demos-1", "demos-2", "demos-3"), "other demonstrations"),
}
# The rolling window of the authors' code; 10 on GoToRedBallGrey.
LONG_WINDOW = 100
# From here on, success is on its plateau.
PLATEAU = 20
# Epochs of the runs that are longer than those of the tables.
LONG_RUNS = {variant: settings["epochs"] for variant, settings in EXPLANATIONS.items() if "epochs" in settings}
LONG_TITLES: dict[str, str] = dict.fromkeys(("code-300", "code-1562"), TITLES["code"])
# After how many epochs they are looked at; the first is the length of the tables' runs.
LENGTHS = (101, 200, 300, 1000, 1562)
# The shortest length that is judged.
JUDGED_LENGTH = 300
CPU = "CPU"
# Architecture, training, device.
Group = tuple[str, str, str]


def explain_disagreements(chosen: Chosen) -> list[str | Table]:
    """The whole section."""
    return [
        *explanation_blocks(chosen),
        *sampling_blocks(chosen),
        *batch_blocks(chosen),
        *long_run_blocks(chosen),
        *spike_blocks(chosen),
    ]


def explanation_blocks(chosen: Chosen) -> list[str | Table]:
    """Cells that disagree with the paper, trained in other ways that could explain it."""
    results = study_results(STUDIES["disagreements"], chosen)
    # By architecture, training and device, in the order of the study; without a device, what has not been measured.
    groups: dict[Group, list[float]] = {}
    for result in results:
        if result.cell.variant in LONG_RUNS:
            continue
        for row in result.rows or (None,):
            device = (row["origin"]["gpu"] or CPU) if row else ""
            values = groups.setdefault((result.cell.architecture, TITLES[result.cell.variant], device), [])
            if row and (value := early_success(row, EXPLANATION_EPOCHS)) is not None:
                values.append(value)
    measured = {group[:2] for group, values in groups.items() if values}
    rows = [
        (*group, _describe_values(values) or NOT_MEASURED, _test_difference(groups, group))
        for group, values in groups.items()
        if values or group[:2] not in measured
    ]
    cells = [_describe_cell(result) for result in results if not result.cell.variant]
    return [
        f"GoToRedBall with 10,000 demonstrations, in Table 3: {'; '.join(cells)}. The authors' code differs from the "
        "text, which we follow, in two ways when it trains a small agent by imitation: it adds an entropy bonus "
        "(coefficient 0.01), and it computes the statistics of batch normalization over each time step, about 70 "
        "frames, instead of over all 20. Ours compute in bf16. And all our seeds have learned from the same "
        "demonstrations, of the seeds from 0 on; those of others could be better. Best mean of "
        f"{WINDOW} of the first {EXPLANATION_EPOCHS} validations of each run in %, mean and standard deviation, and p "
        "of the difference from the unchanged training on the same device; that on a CPU is compared with that on a "
        "GPU:",
        (("architecture", "training", "device", "success, %", "Welch's p"), rows),
    ]


def _describe_cell(result: CellResult) -> str:
    """Our figure of a cell next to the paper's."""
    ours = NOT_MEASURED if result.summary is None else mean_and_std(result.summary)
    p = "" if result.paper_p is None else f", Welch's p {_show_p(result.paper_p)}"
    return f"`{result.cell.architecture}` {ours} (paper: {mean_and_std(_papers(result.cell))}{p})"


def _test_difference(groups: Mapping[Group, list[float]], group: Group) -> str:
    """The p-value against the unchanged training on the same device, and of that on a CPU against that on a GPU."""
    architecture, title, device = group
    unchanged = [each for each in groups if each[:2] == (architecture, TITLES[""])]
    if title != TITLES[""]:
        references = [each for each in unchanged if each[2] == device]
    else:
        references = [each for each in unchanged if device == CPU != each[2]]
    samples = [groups[each] for each in (group, *references[:1])]
    if len(samples) < 2 or min(map(len, samples)) < 2:
        return ""
    ours, reference = samples
    return f"{welch_test(ours, reference).p:.2f}"


def sampling_blocks(chosen: Chosen) -> list[str | Table]:
    """Success of the same weights with argmax and with sampled actions, also with fewer demonstrations."""
    fewer = find_cells("imitation", ["GoToRedBall"], DISAGREEING, [5000])
    rows = [
        (cell.architecture, f"{cell.demos:,}", f"{TITLES.get(cell.variant, cell.variant)}, seed {row['seed']}")
        + (str(len(row["curve"]["success"])), *_test_rates(row), mean_and_std(_papers(cell)))
        for cell in (*fewer, *STUDIES["disagreements"].cells)
        for row in rows_of(chosen, cell.name)
        if "sampled" in row.get("test", {})
    ]
    if not rows:
        return []
    titles = ("architecture", "demonstrations", "run", "epochs", "argmax, %", "sampled, %", "paper")
    return [
        "The other figures of this section, like those of the authors' code, are of argmax actions. Sampled actions "
        "free an agent that is stuck. Success of the last weights on test missions:",
        (titles, rows),
    ]


def batch_blocks(chosen: Chosen) -> list[str | Table]:
    """Runs with the batches of the authors' code (`benchmarks.authors_batches`) next to those of Table 3."""
    rows = []
    for architecture in DISAGREEING:
        cell = f"imitation/GoToRedBall/10k/{architecture}"
        authors = _long_enough(rows_of(chosen, f"{cell}/authors-batches"), LENGTHS[0])
        for title, runs in (("Table 3", rows_of(chosen, cell)), ("the authors' code", authors)):
            compared = _long_enough(runs, LENGTHS[0])
            if authors and compared:
                best = _best_means(compared, LENGTHS[0], WINDOW)
                plateau = [_mean_success([row], PLATEAU, LENGTHS[0]) for row in compared]
                rows.append((architecture, title, _describe_values(best), _describe_values(plateau)))
    if not rows:
        return []
    return [
        "The authors' code also makes other batches, which only a benchmark has (`benchmarks.authors_batches`): 256 "
        "whole demonstrations, in chunks of 20 frames that start from the memories of a first pass without gradients, "
        "in which batch normalization averages over the demonstrations that are still going on. Ours carry the memory "
        "from batch to batch. The next table compares Table 3 with all that the authors' code does differently: these "
        "batches, the entropy bonus, and the statistics over each time step. The runs of the authors' code are on a "
        f"CPU; all are of {LENGTHS[0]} epochs.",
        (
            (
                *("architecture", "training as in", f"best mean of {WINDOW}, %"),
                f"mean of epochs {PLATEAU + 1} to {LENGTHS[0]}, %",
            ),
            rows,
        ),
    ]


def long_run_blocks(chosen: Chosen) -> list[str | Table]:
    """The same cells trained for longer, by both windows."""
    cells = [cell for cell in STUDIES["disagreements"].cells if cell.variant in LONG_RUNS]
    table = [row for cell in cells for row in _iter_lengths(cell, rows_of(chosen, cell.name))]
    verdicts = [verdict for cell in cells if (verdict := _judge_length(cell, rows_of(chosen, cell.name)))]
    return [
        "The paper says neither how long it trained nor over how many validations its figure is. In the authors' "
        f"code, `scripts/il_perf.py` takes the best mean of {LONG_WINDOW} ({WINDOW} on GoToRedBallGrey). Another "
        "script in the history of their repository, `scripts/il_performance.py` (commit 45ad3bf), prints rows in the "
        "form of Table 3, of the same levels, architectures and numbers of demonstrations, and its default is "
        f"{WINDOW} on all levels. Which one the paper used is not known. The table "
        f"shows longer runs after {LENGTHS[0]} epochs, the length of our runs in Table 3, and later, with both "
        "windows. A best mean can only rise with time. Before the runs it was decided that the gap counts as closed if "
        f"the best mean of {LONG_WINDOW} is at most one standard deviation below the paper's mean; the window of "
        f"{WINDOW} was added afterwards. With so few runs, a high p does not show that there is no difference.",
        (
            (
                *("architecture", "training", "device", "epochs of the run", "after epoch", "window", "success, %"),
                *("ours", "paper", "Welch's p"),
            ),
            table,
        ),
        *verdicts,
    ]


def _iter_lengths(cell: Cell, runs: list[Row]) -> Iterator[tuple[str, ...]]:
    """A row for each number of epochs that some of the runs have, and each window."""
    paper = _papers(cell)
    device = join(sorted({row["origin"]["gpu"] or CPU for row in runs}), str)
    about = (cell.architecture, LONG_TITLES.get(cell.variant, TITLES[""]), device, str(LONG_RUNS[cell.variant]))
    if not runs:
        yield (*about, "", "", NOT_MEASURED, "", mean_and_std(paper), "")
    for epochs in LENGTHS:
        for window in (LONG_WINDOW, WINDOW):
            if values := _best_means(runs, epochs, window):
                ours = summarize(values)
                p = _show_p(welch_test_of_summaries(ours, paper).p) if len(values) > 1 else ""
                shown = (join(values, "{:.1f}".format), mean_and_std(ours), mean_and_std(paper), p)
                yield (*about, str(epochs), str(window), *shown)


def _judge_length(cell: Cell, runs: list[Row]) -> str | None:
    """Whether the runs close the difference, and whether success still rises; None if none is long enough."""
    lengths = [epochs for epochs in LENGTHS if _long_enough(runs, epochs)]
    if not lengths or lengths[-1] < JUDGED_LENGTH:
        return None
    paper = _papers(cell)
    runs = _long_enough(runs, lengths[-1])
    difference = summarize(_best_means(runs, lengths[-1], LONG_WINDOW)).mean - paper.mean
    first, last = (_best_means(runs, epochs, WINDOW) for epochs in (lengths[0], lengths[-1]))
    interval = ""
    if len(last) > 1:
        test = welch_test_of_summaries(summarize(last), paper)
        interval = f" (95 % interval {test.low:+.1f} to {test.high:+.1f})"
    means = [
        f"{_mean_success(runs, start, end):.1f} % in epochs {start + 1} to {end}"
        for start, end in pairwise([PLATEAU, *lengths])
    ]
    count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    return (
        f"* `{cell.architecture}`, {LONG_TITLES.get(cell.variant, TITLES[''])} ({count}): "
        f"{'' if difference >= -paper.std else 'not '}closed after {lengths[-1]} epochs; ours is {difference:+.1f} "
        f"points from the paper's. With the window of {WINDOW}, as in Table 3, it is "
        f"{summarize(first).mean - paper.mean:+.1f} points from it after {lengths[0]} epochs and "
        f"{summarize(last).mean - paper.mean:+.1f}{interval} after {lengths[-1]}. Mean success is "
        f"{', '.join(means[:-1])} and {means[-1]}."
    )


def _show_p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _describe_values(values: list[float]) -> str:
    """Values, and their mean and standard deviation if there are several."""
    shown = join(values, "{:.1f}".format)
    return f"{shown}: {mean_and_std(summarize(values))}" if len(values) > 1 else shown


def _papers(cell: Cell) -> Summary:
    """The paper's figure."""
    assert cell.paper is not None
    return Summary(cell.paper.mean, cell.paper.std, RUNS)


def _long_enough(runs: list[Row], epochs: int) -> list[Row]:
    """The runs that have so many epochs."""
    return [row for row in runs if len(row["curve"]["success"]) >= epochs]


def _best_means(runs: list[Row], epochs: int, window: int) -> list[float]:
    """The best rolling mean of each run that has so many epochs."""
    values = [early_success(row, epochs, window) for row in _long_enough(runs, epochs)]
    return [value for value in values if value is not None]


def _test_rates(row: Row) -> tuple[str, str]:
    """Test success with argmax and with sampled actions, in percent."""
    argmax, sampled = (f"{100 * row['test'][which]['success_rate']:.1f}" for which in ("last", "sampled"))
    return argmax, sampled


def _mean_success(runs: list[Row], first: int, last: int) -> float:
    """The mean success in percent of the validations from one epoch to another, over all runs."""
    validations = [success for row in runs for success in row["curve"]["success"][first:last]]
    return 100 * sum(validations) / len(validations)


def spike_blocks(chosen: Chosen) -> list[str | Table]:
    """Success before and after loss spikes, in all runs of small agents."""
    cells = [rows for name, rows in chosen.items() if name.startswith("imitation/")]
    runs = [row for rows in cells for row in rows.values() if row["size"] == "small" and not row["quick"]]
    across, without = spike_changes(runs)
    if min(len(across), len(without)) < 2:
        return []
    p = welch_test(across, without).p
    return [
        f"Success rises after loss spikes. In the runs of small agents there were {len(across)} of them: the training "
        f"loss had been below {FITTED}, and rose above {SPIKE}. The mean success of the {AROUND} validations after a "
        f"spike is {summarize(across).mean:+.2f} points from that of the {AROUND} before it. Over the same distance "
        f"without a spike, success changes by {summarize(without).mean:+.2f} points ({len(without)} times; Welch's p "
        f"{'< 0.0001' if p < 1e-4 else f'= {p:.4f}'}). Longer runs have more spikes. The test takes the spikes of a "
        "run as independent, and the idea to look at them came from one of these runs.",
    ]
