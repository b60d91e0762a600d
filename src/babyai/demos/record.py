"""People's demonstrations: a recorder that any page or terminal can drive, and the terminal that does."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from babyai.demos.header import Source, make_header
from babyai.demos.merge import append
from babyai.demos.packed import Demo, Demos, offsets_of
from babyai.demos.store import DemoFile, PathLike
from babyai.engine import Engine
from babyai.levels.catalog import Level, Rules, find_level
from babyai.render.text import draw_text
from babyai.world.codes import Action
from babyai.world.language import words_of

# What a key does. Arrow keys are called by their names; see `terminal_keys`.
KEYS = {
    "left": Action.left,
    "right": Action.right,
    "up": Action.forward,
    "p": Action.pickup,
    "d": Action.drop,
    "t": Action.toggle,
    " ": Action.toggle,
    "\r": Action.done,
    "\n": Action.done,
}
HELP = "arrows: turn, go   p: pick up   d: drop   t or space: toggle   enter: done   u: undo   n: next   q: quit"
CLEAR = "\x1b[H\x1b[2J"
ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}


class Recorder:
    """One mission in the hands of a person, every action remembered, every action taken back if need be.

    Args:
        level: A level or its name.
        seed: Of the mission.
        rules: "paper" or "minigrid".

    Attributes:
        engine: The world, number 0 of one.
        actions: What has been done so far.
    """

    def __init__(self, level: str | Level, seed: int, rules: Rules = "paper") -> None:
        self.level = find_level(level, rules)
        self.rules: Rules = rules
        self.engine = Engine(self.level, rules=rules)
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begins another mission."""
        self.seed = seed
        self.actions: list[int] = []
        self._snapshots: list[bytes] = []
        self.reward = 0.0
        self.engine.reset([seed])

    @property
    def mission(self) -> str:
        """What is to be done."""
        return words_of(self.engine.missions[0])

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.engine.done[0])

    @property
    def success(self) -> bool:
        """Whether the mission has been carried out."""
        return self.done and self.reward > 0

    def act(self, action: int) -> None:
        """Carries out one action."""
        snapshot = self.engine.snapshot(0)
        self.engine.step([int(action)])
        self._snapshots.append(snapshot)
        self.actions.append(int(action))
        self.reward = float(self.engine.rewards[0])

    def undo(self) -> bool:
        """Takes the last action back; False if there is none."""
        if not self.actions:
            return False
        self.actions.pop()
        self.engine.restore(0, self._snapshots.pop())
        self.reward = 0.0
        return True

    def demo(self) -> Demo:
        """The whole episode.

        Raises:
            RuntimeError: It is not over yet.
        """
        if not self.done:
            raise RuntimeError("the episode is not over yet, so it is no demonstration")
        return Demo(self.level.name, self.seed, self.mission, np.array(self.actions, dtype=np.uint8), self.reward)

    def save(self, path: PathLike, person: str = "") -> int:
        """Adds the episode to a file of demonstrations; returns how many that has then."""
        return append_demo(path, self.demo(), self.level, self.rules, Source("human", 1, person))


def append_demo(path: PathLike, demo: Demo, level: Level, rules: Rules, source: Source) -> int:
    """Adds one demonstration to a file; returns how many that has then."""
    demos = Demos(
        names=(demo.level,),
        levels=np.zeros(1, dtype=np.int32),
        seeds=np.array([demo.seed], dtype=np.int64),
        offsets=offsets_of(np.array([len(demo)])),
        actions=demo.actions,
        rewards=np.array([demo.reward]),
        missions=pa.array([demo.mission], pa.string()),
    )
    return append(path, demos, make_header([level], rules), source)


def next_seed(path: PathLike, level: Level) -> int:
    """One more than the largest seed of that level in a file; 0 if there is none."""
    if not Path(path).exists():
        return 0
    with DemoFile(path) as file:
        if level.name not in file.levels:
            return 0
        code = file.levels.index(level.name)
        seeds = [group.seeds[group.levels == code].max(initial=-1) for group in file.groups(missions=False)]
    return int(max(seeds, default=-1)) + 1


# ------------------------------------------------------------ in the terminal


def play_in_terminal(
    recorder: Recorder, path: PathLike, keys: Iterator[str], write: Callable[[str], object], person: str = ""
) -> int:
    """Lets a person play mission after mission, and adds each one carried out to the file; returns how many.

    Args:
        recorder: At its first mission.
        path: The file.
        keys: What the person presses; ends like `q` does.
        write: Shows text.
        person: A name, if the file shall tell it.
    """
    saved, note = 0, ""
    write(_screen(recorder, note))
    for key in keys:
        note = ""
        if key == "q":
            break
        if key == "u":
            note = "" if recorder.undo() else "nothing to take back"
        elif key == "n":
            recorder.begin(recorder.seed + 1)
        elif key in KEYS:
            note = _press(recorder, KEYS[key])
        if recorder.success:
            count = recorder.save(path, person)
            saved += 1
            note = f"done in {len(recorder.actions)} steps, reward {recorder.reward:.3f}: saved, {count} in {path}"
            recorder.begin(recorder.seed + 1)
        write(_screen(recorder, note))
    return saved


def _press(recorder: Recorder, action: Action) -> str:
    """Carries out an action, if the episode goes on; returns what to say."""
    if not recorder.done:
        recorder.act(action)
    if recorder.done and not recorder.success:
        return "the mission has failed: u takes the last step back, n goes to the next one"
    return ""


def _screen(recorder: Recorder, note: str) -> str:
    world = recorder.engine.worlds[0]
    lines = [
        f"{recorder.level.name}, seed {recorder.seed}, step {world.step_count} of {world.max_steps}",
        f"mission: {recorder.mission}",
        "",
        draw_text(world, color=True),
        "",
        HELP,
        note,
    ]
    # In raw mode a terminal does not go back to the beginning of the line by itself.
    return CLEAR + "\r\n".join("\n".join(lines).split("\n")) + "\r\n"


@contextlib.contextmanager
def terminal_keys(descriptor: int = 0) -> Iterator[Iterator[str]]:
    """The keys pressed in a terminal, one by one, not echoed: characters, or "left", "right", "up", "down".

    Ctrl-C and Ctrl-D end them.
    """
    if os.name != "posix":
        yield _read_windows_keys()
        return
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield _read_keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_keys(descriptor: int) -> Iterator[str]:
    while (pressed := os.read(descriptor, 1)) and pressed not in (b"\x03", b"\x04"):
        if pressed != b"\x1b":
            yield pressed.decode(errors="replace")
        # Arrow keys send ESC, a bracket or an O, and a letter.
        elif os.read(descriptor, 1) in (b"[", b"O"):
            yield ARROWS.get(os.read(descriptor, 1), "")


def _read_windows_keys() -> Iterator[str]:
    import msvcrt  # pyright: ignore[reportMissingImports]

    arrows = {"H": "up", "P": "down", "M": "right", "K": "left"}
    while (pressed := msvcrt.getwch()) not in ("\x03", "\x04"):  # pyright: ignore[reportAttributeAccessIssue]
        prefixed = pressed in ("\x00", "\xe0")
        yield arrows.get(msvcrt.getwch(), "") if prefixed else pressed  # pyright: ignore[reportAttributeAccessIssue]
