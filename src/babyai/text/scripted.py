"""A scripted text agent, as a worked example: it reads nothing but the prompts of one episode.

It solves missions of one clause in one room: *go to*, *pick up* and *open*. It keeps a map in coordinates of its own,
in which it starts at (0, 0) facing (0, -1), and updates it from what the prompts say.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator

Position = tuple[int, int]
Pose = tuple[Position, int]

VECTORS = ((0, -1), (1, 0), (0, 1), (-1, 0))
# The agent sees this far ahead, and half as far to each side.
REACH = 6
MISSION = re.compile(
    r"mission: (go to|pick up|open) (?:the|a) (?:(\w+) )?(ball|box|key|door|object)"
    r"(?: (on your left|on your right|in front of you|behind you))?\n"
)
SENTENCE = re.compile(
    r"You see an? (?P<name>[a-z ]+?)(?: (?P<ahead>\d+) steps? forward)?(?: and)?"
    r"(?: (?P<side>\d+) steps? (?P<where>left|right))?$",
    re.MULTILINE,
)
# By place: the direction in which the object is from where the agent started.
PLACES = {"in front of you": 0, "on your right": 1, "behind you": 2, "on your left": 3}
LAST_ACTIONS = {"go to": "go forward", "pick up": "pick up", "open": "toggle"}


class ScriptedAgent:
    """Plays one episode: `agent(prompt)` is the next action. `babyai evaluate babyai.text.scripted:ScriptedAgent`."""

    def __init__(self) -> None:
        self.pose: Pose = ((0, 0), 0)
        self.objects: dict[Position, str] = {}
        self.blocked: set[Position] = set()
        self.seen: set[Position] = set()
        # How far the room extends in each of the four directions, as far as walls have been seen.
        self.limits = [10**6] * 4

    def __call__(self, prompt: str) -> str:
        """The action for a prompt in the wording "plain"."""
        mission = MISSION.search(prompt)
        if mission is None:
            raise ValueError(f"this agent goes to, picks up and opens one thing, but the prompt is {prompt!r}")
        self._follow_effect(prompt)
        self._look(prompt)
        verb, *description = mission.groups()
        targets = {position for position, name in self.objects.items() if _fits(position, name, *description)}
        path = self._find_path(lambda pose: _ahead(pose) in targets)
        if path == []:
            return LAST_ACTIONS[verb]
        return (path or self._explore() or ["turn left"])[0]

    def _follow_effect(self, prompt: str) -> None:
        """Updates the pose, or what is known to be in the way."""
        position, heading = self.pose
        if "You turned left." in prompt:
            self.pose = position, (heading - 1) % 4
        elif "You turned right." in prompt:
            self.pose = position, (heading + 1) % 4
        elif "You moved forward." in prompt:
            self.pose = _ahead(self.pose), heading
        elif "is ahead." in prompt:
            self.blocked.add(_ahead(self.pose))

    def _look(self, prompt: str) -> None:
        """Adds what the prompt describes to the map."""
        self.seen |= set(self._view(self.pose))
        for sentence in SENTENCE.finditer(prompt):
            ahead = int(sentence["ahead"] or 0)
            right = int(sentence["side"] or 0) * (1 if sentence["where"] == "right" else -1)
            if sentence["name"] == "wall":
                self._limit(ahead, right)
            else:
                self.objects[_locate(self.pose, ahead, right)] = sentence["name"]

    def _limit(self, ahead: int, right: int) -> None:
        """Remembers a wall straight ahead, to the left or to the right."""
        position, heading = self.pose
        toward = (heading + (0 if ahead else 1 if right > 0 else 3)) % 4
        self.limits[toward] = min(self.limits[toward], _distance(position, toward) + ahead + abs(right) - 1)

    def _is_inside(self, position: Position, margin: int = 0) -> bool:
        return all(_distance(position, direction) <= limit + margin for direction, limit in enumerate(self.limits))

    def _view(self, pose: Pose) -> Iterator[Position]:
        """The cells that are in view from a pose, if there are no walls."""
        for ahead in range(REACH + 1):
            for right in range(-REACH // 2, REACH // 2 + 1):
                yield _locate(pose, ahead, right)

    def _explore(self) -> list[str] | None:
        """The way to the nearest pose that shows a part of the room, or else of its walls, for the first time."""
        for margin in (0, 1):
            new = self._find_path(
                lambda pose, margin=margin: any(
                    self._is_inside(each, margin) and each not in self.seen for each in self._view(pose)
                )
            )
            if new is not None:
                return new
        return None

    def _find_path(self, is_goal: Callable[[Pose], bool]) -> list[str] | None:
        """The fewest actions to a pose that is a goal, by breadth-first search; None if there are none."""
        queue: deque[tuple[Pose, list[str]]] = deque([(self.pose, [])])
        known = {self.pose}
        while queue:
            pose, path = queue.popleft()
            if is_goal(pose):
                return path
            for action, following in self._steps(pose):
                if following not in known:
                    known.add(following)
                    queue.append((following, [*path, action]))
        return None

    def _steps(self, pose: Pose) -> Iterator[tuple[str, Pose]]:
        position, heading = pose
        yield "turn left", (position, (heading - 1) % 4)
        yield "turn right", (position, (heading + 1) % 4)
        ahead = _ahead(pose)
        # Only through cells that have been seen: the world beyond may not exist.
        if ahead in self.seen and ahead not in self.objects and ahead not in self.blocked and self._is_inside(ahead):
            yield "go forward", (ahead, heading)


def _fits(position: Position, name: str, color: str | None, kind: str, place: str | None) -> bool:
    """Whether an object with a name such as "closed red door" fits a description."""
    *adjectives, noun = name.split()
    if kind not in (noun, "object") or (color is not None and color not in adjectives):
        return False
    return place is None or _distance(position, PLACES[place]) > 0


def _distance(position: Position, direction: int) -> int:
    """How far a position is from the start, in one direction."""
    dx, dy = VECTORS[direction]
    return position[0] * dx + position[1] * dy


def _locate(pose: Pose, ahead: int, right: int) -> Position:
    (x, y), heading = pose
    (dx, dy), (rx, ry) = VECTORS[heading], VECTORS[(heading + 1) % 4]
    return x + ahead * dx + right * rx, y + ahead * dy + right * ry


def _ahead(pose: Pose) -> Position:
    return _locate(pose, 1, 0)
