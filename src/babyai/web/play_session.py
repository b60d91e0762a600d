"""The session of the page to play: one game, missions, agents to watch, demonstrations."""

import re
import threading
from pathlib import Path
from typing import Any

from babyai.demos.store import DemoFile
from babyai.demos.verify import play_demo
from babyai.render.scene import take_scene
from babyai.web.game import Game, check_action, describe_scene
from babyai.web.mind import list_agents, load_mind
from babyai.web.session import Message, Session, check, error
from babyai.world.language import complete_mission

MAX_PERSON = 60
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# Rewriting a file of demonstrations takes several steps, so only one session does it at a time.
_writing = threading.Lock()


class PlaySession(Session):
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

    # ------------------------------------------------------------ playing

    def do_start(self, level: Any, seed: Any, mission: Any = None) -> Message:
        """Starts an episode."""
        check(level, str, "level")
        check(seed, int, "seed")
        if mission is not None:
            check(mission, str, "mission")
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
        return self._state(urgent=False)

    # ------------------------------------------------------------ missions

    def do_instruct(self, mission: Any) -> Message:
        """Gives the world another mission."""
        self._playing.instruct(check(mission, str, "mission"))
        return self._state()

    def do_complete(self, text: Any) -> Message:
        """Phrases with which a mission can go on."""
        return {"type": "completions", "text": text, "phrases": complete_mission(check(text, str, "text"))}

    # ------------------------------------------------------------ demonstrations

    def do_record(self, file: Any, person: Any = "") -> Message:
        """Records successes from now on to a file of this name; None stops recording."""
        if file is None:
            self._recording = None
            return {"type": "recording", "file": None}
        self._person = check(person, str, "person")[:MAX_PERSON]
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
        check(row, int, "row")
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

    def _state(self, *, urgent: bool = True) -> Message:
        """The state; a success is recorded first, if that is wanted."""
        game = self._playing
        state = game.state(urgent=urgent)
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
