"""The commands `babyai train ...` as people type them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from babyai import cli
from babyai.agents.agent import Agent
from babyai.training import commands
from babyai.training.dagger import DaggerOptions
from babyai.training.imitation import ImitationOptions
from babyai.training.imitation import train as train_imitation
from babyai.training.learner import ImitationLearner
from babyai.training.panel import Panel
from babyai.training.ppo import PPOOptions
from babyai.training.run import read_config, read_rows
from babyai.training.session import Session
from babyai.training.side_by_side import train_side_by_side
from babyai.training.turns import Turns
from tests.training.same import assert_equal_tensors, assert_same_run
from tests.training.tiny import PATH

OPTIONS = {"imitation": ImitationOptions, "dagger": DaggerOptions, "ppo": PPOOptions}
TINY = ("--architecture", PATH, "--levels", "GoToObjS4", "--device", "cpu", "--validation-missions", "4")
IMITATION = {"demos": 20, "batch": 2, "recurrence": 5, "epoch-demos": 4, "epochs": 2, "threads": 1}
PPO = {"worlds": 2, "steps": 4, "recurrence": 4, "frames": 160, "validate-every": 10}
SHORT = {
    kind: [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    for kind, settings in {"imitation": IMITATION, "dagger": IMITATION, "ppo": PPO}.items()
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def type_in(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["babyai", *words])
        cli.main()

    return type_in


def shown_by(run: Any, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run(*words)
    return capsys.readouterr().out


# ------------------------------------------------------------ what they do


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_run_and_what_to_do_with_it(kind: str, run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown = shown_by(run, capsys, "train", kind, *TINY, *SHORT[kind], "--out", "ours")
    rows = read_rows("ours")
    assert len(rows) == 2 and read_config("ours")["kind"] == kind
    best = max(row["validation" if kind == "ppo" else "success"] for row in rows)
    assert f"best validation:  {100 * best:.1f} % (of 2)" in shown and "the run:          ours\n" in shown
    # What it tells to type next works.
    [test] = re.findall(r"test its best: +babyai (.*)", shown)
    assert test == "evaluate ours --levels GoToObjS4 --trust"
    assert "seeds from 2,000,000,000 on" in shown_by(run, capsys, *test.split(), "--missions", "3")
    [on] = re.findall(r"go on with it: +babyai (.*)", shown)
    more = ("--frames", "240") if kind == "ppo" else ("--epochs", "3")
    assert "(of 3)" in shown_by(run, capsys, *on.split(), *more)
    assert len(read_rows("ours")) == 3


def test_the_folder_names_the_run(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown = shown_by(run, capsys, "train", "ppo", *TINY, *SHORT["ppo"], "--seed", "4", "--validate-every", "0")
    [folder] = Path("runs").iterdir()
    assert re.fullmatch(r"ppo-GoToObjS4-Tiny-.*4", folder.name) and f"the run:          {folder}\n" in shown
    assert "best validation:  none was made" in shown


def test_quiet_runs_show_nothing(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_by(run, capsys, "train", "imitation", *TINY, *SHORT["imitation"], "--out", "ours", "--quiet") == ""
    assert len(read_rows("ours")) == 2


def test_several_seeds_side_by_side_give_what_each_gives_alone(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "imitation", *TINY, *SHORT["imitation"], "--seed", "5")
    shown = shown_by(run, capsys, *words, "--seeds", "3", "--out", "many")
    assert [line for line in shown.splitlines() if line.startswith("the run:")] == [
        f"the run:          many-{seed}" for seed in (5, 6, 7)
    ]
    run("train", "imitation", *TINY, *SHORT["imitation"], "--seed", "6", "--out", "alone")
    assert_same_run(Path("many-6"), Path("alone"))
    capsys.readouterr()
    run("train", "imitation", "--out", "many", "--seeds", "3", "--seed", "5", "--resume", "--epochs", "3")
    assert [len(read_rows(f"many-{seed}")) for seed in (5, 6, 7)] == [3, 3, 3]
    # A run that was killed before it began is begun.
    shutil.rmtree("many-7")
    run("train", "imitation", "--out", "many", "--seeds", "3", "--seed", "5", "--resume", "--epochs", "4")
    assert [len(read_rows(f"many-{seed}")) for seed in (5, 6, 7)] == [4, 4, 4]
    assert [read_config(f"many-{seed}")["config"]["seed"] for seed in (5, 6, 7)] == [5, 6, 7]


def test_side_by_side_each_begins_with_the_weights_of_its_seed(tmp_path: Path) -> None:
    options = [
        ImitationOptions(demos=1, memory_dim=16, device="cpu", seed=seed, out=str(tmp_path / str(seed)))
        for seed in range(3)
    ]

    def begin(options: ImitationOptions, *, panel: tuple[Panel, int], stop: Any) -> Turns[Session]:
        with Session(options, "imitation", panel) as session:
            yield
            return session

    for seed, session in enumerate(train_side_by_side(begin, options, quiet=True)):
        alone = Agent.create("bow_endpool_res", seed=seed, memory_dim=16).model.state_dict()
        assert_equal_tensors(dict(session.model.state_dict()), dict(alone))


# ------------------------------------------------------------ going on


def test_resuming_needs_the_folder_only(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "imitation", *TINY, *SHORT["imitation"])
    run(*words, "--out", "whole")
    run(*words, "--out", "parts", "--max-minutes", "0")
    assert read_rows("parts") == []
    run("train", "imitation", "--resume", "--out", "parts", "--max-minutes", "5")
    assert_same_run(Path("whole"), Path("parts"))
    changed = read_config("parts")["resumed"][0]["changed"]
    assert changed.keys() == {"max_minutes", "resume"}


def test_what_is_said_again_is_checked(run: Any) -> None:
    run("train", "imitation", *TINY, *SHORT["imitation"], "--out", "ours")
    with pytest.raises(SystemExit, match=r"babyai: ours holds a run with other settings \(seed was 0, is 3\)"):
        run("train", "imitation", "--resume", "--out", "ours", "--seed", "3")
    with pytest.raises(SystemExit, match="a run of kind 'imitation'; go on with it by `babyai train imitation`"):
        run("train", "ppo", "--resume", "--out", "ours")
    with pytest.raises(SystemExit, match="babyai: ours already holds a run"):
        run("train", "imitation", *TINY, *SHORT["imitation"], "--out", "ours")
    with pytest.raises(SystemExit, match="babyai: nowhere holds no run"):
        run("train", "ppo", "--resume", "--out", "nowhere")
    about = json.loads(Path("ours/config.json").read_text())
    about["config"]["levels"] = 3
    Path("ours/config.json").write_text(json.dumps(about))
    with pytest.raises(SystemExit, match=r"babyai: config\.json in ours is damaged"):
        run("train", "imitation", "--resume", "--out", "ours")


def test_an_interrupt_ends_with_a_run_to_go_on_with(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measures = ImitationLearner.measures

    def interrupt(self: ImitationLearner) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        return measures(self)

    monkeypatch.setattr(ImitationLearner, "measures", interrupt)
    with pytest.raises(SystemExit, match="babyai: stopped before the end"):
        run("train", "imitation", *TINY, *SHORT["imitation"], "--out", "ours")
    assert "go on with it:    babyai train imitation --out ours --resume" in capsys.readouterr().out
    assert len(read_rows("ours")) == 1


def test_a_second_interrupt_stops_at_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("babyai.training.imitation.learning", interrupt)
    with pytest.raises(SystemExit, match="stopped at once; the same command with --resume goes on"):
        run("train", "imitation", *TINY, *SHORT["imitation"], "--out", "ours")


# ------------------------------------------------------------ help


@pytest.mark.parametrize("kind", OPTIONS)
def test_help_tells_every_option(
    kind: str, run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as stopped:
        run("train", kind, "--help")
    assert stopped.value.code == 0
    lines = [line.strip(" │|") for line in capsys.readouterr().out.splitlines()]
    assert commands.KINDS[kind][0] in lines
    for name in ["seeds", *(field.name for field in fields(OPTIONS[kind]))]:
        # The option, perhaps its values, and then a sentence.
        option = re.search(
            rf"^--{name.replace('_', '-')}\b(.*?)(?=^-)", "\n".join([*lines, "-"]), re.DOTALL | re.MULTILINE
        )
        assert option is not None and re.search(r"[a-z]{3}.*\.", option[1]), name


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_help_comes_without_torch_and_compiler(words: list[str]) -> None:
    script = (
        f"import sys; sys.argv = ['babyai', *{words!r}]\n"
        "from babyai import cli\n"
        "try:\n    cli.main()\n"
        "finally:\n    print({'torch', 'numba', 'gymnasium', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("set()\n") and "train" in done.stdout
    if words[0] == "train":
        assert all(kind in done.stdout and purpose[:30] in done.stdout for kind, (purpose, _) in commands.KINDS.items())


def test_without_torch_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "sys.argv = ['babyai', 'train', 'ppo', '--levels', 'GoToObj']\n"
        "from babyai import cli\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "babyai: training needs torch: pip install 'babyai[agents]'\n"


# ------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ppo", "--levels", "GoToLocl"], "did you mean 'GoToLocal'"),
        (["ppo", "--architecture", "bow"], "unknown architecture 'bow'"),
        (["imitation"], "say what to learn from: --demos N, --file FILE, or --endless"),
        (["imitation", "--file", "nothing.parquet"], r"nothing\.parquet"),
        (["ppo", *TINY, "--init-from", "nowhere"], "no checkpoint at nowhere"),
        (["ppo", *TINY, "--seeds", "0"], "at least one seed, not 0"),
        (["ppo", "--resume"], "holds no run"),
    ],
)
def test_mistakes_are_told_in_a_sentence(words: list[str], message: str, run: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"^babyai: .*{message}"):
        run("train", *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["ppo", "--out"], ["ppo", "--size", "huge"], ["sarsa"], ["ppo", "--seed", "x"], []])
def test_what_cannot_be_read_is_explained_by_the_parser(words: list[str], run: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("train", *words)
    assert stopped.value.code == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused(run: Any) -> None:
    with pytest.raises(SystemExit, match="babyai: there is no GPU"):
        run("train", "ppo", "--device", "cuda")


def test_options_are_those_of_python(run: Any) -> None:
    """What is typed is what `train` is given: the same run comes of both."""
    run("train", "imitation", *TINY, *SHORT["imitation"], "--out", "typed", "--learning-rate", "1e-3", "--last-action")
    options = ImitationOptions(
        architecture=PATH,
        **{"levels": "GoToObjS4", "device": "cpu", "validation_missions": 4, "demos": 20, "batch": 2, "recurrence": 5},
        **{"epoch_demos": 4, "epochs": 2, "threads": 1, "learning_rate": 1e-3, "last_action": True, "out": "called"},
    )
    train_imitation(options)
    assert_same_run(Path("typed"), Path("called"))
    typed, called = (read_config(folder)["config"] for folder in ("typed", "called"))
    assert {**typed, "out": ""} == {**called, "out": ""}
