"""Frames for people: the world with the mission, the step, the last action, the carried object and the verdict."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from babyai.atomic_io import PathLike, atomic_file
from babyai.levels.layout import grid_cells
from babyai.render.frame import draw_world
from babyai.render.picture import save_gif, save_png
from babyai.render.scene import Scene
from babyai.render.tiles import AGENT_CORNERS, draw_tile
from babyai.world.state import position_of

# Pixels: the width that a world should have, the bounds of a tile, the least width of a frame, and the margin.
WORLD_WIDTH = 512
MIN_TILE = 16
MAX_TILE = 48
MIN_WIDTH = 400
MARGIN = 12
BORDER = 4
LARGE = 22
SMALL = 16
LINE_SPACING = 1.3

BACKGROUND = (22, 24, 29)
TEXT = (245, 245, 245)
MUTED = (175, 180, 190)
# Neither the agent nor a verdict may be told by hue alone: the agent is white, and verdicts are words.
AGENT = (255, 255, 255)
BORDER_OF = {"playing": (70, 74, 84), "success": (40, 160, 80), "failure": (205, 60, 50), "timeout": (205, 60, 50)}

Rgb = tuple[int, int, int]


def draw_scene(scene: Scene, title: str = "", tile_size: int | None = None) -> np.ndarray:
    """A frame with the world and, around it, everything that a viewer must know.

    The shape depends only on the level, the mission and the title, so that all frames of an episode fit in one film.

    Args:
        scene: What to show.
        title: Who plays, say; level and seed are added.
        tile_size: Side length of a cell, in pixels; default: so that the world is about 512 pixels wide.

    Returns:
        (H, W, 3) uint8; H and W are even, as video needs.
    """
    size = tile_size or _tile_size(int(scene.world.width))
    world = _draw_world(scene, size)
    width = max(MIN_WIDTH, world.width + 2 * (MARGIN + BORDER))
    heading = " · ".join(filter(None, [title, scene.level, f"seed {scene.seed}"]))
    small = _line_height(SMALL)
    mission = _wrap(scene.mission, LARGE, width - 2 * MARGIN)
    top = MARGIN + small + len(mission) * _line_height(LARGE) + MARGIN
    height = top + world.height + 2 * BORDER + MARGIN + 2 * small + MARGIN
    frame = Image.new("RGB", (width + width % 2, height + height % 2), BACKGROUND)
    _write(frame, (MARGIN, MARGIN), heading, MUTED, SMALL)
    for number, line in enumerate(mission):
        _write(frame, (MARGIN, MARGIN + small + number * _line_height(LARGE)), line, TEXT, LARGE)
    left = (width - world.width) // 2
    border = BORDER_OF[scene.outcome]
    draw = ImageDraw.Draw(frame)
    draw.rectangle((left - BORDER, top, left + world.width + BORDER - 1, top + world.height + 2 * BORDER - 1), border)
    frame.paste(world, (left, top + BORDER))
    _draw_status(frame, scene, top + world.height + 2 * BORDER + MARGIN, width - MARGIN)
    return np.asarray(frame)


def _draw_status(frame: Image.Image, scene: Scene, top: int, right: int) -> None:
    """Two lines: step and verdict; last action and carried object."""
    second = top + _line_height(SMALL)
    _write(frame, (MARGIN, top), f"step {scene.step} of {scene.max_steps}", TEXT, SMALL)
    action = "none" if scene.action is None else scene.action.name
    _write(frame, (MARGIN, second), f"last action: {action}", TEXT, SMALL)
    carried = f"carrying: {scene.carried}"
    x = right - _length(carried, SMALL)
    _write(frame, (x, second), carried, TEXT if scene.world.carrying else MUTED, SMALL)
    if scene.world.carrying:
        icon = Image.fromarray(draw_tile(int(scene.world.carrying), SMALL + 4))
        frame.paste(icon, (x - icon.width - 6, second))
    if scene.verdict:
        verdict = scene.verdict.upper()
        x = right - _length(verdict, SMALL) - 8
        ImageDraw.Draw(frame).rectangle((x - 8, top - 3, right, top + SMALL + 5), BORDER_OF[scene.outcome])
        _write(frame, (x, top), verdict, TEXT, SMALL)


def _draw_world(scene: Scene, size: int) -> Image.Image:
    """The world with the agent in white, because red, as in Minigrid, is also the color of objects."""
    image = Image.fromarray(draw_world(scene.world, size, scene.view))
    x, y = position_of(scene.world.agent)
    cell = int(grid_cells(scene.world)[y, x])
    image.paste(_agent_tile(cell, size, int(scene.world.agent_dir)), (x * size, y * size))
    return image


@lru_cache(maxsize=64)
def _agent_tile(cell: int, size: int, heading: int) -> Image.Image:
    """The cell with a white triangle, drawn four times as large and reduced."""
    scale = 4
    tile = Image.fromarray(draw_tile(cell, size, None, highlight=True)).resize((size * scale, size * scale))
    corners = [(x - 0.5, y - 0.5) for x, y in AGENT_CORNERS]
    for _ in range(heading):
        corners = [(-y, x) for x, y in corners]
    points = [((x + 0.5) * size * scale, (y + 0.5) * size * scale) for x, y in corners]
    ImageDraw.Draw(tile).polygon(points, fill=AGENT, outline=(0, 0, 0), width=scale)
    return tile.resize((size, size), Image.Resampling.BOX)


def _tile_size(columns: int) -> int:
    return min(MAX_TILE, max(MIN_TILE, WORLD_WIDTH // columns))


@lru_cache(maxsize=8)
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's built-in font."""
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("this build of Pillow has no FreeType, which captions need: reinstall Pillow from its wheel")
    return font


def _write(frame: Image.Image, place: tuple[int, int], text: str, rgb: Rgb, size: int) -> None:
    """Writes text on the frame."""
    frame.paste(rgb, place, _text_mask(text, size))


@lru_cache(maxsize=256)
def _text_mask(text: str, size: int) -> Image.Image:
    """The opacity of a text's pixels, in few steps, because the palette of a GIF has only 256 colors."""
    mask = Image.new("L", (_length(text, size) + 1, _line_height(size)))
    ImageDraw.Draw(mask).text((0, 0), text, 255, _font(size))
    return mask.point([round(value / 51) * 51 for value in range(256)])


def _length(text: str, size: int) -> int:
    """The width of a text in pixels."""
    return math.ceil(_font(size).getlength(text))


def _line_height(size: int) -> int:
    return round(size * LINE_SPACING)


def _wrap(text: str, size: int, width: int) -> list[str]:
    """The text broken into lines at most `width` pixels long."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if _length(longer, size) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# ------------------------------------------------------------ films


class Film(Sequence[np.ndarray]):
    """The frames of scenes, drawn each time they are read: a scene takes 2 KB, a frame a megabyte.

    Args:
        scenes: The scenes, whose missions must take the same number of lines.
        titles: The title of each scene, or one for all.
        hold: How many times the frame of a scene that ends an episode is shown.
        progress: Called after each frame with the number of frames drawn and the number of frames.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        titles: str | Sequence[str] = "",
        hold: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        shown = [titles] * len(scenes) if isinstance(titles, str) else titles
        self._moments = [
            (scene, title)
            for scene, title in zip(scenes, shown, strict=True)
            for _ in range(1 if scene.outcome == "playing" else max(1, hold))
        ]
        self._progress = progress
        self._drawn = 0

    def __len__(self) -> int:
        return len(self._moments)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        frame = draw_scene(*self._moments[index])
        self._drawn += 1
        if self._progress is not None:
            self._progress(self._drawn % len(self), len(self))
        return frame


def save_film(frames: Sequence[np.ndarray], path: PathLike, fps: float = 8) -> None:
    """Writes frames of one shape to a file; its suffix decides the format.

    Args:
        frames: (H, W, 3) uint8 each.
        path: A `.gif`, an `.mp4`, or a `.png`, which gets the last frame.
        fps: Frames per second.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".png":
        save_png(frames[-1], path)
    elif suffix == ".gif":
        save_gif(frames, path, fps)
    elif suffix == ".mp4":
        save_mp4(frames, path, fps)
    else:
        raise ValueError(f"a film must be a .gif, .mp4 or .png, not {str(path)!r}")


def save_mp4(frames: Sequence[np.ndarray], path: PathLike, fps: float = 8) -> None:
    """Writes frames as an MP4 (H.264), with the encoder that comes with `imageio-ffmpeg`.

    Raises:
        ValueError: There are no frames, or the library is not installed.
    """
    if not frames:
        raise ValueError("a film needs at least one frame, got none")
    try:
        from imageio_ffmpeg import write_frames
    except ModuleNotFoundError:
        raise ValueError("MP4 files need an encoder: pip install 'babyai[video]', or write a GIF instead") from None
    height, width, _ = frames[0].shape
    with atomic_file(Path(path)) as temporary:
        # The temporary file's name does not end in .mp4, so the format must be given.
        writer = write_frames(
            str(temporary),
            (width, height),
            fps=fps,  # pyright: ignore[reportArgumentType]
            macro_block_size=2,
            quality=8,
            output_params=["-f", "mp4"],
        )
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
        writer.close()
