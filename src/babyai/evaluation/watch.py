"""Watching a player: the scenes of one episode, the same as a film, and the command `babyai watch`."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from babyai.evaluation.players import Player
    from babyai.levels.catalog import Level, Rules
    from babyai.render.scene import Scene

# Seconds for which a film shows the end of an episode.
HOLD = 1.5


def play_scenes(
    player: "Player", level: "str | Level", seed: int, *, rules: "Rules" = "paper", mission: str | None = None
) -> Iterator["Scene"]:
    """Plays one episode; yields the scene at its start and after each action.

    Args:
        player: See `babyai.evaluation.players`.
        level: The level or its name.
        seed: Random seed of the episode.
        rules: "paper" or "minigrid".
        mission: Mission in the Baby Language; default: the level's own.
    """
    import numpy as np

    from babyai.engine import Engine
    from babyai.evaluation.players import evaluation_mode
    from babyai.render.scene import take_scene

    engine = Engine(level, rules=rules)
    engine.reset([seed])
    if mission is not None:
        engine.instruct(0, mission)
    player.begin(engine)
    yield take_scene(engine)
    starts = np.ones(1, dtype=bool)
    while not engine.done[0]:
        with evaluation_mode(player):
            actions = player.act(engine, starts)
        engine.step(actions)
        starts[:] = False
        yield take_scene(engine, action=int(actions[0]))


def watch(
    who: tyro.conf.Positional[str],
    *,
    level: str,
    seed: int = 0,
    rules: Literal["paper", "minigrid"] = "paper",
    mission: str | None = None,
    fps: float = 8.0,
    gif: Path | None = None,
    mp4: Path | None = None,
    png: Path | None = None,
    sample: bool = False,
    device: str = "auto",
    trust: bool = False,
    architecture: str | None = None,
) -> None:
    """Watch an agent or the expert play one episode, in the terminal or as a film.

    Args:
        who: Who plays: the folder of an agent or run (its best checkpoint), `map`, `expert`, `teacher`, `random`, or a
            text agent, `file.py:function`.
        level: Level; `babyai levels` lists them. Or a level of your own, `file.py:Level`.
        seed: Random seed of the episode. Seeds from 2 * 10^9 on are for test.
        rules: Rule set: the paper's world, or Minigrid 3.2.0 including its defects.
        mission: Mission in the Baby Language, instead of the level's own.
        fps: Steps per second.
        gif: GIF file to write the episode to, instead of showing it in the terminal.
        mp4: MP4 file to write the episode to; needs `pip install 'babyai[video]'`.
        png: PNG file to write the last frame to.
        sample: Sample actions from the policy, rather than take the argmax.
        device: Device of an agent: auto (a GPU if there is one), cpu, cuda, cuda:1.
        trust: Trust the checkpoint: run the code of a custom policy that it names.
        architecture: Policy class of a custom checkpoint, if not the one that it names: `file.py:Class`.
    """
    from babyai.envs.custom_levels import load_level
    from babyai.evaluation.commands import find_player

    if not 0 < fps <= 100:
        raise ValueError(f"fps must be above 0 and at most 100, not {fps}")
    files = _check_files({".gif": gif, ".mp4": mp4, ".png": png})
    chosen = load_level(level, rules)
    player = find_player(who, device, "auto", sample, 0, trust, architecture)
    title = who if who in ("expert", "teacher", "random") else Path(who).name
    scenes = play_scenes(player, chosen, seed, rules=rules, mission=mission)
    if files:
        _write_films(scenes, files, title, fps)
    else:
        _show_in_terminal(scenes, title, fps)


def _check_files(files: dict[str, Path | None]) -> list[Path]:
    """The files that are wanted; raises before anything is played if one of them cannot be written."""
    wanted = [path for path in files.values() if path is not None]
    for suffix, path in files.items():
        if path is None:
            continue
        if path.suffix.lower() != suffix:
            raise ValueError(f"--{suffix[1:]} writes a file that ends in {suffix}, not {str(path)!r}")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    return wanted


def _write_films(scenes: Iterable["Scene"], files: list[Path], title: str, fps: float) -> None:
    """Plays the episode and writes it to all files."""
    from babyai.console import console, progress
    from babyai.render.film import Film, save_film

    played = list(scenes)
    end = played[-1]
    console().print(f"{title}: {end.mission}: {end.verdict} after {end.step} of {end.max_steps} steps")
    for path in files:
        with progress("drawing", "frames") as report:
            save_film(Film(played, title, round(HOLD * fps), report), path, fps)
        console().print(f"written: {path}")


def _show_in_terminal(scenes: Iterable["Scene"], title: str, fps: float) -> None:
    """Draws each scene over the last; without a terminal, only the first and the last, and the actions between."""
    import numpy as np

    from babyai.demos.show import format_actions
    from babyai.render.terminal import CLEAR, draw_screen

    if sys.stdout.isatty():
        try:
            for scene in scenes:
                sys.stdout.write(f"{CLEAR}{draw_screen(scene, title=title)}\n")
                sys.stdout.flush()
                time.sleep(1 / fps)
        except KeyboardInterrupt:
            sys.stdout.write("\n")
        return
    played = list(scenes)
    actions = np.array([scene.action for scene in played if scene.action is not None], dtype=np.int64)
    first, last = (draw_screen(scene, title=title, color=False) for scene in (played[0], played[-1]))
    sys.stdout.write(f"{first}\n\n{format_actions(actions)}\n\n{last}\n")
