"""Missions as token ids: the words of the instruction in a world's record, written by compiled code."""

import numpy as np

from babyai._jit import njit
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANYWHERE,
    COLORS,
    MAX_WORDS,
    NO_CLAUSE,
    NOUNS,
    PUT_NEXT,
    SINGLE,
    VOCABULARY,
)


def _tokens(*phrases: str) -> np.ndarray:
    """One row of tokens a phrase, padded with 0."""
    rows = [[VOCABULARY.index(word) for word in phrase.split()] for phrase in phrases]
    width = max(map(len, rows)) + 1
    return np.array([row + [0] * (width - len(row)) for row in rows], dtype=np.uint8)


# Row k is what stands for code k: of a verb, an article, a color, a noun, a place, and of what joins clauses.
VERB_WORDS = _tokens("", "go to", "pick up", "open", "put")
ARTICLE_WORDS = _tokens("a", "the")
COLOR_WORDS = _tokens(*COLORS)
NOUN_WORDS = _tokens(*(NOUNS.get(kind, "") for kind in range(8)))
PLACE_WORDS = _tokens("", "on your left", "on your right", "in front of you", "behind you")
JOINING_WORDS = _tokens("and", "then", "after you", "next to")
AND, THEN, AFTER_YOU, NEXT_TO = range(4)


@njit
def _write(tokens, at, words):
    k = 0
    while words[k]:
        tokens[at + k] = words[k]
        k += 1
    return at + k


@njit
def _write_descriptor(s, k, tokens, at):
    at = _write(tokens, at, ARTICLE_WORDS[(int(s.definite) >> k) & 1])
    if s.colors[k] != ANY_COLOR:
        at = _write(tokens, at, COLOR_WORDS[int(s.colors[k])])
    at = _write(tokens, at, NOUN_WORDS[int(s.nouns[k])])
    if s.places[k] != ANYWHERE:
        at = _write(tokens, at, PLACE_WORDS[int(s.places[k])])
    return at


@njit
def _write_clause(s, k, tokens, at):
    at = _write(tokens, at, VERB_WORDS[int(s.verbs[k])])
    at = _write_descriptor(s, 2 * k, tokens, at)
    if s.verbs[k] == PUT_NEXT:
        at = _write(tokens, at, JOINING_WORDS[NEXT_TO])
        at = _write_descriptor(s, 2 * k + 1, tokens, at)
    return at


@njit
def _write_side(s, first, tokens, at):
    at = _write_clause(s, first, tokens, at)
    if s.verbs[first + 1] != NO_CLAUSE:
        at = _write(tokens, at, JOINING_WORDS[AND])
        at = _write_clause(s, first + 1, tokens, at)
    return at


@njit
def write_mission(s, tokens):
    """Writes the world's instruction as token ids, padded with 0, into `tokens`: (MAX_WORDS,) uint8."""
    at = _write_side(s, 0, tokens, 0)
    if s.order != SINGLE:
        at = _write(tokens, at, JOINING_WORDS[AFTER_YOU if s.order == AFTER else THEN])
        at = _write_side(s, 2, tokens, at)
    for k in range(at, MAX_WORDS):
        tokens[k] = 0
