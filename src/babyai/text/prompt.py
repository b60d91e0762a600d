"""Prompts: what a language model is asked at each step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from babyai.text.view import Wording

# BabyAI-Text's prompts show the current observation and the last two, with the actions between them.
BABYAI_TEXT_OBSERVATIONS = 3


@dataclass(frozen=True)
class TextObservation:
    """Everything that a prompt may say about a step."""

    mission: str
    """The mission."""
    sentences: Sequence[str]
    """The description of the view, or of the whole world."""
    effect: str
    """What the last action did; empty at the start."""
    step: int
    """Number of actions taken so far."""
    max_steps: int
    """Time limit of the episode."""
    actions: Sequence[str]
    """Names of the actions."""
    past: Sequence[tuple[Sequence[str], str]]
    """The sentences of all steps so far, and the name of the action taken there, or the beginning of an unreadable
    answer."""


Prompt = Callable[[TextObservation], str]


def plain_prompt(observation: TextObservation) -> str:
    """The mission, the step, what the last action did, the description, and the names of the actions."""
    lines = [
        f"Your mission: {observation.mission}",
        f"Step {observation.step + 1} of {observation.max_steps}. {observation.effect}".rstrip(),
        *observation.sentences,
        f"Answer with one action: {', '.join(observation.actions)}",
    ]
    return "\n".join(lines)


def babyai_text_prompt(observation: TextObservation) -> str:
    """The prompt of BabyAI-Text (Carta et al. 2023), to the letter, spaces included."""
    recent = list(observation.past[-(BABYAI_TEXT_OBSERVATIONS - 1) :])
    parts = [f"Possible action of the agent: {', '.join(observation.actions)}"]
    parts.append(f"Goal of the agent: {observation.mission}")
    for number, (sentences, action) in enumerate([*recent, (observation.sentences, "")]):
        seen = "".join(f"{sentence}, " for sentence in sentences)
        parts.append(f"Observation {number}: {seen}\n Action {number}: {action}")
    return " \n ".join(parts)


PROMPTS: dict[Wording, Prompt] = {"plain": plain_prompt, "babyai_text": babyai_text_prompt}
