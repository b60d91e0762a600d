"""The command `babyai evaluate`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from babyai.import_path import is_import_path, load_object
from babyai.seeds import TEST_SEED

if TYPE_CHECKING:
    from babyai.evaluation.evaluate import Evaluation
    from babyai.evaluation.players import Player
    from babyai.text.view import Wording


def evaluate(
    who: tyro.conf.Positional[str],
    *,
    levels: str,
    missions: int = 512,
    first_seed: int = TEST_SEED,
    sample: bool = False,
    seed: int = 0,
    device: str = "auto",
    precision: Literal["auto", "float32", "bf16"] = "auto",
    rules: Literal["paper", "minigrid"] = "paper",
    worlds: int | None = None,
    trust: bool = False,
    architecture: str | None = None,
    wording: Literal["plain", "babyai_text"] = "plain",
    json: Path | None = None,
) -> None:
    """Evaluate an agent or the expert: success rates with 95 % intervals, next to the paper's Table 4.

    Args:
        who: Agent: the folder of an agent or run (its best checkpoint), `map`, `expert`, `teacher`, `random`,
            or a text agent, `file.py:function`: a function from a text to the name of an action.
        levels: Level, several separated by commas, `all` for the paper's nineteen, or your own, `file.py:Level`.
        missions: Missions per level. The paper's 512 cannot tell 99 % from 100 %.
        first_seed: Seed of the first mission. Seeds from 10^9 on are for validation, from 2 * 10^9 on for test.
        sample: Sample actions from the policy, rather than take the argmax.
        seed: Random seed for sampling.
        device: Device of an agent: auto (a GPU if there is one), cpu, cuda, cuda:1.
        precision: Precision; auto is bf16 on a GPU and float32 elsewhere.
        rules: Rule set: the paper's world, or Minigrid 3.2.0 including its defects.
        worlds: Parallel worlds; default: what suits the player.
        trust: Trust the checkpoint: run the code of a custom policy that it names.
        architecture: Policy class of a custom checkpoint, if not the one that it names: `file.py:Class`.
        wording: Wording of a text agent's observations: plain, or that of BabyAI-Text.
        json: JSON file to write the results to.
    """
    from babyai.console import console, printable

    names = _find_levels(levels, rules)
    if json is not None and not json.absolute().parent.is_dir():
        raise ValueError(f"cannot write the results to {json}: there is no folder {json.parent}")
    player = find_player(who, device, precision, sample, seed, trust, architecture, wording)
    options = {"missions": missions, "first_seed": first_seed, "worlds": worlds, "rules": rules}
    results: list[Evaluation] = []
    stopped = "stopped"
    try:
        for result in _play(player, names, options):
            results.append(result)
    except KeyboardInterrupt:
        if not results:
            sys.exit("babyai: stopped before the first level was finished")
    except RuntimeError as error:
        # A text agent may fail after hours; finished levels must not be lost.
        if not results:
            raise
        stopped = str(error)
    screen = console()
    # Long lines are better than truncated columns.
    screen.width = max(screen.width, 100)
    screen.print(f"{_describe(who, player)}: {missions:,} missions per level, seeds from {first_seed:,}\n")
    screen.print(_table(results))
    screen.print("\n" + "\n".join(_verdict(results)))
    if json is not None:
        _write(json, who, player, results)
        screen.print(f"\nwritten: {json}")
    if len(results) < len(names):
        sys.exit(f"babyai: {printable(stopped)}, after {len(results)} of {len(names)} levels")


def _play(player: "Player", names: list[str], options: dict[str, Any]) -> Iterator["Evaluation"]:
    """Plays one level after the other, with a progress bar."""
    from babyai.console import progress
    from babyai.evaluation.evaluate import evaluate as play

    missions = options["missions"]
    with progress("evaluating", "missions") as report_all:
        for number, name in enumerate(names):

            def report(done: int, _: int, before: int = number * missions) -> None:
                report_all(before + done, missions * len(names))

            yield play(player, name, **options, progress=report)


def _find_levels(levels: str, rules: Any) -> list[str]:
    """The levels' names; raises if one is unknown."""
    from babyai.envs.custom_levels import load_levels

    return [level.name for level in load_levels(levels, rules)]


def find_player(
    who: str,
    device: str,
    precision: str,
    sample: bool,
    seed: int,
    trust: bool,
    architecture: str | None,
    wording: "Wording" = "plain",
) -> "Player":
    """The player that a command names: an agent, `expert`, `teacher`, `random`, or a text agent."""
    from babyai.evaluation.players import AgentPlayer, ExpertPlayer, RandomPlayer

    if who == "random":
        return RandomPlayer(seed)
    if who in ("expert", "teacher"):
        return ExpertPlayer("teacher" if who == "teacher" else "paper")
    if is_import_path(who) and not Path(who).exists():
        from babyai.evaluation.text_player import TextPlayer

        return TextPlayer(load_object(who, "function"), wording=wording)
    try:
        from babyai.agents import Agent
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None
    try:
        model = Agent.load(who, device=device, model_class=architecture, trust=trust).model
    except FileNotFoundError as error:
        raise ValueError(
            f"{error}; or choose map, expert, teacher or random, or a text agent, file.py:function"
        ) from None
    chosen: Any = None if precision == "auto" else precision
    return AgentPlayer(model, precision=chosen, sample=sample, seed=seed)


def _describe(who: str, player: Any) -> str:
    """The player's settings, for the heading."""
    from babyai.evaluation.players import AgentPlayer

    if hasattr(player, "wording"):
        return f"{who} (text agent, wording {player.wording})"
    if not isinstance(player, AgentPlayer):
        return who
    return f"{who} ({'sampled' if player.sample else 'argmax'} actions, {player.device}, {player.precision})"


def _table(results: "list[Evaluation]") -> Any:
    """One row per level, with the paper's figures; for a text agent, also with its unreadable answers."""
    from rich.table import Table

    from babyai.evaluation.paper import BASELINES

    is_text_agent = any(result.unreadable_answers is not None for result in results)
    headings = ("success\n%", "95 % interval\n%", "99 %", "reward", "length", "paper's\nsuccess", "paper's\ndemos")
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("level", no_wrap=True)
    for heading in headings + (("unreadable\nanswers",) if is_text_agent else ()):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        paper = BASELINES.get(result.level)
        table.add_row(
            result.level,
            f"{100 * result.success_rate:.1f}",
            f"{100 * result.low:.1f} to {100 * result.high:.1f}",
            _compare(result),
            f"{result.mean_reward:.3f}",
            f"{result.mean_length:.1f}",
            f"{paper.success_11:.1f}" if paper else "",
            f"{paper.demo_length:.1f}" if paper else "",
            *((f"{result.unreadable_answers:,} of {result.lengths.sum():,}",) if is_text_agent else ()),
        )
    return table


def _compare(result: "Evaluation") -> str:
    """Whether the success rate is at least 99 %, as far as the interval tells."""
    from babyai.evaluation.statistics import SOLVED

    return "yes" if result.proves(SOLVED) else "no" if result.high < SOLVED else "open"


def _verdict(results: "list[Evaluation]") -> list[str]:
    """What the table shows, and how many missions it would take to show the rest."""
    from babyai.evaluation.statistics import missions_needed

    answers = [_compare(result) for result in results]
    lines = [f"99 %: reached on {answers.count('yes')} of {len(results)} levels, missed on {answers.count('no')}"]
    for result, answer in zip(results, answers, strict=True):
        if answer == "open":
            needed = missions_needed(result.success_rate)
            lines.append(
                f"{result.level}: inconclusive with {result.successes:,} of {result.missions:,}; "
                + (f"about {needed:,} missions are needed at this rate" if needed else "no number would suffice")
            )
    return lines


def _write(path: Path, who: str, player: Any, results: "list[Evaluation]") -> None:
    """Writes the results as JSON."""
    from json import dumps

    from babyai import __version__
    from babyai.atomic_io import atomic_file
    from babyai.evaluation.paper import BASELINES

    settings = {name: str(getattr(player, name)) for name in ("device", "precision") if hasattr(player, name)}
    settings |= {name: getattr(player, name) for name in ("sample", "seed", "wording") if hasattr(player, name)}
    rows = [
        result.to_dict() | {"paper": paper._asdict() if (paper := BASELINES.get(result.level)) else None}
        for result in results
    ]
    content = {"who": who, **settings, "babyai": __version__, "results": rows}
    with atomic_file(path) as temporary:
        temporary.write_text(dumps(content, indent=2) + "\n", encoding="utf-8")
