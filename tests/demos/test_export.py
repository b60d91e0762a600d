"""Exported Minari datasets contain the observations of the environments."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from babyai.demos.collect import collect
from babyai.demos.export import export_minari
from babyai.demos.header import DemoFileError
from babyai.demos.store import DemoFile

minari = pytest.importorskip("minari", reason="exporting to Minari needs minari[hdf5]")
pytest.importorskip("h5py", reason="exporting to Minari needs minari[hdf5]")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Minari's root folder of datasets during the test."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


# Minari warns if babyai runs from a checkout that is not installed.
@pytest.mark.filterwarnings("ignore:Package babyai is not installed")
@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_dataset_equals_the_environments_episodes(tmp_path: Path, root: Path, rules) -> None:
    path = collect("GoToLocal", 6, 50, tmp_path / "x.parquet", rules=rules).path
    folder = export_minari(path, "babyai/GoToLocal/expert-v0")
    assert folder == root / "babyai/GoToLocal/expert-v0"
    dataset = minari.load_dataset("babyai/GoToLocal/expert-v0")
    assert dataset.total_episodes == 6
    env = dataset.recover_environment()
    assert env.unwrapped.engine.rules == rules
    with DemoFile(path) as file:
        assert dataset.total_steps == sum(len(demo) for demo in file)
        for demo, episode in zip(file, dataset.iterate_episodes(), strict=True):
            obs, _ = env.reset(seed=demo.seed)
            observations = [obs]
            rewards = []
            for action in episode.actions.tolist():
                obs, reward, terminated, truncated, _ = env.step(action)
                observations.append(obs)
                rewards.append(reward)
            assert episode.actions.tolist() == demo.actions.tolist() and episode.rewards.tolist() == rewards
            assert episode.terminations[-1] == terminated and episode.truncations[-1] == truncated
            assert not episode.terminations[:-1].any() and rewards[-1] == demo.reward
            assert np.array_equal(episode.observations["image"], [obs["image"] for obs in observations])
            assert episode.observations["direction"].tolist() == [obs["direction"] for obs in observations]
            assert list(episode.observations["mission"]) == [demo.mission] * len(observations)
            assert dataset.observation_space.contains({key: part[0] for key, part in episode.observations.items()})
        metadata = list(dataset.storage.get_episode_metadata(range(6)))
        assert [episode["seed"] for episode in metadata] == [demo.seed for demo in file]
        assert [episode["level"] for episode in metadata] == ["GoToLocal"] * 6
    env.close()


def test_dataset_of_several_levels_has_no_environment(root: Path, small_file: Path) -> None:
    export_minari(small_file, "babyai/mixed/expert-v0", demos=3, description="a few")
    dataset = minari.load_dataset("babyai/mixed/expert-v0")
    assert dataset.total_episodes == 3 and dataset.env_spec is None
    assert dataset.storage.metadata["description"] == "a few"


def test_existing_dataset_is_kept_and_a_failed_export_is_removed(
    tmp_path: Path, root: Path, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = export_minari(small_file, "mixed-v0", root=tmp_path / "elsewhere", demos=2)
    assert folder == tmp_path / "elsewhere" / "mixed-v0"
    with pytest.raises(DemoFileError, match=r"mixed-v0 already exists"):
        export_minari(small_file, "mixed-v0", root=tmp_path / "elsewhere", demos=2)
    assert minari.MinariDataset(folder / "data").total_episodes == 2

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("babyai.demos.export.episode_buffer", fail)
    with pytest.raises(KeyboardInterrupt):
        export_minari(small_file, "other-v0", demos=2)
    assert not (root / "other-v0").exists()
    assert "babyai/GoToLocal-v0" in gymnasium.registry
