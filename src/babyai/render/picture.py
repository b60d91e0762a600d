"""Image files: PNG and GIF, written atomically."""

import io
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from babyai.atomic_io import atomic_file

# The most colors that the palette of a GIF can have.
MAX_PALETTE = 256


def png_bytes(frame: np.ndarray) -> bytes:
    """A frame, (H, W, 3) uint8, encoded as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(_check_frame(frame)).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def save_png(frame: np.ndarray, path: str | os.PathLike[str]) -> None:
    """Writes a frame, (H, W, 3) uint8, as a PNG file."""
    _write(Path(path), png_bytes(frame))


def save_gif(frames: Iterable[np.ndarray], path: str | os.PathLike[str], fps: float = 8) -> None:
    """Writes frames as a looping GIF with one shared palette.

    Up to 256 different colors are reproduced exactly; with more, colors are quantized to 256.

    Args:
        frames: (H, W, 3) uint8 each, all of the same shape.
        path: File to write.
        fps: Frames per second. GIF stores delays in hundredths of a second, so some rates are rounded.
    """
    frames = [_check_frame(frame) for frame in frames]
    if not frames:
        raise ValueError("a GIF needs at least one frame, got none")
    if shapes := {frame.shape for frame in frames} - {frames[0].shape}:
        raise ValueError(f"all frames of a GIF must have the same shape; got {frames[0].shape} and {shapes.pop()}")
    if not 0 < fps <= 100:
        raise ValueError(f"fps of a GIF must be above 0 and at most 100, not {fps}")
    first, *others = _quantize(frames)
    buffer = io.BytesIO()
    first.save(buffer, format="GIF", save_all=True, append_images=others, duration=1000 / fps, loop=0, optimize=False)
    _write(Path(path), buffer.getvalue())


def _check_frame(frame: np.ndarray) -> np.ndarray:
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ValueError(f"expected a frame of shape (H, W, 3) uint8, got {frame.shape} {frame.dtype}")
    return np.ascontiguousarray(frame)


def _quantize(frames: list[np.ndarray]) -> list[Image.Image]:
    """The frames as palette images with one shared palette."""
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
    """A palette of at most 256 colors, (P, 3) uint8, and the index in it of each of the (K, 3) colors, (K,) uint8."""
    colors = colors.astype(np.uint8)
    if len(colors) <= MAX_PALETTE:
        return colors, np.arange(len(colors), dtype=np.uint8)
    reduced = Image.fromarray(colors[None]).quantize(MAX_PALETTE, dither=Image.Dither.NONE)
    palette = np.array(reduced.getpalette(), dtype=np.uint8).reshape(-1, 3)
    return palette, np.asarray(reduced)[0]


def _write(path: Path, content: bytes) -> None:
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)
