"""`benchmarks.map_ablations`: agents without a part are trained, continued and evaluated."""

from pathlib import Path

import pytest

from benchmarks import map_ablations

TINY = {
    "levels": "GoToObj,GoToLocal",
    "worlds": 16,
    "batch_size": 16,
    "buffer_size": 400,
    "min_buffer": 32,
    "expert_frames": 800,
    "threads": 1,
    "device": "cpu",
    "quiet": True,
}


@pytest.mark.long
def test_agents_are_trained_continued_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_ablations, "RUNS", [("", 1), ("map", 1)])
    for frames in (1600, 3200):
        map_ablations.train(map_ablations.make_options(tmp_path, frames=frames, **TINY))
    rows = list(map_ablations.evaluate(tmp_path, 20))
    assert [(row["without"], row["seed"], row["level"]) for row in rows] == [
        *(("", 1, "GoToObj"), ("", 1, "GoToLocal")),
        *(("map", 1, "GoToObj"), ("map", 1, "GoToLocal")),
    ]
    # An agent that has not been trained is left out.
    monkeypatch.setattr(map_ablations, "RUNS", [("", 1), ("events", 1)])
    assert {row["without"] for row in map_ablations.evaluate(tmp_path, 1)} == {""}
    assert all(row["frames"] == 3200 and row["missions"] == 20 for row in rows)
    # Without a map, an agent with the same seed has fewer tokens, and learns something else.
    assert rows[0]["label_accuracy"] != rows[2]["label_accuracy"]


def test_every_part_is_left_out_once() -> None:
    runs = map_ablations.make_options(Path("runs"))
    settings = [run.settings for run in runs]
    assert settings == [(), (), *((f"without={part}",) for part in ("events", "places", "visits", "map"))]
    assert len({run.out for run in runs}) == len(runs)
