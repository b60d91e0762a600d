"""Demonstrations for others: whole datasets with observations, in the layout of Minari."""

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from babyai import __version__
from babyai.demos.header import DemoFileError
from babyai.demos.packed import Demo
from babyai.demos.store import DemoFile, PathLike
from babyai.demos.verify import play_demo
from babyai.levels.catalog import Rules, find_level


def export_minari(
    path: PathLike,
    dataset_id: str,
    *,
    root: PathLike | None = None,
    demos: int | None = None,
    author: str = "babyai",
    description: str | None = None,
) -> Path:
    """Makes a Minari dataset (HDF5) of a file, observations included; returns its folder.

    `minari.load_dataset(dataset_id)` opens it. An observation is what the environments of `babyai.envs` give: image,
    direction, mission; there is one more of them than there are actions. A file with one level also carries the
    environment, for `recover_environment`. Each episode keeps its seed and, as metadata, its level and mission.

    Args:
        path: The file of demonstrations.
        dataset_id: Such as "babyai/BossLevel/expert-v0".
        root: The folder in which Minari keeps datasets; None: where Minari has it (MINARI_DATASETS_PATH).
        demos: How many rows to export, from the first on; None: all. Each takes some 20 to 50 kB.
        author: Who made the demonstrations.
        description: What they are; None: a sentence that says so.

    Raises:
        DemoFileError: The dataset exists already.
        ModuleNotFoundError: Minari is not installed.
    """
    try:
        import minari
        from minari.storage import get_dataset_path
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; exporting needs Minari: pip install 'minari[hdf5]'") from None
    with _datasets_in(root), DemoFile(path) as file:
        folder = get_dataset_path(dataset_id)
        if folder.exists():
            raise DemoFileError(f"{folder} exists already: delete that dataset, or choose another id")
        count = len(file) if demos is None else min(demos, len(file))
        told = description or f"Demonstrations of {', '.join(file.levels)} in BabyAI, rules {file.rules!r}."
        try:
            with warnings.catch_warnings():
                # Minari warns of each thing it would like to be told.
                warnings.simplefilter("ignore", UserWarning)
                dataset = minari.create_dataset_from_buffers(
                    dataset_id,
                    _episodes(file, count),  # pyright: ignore[reportArgumentType]
                    **_environment(file),
                    algorithm_name=", ".join(sorted({f"{s.origin} {s.style}".strip() for s in file.header.sources})),
                    author=author,
                    description=told,
                    requirements=[f"babyai=={__version__}"],
                    data_format="hdf5",
                    # JPEG would change symbols into other symbols.
                    jpeg_encoding=False,
                )
            dataset.storage.update_episode_metadata(_names(file, count))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return Path(folder)


def _environment(file: DemoFile) -> dict[str, Any]:
    """The spaces and, where there is just one, the environment of all rows."""
    import gymnasium

    from babyai.envs.registration import register_all
    from babyai.envs.spaces import action_space, single_space

    level = find_level(file.levels[0], file.rules)
    spaces = {
        "observation_space": single_space("symbolic", 7, (level.width, level.height)),
        "action_space": action_space(),
    }
    if len(file.levels) > 1:
        return spaces
    register_all()
    spec = gymnasium.spec(level.id)
    if file.rules != "paper":
        spec.kwargs["rules"] = file.rules
    return spaces | {"env": spec, "eval_env": spec}


def _episodes(file: DemoFile, count: int) -> Iterator[Any]:
    """The first rows of a file as Minari takes them."""
    for _, demo in zip(range(count), file, strict=False):
        yield episode_buffer(demo, file.rules)


def episode_buffer(demo: Demo, rules: Rules) -> Any:
    """One demonstration, played again, as a Minari `EpisodeBuffer`."""
    from minari.data_collector import EpisodeBuffer

    steps = [
        (engine.images[0].copy(), int(engine.directions[0]), *(float(engine.rewards[0]), bool(engine.terminated[0])),
         bool(engine.truncated[0]))
        for engine in play_demo(demo, rules)
    ]  # fmt: skip
    images, directions, rewards, terminated, truncated = zip(*steps, strict=True)
    return EpisodeBuffer(
        seed=demo.seed,
        observations={
            "image": np.stack(images),
            "direction": np.array(directions, dtype=np.int64),
            "mission": [demo.mission] * len(images),
        },
        actions=demo.actions.astype(np.int64),  # pyright: ignore[reportArgumentType]
        rewards=list(rewards[1:]),
        terminations=list(terminated[1:]),
        truncations=list(truncated[1:]),
        infos={},
    )


def _names(file: DemoFile, count: int) -> list[dict[str, str]]:
    return [{"level": demo.level, "mission": demo.mission} for _, demo in zip(range(count), file, strict=False)]


@contextlib.contextmanager
def _datasets_in(root: PathLike | None) -> Iterator[None]:
    """Tells Minari where to keep datasets, for a while."""
    if root is None:
        yield
        return
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(Path(root).absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before
