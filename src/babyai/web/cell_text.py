"""Cells as text for the page: two characters each, in the notation of layouts, or `??` where nothing is seen.

Tables, because the page is sent all cells at each step.
"""

import numpy as np

from babyai.levels.layout import TEXT_OF_CELL
from babyai.world.codes import MARKED, TRIPLES

UNSEEN_TEXT = b"??"


def _make_texts() -> tuple[np.ndarray, np.ndarray]:
    """The two characters of a cell in the notation of layouts, by its byte, and by its (type, color, state)."""
    by_cell = np.full(256, UNSEEN_TEXT)
    by_triple = np.full((16, 8, 4), UNSEEN_TEXT)
    for cell, text in TEXT_OF_CELL.items():
        by_cell[[cell, cell | MARKED]] = text.encode()
        by_triple[tuple(TRIPLES[cell])] = text.encode()
    return by_cell, by_triple


TEXT_BY_CELL, TEXT_BY_TRIPLE = _make_texts()


def text_rows(texts: np.ndarray) -> list[str]:
    """An array of such texts as one string per row."""
    return [row.tobytes().decode() for row in texts]
