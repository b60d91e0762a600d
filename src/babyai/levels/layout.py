"""Layouts: worlds drawn as text, with two characters per cell.

    ##   wall                             >> vv << ^^   the agent, heading right, down, left, up
    ..   empty (or two spaces)            r> rv r< r^   the agent in an open red door
    ro   an object: a color letter and a kind letter

Colors are r g b p y and a (grey). Kinds are o ball, k key, x box, d closed door, l locked door, / open door.
`render.text.draw_text` writes the same notation. Errors are `LayoutError`s that name the line and column.
"""

import textwrap
from dataclasses import dataclass

import numpy as np

from babyai.world.codes import (
    BALL,
    BOX,
    DOOR,
    EMPTY,
    KEY,
    LOCKED_DOOR,
    MARKED,
    OPAQUE,
    WALL_CELL,
    cell_of,
)
from babyai.world.state import MAX_SIZE, MIN_SIZE, ORIGIN, STRIDE, index_of

COLOR_LETTERS = "rgbpya"
KIND_LETTERS = {"o": BALL, "k": KEY, "x": BOX, "d": DOOR, "l": LOCKED_DOOR}
OPEN_DOOR_LETTER = "/"
ARROWS = ">v<^"
WALL_TEXT = "##"
EMPTY_TEXT = ".."
BLANK_TEXT = "  "


class LayoutError(ValueError):
    """A layout is invalid; the message says where, what was found, and what to do."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A grid and the agent's starting position."""

    cells: np.ndarray
    """(H, W) uint8, the cell bytes; read-only."""
    agent: tuple[int, int]
    """The agent's (x, y)."""
    agent_dir: int
    """The agent's heading: 0 right, 1 down, 2 left, 3 up."""

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.cells.shape[1]

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.cells.shape[0]


@dataclass(frozen=True)
class _Row:
    """One row of a layout and its position in the text."""

    line: int
    indent: int
    texts: tuple[str, ...]

    def location(self, x: int) -> str:
        """Returns the line and column of cell x, for error messages."""
        return f"line {self.line}, column {self.indent + 2 * x + 1}"


def _make_cell_texts() -> dict[str, int]:
    texts = {WALL_TEXT: WALL_CELL, EMPTY_TEXT: EMPTY, BLANK_TEXT: EMPTY}
    for color, letter in enumerate(COLOR_LETTERS):
        for kind_letter, kind in KIND_LETTERS.items():
            texts[letter + kind_letter] = cell_of(kind, color)
        texts[letter + OPEN_DOOR_LETTER] = cell_of(DOOR, color) & ~OPAQUE
    return texts


def _make_agent_texts() -> dict[str, tuple[int, int]]:
    texts = {}
    for heading, arrow in enumerate(ARROWS):
        texts[arrow + arrow] = EMPTY, heading
        for letter in COLOR_LETTERS:
            texts[letter + arrow] = CELL_TEXTS[letter + OPEN_DOOR_LETTER], heading
    return texts


# Text to cell byte; for the agent, to the byte of its cell and the heading.
CELL_TEXTS = _make_cell_texts()
AGENT_TEXTS = _make_agent_texts()
# The inverse tables; an empty cell is written with dots.
TEXT_OF_CELL = {cell: text for text, cell in CELL_TEXTS.items() if text != BLANK_TEXT}
TEXT_OF_AGENT = {standing: text for text, standing in AGENT_TEXTS.items()}


def cell_text(cell: int, agent_dir: int | None = None) -> str:
    """Returns the two characters for a cell; with `agent_dir`, for the agent on that cell.

    The content of a box is not shown.
    """
    cell = int(cell) & ~MARKED
    return TEXT_OF_CELL[cell] if agent_dir is None else TEXT_OF_AGENT[cell, int(agent_dir)]


def parse_layout(text: str) -> Layout:
    """Parses a drawing; surrounding blank lines and common indentation are ignored.

    Raises:
        LayoutError: The text is not a world with a border of wall and exactly one agent.
    """
    rows = _split_rows(text)
    _check_size(rows)
    cells = np.array([[_read_cell(row, x) for x in range(len(row.texts))] for row in rows], dtype=np.uint8)
    cells.setflags(write=False)
    (x, y), heading = _find_agent(rows)
    _check_border(rows)
    return Layout(cells, (x, y), heading)


def place_layout(world: np.record, layout: Layout) -> None:
    """Writes the layout into the world, as one room; nothing is carried or tracked."""
    world.width = world.room_width = layout.width
    world.height = world.room_height = layout.height
    # The margin is wall, so that views can read beyond the grid.
    world.cells[:] = WALL_CELL
    grid_cells(world)[:] = layout.cells
    world.agent = index_of(*layout.agent)
    world.agent_dir = layout.agent_dir
    world.carrying = 0
    world.carried_tracks = 0
    world.hidden = 0
    world.tracks[:] = 0


def grid_cells(world: np.record) -> np.ndarray:
    """Returns a view of the world's cells: (H, W) uint8, sharing memory with the world."""
    rows = world.cells[ORIGIN : ORIGIN + STRIDE * MAX_SIZE].reshape(MAX_SIZE, STRIDE)
    return rows[: world.height, : world.width]


def _split_rows(text: str) -> list[_Row]:
    """Splits the drawing into rows of cells."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines()]
    numbered = [(number, line) for number, line in enumerate(lines, start=1)]
    while numbered and not numbered[0][1]:
        numbered.pop(0)
    while numbered and not numbered[-1][1]:
        numbered.pop()
    if not numbered:
        raise LayoutError(
            f"the layout is empty; draw at least {MIN_SIZE} rows of {MIN_SIZE} cells, two characters each"
        )
    dedented = textwrap.dedent("\n".join(line for _, line in numbered)).split("\n")
    indent = len(numbered[0][1]) - len(dedented[0])
    return [_split_row(number, indent, line) for (number, _), line in zip(numbered, dedented, strict=True)]


def _split_row(number: int, indent: int, line: str) -> _Row:
    if len(line) % 2:
        raise LayoutError(
            f"line {number} has {len(line)} characters ({line!r}), which is odd; every cell takes two characters, so "
            f"add or remove one"
        )
    return _Row(number, indent, tuple(line[k : k + 2] for k in range(0, len(line), 2)))


def _check_size(rows: list[_Row]) -> None:
    width = len(rows[0].texts)
    height = len(rows)
    for row in rows:
        if len(row.texts) != width:
            raise LayoutError(
                f"line {row.line}, column {row.indent + 2 * min(len(row.texts), width) + 1}: the row has "
                f"{len(row.texts)} cells but the first row has {width}; make all rows the same length"
            )
    for what, size in (("columns", width), ("rows", height)):
        if not MIN_SIZE <= size <= MAX_SIZE:
            problem = "small" if size < MIN_SIZE else "large"
            raise LayoutError(
                f"line {rows[0].line}, column {rows[0].indent + 1}: the layout is too {problem}: it has {size} {what}; "
                f"expected {MIN_SIZE} to {MAX_SIZE}"
            )


def _read_cell(row: _Row, x: int) -> int:
    text = row.texts[x]
    if text in AGENT_TEXTS:
        return AGENT_TEXTS[text][0]
    if text in CELL_TEXTS:
        return CELL_TEXTS[text]
    raise LayoutError(f"{row.location(x)}: {text!r} is not a cell; {_suggest(text)}")


def _suggest(text: str) -> str:
    """Returns a suggestion for an unknown cell text."""
    for guess in (text.lower(), text[::-1], text.lower()[::-1]):
        if guess in CELL_TEXTS or guess in AGENT_TEXTS:
            return f"did you mean {guess!r}?"
    kinds = " ".join(KIND_LETTERS)
    return (
        f"write '##' (wall), '..' (empty), {' '.join(repr(2 * arrow) for arrow in ARROWS)} (the agent), or a color "
        f"letter ({' '.join(COLOR_LETTERS)}) and a kind letter ({kinds} {OPEN_DOOR_LETTER})"
    )


def _find_agent(rows: list[_Row]) -> tuple[tuple[int, int], int]:
    found = [(row, x, y) for y, row in enumerate(rows) for x, text in enumerate(row.texts) if text in AGENT_TEXTS]
    if not found:
        last = rows[-1]
        raise LayoutError(
            f"line {rows[0].line}, column {rows[0].indent + 1} to line {last.line}, column "
            f"{last.indent + 2 * len(last.texts)}: there is no agent; put '>>', 'vv', '<<' or '^^' in one empty cell"
        )
    (row, x, y), *others = found
    if others:
        other, other_x, _ = others[0]
        raise LayoutError(
            f"{other.location(other_x)}: {other.texts[other_x]!r} is a second agent; the first is at "
            f"{row.location(x)}; keep only one of them"
        )
    return (x, y), AGENT_TEXTS[row.texts[x]][1]


def _check_border(rows: list[_Row]) -> None:
    """Raises LayoutError unless the border is wall.

    The view kernel does no bounds checks, so nothing beyond the grid may become visible, not even through a door.
    """
    last_x = len(rows[0].texts) - 1
    last_y = len(rows) - 1
    for y, row in enumerate(rows):
        for x, text in enumerate(row.texts):
            if (x in (0, last_x) or y in (0, last_y)) and text != WALL_TEXT:
                raise LayoutError(
                    f"{row.location(x)}: {text!r} is on the border, which must be wall without doors; write '##' "
                    f"there or draw a wall around the layout"
                )
