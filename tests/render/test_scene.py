"""Scenes, as pictures and on a terminal: what they show, and that they fit."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from babyai.demos.record import HELP
from babyai.engine import Engine
from babyai.levels.catalog import LEVELS
from babyai.render.film import AGENT, BORDER_OF, Film, draw_scene, save_film
from babyai.render.scene import Scene, take_scene
from babyai.render.terminal import SYMBOLS, draw_screen
from babyai.world.codes import Action

ROOM = """
    ##########
    ##>>rk..##
    ##......##
    ##..bo..##
    ##########
"""
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def play(mission: str, *actions: Action, max_steps: int = 0) -> list[Scene]:
    """The scenes of an episode in a small room."""
    engine = Engine("GoToLocal")
    engine.reset([0])
    engine.lay_out(0, ROOM, mission)
    if max_steps:
        engine.worlds[0].max_steps = max_steps
    scenes = [take_scene(engine)]
    for action in actions:
        engine.step([action])
        scenes.append(take_scene(engine, action=action))
    return scenes


def test_a_scene_says_what_happened() -> None:
    start, carrying, dropped = play("pick up the blue ball", Action.pickup, Action.drop)
    assert (start.step, start.action, start.carried, start.verdict) == (0, None, "nothing", "")
    assert (carrying.step, carrying.action, carrying.carried) == (1, Action.pickup, "a red key")
    assert dropped.carried == "nothing" and dropped.level == "GoToLocal"
    # Scenes are copies: later steps do not change them.
    assert start.world.step_count == 0 and start.view[3, 5, 0] == 5


def test_verdicts() -> None:
    assert re.fullmatch(r"success, reward 0\.\d\d", play("pick up the red key", Action.pickup)[-1].verdict)
    assert play("pick up the blue ball", Action.left, max_steps=1)[-1].verdict == "out of steps"
    strict = Engine("PickupDistDebug")
    strict.reset([0])
    strict.terminated[:] = True
    strict.done[:] = True
    assert take_scene(strict).verdict == "failed"


def test_frames_of_an_episode_have_one_shape_and_show_the_verdict() -> None:
    scenes = play("pick up the red key", Action.left, Action.right, Action.pickup)
    frames = [draw_scene(scene, "a test") for scene in scenes]
    assert len({frame.shape for frame in frames}) == 1 and all(side % 2 == 0 for side in frames[0].shape[:2])
    green = np.array(BORDER_OF["success"])
    assert [bool((frame == green).all(axis=2).any()) for frame in frames] == [False, False, False, True]
    # The agent is white, unlike any object.
    assert all((frame == np.array(AGENT)).all(axis=2).sum() > 100 for frame in frames)


def test_every_caption_changes_the_frame() -> None:
    first, second = play("pick up the blue ball", Action.pickup)
    names = {"world": second.world, "action": Action.done, "mission": "go to the red key", "outcome": "timeout"}
    for name, value in names.items():
        other = Scene(**{**first.__dict__, name: value})
        assert not np.array_equal(draw_scene(first), draw_scene(other)), name
    assert not np.array_equal(draw_scene(first), draw_scene(first, "title"))


@pytest.mark.parametrize("level", ["GoToObjS4", "GoToLocal", "BossLevel", "OneRoomS20", "KeyCorridorS3R1"])
def test_worlds_of_all_sizes_make_frames_of_similar_size(level: str) -> None:
    engine = Engine(level)
    engine.reset([0])
    height, width, _ = draw_scene(take_scene(engine)).shape
    assert 400 <= width <= 560 and 200 <= height <= 800


def test_films_are_written(tmp_path: Path) -> None:
    scenes = play("pick up the red key", Action.left, Action.right, Action.pickup)
    drawn = []
    film = Film(scenes, "a test", hold=3, progress=lambda done, total: drawn.append((done, total)))
    assert len(film) == 6 and len(film[1:3]) == 2 and drawn == [(1, 6), (2, 6)]
    save_film(film, tmp_path / "film.gif", fps=10)
    assert len(drawn) > 12
    with Image.open(tmp_path / "film.gif") as image:
        shown = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    # Pillow joins equal frames into one that is shown longer.
    np.testing.assert_array_equal(shown, [draw_scene(scene, "a test") for scene in scenes])
    save_film(film, tmp_path / "film.png")
    with Image.open(tmp_path / "film.png") as image:
        np.testing.assert_array_equal(np.asarray(image), film[-1])
    with pytest.raises(ValueError, match=r"\.gif, \.mp4 or \.png, not 'film\.avi'"):
        save_film(film, "film.avi")


# The library's reader, which only this test uses, leaves its pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mp4_can_be_read_back(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    film = Film(play("pick up the red key", Action.left, Action.right, Action.pickup), hold=5)
    save_film(film, tmp_path / "film.mp4", fps=10)
    reader = ffmpeg.read_frames(str(tmp_path / "film.mp4"))
    assert next(reader)["size"] == film[0].shape[1::-1]
    frames = [np.frombuffer(data, np.uint8).reshape(film[0].shape) for data in reader]
    assert len(frames) == len(film)
    assert np.abs(frames[-1].astype(int) - film[-1]).mean() < 6
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


def test_without_an_encoder_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match=r"pip install 'babyai\[video\]'"):
        save_film(Film(play("pick up the red key")), tmp_path / "film.mp4")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- terminal


def lines_of(screen: str) -> list[str]:
    return ANSI.sub("", screen).split("\n")


@pytest.mark.compiled
@pytest.mark.parametrize("level", [name for name in LEVELS if not name.startswith("Test")])
def test_every_level_fits_80_by_24(level: str) -> None:
    engine = Engine(level, 16)
    engine.reset(0)
    for index in range(16):
        scene = take_scene(engine, index, Action.forward)
        lines = lines_of(draw_screen(scene, keys=HELP, note="nothing to undo", size=(80, 24)))
        panel = " ".join(line[2 * scene.world.width :].strip() for line in lines)
        assert len(lines) <= 23 and max(map(len, lines)) <= 80
        # Nothing was left out.
        for text in (f"mission: {scene.mission}", f"seed {index}", f"carrying {scene.carried}", *SYMBOLS, *HELP):
            assert text in " ".join(panel.split()) or text in panel, text


def test_the_screen_shows_carried_object_action_and_verdict() -> None:
    scene = play("pick up the red key", Action.pickup)[-1]
    screen = draw_screen(scene, title="expert", size=(80, 24))
    text = "\n".join(lines_of(screen))
    for words in ("expert, GoToLocal, seed 0", "step 1 of ", "pickup", "carrying a red key", "success, reward 0."):
        assert words in text
    assert draw_screen(scene, title="expert", color=False, size=(80, 24)) == text


def test_a_low_terminal_keeps_the_mission() -> None:
    engine = Engine("BossLevel")
    engine.reset([3])
    screen = draw_screen(take_scene(engine), keys=HELP, color=False, size=(80, 8))
    assert "mission: put the purple box" in screen and HELP[-1] not in screen
