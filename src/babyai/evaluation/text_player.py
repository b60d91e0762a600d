"""Language models as players: any function from a text to the name of an action."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_origin

import numpy as np

from babyai.engine import Engine
from babyai.text.actions import ACTION_NAMES, list_actions, read_action
from babyai.text.effect import NOTHING, describe_effect
from babyai.text.prompt import PROMPTS, Prompt, TextObservation
from babyai.text.view import Wording, check_wording, describe_view
from babyai.text.world import describe_world
from babyai.world.codes import Action
from babyai.world.language import detokenize
from babyai.world.state import DONE_ACTIONS

# Parallel worlds of a function that takes lists.
BATCH = 32
# How much of an unreadable answer is quoted in later prompts.
MAX_QUOTE = 80
UNREADABLE = f"{NOTHING}: your answer must name exactly one action."


class TextAgentError(RuntimeError):
    """A text agent raised an error, or returned something that is not an answer."""


@dataclass
class _Episode:
    """What is remembered of the episode in a world."""

    agent: Callable[[Any], Any]
    past: list[tuple[Sequence[str], str]] = field(default_factory=list)
    was_readable: bool = True


class TextPlayer:
    """A text agent, for `evaluate`.

    An answer is read by the rule of `babyai.text.actions`. If it is unreadable, the agent does nothing for a step
    (`done`), and the next prompt says so; `unreadable` counts these answers.

    Args:
        agent: A function of the prompt, a string, that returns the name or number of an action. Or a function of a list
            of prompts that returns a list of answers, which is faster if a model answers in batches. Or a class: it is
            constructed at the start of each episode, and the object is called with the prompts of that episode, so that
            it may remember them.
        wording: "plain" or "babyai_text": the wording of the view, and the prompt.
        prompt: A prompt of your own, a function of `babyai.text.prompt.TextObservation`.
        full: Describe the whole world instead of the agent's view.
        batch: Whether the agent takes a list of prompts; default: whether its first parameter is annotated as a list or
            sequence.

    Attributes:
        unreadable: (N,) int64, the number of unreadable answers in the current episode of each world.
    """

    def __init__(
        self,
        agent: Callable[[Any], Any],
        *,
        wording: Wording = "plain",
        prompt: Prompt | None = None,
        full: bool = False,
        batch: bool | None = None,
    ) -> None:
        check_wording(wording)
        if not callable(agent):
            raise ValueError(f"a text agent must be a function or a class, not {agent!r}")
        if inspect.iscoroutinefunction(agent):
            raise ValueError(f"{_name(agent)} is async; wrap it in a function that calls asyncio.run")
        self.agent = agent
        self.wording: Wording = wording
        self.prompt = prompt or PROMPTS[wording]
        self.full = full
        self.batch = _takes_lists(agent) if batch is None else batch
        if self.batch and isinstance(agent, type):
            raise ValueError(f"{_name(agent)} is a class, whose objects play one episode each: they take no lists")
        self.best_worlds = BATCH if self.batch else 1
        self.unreadable = np.zeros(0, dtype=np.int64)
        self._episodes: list[_Episode] = []
        self._last_worlds: np.recarray | None = None
        self._last_actions = np.zeros(0, dtype=np.int64)

    def begin(self, engine: Engine) -> None:
        """Forgets all episodes."""
        self.unreadable = np.zeros(engine.num_worlds, dtype=np.int64)
        self._episodes = [_Episode(self.agent) for _ in range(engine.num_worlds)]
        self._last_worlds = None

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        """The agent's actions; where an episode has ended, it is not asked.

        Raises:
            TextAgentError: The agent raised an error, or returned something that is not an answer.
        """
        if len(self._episodes) != engine.num_worlds:
            raise RuntimeError("call begin(engine) before act(engine, starts)")
        for i in np.flatnonzero(starts):
            self._episodes[i] = _Episode(self._start_agent())
            self.unreadable[i] = 0
        playing = np.flatnonzero(~engine.done).tolist()
        observations = [self._observe(engine, i, bool(starts[i])) for i in playing]
        answers = self._ask(playing, [self.prompt(each) for each in observations])
        actions = np.full(engine.num_worlds, int(Action.done))
        for i, observation, answer in zip(playing, observations, answers, strict=True):
            actions[i] = self._read(i, observation, answer)
        self._last_worlds = engine.worlds.copy()
        self._last_actions = actions
        return actions

    def _start_agent(self) -> Callable[[Any], Any]:
        """The function that plays an episode."""
        if not isinstance(self.agent, type):
            return self.agent
        made = _call(self.agent)
        if not callable(made):
            raise TextAgentError(f"objects of {_name(self.agent)} need a method __call__(self, text)")
        return made

    def _observe(self, engine: Engine, index: int, starts: bool) -> TextObservation:
        """What the prompt may say about a world."""
        world = engine.worlds[index]
        episode = self._episodes[index]
        effect = ""
        if not starts and self._last_worlds is not None:
            effect = describe_effect(self._last_worlds[index], int(self._last_actions[index]), world)
        return TextObservation(
            mission=detokenize(engine.missions[index]),
            sentences=describe_world(engine, index) if self.full else describe_view(engine.images[index], self.wording),
            effect=effect if episode.was_readable else UNREADABLE,
            step=int(world.step_count),
            max_steps=int(world.max_steps),
            actions=list_actions(done=bool(world.options & DONE_ACTIONS)),
            past=episode.past,
        )

    def _ask(self, playing: list[int], prompts: list[str]) -> list[Any]:
        """The agent's answers."""
        if not self.batch:
            return [_call(self._episodes[i].agent, prompt) for i, prompt in zip(playing, prompts, strict=True)]
        answers = _call(self.agent, prompts)
        if not isinstance(answers, Sequence | np.ndarray) or isinstance(answers, str) or len(answers) != len(prompts):
            raise TextAgentError(
                f"{_name(self.agent)} takes a list, so it must return one answer per prompt, {len(prompts)} of them, "
                f"not {answers!r}"
            )
        return list(answers)

    def _read(self, index: int, observation: TextObservation, answer: Any) -> Action:
        """The action of an answer, which is remembered."""
        try:
            action = read_action(answer)
        except TypeError as error:
            raise TextAgentError(f"{_name(self.agent)} gave no answer: {error}") from None
        episode = self._episodes[index]
        episode.was_readable = action is not None
        self.unreadable[index] += action is None
        name = " ".join(str(answer).split())[:MAX_QUOTE] if action is None else ACTION_NAMES[action]
        episode.past.append((observation.sentences, name))
        return Action.done if action is None else action


def _takes_lists(agent: Callable[[Any], Any]) -> bool:
    """Whether the first parameter of a function is annotated as a list or sequence."""
    if isinstance(agent, type):
        return False
    try:
        parameters = list(inspect.signature(agent, eval_str=True).parameters.values())
    except (TypeError, ValueError, NameError):
        return False
    annotation = parameters[0].annotation if parameters else None
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and origin is not str and issubclass(origin, Sequence)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the user's code; an error in it is raised as a `TextAgentError` that says where it happened."""
    try:
        return function(*arguments)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TextAgentError(f"{_name(function)} failed: {what} ({frame.filename}, line {frame.lineno})") from error


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
