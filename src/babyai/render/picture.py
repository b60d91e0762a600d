"""Image files: PNG and GIF, written atomically."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
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
        frames: (H, W, 3) uint8 each, all of the same shape. A sequence is read twice, one frame at a time, so that a
            sequence that draws its frames on demand needs little memory.
        path: File to write.
        fps: Frames per second. GIF stores delays in hundredths of a second, so some rates are rounded.
    """
    frames = frames if isinstance(frames, Sequence) else list(frames)
    if not frames:
        raise ValueError("a GIF needs at least one frame, got none")
    if not 0 < fps <= 100:
        raise ValueError(f"fps of a GIF must be above 0 and at most 100, not {fps}")
    images = _quantize(frames)
    first = next(images)
    buffer = io.BytesIO()
    first.save(buffer, format="GIF", save_all=True, append_images=images, duration=1000 / fps, loop=0, optimize=False)
    _write(Path(path), buffer.getvalue())


def _check_frame(frame: np.ndarray) -> np.ndarray:
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ValueError(f"expected a frame of shape (H, W, 3) uint8, got {frame.shape} {frame.dtype}")
    return np.ascontiguousarray(frame)


def _quantize(frames: Sequence[np.ndarray]) -> Iterator[Image.Image]:
    """Yields the frames as palette images with one shared palette."""
    used = np.zeros(0, dtype=np.int32)
    shape = frames[0].shape
    for frame in frames:
        if _check_frame(frame).shape != shape:
            raise ValueError(f"all frames of a GIF must have the same shape; got {shape} and {frame.shape}")
        used = np.union1d(used, _pack_colors(frame))
    palette, entry_of_used = _choose_palette(np.stack([used >> 16, used >> 8 & 255, used & 255], axis=1))
    for frame in frames:
        image = Image.fromarray(entry_of_used[np.searchsorted(used, _pack_colors(frame))])
        image.putpalette(palette.tobytes())
        yield image


def _pack_colors(frame: np.ndarray) -> np.ndarray:
    """The colors of a frame as one integer per pixel: (H, W) int32."""
    return frame @ np.array([1 << 16, 1 << 8, 1], dtype=np.int32)


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
