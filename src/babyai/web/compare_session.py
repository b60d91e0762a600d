"""The session of the page that compares two players: the same mission twice, both played in lockstep."""

from pathlib import Path
from typing import Any

from babyai.expert.expert import UnsolvableError
from babyai.web.game import Game, check_action
from babyai.web.mind import list_agents, load_mind
from babyai.web.session import Message, Session, check

EXPERT = "expert"
PERSON = "person"
# Agents are named `agent:<name>`, so that no name of a folder can be taken for one of the two others.
AGENT = "agent:"


class Side:
    """One of the two: a game, and who plays it."""

    def __init__(self, player: str) -> None:
        self.player = player
        self.game: Game | None = None
        self._problem = ""

    def begin(self, game: Game, agents: Path) -> None:
        """Starts an episode."""
        if self.player.startswith(AGENT):
            game.watch_with(load_mind(agents, self.player.removeprefix(AGENT)))
        self.game = game
        self._problem = ""

    @property
    def playing(self) -> bool:
        """Whether another step is possible."""
        return self.game is not None and not self.game.recorder.done and not self._problem

    def step(self, action: int | None) -> None:
        """Takes a step, if one is possible; the action is the person's."""
        if self.game is None or not self.playing:
            return
        try:
            if self.player == PERSON:
                assert action is not None
                self.game.act(action)
            elif self.player == EXPERT:
                self.game.let_expert_act()
            else:
                self.game.let_agent_act()
        except UnsolvableError as problem:
            # The other side goes on.
            self._problem = str(problem)

    def state(self, *, urgent: bool = True) -> Message:
        """What the page shows; see `Game.state`."""
        assert self.game is not None
        return self.game.state(urgent=urgent) | {"player": self.player, "problem": self._problem}


class CompareSession(Session):
    """Two players on the same mission.

    Args:
        agents: Folder of the agents and runs that can play.
    """

    def __init__(self, agents: Path) -> None:
        self._agents = agents
        self._sides = (Side(EXPERT), Side(PERSON))

    def do_agents(self) -> Message:
        """The agents that can play."""
        return {"type": "agents", "folder": str(self._agents), "names": list_agents(self._agents)}

    def do_start(self, level: Any, seed: Any, players: Any, mission: Any = None) -> Message:
        """Starts an episode for two players."""
        check(level, str, "level")
        check(seed, int, "seed")
        if mission is not None:
            check(mission, str, "mission")
        sides = tuple(Side(player) for player in self._check_players(players))
        # Whatever is wrong must not end the episodes that are being played.
        for side in sides:
            side.begin(Game(level, seed, mission), self._agents)
        self._sides = sides
        return self._state()

    def do_step(self, action: Any = None) -> Message:
        """Lets both take one step; a person's step is the action."""
        if self._sides[0].game is None:
            raise ValueError("no episode has been started")
        needs_action = any(side.player == PERSON and side.playing for side in self._sides)
        if needs_action and action is None:
            raise ValueError("it is the person's turn: take an action")
        chosen = check_action(action) if needs_action else None
        for side in self._sides:
            side.step(chosen)
        return self._state(urgent=needs_action)

    def _check_players(self, players: Any) -> list[str]:
        if not isinstance(players, list) or len(players) != 2 or not all(isinstance(each, str) for each in players):
            raise ValueError("players must be a list of two names")
        if players == [PERSON, PERSON]:
            raise ValueError("only one of the two can be a person: both take their steps at the same time")
        for player in players:
            if player not in (EXPERT, PERSON) and not player.startswith(AGENT):
                raise ValueError(f"unknown player {player[:80]!r}; expected {EXPERT}, {PERSON} or {AGENT}<name>")
        return players

    def _state(self, *, urgent: bool = True) -> Message:
        states = [side.state(urgent=urgent) for side in self._sides]
        turn = any(side.player == PERSON and side.playing for side in self._sides)
        over = not any(side.playing for side in self._sides)
        return {"type": "pair", "person": turn, "over": over, "sides": states}
