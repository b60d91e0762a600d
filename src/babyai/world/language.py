"""The Baby Language: missions as Python objects, English sentences and token ids.

The compiled judge works on the codes in the world record. `Mission.read(world)` builds a mission from those codes,
`str(mission)` is the English sentence, and `parse_mission(text)` turns a sentence back into a mission.

    mission     side | side ", then" side | side "after you" side
    side        clause | clause "and" clause
    clause      "go to" d | "pick up" d | "open" d | "put" d "next to" d
    d           ("the" | "a") [color] noun [place]
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

import numpy as np

from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANYWHERE,
    BEFORE,
    BEHIND,
    COLORS,
    DOOR,
    GO_TO,
    IN_FRONT,
    MAX_WORDS,
    NO_CLAUSE,
    NOUNS,
    ON_LEFT,
    ON_RIGHT,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
    VOCABULARY,
)

VERB_CODES = {"go to": GO_TO, "pick up": PICK_UP, "open": OPEN, "put": PUT_NEXT}
ARTICLE_CODES = {"the": True, "a": False}
COLOR_CODES = {name: code for code, name in enumerate(COLORS)}
NOUN_CODES = {name: code for code, name in NOUNS.items()}
PLACE_CODES = {"in front of you": IN_FRONT, "behind you": BEHIND, "on your left": ON_LEFT, "on your right": ON_RIGHT}
ORDER_CODES = {"then": BEFORE, "after you": AFTER}

_VERBS = {code: name for name, code in VERB_CODES.items()}
_PLACES = {ANYWHERE: "", **{code: name for name, code in PLACE_CODES.items()}}
_TOKENS = {word: token for token, word in enumerate(VOCABULARY) if word}

# A comma before "then" is optional and skipped; any other comma is kept as a word, which no rule accepts.
_WORD = re.compile(r"[^\s,]+|,(?!\s*then\b)", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Za-z]+")


class MissionError(ValueError):
    """A sentence is not in the Baby Language; the message points at the offending word."""


@dataclass(frozen=True)
class Descriptor:
    """Describes objects, such as "the red ball on your left"."""

    noun: int
    """The kind (KEY, BALL, BOX, DOOR), or ANY_NOUN for "object"."""
    color: int
    """The color code, or ANY_COLOR."""
    place: int
    """ANYWHERE, ON_LEFT, ON_RIGHT, IN_FRONT or BEHIND, relative to the agent's starting position and heading."""
    definite: bool
    """Whether the article is "the" (one object matches when the episode starts) or "a" (several do)."""

    def __post_init__(self) -> None:
        if self.noun not in NOUNS:
            raise ValueError(f"invalid noun code {self.noun!r}; expected one of {_list_codes(NOUN_CODES)}")
        if self.color not in range(ANY_COLOR + 1):
            colors = f"{_list_codes(COLOR_CODES)}, any {ANY_COLOR}"
            raise ValueError(f"invalid color code {self.color!r}; expected one of {colors}")
        if self.place not in _PLACES:
            places = f"{_list_codes(PLACE_CODES)}, anywhere {ANYWHERE}"
            raise ValueError(f"invalid place code {self.place!r}; expected one of {places}")

    def __str__(self) -> str:
        color = "" if self.color == ANY_COLOR else COLORS[self.color]
        words = "the" if self.definite else "a", color, NOUNS[self.noun], _PLACES[self.place]
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class Clause:
    """A single instruction, such as "open the red door"."""

    verb: int
    """GO_TO, PICK_UP, OPEN or PUT_NEXT."""
    object: Descriptor
    """The object to go to, pick up, open or put."""
    target: Descriptor | None = None
    """The object to put it next to; None for all verbs but PUT_NEXT."""

    def __post_init__(self) -> None:
        if self.verb not in _VERBS:
            raise ValueError(f"invalid verb code {self.verb!r}; expected one of {_list_codes(VERB_CODES)}")
        if (self.target is None) == (self.verb == PUT_NEXT):
            rule = "requires a target" if self.verb == PUT_NEXT else "takes no target"
            raise ValueError(f"{_VERBS[self.verb]!r} {rule}, got target={self.target!r}")
        if reason := _why_invalid(self.verb, self.object.noun):
            raise ValueError(reason)

    def __str__(self) -> str:
        ending = "" if self.target is None else f" next to {self.target}"
        return f"{_VERBS[self.verb]} {self.object}{ending}"


@dataclass(frozen=True)
class Mission:
    """The instruction of an episode: one side, or two sides to be carried out in order."""

    first: tuple[Clause, ...]
    """The first one or two clauses of the sentence, joined by "and"."""
    order: int = SINGLE
    """SINGLE; BEFORE for "first, then second"; AFTER for "first after you second", where `second` is done first."""
    second: tuple[Clause, ...] = ()
    """The last one or two clauses of the sentence; empty if the order is SINGLE."""

    def __post_init__(self) -> None:
        if self.order not in (SINGLE, BEFORE, AFTER):
            orders = f"single {SINGLE}, {_list_codes(ORDER_CODES)}"
            raise ValueError(f"invalid order code {self.order!r}; expected one of {orders}")
        _check_side("first", self.first, (1, 2))
        _check_side("second", self.second, (0,) if self.order == SINGLE else (1, 2))

    def __str__(self) -> str:
        first, second = (" and ".join(map(str, side)) for side in (self.first, self.second))
        return (first, f"{first}, then {second}", f"{first} after you {second}")[self.order]

    def write(self, world: np.void) -> None:
        """Writes this mission into the fields of `world`, with no strict clauses and unused entries set to 0."""
        for field in ("verbs", "nouns", "colors", "places"):
            world[field][:] = 0
        world["order"] = self.order
        world["strict"] = 0
        definite = 0
        for k, clause in [*enumerate(self.first), *enumerate(self.second, start=2)]:
            world["verbs"][k] = clause.verb
            for d, descriptor in ((2 * k, clause.object), (2 * k + 1, clause.target)):
                if descriptor is not None:
                    world["nouns"][d] = descriptor.noun
                    world["colors"][d] = descriptor.color
                    world["places"][d] = descriptor.place
                    definite |= bool(descriptor.definite) << d
        world["definite"] = definite

    @classmethod
    def read(cls, world: np.void) -> "Mission":
        """Returns the mission stored in `world`; strictness is not part of it."""
        verbs, nouns, colors, places = (world[name].tolist() for name in ("verbs", "nouns", "colors", "places"))
        definite = int(world["definite"])
        if verbs[0] == NO_CLAUSE:
            raise ValueError("this world has no mission; reset it or write a mission into it first")

        def descriptor(d: int) -> Descriptor:
            return Descriptor(nouns[d], colors[d], places[d], bool(definite >> d & 1))

        def clause(k: int) -> Clause:
            return Clause(verbs[k], descriptor(2 * k), descriptor(2 * k + 1) if verbs[k] == PUT_NEXT else None)

        first, second = (tuple(clause(k) for k in slots if verbs[k] != NO_CLAUSE) for slots in ((0, 1), (2, 3)))
        return cls(first, int(world["order"]), second)


def parse_mission(text: str) -> Mission:
    """Parses an English sentence; case, white space and the comma before "then" do not matter.

    Raises:
        MissionError: The sentence is not in the Baby Language.
    """
    return _Parser(text).parse_mission()


def complete_mission(text: str) -> list[str]:
    """The phrases with which a sentence can go on; those that complete its last word, if that has no space after it.

    An empty list means that the text is not the beginning of a sentence, or cannot go on.
    """
    words = text.lower().split()
    partial = words.pop() if words and not text[-1].isspace() else ""
    known = " ".join(words)
    parser = _Parser(known)
    with contextlib.suppress(MissionError):
        parser.parse_mission()
    # Only the phrases after which the parser has nothing to object to but the end of the sentence.
    phrases = dict.fromkeys(parser.expected if known else VERB_CODES)
    return [phrase for phrase in phrases if phrase.startswith(partial) and _is_beginning(f"{known} {phrase}")]


def _is_beginning(text: str) -> bool:
    """Whether the text is a sentence or the beginning of one."""
    parser = _Parser(text)
    with contextlib.suppress(MissionError):
        parser.parse_mission()
    return not parser.words[parser.position]


def tokenize(text: str) -> np.ndarray:
    """Returns the token ids of `text`, (MAX_WORDS,) uint8, padded with 0.

    Words are runs of letters, so punctuation is ignored. The grammar is not checked.

    Raises:
        MissionError: A word is not in the vocabulary, or there are more than MAX_WORDS words.
    """
    tokens = np.zeros(MAX_WORDS, dtype=np.uint8)
    for i, match in enumerate(_LETTERS.finditer(text)):
        word = match.group().lower()
        if i >= MAX_WORDS:
            raise MissionError(_point_at(text, match.span(), f"a mission has at most {MAX_WORDS} words"))
        if word not in _TOKENS:
            reason = f"unknown word {match.group()!r} (word {i + 1}){_suggestion(word, _TOKENS)}"
            raise MissionError(_point_at(text, match.span(), reason))
        tokens[i] = _TOKENS[word]
    return tokens


def detokenize(tokens: np.ndarray) -> str:
    """Returns the text of `tokens`, (L,) integers, up to the first 0; the inverse of `tokenize`."""
    words = []
    for token in np.asarray(tokens).tolist():
        if token == 0:
            break
        if not 0 < token < len(VOCABULARY):
            raise ValueError(f"invalid token id {token}; expected 0 to {len(VOCABULARY) - 1}")
        words.append(VOCABULARY[token])
    return " ".join(words).replace(" then", ", then")


def random_mission(rng: np.random.Generator) -> Mission:
    """Draws a mission from the full grammar, each choice uniform; it need not match any world."""

    def descriptor(nouns: list[int]) -> Descriptor:
        noun = nouns[rng.integers(len(nouns))]
        color = int(rng.integers(ANY_COLOR + 1))
        return Descriptor(noun, color, int(rng.integers(len(PLACE_CODES) + 1)), bool(rng.integers(2)))

    def clause() -> Clause:
        verb = int(rng.integers(GO_TO, PUT_NEXT + 1))
        thing = descriptor([noun for noun in NOUNS if not _why_invalid(verb, noun)])
        return Clause(verb, thing, descriptor(list(NOUNS)) if verb == PUT_NEXT else None)

    def side() -> tuple[Clause, ...]:
        return tuple(clause() for _ in range(rng.integers(1, 3)))

    order = int(rng.integers(3))
    return Mission(side(), order, () if order == SINGLE else side())


class _Parser:
    """A recursive-descent parser that remembers which phrases it would have accepted at the current word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans = [match.span() for match in _WORD.finditer(text)]
        self.words = [text[start:end].lower() for start, end in self.spans]
        # An empty word marks the end; its span is where the next word would start.
        end = self.spans[-1][1] + 1 if self.spans else 0
        self.words.append("")
        self.spans.append((end, end))
        self.position = 0
        self.expected: list[str] = []

    def parse_mission(self) -> Mission:
        if self.words == [""]:
            raise MissionError(f"the mission is empty; expected {_join_or(map(repr, VERB_CODES))}")
        first = self.parse_side()
        order = self.accept(ORDER_CODES)
        second = () if order is None else self.parse_side()
        if order is not None and self.words[self.position] in ("then", "after"):
            self.fail("a mission has at most one 'then' or 'after you'")
        if self.words[self.position]:
            self.fail_expecting("the end")
        return Mission(first, order or SINGLE, second)

    def parse_side(self) -> tuple[Clause, ...]:
        clause = self.parse_clause()
        if not self.accept({"and": True}):
            return (clause,)
        pair = clause, self.parse_clause()
        if self.words[self.position] == "and":
            self.fail("'and' joins at most two clauses")
        return pair

    def parse_clause(self) -> Clause:
        verb = self.require(VERB_CODES)
        thing = self.parse_descriptor(verb)
        if verb != PUT_NEXT:
            return Clause(verb, thing)
        self.require({"next to": True})
        return Clause(verb, thing, self.parse_descriptor())

    def parse_descriptor(self, verb: int = GO_TO) -> Descriptor:
        """Parses a descriptor of an object to which `verb` applies; GO_TO applies to all."""
        definite = bool(self.require(ARTICLE_CODES))
        color = self.accept(COLOR_CODES)
        noun = self.require(NOUN_CODES)
        if reason := _why_invalid(verb, noun):
            self.position -= 1
            self.fail(reason)
        place = self.accept(PLACE_CODES)
        return Descriptor(noun, ANY_COLOR if color is None else color, place or ANYWHERE, definite)

    def accept(self, phrases: Mapping[str, int]) -> int | None:
        """Consumes one of the phrases and returns its code; None if none of them begins here."""
        parts = [(*phrase.partition(" "), code) for phrase, code in phrases.items()]
        rest = {ending: code for word, _, ending, code in parts if word == self.words[self.position]}
        if not rest:
            self.expected += phrases
            return None
        # The first word decides the phrase, so the following words must complete it.
        self.position += 1
        self.expected = []
        return rest[""] if "" in rest else self.require(rest)

    def require(self, phrases: Mapping[str, int]) -> int:
        code = self.accept(phrases)
        return self.fail_expecting() if code is None else code

    def fail_expecting(self, *others: str) -> NoReturn:
        start, end = self.spans[self.position]
        word = self.words[self.position]
        found = f"found {self.text[start:end]!r}" if word else "but the sentence ends"
        expected = _join_or([*map(repr, self.expected), *others])
        self.fail(f"expected {expected}, {found}{_suggestion(word, self.expected)}")

    def fail(self, reason: str) -> NoReturn:
        raise MissionError(_point_at(self.text, self.spans[self.position], reason))


def _why_invalid(verb: int, noun: int) -> str | None:
    """Returns why `verb` does not apply to `noun`, or None if it does."""
    if verb == OPEN and noun != DOOR:
        return f"only a door can be opened, not {NOUNS[noun]!r}"
    if verb in (PICK_UP, PUT_NEXT) and noun == DOOR:
        return "a door cannot be " + ("picked up" if verb == PICK_UP else "moved")
    return None


def _check_side(name: str, clauses: tuple[Clause, ...], lengths: tuple[int, ...]) -> None:
    """Raises ValueError unless a side is a tuple with an allowed number of clauses."""
    if not isinstance(clauses, tuple) or len(clauses) not in lengths:
        expected = "empty because the order is SINGLE" if lengths == (0,) else "a tuple of one or two clauses"
        raise ValueError(f"the {name} side of the mission must be {expected}, got {clauses!r}")


def _point_at(text: str, span: tuple[int, int], reason: str) -> str:
    """Returns `reason`, followed by the sentence with the span marked."""
    line = re.sub(r"\s", " ", text)
    start, end = span
    return f"{reason}\n    {line}\n    {' ' * start}{'^' * max(1, end - start)}"


def _suggestion(word: str, expected: Collection[str]) -> str:
    """Returns a "did you mean" for a misspelled word, or an empty string."""
    if word in _TOKENS:
        return ""
    near = get_close_matches(word, [*expected, *(phrase.split()[0] for phrase in expected)], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _join_or(phrases: Iterable[str]) -> str:
    *most, last = phrases
    return f"{', '.join(most)} or {last}" if most else last


def _list_codes(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {int(code)}" for name, code in names.items())
