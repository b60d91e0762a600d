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
    monkeypatch.setattr(map_ablations, "RECURRENT_RUNS", [("small", 3e-4)])
    for frames in (1600, 3200):
        map_ablations.train(map_ablations.make_options(tmp_path, frames=frames, **TINY))
    short = {"batch_size": 8, "epoch_length": 16, "epochs": 1, "threads": 1, "device": "cpu", "quiet": True}
    map_ablations.train(map_ablations.make_recurrent_options(tmp_path, levels=TINY["levels"], **short), "dagger")
    rows = list(map_ablations.evaluate(tmp_path, 20))
    assert [(row["run"], row["architecture"], row["settings"], row["level"]) for row in rows] == [
        *(("all-1", "map", [], "GoToObj"), ("all-1", "map", [], "GoToLocal")),
        *(("bow_endpool_res-small-0.0003", "bow_endpool_res", [], level) for level in ("GoToObj", "GoToLocal")),
        *(("map-1", "map", ["without=map"], level) for level in ("GoToObj", "GoToLocal")),
    ]
    assert all(row["missions"] == 20 for row in rows)
    assert [row["frames"] == 3200 for row in rows] == [row["architecture"] == "map" for row in rows]
    # Without a map, an agent with the same seed has fewer tokens, and learns something else.
    assert rows[0]["label_accuracy"] != rows[4]["label_accuracy"]


def test_frames_are_those_of_the_evaluated_weights() -> None:
    rows = [{"frames": number, "success": success} for number, success in enumerate((0.1, 0.3, 0.3, 0.2))]
    assert map_ablations.find_row_of_agent(rows)["frames"] == 1
    assert map_ablations.find_row_of_agent([{"frames": 1}, {"frames": 2}])["frames"] == 2


def test_every_part_is_left_out_once() -> None:
    runs = map_ablations.make_options(Path("runs"))
    settings = [run.settings for run in runs]
    assert settings == [(), (), *((f"without={part}",) for part in ("events", "places", "visits", "map"))]
    assert len({run.out for run in runs}) == len(runs)
