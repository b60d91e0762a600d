"""The declared cells: all tables are complete, and every cell can be run."""

from dataclasses import replace
from pathlib import Path

import pytest

from babyai.demos.store import DemoFile
from babyai.evaluation import paper
from babyai.levels.catalog import PAPER_LEVELS
from babyai.studies.cells import CELLS, STUDIES, Cell, Run, find_cells, find_studies, list_runs
from babyai.studies.measure import collect_demos, command_of, make_curve


def test_tables_have_all_cells_of_the_paper() -> None:
    counts = {name: len(study.cells) for name, study in STUDIES.items() if study.table}
    assert counts == {
        **{"speed": 6 * 5, "demo-lengths": 19, "imitation": 27 * 3, "baseline": 19},
        **dict.fromkeys(("ppo-architectures", "ppo-representations", "ppo-low-lr"), 6 * 3),
    }
    assert [cell.level for cell in STUDIES["baseline"].cells] == list(PAPER_LEVELS)
    not_trainable = [cell for study in STUDIES.values() if study.table for cell in study.cells if cell.paper is None]
    assert {(cell.level, cell.architecture) for cell in not_trainable} == {
        ("PutNextLocal", "pixels_endpool_res"),
        ("GoTo", "pixels_endpool_res"),
    }


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_cell_has_valid_options_and_a_name_of_its_own(study) -> None:
    assert len({cell.name for cell in study.cells}) == len(study.cells)
    for cell in (*study.cells, *study.shortened().cells):
        if cell.kind != "demo-lengths":
            options = cell.options(cell.seeds[0])
            assert (options.level_names, options.architecture, options.size) == (
                *([cell.level], cell.architecture, cell.size),
            )
        assert cell.quick == cell.name.endswith("/quick")


def test_cells_with_the_same_name_are_the_same_runs() -> None:
    for study in STUDIES.values():
        for cell in study.cells:
            assert replace(cell, seeds=()) == replace(CELLS[cell.name], seeds=())
    shared = {cell.name for cell in STUDIES["ppo-architectures"].cells} & {
        cell.name for cell in STUDIES["ppo-representations"].cells
    }
    assert len(shared) == 6


def test_demonstrations_are_those_of_the_cells_seeds(tmp_path: Path) -> None:
    cell = CELLS["imitation/GoToRedBall/10k/original/demos-2"]
    assert vars(cell.options(0))["first_seed"] == cell.first_seed == 20_000
    collect_demos(replace(cell, demos=5), tmp_path / "demos.parquet", float("inf"), lambda done, frames: None)
    with DemoFile(tmp_path / "demos.parquet") as file:
        assert file.read(slice(0, 5)).seeds.tolist() == [20_000 + k for k in range(5)]


def test_settings_are_those_of_the_paper() -> None:
    low = CELLS["ppo/GoToLocal/bow_endpool_res/lr5e-05"].options(1)
    assert low.learning_rate == 5e-5  # pyright: ignore[reportAttributeAccessIssue]
    big = CELLS["imitation/GoTo/10k/original/big"].options(0)
    assert (big.size, big.resolve().recurrence) == ("big", 80)  # pyright: ignore[reportAttributeAccessIssue]


def test_cells_are_chosen_by_level_architecture_and_demos() -> None:
    cells = find_cells("imitation", ["GoToLocal", "GoToRedBall"], ["original"], [5000, 10_000])
    assert [cell.name for cell in cells] == [
        f"imitation/{level}/{demos}/original" for level in ("GoToRedBall", "GoToLocal") for demos in ("5k", "10k")
    ]
    assert len(find_cells("ppo")) == 6 * 5
    (quick,) = find_cells("demo-lengths", ["GoToObj"], quick=True)
    assert (quick.name, quick.demos) == ("demo-lengths/GoToObj/2k/quick", 2000)


def test_quick_forms_are_labeled() -> None:
    assert all("quick" in study.title for study in find_studies("all", quick=True))


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("imitaton",), "imitation"),
        (("imitation", ["GoToLocl"]), "GoToLocal"),
        (("imitation", ["BossLevel"]), "BossLevel"),
        (("imitation", [], ["bow"]), "bow_endpool_res"),
        (("imitation", [], [], [7]), "5000"),
        (("imitation", ["GoTo"], [], [5000]), "all of these"),
    ],
)
def test_unknown_tables_levels_and_numbers_are_refused(arguments, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        find_cells(*arguments)


def test_shards_are_a_partition() -> None:
    cells = find_cells("imitation", ["GoToLocal"])
    parts = [list_runs(cells, seeds=3, shard=f"{number}/4") for number in (1, 2, 3, 4)]
    runs = list_runs(cells, seeds=3)
    assert sorted((run for part in parts for run in part), key=runs.index) == runs
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4"])
def test_impossible_shards_are_refused(shard: str) -> None:
    with pytest.raises(ValueError, match="1/4"):
        list_runs(find_cells("speed"), shard=shard)


def test_command_of_a_run_trains_the_same() -> None:
    settings = {"endless": True, "cuda_graphs": False, "settings": ("word_dim=64", "direction=true")}
    cell = Cell("dagger", "GoTo", "bow_endpool_res", settings=tuple(settings.items()))
    assert command_of(Run(cell, 3)) == (
        "babyai train dagger --levels GoTo --settings word_dim=64 direction=true --seed 3 --no-cuda-graphs --endless"
    )


def test_curve_has_a_column_for_each_number() -> None:
    rows = [{"frames": 1, "loss": 0.123456789, "levels": {}}, {"frames": 2, "loss": 1.0, "validation": 0.5}]
    assert make_curve(rows) == {"frames": [1, 2], "loss": [0.1234568, 1.0], "validation": [None, 0.5]}


def test_paper_figures_are_read_as_printed() -> None:
    figure = paper.IMITATION["PickupLoc 100"]["original_endpool_res"]
    assert figure == paper.Figure(98.5, 0.4, "better", bold=True)
    assert paper.PPO_LOW_LEARNING_RATE["PutNextLocal"]["bow_endpool_res"] == paper.Figure(876, 104)
