"""A session: one connection of the page, its messages and its limits.

A message is a JSON object whose field `do` names one of the methods `do_...`; the other fields are its arguments. The
answer is a JSON object with a field `type`. A message that is wrong is answered with an error and changes nothing.
"""

import inspect
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from babyai.demos.store import DemoFile
from babyai.demos.verify import play_demo
from babyai.expert.expert import UnsolvableError
from babyai.render.scene import take_scene
from babyai.web.game import Game, check_action, describe_scene
from babyai.web.mind import list_agents, load_mind
from babyai.world.language import complete_mission

# Limits of one session: bytes of a message, messages per second and how many may come at once.
MAX_MESSAGE = 4096
RATE = 150.0
BURST = 300
MAX_TEXT = 600
MAX_PERSON = 60
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# Rewriting a file of demonstrations takes several steps, so only one session does it at a time.
_writing = threading.Lock()

Message = dict[str, Any]


class RateLimit:
    """A token bucket: up to `burst` messages at once, and `rate` per second in the long run."""

    def __init__(self, rate: float = RATE, burst: int = BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._last = clock()

    def allows(self) -> bool:
        """Counts one message; False if there were too many."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._last) * self._rate)
        self._last = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Session:
    """One player.

    Args:
        folder: Folder of the files of demonstrations that this session may write and replay.
        agents: Folder of the agents and runs that it may watch.
    """

    def __init__(self, folder: Path, agents: Path) -> None:
        self.folder = folder
        self.agents = agents
        self._agent: str | None = None
        self.game: Game | None = None
        self._recording: Path | None = None
        self._person = ""

    def answer(self, text: str) -> Message:
        """The answer to a message; an error if there is anything wrong with it."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return error("the message is not JSON")
        if not isinstance(message, dict):
            return error(f"a message must be a JSON object, not {type(message).__name__}")
        name = message.pop("do", None)
        method = getattr(self, f"do_{name}", None) if isinstance(name, str) and name.isidentifier() else None
        if method is None:
            return error(f"unknown message {str(name)[:40]!r}")
        accepted = inspect.signature(method).parameters
        required = {each for each, value in accepted.items() if value.default is inspect.Parameter.empty}
        if not required <= set(message) <= set(accepted):
            given = ", ".join(message)[:80]
            return error(f"{name!r} takes {', '.join(accepted) or 'nothing'}, not {given or 'nothing'}")
        try:
            return method(**message)
        except (ValueError, TypeError, UnsolvableError, OSError) as problem:
            return error(str(problem))

    # ------------------------------------------------------------ playing

    def do_start(self, level: Any, seed: Any, mission: Any = None) -> Message:
        """Starts an episode."""
        _check(level, str, "level")
        _check(seed, int, "seed")
        if mission is not None:
            _check(mission, str, "mission")
        # An invalid level, seed or mission must not end the game that is being played.
        game = Game(level, seed, mission)
        if self._agent is not None:
            game.watch_with(load_mind(self.agents, self._agent))
        self.game = game
        return self._state()

    def do_act(self, action: Any) -> Message:
        """Takes an action."""
        self._playing.act(check_action(action))
        return self._state()

    def do_undo(self) -> Message:
        """Undoes the last action."""
        return self._state() if self._playing.undo() else error("there is nothing to undo")

    def do_expert(self) -> Message:
        """Lets the expert take the next action."""
        self._playing.let_expert_act()
        return self._state()

    def do_agents(self) -> Message:
        """The agents that can be watched."""
        return {"type": "agents", "folder": str(self.agents), "names": list_agents(self.agents)}

    def do_choose(self, agent: Any) -> Message:
        """Shows what an agent thinks; None shows no agent."""
        mind = None if agent is None else load_mind(self.agents, agent)
        self._playing.watch_with(mind)
        self._agent = agent
        return self._state()

    def do_agent(self) -> Message:
        """Lets the chosen agent take the next action."""
        self._playing.let_agent_act()
        return self._state()

    # ------------------------------------------------------------ missions

    def do_instruct(self, mission: Any) -> Message:
        """Gives the world another mission."""
        self._playing.instruct(_check(mission, str, "mission"))
        return self._state()

    def do_complete(self, text: Any) -> Message:
        """Phrases with which a mission can go on."""
        return {"type": "completions", "text": text, "phrases": complete_mission(_check(text, str, "text"))}

    # ------------------------------------------------------------ demonstrations

    def do_record(self, file: Any, person: Any = "") -> Message:
        """Records successes from now on to a file of this name; None stops recording."""
        if file is None:
            self._recording = None
            return {"type": "recording", "file": None}
        self._person = _check(person, str, "person")[:MAX_PERSON]
        self._recording = self._find_file(file)
        self.folder.mkdir(parents=True, exist_ok=True)
        return {"type": "recording", "file": str(self._recording)}

    def do_demos(self, file: Any) -> Message:
        """The demonstrations of a file, the newest 100."""
        path = self._find_file(file)
        if not path.exists():
            return {"type": "demos", "file": file, "rows": []}
        with DemoFile(path) as demos:
            first = max(0, len(demos) - 100)
            chosen = demos.read(range(first, len(demos)))
        rows = [
            {"row": first + k, "level": demo.level, "seed": demo.seed, "mission": demo.mission, "steps": len(demo)}
            for k, demo in enumerate(chosen)
        ]
        return {"type": "demos", "file": file, "rows": rows}

    def do_replay(self, file: Any, row: Any) -> Message:
        """All states of a demonstration, to be played back."""
        _check(row, int, "row")
        with DemoFile(self._find_file(file)) as demos:
            if not 0 <= row < len(demos):
                raise ValueError(f"there is no row {row}; {file} has {len(demos)}")
            demo = demos[row]
            rules = demos.rules
        states = []
        for step, engine in enumerate(play_demo(demo, rules)):
            action = int(demo.actions[step - 1]) if step else None
            states.append(describe_scene(take_scene(engine, action=action)))
        return {"type": "replay", "states": states}

    # ------------------------------------------------------------ helpers

    @property
    def _playing(self) -> Game:
        if self.game is None:
            raise ValueError("no episode has been started")
        return self.game

    def _state(self) -> Message:
        """The state; a success is recorded first, if that is wanted."""
        game = self._playing
        state = game.state()
        if self._recording is not None and game.success and not game.saved:
            try:
                with _writing:
                    rows = game.save(self._recording, self._person)
                state["note"] = f"saved: {self._recording} now has {rows}"
            except (ValueError, OSError) as problem:
                state["note"] = str(problem)
        return state

    def _find_file(self, name: Any) -> Path:
        """The file of this name in the folder; a name cannot lead out of it."""
        if not isinstance(name, str) or not FILE_NAME.fullmatch(name):
            raise ValueError(f"a file name has 1 to 64 letters, digits, - and _; got {str(name)[:80]!r}")
        path = self.folder / f"{name}.parquet"
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link, which may lead out of the folder")
        return path


def error(message: str) -> Message:
    """An answer that says what was wrong."""
    return {"type": "error", "message": message}


def _check(value: Any, kind: type, name: str) -> Any:
    """The value, if it has this type and is not too long."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} must be {'text' if kind is str else 'a whole number'}, not {str(value)[:40]!r}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ValueError(f"{name} has {len(value)} characters; at most {MAX_TEXT} are possible")
    return value
