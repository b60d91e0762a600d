"""One tile: a cell byte becomes a small square picture, pixel for pixel the one Minigrid 3.2.0 draws.

A tile is painted on a canvas three times finer than asked for, then averaged down. Shapes are masks over the canvas;
coordinates run from 0 to 1, x to the right, y down.
"""

from functools import lru_cache

import numpy as np

from babyai.world.codes import BALL, BOX, COLOR_SHIFT, DOOR, EMPTY, KEY, KIND_MASK, LOCKED_DOOR, OPAQUE, UNSEEN, WALL

# Indexed by color number.
COLOR_RGB = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100))
BLACK = (0, 0, 0)
LINE_RGB = (100, 100, 100)
AGENT_RGB = (255, 0, 0)
FINENESS = 3
HIGHLIGHT = 0.3
LOCKED_SHADE = 0.45
# Corners of the agent's triangle when it heads right.
AGENT_CORNERS = ((0.12, 0.19), (0.87, 0.50), (0.12, 0.81))

Rgb = tuple[int, int, int]


class Canvas:
    """A black square of `size` pixels a side, on which shapes are painted one over the other."""

    def __init__(self, size: int) -> None:
        self.pixels = np.zeros((size, size, 3), dtype=np.uint8)
        centers = (np.arange(size) + 0.5) / size
        self.x, self.y = centers[None, :], centers[:, None]

    def rectangle(self, left: float, right: float, top: float, bottom: float, rgb: Rgb) -> None:
        """Paints a rectangle, its edges included."""
        self.pixels[(self.x >= left) & (self.x <= right) & (self.y >= top) & (self.y <= bottom)] = rgb

    def square(self, margin: float, rgb: Rgb) -> None:
        """Paints the square that leaves this margin on all four sides."""
        self.rectangle(margin, 1 - margin, margin, 1 - margin, rgb)

    def disc(self, x: float, y: float, radius: float, rgb: Rgb) -> None:
        """Paints a disc, its edge included."""
        across, down = self.x - x, self.y - y
        self.pixels[across * across + down * down <= radius * radius] = rgb

    def triangle(self, heading: int) -> None:
        """Paints the agent, turned clockwise by a quarter for each step of its heading."""
        tail, tip, wing = np.array(AGENT_CORNERS, dtype=np.float32)
        # A point is tail + u * (wing - tail) + v * (tip - tail); it lies inside where u, v >= 0 and u + v < 1.
        (wing_x, wing_y), (tip_x, tip_y) = (wing - tail).tolist(), (tip - tail).tolist()
        x, y = self.x - float(tail[0]), self.y - float(tail[1])
        area = wing_x * tip_y - wing_y * tip_x
        u = (x * tip_y - y * tip_x) / area
        v = (wing_x * y - wing_y * x) / area
        inside = (u >= 0) & (v >= 0) & (u + v < 1)
        self.pixels[np.rot90(inside, -heading)] = AGENT_RGB

    def highlight(self) -> None:
        """Moves every pixel three tenths of the way to white."""
        bright = self.pixels + HIGHLIGHT * (255 - self.pixels)
        self.pixels = bright.astype(np.uint8)

    def averaged(self) -> np.ndarray:
        """The canvas made three times smaller."""
        size = len(self.pixels) // FINENESS
        blocks = self.pixels.reshape(size, FINENESS, size, FINENESS, 3)
        # Columns first, then rows, then cut off: another order would round some pixels differently.
        return blocks.mean(axis=3).mean(axis=1).astype(np.uint8)


def _paint_key(canvas: Canvas, rgb: Rgb) -> None:
    canvas.rectangle(0.50, 0.63, 0.31, 0.88, rgb)
    canvas.rectangle(0.38, 0.50, 0.59, 0.66, rgb)
    canvas.rectangle(0.38, 0.50, 0.81, 0.88, rgb)
    canvas.disc(0.56, 0.28, 0.190, rgb)
    canvas.disc(0.56, 0.28, 0.064, BLACK)


def _paint_box(canvas: Canvas, rgb: Rgb) -> None:
    canvas.square(0.12, rgb)
    canvas.square(0.18, BLACK)
    canvas.rectangle(0.16, 0.84, 0.47, 0.53, rgb)


def _paint_open_door(canvas: Canvas, rgb: Rgb) -> None:
    canvas.rectangle(0.88, 1.0, 0.0, 1.0, rgb)
    canvas.rectangle(0.92, 0.96, 0.04, 0.96, BLACK)


def _paint_closed_door(canvas: Canvas, rgb: Rgb) -> None:
    for margin, shade in ((0.0, rgb), (0.04, BLACK), (0.08, rgb), (0.12, BLACK)):
        canvas.square(margin, shade)
    canvas.disc(0.75, 0.50, 0.08, rgb)


def _paint_locked_door(canvas: Canvas, rgb: Rgb) -> None:
    red, green, blue = (int(LOCKED_SHADE * part) for part in rgb)
    canvas.square(0.0, rgb)
    canvas.square(0.06, (red, green, blue))
    canvas.rectangle(0.52, 0.75, 0.50, 0.56, rgb)


def _paint_cell(canvas: Canvas, cell: int) -> None:
    """Paints what lies in the cell; a box that holds something looks like any other."""
    kind = cell & KIND_MASK
    if kind in (UNSEEN, EMPTY):
        return
    rgb = COLOR_RGB[cell >> COLOR_SHIFT & 7]
    if kind == WALL:
        canvas.square(0.0, rgb)
    elif kind == LOCKED_DOOR:
        _paint_locked_door(canvas, rgb)
    elif kind == DOOR and cell & OPAQUE:
        _paint_closed_door(canvas, rgb)
    elif kind == DOOR:
        _paint_open_door(canvas, rgb)
    elif kind == KEY:
        _paint_key(canvas, rgb)
    elif kind == BALL:
        canvas.disc(0.5, 0.5, 0.31, rgb)
    elif kind == BOX:
        _paint_box(canvas, rgb)


@lru_cache(maxsize=4096)
def draw_tile(cell: int, size: int, agent_dir: int | None = None, highlight: bool = False) -> np.ndarray:
    """The picture of one cell, read-only since it is shared by all who ask for it.

    Args:
        cell: the cell byte; UNSEEN and EMPTY give an empty tile.
        size: pixels a side.
        agent_dir: the agent's heading where it stands on this cell, else None.
        highlight: whether the tile is brightened, as tiles in the agent's sight are.

    Returns:
        (size, size, 3) uint8.
    """
    if size < 1:
        raise ValueError(f"a tile of {size} pixels cannot be drawn; tile sizes start at 1")
    canvas = Canvas(size * FINENESS)
    canvas.rectangle(0, 0.031, 0, 1, LINE_RGB)
    canvas.rectangle(0, 1, 0, 0.031, LINE_RGB)
    _paint_cell(canvas, cell)
    if agent_dir is not None:
        canvas.triangle(agent_dir)
    if highlight:
        canvas.highlight()
    tile = canvas.averaged()
    tile.setflags(write=False)
    return tile
