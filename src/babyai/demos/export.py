"""Export of demonstrations, including observations, as Minari datasets."""

import contextlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from babyai import __version__
from babyai.atomic_io import PathLike
from babyai.demos.header import DemoFileError
from babyai.demos.packed import Demo
from babyai.demos.store import DemoFile
from babyai.demos.verify import play_demo
from babyai.levels.catalog import Rules, find_level

# Folders of letters, digits, - and _, then a name with a version.
DATASET_ID = re.compile(r"(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+-v\d+")


def export_minari(
    path: PathLike,
    dataset_id: str,
    *,
    root: PathLike | None = None,
    demos: int | None = None,
    author: str = "babyai",
    description: str | None = None,
) -> Path:
    """Writes a file of demonstrations as a Minari dataset (HDF5) with observations; returns the dataset's folder.

    `minari.load_dataset(dataset_id)` opens it. Observations are those of `babyai.envs`: image, direction, mission; an
    episode has one more observation than actions. If the file has only one level, the dataset includes the environment,
    for `recover_environment`. Each episode has its seed and, as metadata, its level and mission.

    Args:
        path: File of demonstrations.
        dataset_id: Dataset id, such as "babyai/BossLevel/expert-v0".
        root: Root folder of datasets (default: Minari's, see MINARI_DATASETS_PATH).
        demos: Number of rows to export, from the first on (default: all). Each takes about 20 to 50 kB.
        author: Author of the demonstrations.
        description: Description of the dataset (default: the levels and rules).

    Raises:
        ValueError: The id is not one of a dataset.
        DemoFileError: The dataset already exists.
        ModuleNotFoundError: Minari is not installed.
    """
    try:
        import minari
        from minari.storage import get_dataset_path
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; exporting needs Minari: pip install 'minari[hdf5]'") from None
    # Minari makes a path of it.
    if not DATASET_ID.fullmatch(dataset_id):
        raise ValueError(f"{dataset_id!r} is not a dataset id; it must be like babyai/BossLevel/expert-v0")
    if demos is not None and demos < 1:
        raise ValueError(f"the number of demonstrations must be at least 1, not {demos}")
    with _datasets_in(root), DemoFile(path) as file:
        folder = get_dataset_path(dataset_id)
        if folder.exists():
            raise DemoFileError(f"{folder} already exists: delete that dataset, or choose another id")
        count = len(file) if demos is None else min(demos, len(file))
        description = description or f"Demonstrations of {', '.join(file.levels)} in BabyAI, rules {file.rules!r}."
        try:
            with warnings.catch_warnings():
                # Minari warns about each optional argument that is missing.
                warnings.simplefilter("ignore", UserWarning)
                dataset = minari.create_dataset_from_buffers(
                    dataset_id,
                    _episodes(file, count),  # pyright: ignore[reportArgumentType]
                    **_environment(file),
                    algorithm_name=", ".join(sorted({f"{s.origin} {s.style}".strip() for s in file.header.sources})),
                    author=author,
                    description=description,
                    requirements=[f"babyai=={__version__}"],
                    data_format="hdf5",
                    # JPEG is lossy: it would change the symbols of images.
                    jpeg_encoding=False,
                )
            dataset.storage.update_episode_metadata(_episode_metadata(file, count))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return Path(folder)


def _environment(file: DemoFile) -> dict[str, Any]:
    """Minari's arguments for the spaces and, if the file has only one level, for the environment."""
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
    """Yields the first rows of a file as Minari episodes."""
    for _, demo in zip(range(count), file, strict=False):
        yield episode_buffer(demo, file.rules)


def episode_buffer(demo: Demo, rules: Rules) -> Any:
    """A demonstration, replayed, as a Minari `EpisodeBuffer`."""
    from minari.data_collector import EpisodeBuffer

    steps = [
        (
            engine.images[0].copy(),
            int(engine.directions[0]),
            float(engine.rewards[0]),
            bool(engine.terminated[0]),
            bool(engine.truncated[0]),
        )
        for engine in play_demo(demo, rules)
    ]
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


def _episode_metadata(file: DemoFile, count: int) -> list[dict[str, str]]:
    return [{"level": demo.level, "mission": demo.mission} for _, demo in zip(range(count), file, strict=False)]


@contextlib.contextmanager
def _datasets_in(root: PathLike | None) -> Iterator[None]:
    """Sets Minari's root folder of datasets for the duration of the context."""
    if root is None:
        yield
        return
    previous = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(Path(root).absolute())
    try:
        yield
    finally:
        if previous is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = previous
