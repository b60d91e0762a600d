"""The commands `babyai train ...`. The options of each are known once it is asked for, since torch comes with them."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from babyai.training.options import TrainingOptions
    from babyai.training.session import Session
    from babyai.training.turns import Turns

# What each is for, and the name of its options in the module of its own name.
KINDS = {
    "imitation": ("Learn from demonstrations (appendix C).", "ImitationOptions"),
    "dagger": ("Learn from an expert's advice on what the agent itself runs into.", "DaggerOptions"),
    "ppo": ("Learn from reward (appendix B).", "PPOOptions"),
}


def make_app(words: Sequence[str] = ()) -> tyro.extras.SubcommandApp:
    """All of them as one group of commands.

    Args:
        words: The command line after `babyai train`; the command that it names knows its options, the others are there
            to be listed.
    """
    app = tyro.extras.SubcommandApp()
    for kind, (purpose, _) in KINDS.items():
        command = make_command(kind, words[1:]) if words[:1] == [kind] else _list_only
        app.command(name=kind, help=purpose)(command)
    return app


def _list_only() -> None:
    """Stands for a command that was not asked for."""


def make_command(kind: str, words: Sequence[str]) -> Callable[..., None]:
    """The command of that kind, with all its options."""
    try:
        module = import_module(f"babyai.training.{kind}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors", "scipy"):
            raise
        raise ValueError(f"training needs {error.name}: pip install 'babyai[agents]'") from None
    made_of = getattr(module, KINDS[kind][1])
    before = find_options(kind, made_of, words)

    def command(options: Any = before, *, seeds: int = 1) -> None:
        train(kind, module, options, seeds)

    if before is None:
        command.__defaults__ = None
    command.__annotations__["options"] = Annotated[made_of, tyro.conf.arg(name="")]
    command.__doc__ = f"""{KINDS[kind][0]}

    Args:
        seeds: Train so many agents side by side, with the seeds from `--seed` on, each in a folder of its own.
    """
    return command


def find_options(kind: str, made_of: type["TrainingOptions"], words: Sequence[str]) -> "TrainingOptions | None":
    """With `--resume --out FOLDER`, what the run there was asked for, so that nothing has to be said again."""
    from babyai.training.run import RunError, read_config

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    try:
        said, _ = parser.parse_known_args(words)
    except argparse.ArgumentError:
        # The real parser will say what is wrong.
        return None
    if not said.resume or said.out is None:
        return None
    folder = said.out if said.seeds == 1 else name_folder(said.out, said.seed)
    about = read_config(folder)
    if about["kind"] != kind:
        raise RunError(
            f"{folder} holds a run of kind {about['kind']!r}; go on with it by `babyai train {about['kind']}`"
        )
    known = {each.name for each in fields(made_of)}
    asked = {name: value for name, value in about["config"].items() if name in known}
    try:
        return made_of(**asked | {"out": said.out, "resume": True})
    except (TypeError, AttributeError) as error:
        raise RunError(f"config.json in {folder} is damaged: {error}") from None


def name_folder(folder: str, seed: int) -> str:
    """The folder of one of several runs."""
    return f"{folder}-{seed}"


def train(kind: str, module: Any, options: "TrainingOptions", seeds: int) -> None:
    """Trains one agent or several, and says what came of it."""
    from babyai.demos.commands import console

    if seeds < 1:
        raise ValueError(f"there must be at least one seed, not {seeds}")
    try:
        sessions = [module.train(options)] if seeds == 1 else train_several(kind, module.training, options, seeds)
    except KeyboardInterrupt:
        sys.exit("babyai: stopped at once; the same command with --resume goes on from the last checkpoint")
    if not options.quiet:
        for session in sessions:
            console().print("\n" + summarize(kind, session))
    if any(session.run.interrupted for session in sessions):
        sys.exit("babyai: stopped before the end")


def train_several(
    kind: str, training: "Callable[..., Turns[Session]]", options: "TrainingOptions", seeds: int
) -> "list[Session]":
    """Trains with several seeds side by side; of those to be resumed, some may not have begun."""
    from babyai.training.run import holds_run
    from babyai.training.side_by_side import train_side_by_side

    numbers = range(options.seed, options.seed + seeds)
    runs = [replace(options, seed=seed, out=options.out and name_folder(options.out, seed)) for seed in numbers]
    runs = [replace(run, resume=run.resume and holds_run(run.run_folder(kind))) for run in runs]
    return train_side_by_side(training, runs, quiet=options.quiet)


def summarize(kind: str, session: "Session") -> str:
    """What came of a run, where it is, and what can be done with it."""
    from babyai.agents.config import is_custom

    folder, options = session.folder, session.options
    trust = " --trust" if is_custom(options.architecture) else ""
    rules = "" if options.rules == "paper" else f" --rules {options.rules}"
    best = f"{100 * session.best_success:.1f} % (of {session.validations})" if session.validations else "none was made"
    return (
        f"best validation:  {best}\n"
        f"the run:          {folder}\n"
        f"test its best:    babyai evaluate {folder} --levels {','.join(options.level_names)}{rules}{trust}\n"
        f"go on with it:    babyai train {kind} --out {folder} --resume"
    )
