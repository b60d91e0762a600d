"""The Baby Language as people use it: missions that can be read, written, spoken and taken apart.

The compiled judge works on the codes in the world record. This is the other side of them: `Mission.read(world)` makes
a mission of those codes, `str(mission)` says it in English, and `parse_mission(text)` understands English again.

    mission     side | side ", then" side | side "after you" side
    side        clause | clause "and" clause
    clause      "go to" d | "pick up" d | "open" d | "put" d "next to" d
    d           ("the" | "a") [color] noun [place]
"""

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

# A comma that stands before "then" says nothing, so it is passed over; any other comma is a word that fits nowhere.
_WORD = re.compile(r"[^\s,]+|,(?!\s*then\b)", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Za-z]+")


class MissionError(ValueError):
    """A sentence that is not of the Baby Language; the message shows the word that does not fit."""


@dataclass(frozen=True)
class Descriptor:
    """Which objects are meant, such as "the red ball on your left"."""

    noun: int
    """A kind (KEY, BALL, BOX, DOOR), or ANY_NOUN for "object"."""
    color: int
    """A color, or ANY_COLOR."""
    place: int
    """ANYWHERE, ON_LEFT, ON_RIGHT, IN_FRONT or BEHIND, seen from where the agent starts."""
    definite: bool
    """Whether the article is "the" (one object fits when the episode starts) or "a" (several do)."""

    def __post_init__(self) -> None:
        if self.noun not in NOUNS:
            raise ValueError(f"no noun has the code {self.noun!r}; the nouns are {_codes(NOUN_CODES)}")
        if self.color not in range(ANY_COLOR + 1):
            colors = f"{_codes(COLOR_CODES)}, any {ANY_COLOR}"
            raise ValueError(f"no color has the code {self.color!r}; the colors are {colors}")
        if self.place not in _PLACES:
            raise ValueError(f"no place has the code {self.place!r}; the places are {_codes(PLACE_CODES)}, anywhere 0")

    def __str__(self) -> str:
        color = "" if self.color == ANY_COLOR else COLORS[self.color]
        words = "the" if self.definite else "a", color, NOUNS[self.noun], _PLACES[self.place]
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class Clause:
    """One thing to do, such as "open the red door"."""

    verb: int
    """GO_TO, PICK_UP, OPEN or PUT_NEXT."""
    object: Descriptor
    """What to go to, pick up, open or put."""
    target: Descriptor | None = None
    """What to put the object next to; None for all other verbs."""

    def __post_init__(self) -> None:
        if self.verb not in _VERBS:
            raise ValueError(f"no verb has the code {self.verb!r}; the verbs are {_codes(VERB_CODES)}")
        if (self.target is None) == (self.verb == PUT_NEXT):
            rule = "needs a target to put the object next to" if self.verb == PUT_NEXT else "takes no target"
            raise ValueError(f"{_VERBS[self.verb]!r} {rule}, got target={self.target!r}")
        if reason := _objection(self.verb, self.object.noun):
            raise ValueError(reason)

    def __str__(self) -> str:
        ending = "" if self.target is None else f" next to {self.target}"
        return f"{_VERBS[self.verb]} {self.object}{ending}"


@dataclass(frozen=True)
class Mission:
    """All that an agent is asked to do in an episode: one side, or two sides in an order."""

    first: tuple[Clause, ...]
    """The one or two clauses said first, joined by "and"."""
    order: int = SINGLE
    """SINGLE; BEFORE for "first, then second"; AFTER for "first after you second", where `second` is done first."""
    second: tuple[Clause, ...] = ()
    """The one or two clauses said last; none when the order is SINGLE."""

    def __post_init__(self) -> None:
        if self.order not in (SINGLE, BEFORE, AFTER):
            raise ValueError(f"no order has the code {self.order!r}; the orders are single 0, {_codes(ORDER_CODES)}")
        _check_side("first", self.first, (1, 2))
        _check_side("second", self.second, (0,) if self.order == SINGLE else (1, 2))

    def __str__(self) -> str:
        first, second = (" and ".join(map(str, side)) for side in (self.first, self.second))
        return (first, f"{first}, then {second}", f"{first} after you {second}")[self.order]

    def write(self, world: np.void) -> None:
        """The mission fields of `world` say this mission, with no clause strict and all unused places 0."""
        for field in ("verbs", "nouns", "colors", "places"):
            world[field][:] = 0
        world["order"], world["strict"], definite = self.order, 0, 0
        for k, clause in [*enumerate(self.first), *enumerate(self.second, start=2)]:
            world["verbs"][k] = clause.verb
            for d, descriptor in ((2 * k, clause.object), (2 * k + 1, clause.target)):
                if descriptor is not None:
                    world["nouns"][d], world["colors"][d] = descriptor.noun, descriptor.color
                    world["places"][d] = descriptor.place
                    definite |= bool(descriptor.definite) << d
        world["definite"] = definite

    @classmethod
    def read(cls, world: np.void) -> "Mission":
        """The mission that the fields of `world` say; which of its clauses are strict is not part of it."""
        verbs, nouns, colors, places = (world[name].tolist() for name in ("verbs", "nouns", "colors", "places"))
        definite = int(world["definite"])
        if verbs[0] == NO_CLAUSE:
            raise ValueError("this world has no mission yet; reset it, or write a mission into it")

        def descriptor(d: int) -> Descriptor:
            return Descriptor(nouns[d], colors[d], places[d], bool(definite >> d & 1))

        def clause(k: int) -> Clause:
            return Clause(verbs[k], descriptor(2 * k), descriptor(2 * k + 1) if verbs[k] == PUT_NEXT else None)

        first, second = (tuple(clause(k) for k in slots if verbs[k] != NO_CLAUSE) for slots in ((0, 1), (2, 3)))
        return cls(first, int(world["order"]), second)


def navigations(mission: Mission) -> int:
    """How many places the agent has to go to: two for each "put", one for any other clause."""
    return sum(2 if clause.verb == PUT_NEXT else 1 for clause in mission.first + mission.second)


def parse_mission(text: str) -> Mission:
    """The mission that an English sentence says, whatever its case, its white space and the comma before "then".

    Raises:
        MissionError: the sentence is not of the Baby Language.
    """
    return _Parser(text).mission()


def tokenize(text: str) -> np.ndarray:
    """The words of `text` as numbers, (MAX_WORDS,) uint8, with 0 after the last.

    Only runs of letters count, so the comma before "then" leaves no trace. The order of the words is not checked.

    Raises:
        MissionError: a word is not in the vocabulary, or there are too many words.
    """
    tokens = np.zeros(MAX_WORDS, dtype=np.uint8)
    for i, match in enumerate(_LETTERS.finditer(text)):
        word = match.group().lower()
        if i >= MAX_WORDS:
            raise MissionError(_show(text, match.span(), f"no mission has more than {MAX_WORDS} words"))
        if word not in _TOKENS:
            reason = f"unknown word {match.group()!r} (word {i + 1}){_suggestion(word, _TOKENS)}"
            raise MissionError(_show(text, match.span(), reason))
        tokens[i] = _TOKENS[word]
    return tokens


def words_of(tokens: np.ndarray) -> str:
    """The English that `tokens`, (L,) integers, say up to the first 0."""
    words = []
    for token in np.asarray(tokens).tolist():
        if token == 0:
            break
        if not 0 < token < len(VOCABULARY):
            raise ValueError(f"no word has the token {token}; tokens are 0 to {len(VOCABULARY) - 1}")
        words.append(VOCABULARY[token])
    return " ".join(words).replace(" then", ", then")


def random_mission(rng: np.random.Generator) -> Mission:
    """A mission drawn from the whole grammar, each choice in it fair; no world need be able to fulfil it."""

    def descriptor(nouns: list[int]) -> Descriptor:
        noun, color = nouns[rng.integers(len(nouns))], int(rng.integers(ANY_COLOR + 1))
        return Descriptor(noun, color, int(rng.integers(len(PLACE_CODES) + 1)), bool(rng.integers(2)))

    def clause() -> Clause:
        verb = int(rng.integers(GO_TO, PUT_NEXT + 1))
        thing = descriptor([noun for noun in NOUNS if not _objection(verb, noun)])
        return Clause(verb, thing, descriptor(list(NOUNS)) if verb == PUT_NEXT else None)

    def side() -> tuple[Clause, ...]:
        return tuple(clause() for _ in range(rng.integers(1, 3)))

    order = int(rng.integers(3))
    return Mission(side(), order, () if order == SINGLE else side())


class _Parser:
    """Walks once over the words of a sentence, remembering all that would have been welcome where it stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans = [match.span() for match in _WORD.finditer(text)]
        self.words = [text[start:end].lower() for start, end in self.spans]
        # An empty word marks the end; its place is one past the last word, where the next one would start.
        end = self.spans[-1][1] + 1 if self.spans else 0
        self.words.append("")
        self.spans.append((end, end))
        self.here = 0
        self.expected: list[str] = []

    def mission(self) -> Mission:
        if self.words == [""]:
            raise MissionError(f"an empty sentence is no mission; expected {_either(map(repr, VERB_CODES))} and so on")
        first = self.side()
        order = self.accept(ORDER_CODES)
        second = () if order is None else self.side()
        if order is not None and self.words[self.here] in ("then", "after"):
            self.refuse("a mission has at most one 'then' or 'after you', which puts its two sides in order")
        if self.words[self.here]:
            self.fail("the end")
        return Mission(first, order or SINGLE, second)

    def side(self) -> tuple[Clause, ...]:
        clause = self.clause()
        if not self.accept({"and": True}):
            return (clause,)
        pair = clause, self.clause()
        if self.words[self.here] == "and":
            self.refuse("'and' joins exactly two clauses, so no third can follow them with another 'and'")
        return pair

    def clause(self) -> Clause:
        verb = self.require(VERB_CODES)
        thing = self.descriptor(verb)
        if verb != PUT_NEXT:
            return Clause(verb, thing)
        self.require({"next to": True})
        return Clause(verb, thing, self.descriptor())

    def descriptor(self, verb: int = GO_TO) -> Descriptor:
        """A descriptor of something that this can be done to; one can go to anything."""
        definite = bool(self.require(ARTICLE_CODES))
        color = self.accept(COLOR_CODES)
        noun = self.require(NOUN_CODES)
        if reason := _objection(verb, noun):
            self.here -= 1
            self.refuse(reason)
        place = self.accept(PLACE_CODES)
        return Descriptor(noun, ANY_COLOR if color is None else color, place or ANYWHERE, definite)

    def accept(self, phrases: Mapping[str, int]) -> int | None:
        """The code of the phrase that comes next, which is passed; None where none of them begins here."""
        parts = [(*phrase.partition(" "), code) for phrase, code in phrases.items()]
        rest = {ending: code for word, _, ending, code in parts if word == self.words[self.here]}
        if not rest:
            self.expected += phrases
            return None
        # A phrase is known by its first word, so whatever follows has to be the rest of one that begins so.
        self.here, self.expected = self.here + 1, []
        return rest[""] if "" in rest else self.require(rest)

    def require(self, phrases: Mapping[str, int]) -> int:
        code = self.accept(phrases)
        return self.fail() if code is None else code

    def fail(self, *others: str) -> NoReturn:
        start, end = self.spans[self.here]
        word = self.words[self.here]
        found = f"found {self.text[start:end]!r}" if word else "but the sentence ends"
        expected = _either([*map(repr, self.expected), *others])
        self.refuse(f"expected {expected}, {found}{_suggestion(word, self.expected)}")

    def refuse(self, reason: str) -> NoReturn:
        raise MissionError(_show(self.text, self.spans[self.here], reason))


def _objection(verb: int, noun: int) -> str | None:
    """Why this cannot be done to that, or None where it can."""
    if verb == OPEN and noun != DOOR:
        return f"only a door can be opened, and {NOUNS[noun]!r} is not one"
    if verb in (PICK_UP, PUT_NEXT) and noun == DOOR:
        return "a door cannot be " + ("picked up" if verb == PICK_UP else "put somewhere else")
    return None


def _check_side(name: str, clauses: tuple[Clause, ...], lengths: tuple[int, ...]) -> None:
    """Nothing happens where a side of a mission is a tuple of as many clauses as it may have."""
    if not isinstance(clauses, tuple) or len(clauses) not in lengths:
        expected = "empty, as the order is SINGLE" if lengths == (0,) else "a tuple of one or two clauses"
        raise ValueError(f"the {name} side of this mission must be {expected}, got {clauses!r}")


def _show(text: str, span: tuple[int, int], reason: str) -> str:
    """`reason`, and below it the sentence with the place it speaks of marked."""
    line, (start, end) = re.sub(r"\s", " ", text), span
    return f"{reason}\n    {line}\n    {' ' * start}{'^' * max(1, end - start)}"


def _suggestion(word: str, welcome: Collection[str]) -> str:
    """A question to end a message with, for a word that is nearly one of those welcome there."""
    if word in _TOKENS:
        return ""
    near = get_close_matches(word, [*welcome, *(phrase.split()[0] for phrase in welcome)], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _either(phrases: Iterable[str]) -> str:
    *most, last = phrases
    return f"{', '.join(most)} or {last}" if most else last


def _codes(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {int(code)}" for name, code in names.items())
