"""Missions as token ids: a kernel that writes the words of a world's mission."""

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
    """Returns one row of token ids per phrase, padded with 0."""
    rows = [[VOCABULARY.index(word) for word in phrase.split()] for phrase in phrases]
    width = max(map(len, rows)) + 1
    return np.array([row + [0] * (width - len(row)) for row in rows], dtype=np.uint8)


# Row k holds the token ids for code k of a verb, an article, a color, a noun, a place, or a joining word.
VERB_WORDS = _tokens("", "go to", "pick up", "open", "put")
ARTICLE_WORDS = _tokens("a", "the")
COLOR_WORDS = _tokens(*COLORS)
NOUN_WORDS = _tokens(*(NOUNS.get(kind, "") for kind in range(8)))
PLACE_WORDS = _tokens("", "on your left", "on your right", "in front of you", "behind you")
JOIN_WORDS = _tokens("and", "then", "after you", "next to")
AND, THEN, AFTER_YOU, NEXT_TO = range(4)


@njit
def _write_words(tokens, offset, words):
    k = 0
    while words[k]:
        tokens[offset + k] = words[k]
        k += 1
    return offset + k


@njit
def _write_descriptor(s, k, tokens, offset):
    offset = _write_words(tokens, offset, ARTICLE_WORDS[(int(s.definite) >> k) & 1])
    if s.colors[k] != ANY_COLOR:
        offset = _write_words(tokens, offset, COLOR_WORDS[int(s.colors[k])])
    offset = _write_words(tokens, offset, NOUN_WORDS[int(s.nouns[k])])
    if s.places[k] != ANYWHERE:
        offset = _write_words(tokens, offset, PLACE_WORDS[int(s.places[k])])
    return offset


@njit
def _write_clause(s, k, tokens, offset):
    offset = _write_words(tokens, offset, VERB_WORDS[int(s.verbs[k])])
    offset = _write_descriptor(s, 2 * k, tokens, offset)
    if s.verbs[k] == PUT_NEXT:
        offset = _write_words(tokens, offset, JOIN_WORDS[NEXT_TO])
        offset = _write_descriptor(s, 2 * k + 1, tokens, offset)
    return offset


@njit
def _write_side(s, first, tokens, offset):
    offset = _write_clause(s, first, tokens, offset)
    if s.verbs[first + 1] != NO_CLAUSE:
        offset = _write_words(tokens, offset, JOIN_WORDS[AND])
        offset = _write_clause(s, first + 1, tokens, offset)
    return offset


@njit
def write_mission(s, tokens):
    """Writes the token ids of the world's mission, padded with 0, into `tokens`: (MAX_WORDS,) uint8."""
    offset = _write_side(s, 0, tokens, 0)
    if s.order != SINGLE:
        offset = _write_words(tokens, offset, JOIN_WORDS[AFTER_YOU if s.order == AFTER else THEN])
        offset = _write_side(s, 2, tokens, offset)
    for k in range(offset, MAX_WORDS):
        tokens[k] = 0
