"""Tiles: the image of one cell, identical to Minigrid 3.2.0's in every pixel.

A tile is drawn with 3x supersampling and then averaged down. Shapes are masks over the canvas; coordinates run from 0
to 1, x to the right, y down.
"""

from functools import lru_cache

import numpy as np

from babyai.world.codes import BALL, BOX, COLOR_SHIFT, DOOR, EMPTY, KEY, KIND_MASK, LOCKED_DOOR, OPAQUE, UNSEEN, WALL

# Indexed by color number.
COLOR_RGB = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100))
BLACK = (0, 0, 0)
LINE_RGB = (100, 100, 100)
AGENT_RGB = (255, 0, 0)
SUPERSAMPLING = 3
HIGHLIGHT = 0.3
LOCKED_SHADE = 0.45
# Corners of the agent's triangle when it faces right.
AGENT_CORNERS = ((0.12, 0.19), (0.87, 0.50), (0.12, 0.81))

Rgb = tuple[int, int, int]


class Canvas:
    """A black square image, `size` pixels on a side, to draw shapes on."""

    def __init__(self, size: int) -> None:
        self.pixels = np.zeros((size, size, 3), dtype=np.uint8)
        centers = (np.arange(size) + 0.5) / size
        self.x = centers[None, :]
        self.y = centers[:, None]

    def rectangle(self, left: float, right: float, top: float, bottom: float, rgb: Rgb) -> None:
        """Draws a filled rectangle, including its edges."""
        self.pixels[(self.x >= left) & (self.x <= right) & (self.y >= top) & (self.y <= bottom)] = rgb

    def square(self, margin: float, rgb: Rgb) -> None:
        """Draws a filled square with this margin on all four sides."""
        self.rectangle(margin, 1 - margin, margin, 1 - margin, rgb)

    def disc(self, x: float, y: float, radius: float, rgb: Rgb) -> None:
        """Draws a filled disc, including its edge."""
        dx = self.x - x
        dy = self.y - y
        self.pixels[dx * dx + dy * dy <= radius * radius] = rgb

    def triangle(self, heading: int) -> None:
        """Draws the agent's triangle, rotated clockwise by `heading` quarter turns."""
        tail, tip, wing = np.array(AGENT_CORNERS, dtype=np.float32)
        # A point is tail + u * (wing - tail) + v * (tip - tail); it is inside if u, v >= 0 and u + v < 1.
        wing_x, wing_y = (wing - tail).tolist()
        tip_x, tip_y = (tip - tail).tolist()
        x = self.x - float(tail[0])
        y = self.y - float(tail[1])
        area = wing_x * tip_y - wing_y * tip_x
        u = (x * tip_y - y * tip_x) / area
        v = (wing_x * y - wing_y * x) / area
        inside = (u >= 0) & (v >= 0) & (u + v < 1)
        self.pixels[np.rot90(inside, -heading)] = AGENT_RGB

    def highlight(self) -> None:
        """Blends every pixel with white, 30 %."""
        bright = self.pixels + HIGHLIGHT * (255 - self.pixels)
        self.pixels = bright.astype(np.uint8)

    def downsample(self) -> np.ndarray:
        """The canvas averaged down by the supersampling factor."""
        size = len(self.pixels) // SUPERSAMPLING
        blocks = self.pixels.reshape(size, SUPERSAMPLING, size, SUPERSAMPLING, 3)
        # Average columns, then rows, then truncate: another order would round some pixels differently from Minigrid.
        return blocks.mean(axis=3).mean(axis=1).astype(np.uint8)


def _draw_key(canvas: Canvas, rgb: Rgb) -> None:
    canvas.rectangle(0.50, 0.63, 0.31, 0.88, rgb)
    canvas.rectangle(0.38, 0.50, 0.59, 0.66, rgb)
    canvas.rectangle(0.38, 0.50, 0.81, 0.88, rgb)
    canvas.disc(0.56, 0.28, 0.190, rgb)
    canvas.disc(0.56, 0.28, 0.064, BLACK)


def _draw_box(canvas: Canvas, rgb: Rgb) -> None:
    canvas.square(0.12, rgb)
    canvas.square(0.18, BLACK)
    canvas.rectangle(0.16, 0.84, 0.47, 0.53, rgb)


def _draw_open_door(canvas: Canvas, rgb: Rgb) -> None:
    canvas.rectangle(0.88, 1.0, 0.0, 1.0, rgb)
    canvas.rectangle(0.92, 0.96, 0.04, 0.96, BLACK)


def _draw_closed_door(canvas: Canvas, rgb: Rgb) -> None:
    for margin, shade in ((0.0, rgb), (0.04, BLACK), (0.08, rgb), (0.12, BLACK)):
        canvas.square(margin, shade)
    canvas.disc(0.75, 0.50, 0.08, rgb)


def _draw_locked_door(canvas: Canvas, rgb: Rgb) -> None:
    red, green, blue = (int(LOCKED_SHADE * part) for part in rgb)
    canvas.square(0.0, rgb)
    canvas.square(0.06, (red, green, blue))
    canvas.rectangle(0.52, 0.75, 0.50, 0.56, rgb)


def _draw_cell(canvas: Canvas, cell: int) -> None:
    """Draws the cell's object. Boxes look the same with and without contents."""
    kind = cell & KIND_MASK
    if kind in (UNSEEN, EMPTY):
        return
    rgb = COLOR_RGB[cell >> COLOR_SHIFT & 7]
    if kind == WALL:
        canvas.square(0.0, rgb)
    elif kind == LOCKED_DOOR:
        _draw_locked_door(canvas, rgb)
    elif kind == DOOR and cell & OPAQUE:
        _draw_closed_door(canvas, rgb)
    elif kind == DOOR:
        _draw_open_door(canvas, rgb)
    elif kind == KEY:
        _draw_key(canvas, rgb)
    elif kind == BALL:
        canvas.disc(0.5, 0.5, 0.31, rgb)
    elif kind == BOX:
        _draw_box(canvas, rgb)


@lru_cache(maxsize=4096)
def draw_tile(cell: int, size: int, agent_dir: int | None = None, highlight: bool = False) -> np.ndarray:
    """The image of one cell. It is cached and therefore read-only.

    Args:
        cell: Cell byte; UNSEEN and EMPTY give an empty tile.
        size: Side length in pixels.
        agent_dir: The agent's heading if it is on this cell, else None.
        highlight: Whether to brighten the tile, as for cells in the agent's view.

    Returns:
        (size, size, 3) uint8.
    """
    if size < 1:
        raise ValueError(f"tile size must be at least 1 pixel, not {size}")
    canvas = Canvas(size * SUPERSAMPLING)
    canvas.rectangle(0, 0.031, 0, 1, LINE_RGB)
    canvas.rectangle(0, 1, 0, 0.031, LINE_RGB)
    _draw_cell(canvas, cell)
    if agent_dir is not None:
        canvas.triangle(agent_dir)
    if highlight:
        canvas.highlight()
    tile = canvas.downsample()
    tile.setflags(write=False)
    return tile
