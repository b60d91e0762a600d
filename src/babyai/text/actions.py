"""Names of the actions, and the action that an answer in English means.

A name is BabyAI-Text's, plus "done". `read_action` follows one rule:

1. An integer 0 to 6 is the action with that number.
2. Of a text, the part that counts is what the last `<action>...</action>` encloses; or else what follows the last
   "action:" or "answer:", to the end of the line; or else the last line that names an action.
3. If that part is nothing but a name, Minigrid's name of an action or a number, it is that action. Case, punctuation,
   quotes and underscores do not matter.
4. Otherwise it must contain the phrase of one action, and of no other: "I will go forward". "done", "left", "right" and
   "forward" are no phrases; they also occur in sentences that mean another action.

Everything else is unreadable. In particular, an answer that names two actions is.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from babyai.world.codes import Action

ACTION_NAMES: Mapping[Action, str] = MappingProxyType(
    {
        Action.left: "turn left",
        Action.right: "turn right",
        Action.forward: "go forward",
        Action.pickup: "pick up",
        Action.drop: "drop",
        Action.toggle: "toggle",
        Action.done: "done",
    }
)
ACTION_MEANINGS: Mapping[Action, str] = MappingProxyType(
    {
        Action.left: "turn left by 90 degrees, on the spot",
        Action.right: "turn right by 90 degrees, on the spot",
        Action.forward: "move one cell forward, if it is empty or an open door",
        Action.pickup: "pick up the key, ball or box in the cell ahead, if your hands are free",
        Action.drop: "put what you carry into the cell ahead, if it is empty",
        Action.toggle: "open or close the door or box ahead, or unlock a door if you carry a key of its color",
        Action.done: "do nothing, or say that an instruction is done where that is asked for",
    }
)

# Phrases that name an action in the middle of a sentence. "step forward" is none: views say "1 step forward".
PHRASES = {
    Action.left: r"(turn|rotat)(e|ing)? (to the |to my )?left",
    Action.right: r"(turn|rotat)(e|ing)? (to the |to my )?right",
    Action.forward: r"(go|mov|walk)(e|ing)? (straight )?forward|(mov|walk)(e|ing)? (straight )?ahead",
    Action.pickup: r"pick(ing)? (it )?up|pickup",
    Action.drop: r"drop(ping)?",
    Action.toggle: r"toggl(e|ing)",
}
_PHRASES = {action: re.compile(rf"\b({phrase})\b") for action, phrase in PHRASES.items()}
_TAG = re.compile(r"<action>(.*?)</action>", re.IGNORECASE | re.DOTALL)
_LABEL = re.compile(r"\b(?:action|answer)\b *\d*[\"'*_`]*\s*[:=]", re.IGNORECASE)
# Everything but letters, digits and the sign of a number.
_SEPARATORS = re.compile(r"(?:(?!-\d)[^a-z0-9])+")
# Without spaces: "TurnLeft" and "turn_left" are "turn left", too.
_WHOLE_ANSWERS = {
    **{name.replace(" ", ""): action for action, name in ACTION_NAMES.items()},
    **{action.name: action for action in Action},
    **{str(action.value): action for action in Action},
}


def read_action(answer: Any) -> Action | None:
    """The action that an answer means; None if it is unreadable. The rule is in the description of this module.

    Args:
        answer: A text or an integer.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(answer, int | np.integer) and not isinstance(answer, bool):
        return Action(answer) if 0 <= answer < len(Action) else None
    if not isinstance(answer, str):
        raise TypeError(
            f"an answer must be a text that names an action, such as {ACTION_NAMES[Action.forward]!r}, or its number, "
            f"not {answer!r}"
        )
    marked = _marked_part(answer)
    if marked is not None:
        return _read_line(marked)
    lines = [line for line in answer.splitlines() if _named(_normalize(line))]
    return _read_line(lines[-1]) if lines else None


def list_actions(*, done: bool = False, meanings: bool = False) -> list[str]:
    """The names of the actions, for prompts.

    Args:
        done: Whether to include "done", which only has a use where instructions must be confirmed (`done_actions`).
        meanings: Whether to explain each: "toggle: open or close ...".
    """
    chosen = [action for action in Action if done or action is not Action.done]
    return [f"{ACTION_NAMES[each]}: {ACTION_MEANINGS[each]}" if meanings else ACTION_NAMES[each] for each in chosen]


def _marked_part(answer: str) -> str | None:
    """What the last tag encloses, or the line after the last label; None if there are none."""
    tags = _TAG.findall(answer)
    if tags:
        return tags[-1]
    labels = list(_LABEL.finditer(answer))
    if not labels:
        return None
    following = answer[labels[-1].end() :].strip().splitlines()
    return following[0] if following else ""


def _read_line(line: str) -> Action | None:
    """The action that a line names, if it names exactly one."""
    named = _named(_normalize(line))
    return named.pop() if len(named) == 1 else None


def _named(text: str) -> set[Action]:
    """The actions that a normalized text names."""
    whole = text.replace(" ", "")
    if whole in _WHOLE_ANSWERS:
        return {_WHOLE_ANSWERS[whole]}
    return {action for action, phrase in _PHRASES.items() if phrase.search(text)}


def _normalize(text: str) -> str:
    """Words in lower case, separated by single spaces."""
    return _SEPARATORS.sub(" ", text.lower()).strip()
