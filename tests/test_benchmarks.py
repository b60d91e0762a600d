"""Benchmarks: a tiny run, and the computation of ratios and verdicts from rates."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ours, peers, report, startup, timing, world
from benchmarks.provenance import append_history, describe_provenance

TINY = world.Settings(levels=("GoToLocal",), rounds=2, seconds=0.02, worlds=16, envpool_worlds=(8, 16))


@pytest.mark.compiled
def test_tiny_run_has_rates_and_ratios_of_all_contestants() -> None:
    pytest.importorskip("minigrid")
    results = world.measure(TINY)
    summary = results["levels"]["GoToLocal"]
    expected = {"engine", "resets", "minigrid", "minigrid_resets"}
    expected |= {"envpool", "envpool_8", "envpool_16"} if peers.has_envpool("GoToLocal") else set()
    expected |= {"vector_views", "vector_copies", "single"} if ours.has_environments() else set()
    assert set(summary["rates"]) == expected
    assert all(rate > 0 for rate in summary["rates"].values())
    for comparison in report.COMPARISONS:
        measured = {comparison.ours, comparison.peer} <= expected
        assert (comparison.name in summary["ratios"]) == measured
        if measured:
            ratios = summary["rounds"][comparison.name]
            assert len(ratios) == TINY.rounds and min(ratios) <= summary["ratios"][comparison.name] <= max(ratios)
    assert results["bytes_per_world"]["record"] == ours.make_engine("GoToLocal", 1).worlds.itemsize


@pytest.mark.compiled
def test_level_without_peers_has_rates_only() -> None:
    assert not peers.has_minigrid("PutNext") and not peers.has_envpool("PutNext")
    summary = world.measure_level("PutNext", TINY)
    assert summary["ratios"] == {} and summary["rates"]["engine"] > 0


@pytest.mark.compiled
def test_step_counts_of_our_worlds_are_randomized() -> None:
    engine = ours.make_engine("GoToObjMaze", 64)
    assert not engine.worlds.step_count.any()
    ours.randomize_step_counts(engine)
    assert len(np.unique(engine.worlds.step_count)) > 32
    assert (engine.worlds.step_count < engine.worlds.max_steps).all()


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # Not the ratio of the medians, which would be 20 / 2.
    uneven = [{"a": 10.0, "b": 5.0}, {"a": 20.0, "b": 1.0}, {"a": 30.0, "b": 2.0}]
    assert report.median_ratio(uneven, "a", "b") == 15.0
    assert report.median_ratio(uneven, "a", "missing") is None


def test_best_setting_of_a_peer_counts() -> None:
    rounds = [{"peer_1": 1.0, "peer_2": 9.0}, {"peer_1": 5.0, "peer_2": 4.0}, {"peer_1": 6.0, "peer_2": 3.0}]
    assert [rates["peer"] for rates in report.choose_best(rounds, "peer")] == [1.0, 5.0, 6.0]
    assert report.choose_best(rounds, "other") is rounds


def test_rate_counts_work_per_cpu_second() -> None:
    calls = {"fast": 0, "slow": 0}

    def contestant(name: str, units: int) -> timing.Contestant:
        def play() -> int:
            calls[name] += 1
            sum(range(20_000))
            return units

        return timing.Contestant(play)

    # Both do the same work per call, but report it as 1 and as 50 units.
    rates = timing.measure_round({"slow": contestant("slow", 1), "fast": contestant("fast", 50)}, seconds=0.2)
    assert rates["fast"] / rates["slow"] == pytest.approx(50, rel=0.4)
    assert calls["slow"] > timing.SLICES


def test_verdicts() -> None:
    comparison = report.Comparison("x", "x", "a", "b", required=10, target=20)
    assert [comparison.judge(ratio) for ratio in (9.9, 10, 20, None)] == ["FAIL", "pass", "target", "not measured"]


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (0.99, False)])
def test_verdict_fails_if_one_level_misses_one_requirement(factor: float, passed: bool) -> None:
    good = {"rates": {"engine": 1e6}, "ratios": {c.name: c.required for c in report.COMPARISONS}}
    bad = {"rates": {"engine": 1e6}, "ratios": good["ratios"] | {"resets_minigrid": 400 * factor}}
    table, verdict = report.verdict_table({"A": good, "B": bad}, report.MAX_BYTES)
    assert verdict is passed and ("FAIL (1 of 2)" in table) is not passed
    assert not report.verdict_table({"A": good}, report.MAX_BYTES + 1)[1]
    assert not report.verdict_table({"A": {"rates": {"engine": 1e6}, "ratios": {}}}, 1)[1]
    assert ("✗" in report.level_table({"A": good, "B": bad})) is not passed


def test_history_stores_the_provenance_of_measurements(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    append_history("world", describe_provenance(), {"rounds": 1}, {"levels": {}}, history)
    append_history("startup", {"commit": "another", "dirty": False}, {}, {"starts": {}}, history)
    first, second = map(json.loads, history.read_text().splitlines())
    assert first["benchmark"] == "world" and second["benchmark"] == "startup"
    assert set(describe_provenance()) <= set(first)
    assert second["dirty"] is True
    assert {"python", "numpy", "numba", "gymnasium", "minigrid", "envpool"} == set(first["versions"])
    assert "Measured" in report.describe(first)


def test_write_between_replaces_the_text_between_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nafter\n")
    for text in ("one", "two"):
        report.write_between("speed", text, page)
    assert page.read_text() == "before\n<!-- speed: begin -->\n\ntwo\n\n<!-- speed: end -->\nafter\n"
    with pytest.raises(ValueError, match=r"page\.md .*<!-- other: begin -->"):
        report.write_between("other", "text", page)
    for marker in ("speed", "startup"):
        assert report.SPEED_PAGE.read_text().count(f"<!-- {marker}: ") == 2


def test_startup_reports_loaded_modules_and_failures() -> None:
    import sys

    environment = {"PYTHONPATH": ":".join(sys.path)}
    assert startup.run_child("import json", environment)["modules"] == []
    assert "nothing_here" in startup.run_child("import nothing_here", environment)["error"]
    result = {"wall": 0.1, "cpu": 0.1, "modules": ["torch"], "unwanted": ["torch"], "fine": False}
    assert "loads torch" in startup.startup_table({"import": result}, startup.STARTS[:1])


def test_settings_reject_unknown_levels() -> None:
    with pytest.raises(ValueError, match="did you mean 'GoToLocal'"):
        world.Settings(levels=("GoToLocl",))
