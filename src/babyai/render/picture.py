"""Picture files: frames become PNG and GIF, each written whole or not at all."""

import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

# A GIF's palette has no more.
MAX_PALETTE = 256


def png_bytes(frame: np.ndarray) -> bytes:
    """The (H, W, 3) uint8 frame as the content of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(_checked(frame)).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def save_png(frame: np.ndarray, path: str | os.PathLike[str]) -> None:
    """The (H, W, 3) uint8 frame lies at `path` as a PNG file."""
    _write_whole(Path(path), png_bytes(frame))


def save_gif(frames: Iterable[np.ndarray], path: str | os.PathLike[str], fps: float = 8) -> None:
    """The frames lie at `path` as an endless GIF, all with one palette.

    Up to 256 different colors are kept exactly; beyond that the nearest of 256 are taken.

    Args:
        frames: (H, W, 3) uint8 each, all of one size.
        path: the file to write.
        fps: frames a second; GIF counts time in hundredths of a second, so odd rates are rounded.
    """
    frames = [_checked(frame) for frame in frames]
    if not frames:
        raise ValueError("a GIF needs at least one frame, and none was given")
    if shapes := {frame.shape for frame in frames} - {frames[0].shape}:
        raise ValueError(f"all frames of a GIF must have one shape; got {frames[0].shape} and {shapes.pop()}")
    if not 0 < fps <= 100:
        raise ValueError(f"a GIF can show more than 0 and up to 100 frames a second, not {fps}")
    first, *others = _to_one_palette(frames)
    buffer = io.BytesIO()
    first.save(buffer, format="GIF", save_all=True, append_images=others, duration=1000 / fps, loop=0, optimize=False)
    _write_whole(Path(path), buffer.getvalue())


def _checked(frame: np.ndarray) -> np.ndarray:
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ValueError(f"expected a frame of shape (H, W, 3) uint8, got {frame.shape} {frame.dtype}")
    return np.ascontiguousarray(frame)


def _to_one_palette(frames: list[np.ndarray]) -> list[Image.Image]:
    """The frames as palette images that share one palette."""
    packed = [frame @ np.array([1 << 16, 1 << 8, 1], dtype=np.int32) for frame in frames]
    used = np.unique(np.concatenate([np.unique(colors) for colors in packed]))
    palette, entry_of_used = _choose_palette(np.stack([used >> 16, used >> 8 & 255, used & 255], axis=1))
    images = []
    for colors in packed:
        image = Image.fromarray(entry_of_used[np.searchsorted(used, colors)])
        image.putpalette(palette.tobytes())
        images.append(image)
    return images


def _choose_palette(colors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A palette of at most 256 of the (K, 3) colors, (P, 3) uint8, and each color's entry in it, (K,) uint8."""
    colors = colors.astype(np.uint8)
    if len(colors) <= MAX_PALETTE:
        return colors, np.arange(len(colors), dtype=np.uint8)
    reduced = Image.fromarray(colors[None]).quantize(MAX_PALETTE, dither=Image.Dither.NONE)
    palette = np.array(reduced.getpalette(), dtype=np.uint8).reshape(-1, 3)
    return palette, np.asarray(reduced)[0]


def _write_whole(path: Path, content: bytes) -> None:
    """Writes a file beside its place and moves it there, so that nobody ever reads half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
