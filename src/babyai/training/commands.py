"""The commands `babyai train imitation|dagger|online-dagger|ppo` and `babyai resume`."""

import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from babyai.training.options import (
    DESCRIBED,
    DaggerOptions,
    ImitationOptions,
    OnlineDaggerOptions,
    PPOOptions,
    TrainingOptions,
)

if TYPE_CHECKING:
    from babyai.training.fit import RunResult

OPTIONS: dict[str, type[TrainingOptions]] = {
    "imitation": ImitationOptions,
    "dagger": DaggerOptions,
    "online-dagger": OnlineDaggerOptions,
    "ppo": PPOOptions,
}
# Options without a prefix: `--levels`, not `--options.levels`.
Flat = tyro.conf.arg(name="")


def make_app() -> tyro.extras.SubcommandApp:
    """The algorithms as one group of commands."""
    app = tyro.extras.SubcommandApp()
    for command in (imitation, dagger, online_dagger, ppo):
        app.command(name=command.__name__.replace("_", "-"))(command)
    return app


def imitation(options: Annotated[ImitationOptions, Flat], *, seeds: int = 1) -> None:
    """Imitation learning from demonstrations (paper, Appendix C).

    Args:
        options: Options of the algorithm.
        seeds: Number of agents to train in parallel, with the random seeds from `--seed` on.
    """
    train("imitation", options, seeds)


def dagger(options: Annotated[DaggerOptions, Flat], *, seeds: int = 1) -> None:
    """DAgger: imitation learning on states that the agent itself visits, labeled by the expert.

    Args:
        options: Options of the algorithm.
        seeds: Number of agents to train in parallel, with the random seeds from `--seed` on.
    """
    train("dagger", options, seeds)


def online_dagger(options: Annotated[OnlineDaggerOptions, Flat], *, seeds: int = 1) -> None:
    """Large-scale DAgger for the agent that draws a map: one agent, many levels.

    Args:
        options: Options of the algorithm.
        seeds: Number of agents to train in parallel, with the random seeds from `--seed` on.
    """
    train("online-dagger", options, seeds)


def ppo(options: Annotated[PPOOptions, Flat], *, seeds: int = 1) -> None:
    """Proximal policy optimization from reward (paper, Appendix B).

    Args:
        options: Options of the algorithm.
        seeds: Number of agents to train in parallel, with the random seeds from `--seed` on.
    """
    train("ppo", options, seeds)


def resume(
    folders: tyro.conf.Positional[tuple[str, ...]],
    *,
    device: Annotated[str | None, DESCRIBED] = None,
    max_minutes: Annotated[float | None, DESCRIBED] = None,
    epochs: Annotated[int | None, DESCRIBED] = None,
    patience: Annotated[int | None, DESCRIBED] = None,
    frames: Annotated[int | None, DESCRIBED] = None,
    tensorboard: Annotated[bool | None, DESCRIBED] = None,
    quiet: Annotated[bool | None, DESCRIBED] = None,
    trust: bool = False,
) -> None:
    """Resume training runs that stopped or were killed, from their newest checkpoint.

    Args:
        folders: Run folders; several runs train in parallel.
        device: Device; default: as before.
        max_minutes: Time limit in minutes; default: none.
        epochs: Maximum number of epochs (imitation, dagger); default: as before.
        patience: Early stopping after more than this many validations without improvement; default: as before.
        frames: Maximum number of frames (ppo); default: as before.
        tensorboard: TensorBoard: also write event files; default: as before.
        quiet: Print nothing; default: as before.
        trust: Trust the runs: run the code of a custom policy or level that a folder names.
    """
    if not folders:
        raise ValueError("name the folder of a run to resume")
    changed = {
        "device": device,
        "epochs": epochs,
        "patience": patience,
        "frames": frames,
        "tensorboard": tensorboard,
        "quiet": quiet,
    }
    given = {name: value for name, value in changed.items() if value is not None}
    if not trust:
        for folder in folders:
            refuse_custom_code(folder)
    runs = [read_options(folder, given | {"max_minutes": max_minutes}) for folder in folders]
    algorithms = {algorithm for algorithm, _ in runs}
    if len(algorithms) > 1:
        raise ValueError(f"runs of one algorithm can be resumed together, not of {', '.join(sorted(algorithms))}")
    run_all(algorithms.pop(), [options for _, options in runs], [True] * len(runs))


def refuse_custom_code(folder: str) -> None:
    """Raises if resuming a run would import code that its folder names: the folder may be somebody else's."""
    from babyai.import_path import is_import_path
    from babyai.training.run import read_config

    saved = read_config(folder)["config"]
    for part, name in (("policy", "architecture"), ("level", "levels")):
        if is_import_path(str(saved.get(name))):
            raise ValueError(
                f"{folder} holds a run of a {part} with custom code, {saved[name]!r}, which resuming would run; if you "
                f"trust it, pass --trust"
            )


def read_options(folder: str, changed: dict[str, Any]) -> tuple[str, TrainingOptions]:
    """A run's algorithm and options, some of them changed."""
    from babyai.training.run import RunError, read_config

    config = read_config(folder)
    algorithm = config["kind"]
    if algorithm not in OPTIONS:
        raise RunError(
            f"{folder} holds a run of {algorithm!r}, which `babyai train` does not have; resume it in Python, by "
            f"fit(options, Algorithm, resume=True)"
        )
    options_class = OPTIONS[algorithm]
    known = {field.name for field in fields(options_class)}
    for name in changed:
        if name not in known:
            raise ValueError(f"{folder} holds a run of {algorithm!r}, which has no option {name!r}")
    saved = {name: value for name, value in config["config"].items() if name in known}
    try:
        settings = tuple(config["config"].get("settings", ()))
        return algorithm, options_class(**saved | changed | {"out": folder, "settings": settings})
    except (TypeError, AttributeError) as error:
        raise RunError(f"config.json in {folder} is damaged: {error}") from None


def train(algorithm: str, options: TrainingOptions, seeds: int) -> None:
    """Trains one agent or several, and prints a summary."""
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")
    runs = [options] if seeds == 1 else spread_seeds(options, seeds)
    run_all(algorithm, runs, [False] * len(runs))


def spread_seeds(options: TrainingOptions, seeds: int) -> list[TrainingOptions]:
    """The options of several runs, with the seeds from `options.seed` on, each in a folder of its own."""
    numbers = range(options.seed, options.seed + seeds)
    return [replace(options, seed=seed, out=options.out and f"{options.out}-{seed}") for seed in numbers]


def run_all(algorithm: str, runs: Sequence[TrainingOptions], resumed: Sequence[bool]) -> None:
    """Trains runs in parallel, or one in this process, and prints a summary."""
    from babyai.console import console

    quiet = runs[0].quiet
    # Of the processes that torchrun starts, the first one speaks.
    if (rank := os.environ.get("RANK")) is not None and "TORCHELASTIC_RUN_ID" in os.environ:
        if len(runs) > 1:
            raise ValueError(f"torchrun trains one agent, not {len(runs)}; start it without torchrun to train several")
        quiet = quiet or rank != "0"
    try:
        if len(runs) == 1:
            from babyai.training.fit import train_one

            results = [train_one(algorithm, runs[0], resumed[0])]
        else:
            from babyai.training.parallel import train_parallel

            results = train_parallel(algorithm, runs, resumed, quiet)
    except KeyboardInterrupt:
        sys.exit("babyai: stopped at once; `babyai resume FOLDER` continues from the last checkpoint")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors", "scipy"):
            raise
        raise ValueError(f"training needs {error.name}: pip install 'babyai[agents]'") from None
    if not quiet:
        for options, result in zip(runs, results, strict=True):
            console().print("\n" + summarize(options, result))
    if failed := [result for result in results if result.error]:
        raise ValueError("; ".join(f"{result.folder}: {result.error}" for result in failed))
    if any(result.interrupted for result in results) and os.environ.get("RANK", "0") == "0":
        sys.exit("babyai: stopped before the end")


def summarize(options: TrainingOptions, result: "RunResult") -> str:
    """A run's result, where it is, and what to do next."""
    from babyai.agents.config import is_custom
    from babyai.envs.custom_levels import is_all
    from babyai.import_path import is_import_path

    trust = " --trust" if is_custom(options.architecture) else ""
    custom_levels = is_import_path(options.levels)
    levels = options.levels if custom_levels or is_all(options.levels) else ",".join(options.level_names)
    trust_all = " --trust" if trust or custom_levels else ""
    rules = "" if options.rules == "paper" else f" --rules {options.rules}"
    resume = "" if result.finished else f"\ncontinue it:      babyai resume {result.folder}{trust_all}"
    best = f"{100 * result.best_success:.1f} % (of {result.validations})" if result.validations else "none"
    return (
        f"best validation:  {best}\n"
        f"run folder:       {result.folder}\n"
        f"evaluate it:      babyai evaluate {result.folder} --levels {levels}{rules}{trust}"
        f"{resume}"
    )
