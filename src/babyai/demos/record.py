"""Human demonstrations: a recorder for any user interface, and a terminal interface."""

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from babyai.atomic_io import PathLike
from babyai.demos.header import Source, make_header
from babyai.demos.merge import append
from babyai.demos.packed import Demo, Demos, offsets_of
from babyai.demos.store import DemoFile
from babyai.engine import Engine
from babyai.levels.catalog import Level, Rules, find_level
from babyai.render.scene import take_scene
from babyai.render.terminal import CLEAR, draw_screen
from babyai.world.codes import Action
from babyai.world.language import detokenize

# Key bindings. For the names of arrow keys, see `terminal_keys`.
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
HELP = ("arrows turn, move  p pick up", "d drop  t or space toggle", "enter done  u undo  n next  q quit")
NEXT_KEYS = ("n", "\r", "\n")
ESCAPE_SECONDS = 0.05
ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}


class Recorder:
    """Records the actions of an episode, with undo.

    Args:
        level: A level or its name.
        seed: Random seed of the first episode.
        rules: Rule set, "paper" or "minigrid".

    Attributes:
        engine: Engine with one world.
        actions: Actions of the episode so far.
    """

    def __init__(self, level: str | Level, seed: int, rules: Rules = "paper") -> None:
        self.level = find_level(level, rules)
        self.rules: Rules = rules
        self.engine = Engine(self.level, rules=rules)
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Starts a new episode."""
        self.engine.reset([seed])
        self.seed = seed
        self.forget()

    def forget(self) -> None:
        """Forgets the actions so far: the current state is the start of an episode."""
        self.actions: list[int] = []
        self._snapshots: list[bytes] = []
        self.reward = 0.0

    @property
    def snapshots(self) -> list[bytes]:
        """The states before each action, the first one first."""
        return list(self._snapshots)

    @property
    def mission(self) -> str:
        """The mission in English."""
        return detokenize(self.engine.missions[0])

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.engine.done[0])

    @property
    def success(self) -> bool:
        """Whether the episode has ended successfully."""
        return self.done and self.reward > 0

    def act(self, action: int) -> None:
        """Takes one action."""
        snapshot = self.engine.snapshot(0)
        self.engine.step([int(action)])
        self._snapshots.append(snapshot)
        self.actions.append(int(action))
        self.reward = float(self.engine.rewards[0])

    def undo(self) -> bool:
        """Undoes the last action; returns False if there is none."""
        if not self.actions:
            return False
        self.actions.pop()
        self.engine.restore(0, self._snapshots.pop())
        self.reward = 0.0
        return True

    def demo(self) -> Demo:
        """The finished episode as a demonstration.

        Raises:
            RuntimeError: The episode is not over yet.
        """
        if not self.done:
            raise RuntimeError("the episode is not over yet, so it cannot be saved as a demonstration")
        return Demo(self.level.name, self.seed, self.mission, np.array(self.actions, dtype=np.uint8), self.reward)

    def save(self, path: PathLike, person: str = "") -> int:
        """Appends the episode to a file of demonstrations; returns the file's number of rows."""
        return append_demo(path, self.demo(), self.level, self.rules, Source("human", 1, person))


def append_demo(path: PathLike, demo: Demo, level: Level, rules: Rules, source: Source) -> int:
    """Appends one demonstration to a file; returns the file's number of rows."""
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
    """One more than the largest seed of a level in a file; 0 if the file has none."""
    if not Path(path).exists():
        return 0
    with DemoFile(path) as file:
        if level.name not in file.levels:
            return 0
        code = file.levels.index(level.name)
        seeds = [group.seeds[group.levels == code].max(initial=-1) for group in file.groups(missions=False)]
    return int(max(seeds, default=-1)) + 1


# ------------------------------------------------------------ terminal interface


def play_in_terminal(
    recorder: Recorder, path: PathLike, keys: Iterator[str], write: Callable[[str], object], person: str = ""
) -> int:
    """Plays episode after episode and appends each successful one to the file; returns how many were saved.

    Args:
        recorder: Recorder at the start of its first episode.
        path: File of demonstrations.
        keys: Keys that are pressed; their end means the same as `q`.
        write: Function that displays text.
        person: Name to store in the file.
    """
    saved = 0
    # After a success, the screen stays until the player asks for the next mission.
    pausing = False
    write(_screen(recorder, ""))
    for key in keys:
        note = ""
        if key == "q":
            break
        if key == "n" or (pausing and key in NEXT_KEYS):
            recorder.begin(recorder.seed + 1)
            pausing = False
        elif pausing:
            note = "saved: press n or Enter for the next mission, q to quit"
        elif key == "u":
            note = "" if recorder.undo() else "nothing to undo"
        elif key in KEYS:
            note = _press(recorder, KEYS[key])
        if recorder.success and not pausing:
            count = recorder.save(path, person)
            saved += 1
            pausing = True
            note = f"saved: {path} now has {count}; press n or Enter for the next mission"
        write(_screen(recorder, note))
    return saved


def _press(recorder: Recorder, action: Action) -> str:
    """Takes an action if the episode is not over; returns a message for the player."""
    if not recorder.done:
        recorder.act(action)
    if recorder.done and not recorder.success:
        return "the mission has failed: press u to undo the last step, or n for the next mission"
    return ""


def _screen(recorder: Recorder, note: str) -> str:
    last = recorder.actions[-1] if recorder.actions else None
    screen = draw_screen(take_scene(recorder.engine, action=last), keys=HELP, note=note)
    # In raw mode, a terminal needs a carriage return for each new line.
    return CLEAR + screen.replace("\n", "\r\n") + "\r\n"


@contextlib.contextmanager
def terminal_keys(descriptor: int = 0) -> Iterator[Iterator[str]]:
    """Puts a terminal into raw mode and yields an iterator over keys: characters, or "left", "right", "up", "down".

    Ctrl-C and Ctrl-D end the iterator.
    """
    if os.name != "posix":
        yield _iter_windows_keys()
        return
    import termios
    import tty

    previous = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield _iter_keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, previous)


def _iter_keys(descriptor: int) -> Iterator[str]:
    following = b""
    while (pressed := following or os.read(descriptor, 1)) and pressed not in (b"\x03", b"\x04"):
        following = b""
        if pressed != b"\x1b":
            yield pressed.decode(errors="replace")
        # Arrow keys send ESC, then [ or O, then a letter, all at once; after the key Esc comes another key, or nothing.
        elif select.select([descriptor], [], [], ESCAPE_SECONDS)[0]:
            following = os.read(descriptor, 1)
            if following in (b"[", b"O"):
                following = b""
                yield ARROWS.get(os.read(descriptor, 1), "")


def _iter_windows_keys() -> Iterator[str]:
    import msvcrt  # pyright: ignore[reportMissingImports]

    arrows = {"H": "up", "P": "down", "M": "right", "K": "left"}
    while (pressed := msvcrt.getwch()) not in ("\x03", "\x04"):  # pyright: ignore[reportAttributeAccessIssue]
        prefixed = pressed in ("\x00", "\xe0")
        yield arrows.get(msvcrt.getwch(), "") if prefixed else pressed  # pyright: ignore[reportAttributeAccessIssue]
