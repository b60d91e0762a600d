"""Text rendering: the grid as characters for a terminal."""

import numpy as np

from babyai.levels.layout import cell_text, grid_cells
from babyai.world.codes import COLOR_SHIFT, EMPTY, KIND_MASK, WALL
from babyai.world.state import position_of

# ANSI styles of objects, by color number.
ANSI_COLORS = ("1;31", "1;32", "1;34", "1;35", "1;33", "1;37")
ANSI_WALL = "90;100"  # gray on gray: a filled block
ANSI_EMPTY = "2"  # faint
ANSI_AGENT = "7"  # reverse video


def draw_text(world: np.record, color: bool = False) -> str:
    """The whole grid as text: one line per row, two characters per cell, in the notation of `babyai.levels.layout`.

    Without color, `parse_layout` can read the text back. Carried objects and objects in boxes are not shown.

    Args:
        world: World record.
        color: Whether to add ANSI color codes.
    """
    x, y = position_of(world.agent)
    rows = [[_style(cell, cell_text(cell), color) for cell in row] for row in grid_cells(world).tolist()]
    here = int(grid_cells(world)[y, x])
    rows[y][x] = _style(here, cell_text(here, world.agent_dir), color, ANSI_AGENT)
    return "\n".join("".join(row) for row in rows)


def _style(cell: int, text: str, color: bool, style: str | None = None) -> str:
    """The text in a cell's ANSI style if `color` is true, else the text itself."""
    if not color:
        return text
    kind = cell & KIND_MASK
    if style is None:
        style = {WALL: ANSI_WALL, EMPTY: ANSI_EMPTY}.get(kind, ANSI_COLORS[cell >> COLOR_SHIFT & 7])
    return f"\x1b[{style}m{text}\x1b[0m"
