"""Verifying, merging and showing files of demonstrations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from babyai.demos import show
from babyai.demos.collect import collect
from babyai.demos.header import DemoFileError, Header
from babyai.demos.merge import append, merge
from babyai.demos.packed import Demos
from babyai.demos.store import DemoFile, DemoWriter
from babyai.demos.verify import verify
from tests.scale import scaled

# ---------------------------------------------------------------- verify


def rewrite(source: Path, out: Path, change) -> Path:
    """Copies a file with changed demonstrations; returns its path."""
    with DemoFile(source) as file, DemoWriter(out, file.header) as writer:
        writer.write(change(file.read()))
        writer.close(*file.header.sources)
    return out


def with_value(name: str, row: int, value):
    def change(demos: Demos) -> Demos:
        column = getattr(demos, name).copy()
        column[row] = value
        return replace(demos, **{name: column})

    return change


def with_mission(row: int, mission: str):
    def change(demos: Demos) -> Demos:
        missions = demos.missions.to_pylist()
        missions[row] = mission
        return replace(demos, missions=pa.array(missions, pa.string()))

    return change


def with_length(row: int, more: int):
    """Removes the last action of a row (more = -1), or repeats it (more = 1)."""

    def change(demos: Demos) -> Demos:
        end = demos.offsets[row + 1]
        repeated = demos.actions[end - 1 : end - 1 + max(more, 0)]
        pieces = demos.actions[: end + min(more, 0)], repeated, demos.actions[end:]
        offsets = demos.offsets.copy()
        offsets[row + 1 :] += more
        return replace(demos, actions=np.concatenate(pieces), offsets=offsets)

    return change


def test_first_wrong_row_is_reported(tmp_path: Path, small_file: Path) -> None:
    reports = []
    assert verify(small_file, threads=2, progress=lambda *now: reports.append(now)) is None
    assert reports[-1][0] == reports[-1][1]
    with DemoFile(small_file) as file:
        demos = file.read()
    row = next(k for k in range(4, len(demos)) if demos.lengths[k] > 4)
    length = int(demos.lengths[row])
    for number, (change, problem) in enumerate(
        (
            (with_value("seeds", row, 7), "its mission is"),
            (with_value("levels", row, 1 - demos.levels[row]), "its mission is"),
            (with_mission(row, "go to a door"), f"'go to a door', but its seed gives {demos[row].mission!r}"),
            (with_value("rewards", row, 0.5), f"its reward is 0.5, but its actions earn {demos.rewards[row]}"),
            (with_length(row, -1), f"not over after its {length - 1} actions"),
            (with_length(row, 1), f"over after {length} of its {length + 1} actions"),
        )
    ):
        wrong = verify(rewrite(small_file, tmp_path / f"{number}.parquet", change))
        assert wrong is not None and wrong.row == row
        assert problem in str(wrong) and str(wrong).startswith(f"row {row} (level ")


def test_changed_action_is_detected(tmp_path: Path, small_file: Path) -> None:
    with DemoFile(small_file) as file:
        demos = file.read()
    row = int(np.argmax(demos.lengths > 4))
    place = int(demos.offsets[row])
    # With another first action, the rest of the actions does not lead to the goal in the same number of steps.
    for action in {0, 1, 2} - {int(demos.actions[place])}:
        wrong = verify(rewrite(small_file, tmp_path / f"{action}.parquet", with_value("actions", place, action)))
        assert wrong is not None and wrong.row == row


# ---------------------------------------------------------------- merge


def test_merge_keeps_order_and_sources(tmp_path: Path, small_file: Path) -> None:
    other = collect(["Open", "GoToLocal"], scaled(50, 3), 9000, tmp_path / "other.parquet").path
    count = merge([other, small_file], tmp_path / "both.parquet")
    with DemoFile(tmp_path / "both.parquet") as both, DemoFile(other) as first, DemoFile(small_file) as second:
        assert len(both) == count == len(first) + len(second)
        assert both.levels == ("Open", "GoToLocal", "BossLevel")
        assert [source.rows for source in both.header.sources] == [len(first), len(second)]
        rows = [(d.level, d.seed, d.mission, d.actions.tobytes(), d.reward) for d in both]
        assert rows == [(d.level, d.seed, d.mission, d.actions.tobytes(), d.reward) for f in (first, second) for d in f]
    assert verify(tmp_path / "both.parquet") is None


def test_merge_rejects_other_rules_duplicates_and_existing_files(tmp_path: Path, small_file: Path) -> None:
    out = tmp_path / "out.parquet"
    other = collect("GoToLocal", 3, 9000, tmp_path / "minigrid.parquet", rules="minigrid").path
    with pytest.raises(DemoFileError, match=r"small\.parquet .*'paper'.*minigrid\.parquet .*'minigrid'"):
        merge([small_file, other], out)
    with pytest.raises(DemoFileError, match=r"seed 100 of level 'GoToLocal' .*keep_duplicates"):
        merge([small_file, small_file], out)
    with pytest.raises(ValueError, match="no files to merge"):
        merge([], out)
    with pytest.raises(FileNotFoundError):
        merge([small_file, tmp_path / "nowhere.parquet"], out)
    assert not out.exists()
    assert merge([small_file, small_file], out, keep_duplicates=True) > 0
    before = out.read_bytes()
    with pytest.raises(DemoFileError, match=r"out\.parquet already exists"):
        merge([small_file], out)
    assert out.read_bytes() == before


def test_append_rejects_levels_with_other_settings(tmp_path: Path, small_file: Path) -> None:
    other = collect("GoToLocal", 3, 9000, tmp_path / "x.parquet").path
    before = other.read_bytes()
    with DemoFile(small_file) as file:
        demos = file.read()
        header = file.header
        source = header.sources[0]
        changed = {name: settings | {"objects": 99} for name, settings in header.levels.items()}
        with pytest.raises(DemoFileError, match=r"level 'GoToLocal' differ"):
            append(other, demos, Header("paper", changed), source)
        assert other.read_bytes() == before
        assert append(other, demos, header, source) == 3 + len(demos)
    assert verify(other) is None


# ---------------------------------------------------------------- show


def test_summarize_equals_numpy(small_file: Path) -> None:
    with DemoFile(small_file) as file:
        demos = file.read()
        for code, summary in enumerate(show.summarize(file)):
            lengths = demos.lengths[demos.levels == code]
            rewards = demos.rewards[demos.levels == code]
            assert summary.level == file.levels[code] and summary.count == len(lengths)
            assert summary.mean_length == pytest.approx(lengths.mean())
            assert summary.std_length == pytest.approx(lengths.std()) and summary.longest == lengths.max()
            assert summary.mean_reward == pytest.approx(rewards.mean())


def test_draw_steps_draws_every_step(small_file: Path) -> None:
    with DemoFile(small_file) as file:
        demo = file[1]
        drawings = list(show.draw_steps(demo, file.rules))
    assert len(drawings) == len(demo) + 1 and drawings[0].endswith("step 0: start\n")
    assert f"step {len(demo)}: " in drawings[-1] and f"end of episode, reward {demo.reward:.3f}" in drawings[-1]
    assert show.format_actions(np.array([0, 2, 2, 2, 5])) == "left, forward x 3, toggle"
    assert show.format_actions(np.zeros(0, dtype=np.uint8)) == ""


def test_a_file_of_an_earlier_version_is_still_valid() -> None:
    """Recorded before settings of levels were renamed: files keep the old names."""
    path = Path(__file__).parents[1] / "golden" / "demos_format1.parquet"
    with DemoFile(path) as file:
        assert list(file.levels) == ["GoToLocal", "OpenRedBlueDoors", "BossLevel"]
        assert len(file) == 12
    assert verify(path) is None
