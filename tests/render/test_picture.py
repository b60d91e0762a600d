"""PNG and GIF files reproduce the frames they were written from."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from babyai.render.picture import png_bytes, save_gif, save_png
from babyai.render.tiles import draw_tile
from babyai.world.codes import BALL, EMPTY, cell_of


def film(count: int) -> list[np.ndarray]:
    """Frames of a ball that moves along a row of eight tiles."""
    row = [draw_tile(EMPTY, 16)] * 8
    ball = draw_tile(cell_of(BALL, 3), 16)
    return [np.hstack([*row[:k], ball, *row[k + 1 :]]) for k in range(count)]


def read_gif(path: Path) -> list[np.ndarray]:
    with Image.open(path) as image:
        return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]


def test_png_keeps_every_pixel(tmp_path: Path) -> None:
    frame = np.random.default_rng(0).integers(0, 256, size=(20, 30, 3), dtype=np.uint8)
    save_png(frame, tmp_path / "frame.png")
    assert (tmp_path / "frame.png").read_bytes() == png_bytes(frame)
    with Image.open(tmp_path / "frame.png") as image:
        np.testing.assert_array_equal(np.asarray(image), frame)


def test_gif_keeps_every_pixel_and_is_small(tmp_path: Path) -> None:
    frames = film(8)
    save_gif(iter(frames), tmp_path / "film.gif", fps=10)
    np.testing.assert_array_equal(read_gif(tmp_path / "film.gif"), frames)
    assert (tmp_path / "film.gif").stat().st_size < 6000
    with Image.open(tmp_path / "film.gif") as image:
        assert image.info["duration"] == 100 and image.info["loop"] == 0


def test_gif_with_more_than_256_colors_is_quantized(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    frame = np.zeros((64, 64, 3), dtype=np.uint8)
    frame[:, :, 0] = ramp[None, :]
    frame[:, :, 1] = ramp[:, None]
    save_gif([frame, frame[::-1]], tmp_path / "film.gif")
    first, second = read_gif(tmp_path / "film.gif")
    assert np.abs(first.astype(int) - frame).max() < 40
    assert np.abs(second.astype(int) - frame[::-1]).max() < 40


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "frame.png"
    save_png(film(1)[0], path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("babyai.render.picture.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_png(film(2)[1], path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["frame.png"]


@pytest.mark.parametrize(
    ("frames", "fps", "message"),
    [
        ([], 8, "at least one frame"),
        ([np.zeros((2, 2, 3), np.uint8), np.zeros((3, 2, 3), np.uint8)], 8, r"\(2, 2, 3\) and \(3, 2, 3\)"),
        ([np.zeros((2, 2, 3), np.float32)], 8, "uint8.* float32"),
        ([np.zeros((2, 2, 3), np.uint8)], 0, "fps.* 100.* 0$"),
    ],
)
def test_invalid_gif_arguments_are_rejected(tmp_path: Path, frames: list[np.ndarray], fps: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        save_gif(frames, tmp_path / "film.gif", fps)
    assert not list(tmp_path.iterdir())
