"""The commands `babyai train ...` and `babyai resume` as they are typed."""

import json
import os
import re
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
from babyai.envs import custom_levels
from babyai.training import commands, imitation, parallel
from babyai.training.fit import RunResult
from babyai.training.learner import Learner
from babyai.training.options import ImitationOptions
from babyai.training.run import read_config, read_rows
from tests.training.same import assert_same_run
from tests.training.short_runs import imitation_options
from tests.training.tiny import PATH

ALGORITHMS = tuple(commands.OPTIONS)
COMMON = {"architecture": PATH, "levels": "GoToObjS4", "device": "cpu", "validation-episodes": 4}
IMITATION = {"demos": 20, "batch-size": 2, "recurrence": 5, "epoch-length": 4, "epochs": 2, "threads": 1}
PPO = {"worlds": 2, "steps": 4, "recurrence": 4, "epochs": 1, "frames": 160, "validate-every": 10}


def to_words(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


TINY = to_words(COMMON)
MAP = {
    **COMMON,
    "architecture": "map",
    "size": "small",
    "worlds": 4,
    "batch-size": 8,
    "buffer-size": 200,
    "min-buffer": 8,
}
ONLINE_DAGGER = {"frames": 1600, "validate-every": 1, "threads": 1}
SHORT = {
    "imitation": TINY + to_words(IMITATION),
    "dagger": TINY + to_words(IMITATION),
    "online-dagger": [*to_words({**MAP, **ONLINE_DAGGER}), "--settings", "dim=16", "layers=1"],
    "ppo": TINY + to_words(PPO),
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def type_in(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["babyai", *words])
        cli.main()

    return type_in


def output_of(run: Any, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    run(*words)
    return capsys.readouterr().out


# ------------------------------------------------------------ training


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_and_what_its_summary_suggests(algorithm: str, run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of(run, capsys, "train", algorithm, *SHORT[algorithm], "--out", "ours")
    rows = read_rows("ours")
    assert len(rows) == 2 and read_config("ours")["kind"] == algorithm
    best = max(row["validation" if algorithm == "ppo" else "success"] for row in rows)
    assert f"{100 * best:.1f} % (of 2)" in output and re.search(r"run folder: +ours\n", output)
    # Its suggestions work.
    [suggestion] = re.findall(r"evaluate it: +babyai (.*)", output)
    trust = "" if algorithm == "online-dagger" else " --trust"
    assert suggestion == f"evaluate ours --levels GoToObjS4{trust}"
    assert "2,000,000,000" in output_of(run, capsys, *suggestion.split(), "--missions", "3")
    # It is finished, so there is nothing to continue; but it can be made longer.
    assert "babyai resume" not in output
    longer = {"ppo": ("--frames", "240"), "online-dagger": ("--frames", "2400")}
    more = longer.get(algorithm, ("--epochs", "3"))
    assert "(of 3)" in output_of(run, capsys, "resume", "ours", "--trust", *more)
    assert len(read_rows("ours")) == 3


def test_the_folder_is_named_after_the_run(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of(run, capsys, "train", "ppo", *SHORT["ppo"], "--seed", "4", "--validate-every", "0")
    [folder] = Path("runs").iterdir()
    assert re.fullmatch(r"ppo-GoToObjS4-Tiny-.*4", folder.name) and str(folder) in output
    assert re.search(r"best validation: +none", output)


def test_quiet_prints_nothing(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "imitation", *SHORT["imitation"], "--out", "ours", "--quiet")
    assert output_of(run, capsys, *words) == ""
    assert len(read_rows("ours")) == 2


def test_options_are_those_of_python(run: Any) -> None:
    """A run started from the command line is the same as one started from Python."""
    run("train", "imitation", *SHORT["imitation"], "--out", "typed", "--learning-rate", "1e-3", "--lr-decay", "0.5")
    common: dict[str, Any] = {name.replace("-", "_"): value for name, value in (COMMON | IMITATION).items()}
    options = ImitationOptions(**common, learning_rate=1e-3, lr_decay=0.5, out="called")
    imitation.train(options)
    assert_same_run(Path("typed"), Path("called"))
    typed = read_config("typed")["config"]
    called = read_config("called")["config"]
    assert {**typed, "out": ""} == {**called, "out": ""}


def test_settings_reach_a_policy_of_ones_own(run: Any) -> None:
    run("train", "imitation", *SHORT["imitation"], "--out", "ours", "--settings", "hidden=8", "--epochs", "1")
    assert Agent.load("ours", device="cpu", trust=True).model.hidden == 8  # pyright: ignore[reportAttributeAccessIssue]
    # Resuming needs no more than the folder.
    run("resume", "ours", "--epochs", "2", "--trust")
    assert len(read_rows("ours")) == 2
    with pytest.raises(SystemExit, match="hiden"):
        run("train", "imitation", *SHORT["imitation"], "--out", "other", "--settings", "hiden=8")
    assert not Path("other").exists()


def test_resuming_runs_no_code_without_consent(run: Any, tmp_path: Path) -> None:
    """A run folder from somewhere else may name any file."""
    run("train", "imitation", *SHORT["imitation"], "--out", "ours", "--epochs", "1")
    (tmp_path / "evil.py").write_text("open('executed', 'w')")
    config = json.loads(Path("ours/config.json").read_text())
    config["config"]["architecture"] = f"{tmp_path}/evil.py:Policy"
    Path("ours/config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit, match=r"ours.*evil\.py:Policy.*--trust"):
        run("resume", "ours", "--epochs", "2")
    assert not Path("executed").exists()


@pytest.mark.usefixtures("forget_levels")
def test_a_run_with_a_level_of_ones_own(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "import babyai\nSmall = babyai.Level('Small', 'go_to_object', room_size=5, rows=1, columns=1)\n"
    (tmp_path / "own_level.py").write_text(source + "with open('executed', 'a') as file:\n    file.write('once')")
    levels = f"GoToObjS4,{tmp_path / 'own_level.py'}:Small"
    words = to_words({**COMMON, **IMITATION, "architecture": "original", "memory-dim": 8, "levels": levels})
    output = output_of(run, capsys, "train", "imitation", *words, "--out", "ours")
    assert f"evaluate ours --levels {levels}\n" in output
    assert Path("executed").read_text() == "once"
    # The folder may be somebody else's: no code without consent.
    custom_levels._run.cache_clear()
    with pytest.raises(SystemExit, match=r"level.*own_level\.py:Small.*--trust"):
        run("resume", "ours", "--epochs", "3")
    assert Path("executed").read_text() == "once"
    run("resume", "ours", "--epochs", "3", "--trust")
    assert Path("executed").read_text() == "onceonce" and len(read_rows("ours")) == 3


def test_several_settings_are_separated_by_spaces(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(commands, "train", lambda *arguments: given.append(arguments))
    run("train", "ppo", "--architecture", PATH, "--settings", "hidden=8", "kind=gru", "--seeds", "3")
    [(algorithm, options, seeds)] = given
    assert (algorithm, seeds) == ("ppo", 3) and options.policy_settings() == {"hidden": 8, "kind": "gru"}


# ------------------------------------------------------------ several seeds


def test_several_seeds_train_in_parallel(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []

    def pretend(algorithm: str, runs: Any, resume: Any, quiet: bool) -> list[RunResult]:
        started.append((algorithm, [(each.seed, each.out) for each in runs], list(resume)))
        return [RunResult(each.out, 0.5, 2, False) for each in runs]

    monkeypatch.setattr(parallel, "train_parallel", pretend)
    words = ("train", "imitation", *SHORT["imitation"], "--seed", "5", "--seeds", "2", "--out", "many")
    output = output_of(run, capsys, *words)
    assert started == [("imitation", [(5, "many-5"), (6, "many-6")], [False, False])]
    assert re.findall(r"run folder: +(\S+)", output) == ["many-5", "many-6"]
    for seed in (5, 6):
        run("train", "imitation", *SHORT["imitation"], "--seed", str(seed), "--out", f"many-{seed}")
    run("resume", "many-5", "many-6", "--epochs", "3", "--trust")
    assert started[1] == ("imitation", [(5, "many-5"), (6, "many-6")], [True, True])


def test_errors_and_interruptions_of_parallel_runs_are_reported(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(_: str, runs: Any, __: Any, ___: bool) -> list[RunResult]:
        return [RunResult(runs[0].out, 0.5, 2, True), RunResult(runs[1].out, -1.0, 0, True, error)]

    monkeypatch.setattr(parallel, "train_parallel", pretend)
    words = ("train", "imitation", *SHORT["imitation"], "--seeds", "2", "--out", "many")
    error: str | None = "out of memory"
    with pytest.raises(SystemExit, match="babyai: many-1: out of memory"):
        run(*words)
    error = None
    with pytest.raises(SystemExit, match="babyai: stopped before the end"):
        run(*words)


# ------------------------------------------------------------ resuming


def test_resuming_needs_the_folder_only(run: Any) -> None:
    words = ("train", "imitation", *SHORT["imitation"])
    run(*words, "--out", "whole")
    run(*words, "--out", "parts", "--max-minutes", "0")
    assert read_rows("parts") == []
    run("resume", "parts", "--trust")
    assert_same_run(Path("whole"), Path("parts"))
    # The time limit was for one session only.
    assert read_config("parts")["resumed"][0]["changed"] == {"max_minutes": [0.0, None]}


def test_a_moved_folder_can_be_resumed(run: Any) -> None:
    run("train", "imitation", *SHORT["imitation"], "--out", "before")
    Path("before").rename("after")
    run("resume", "after", "--epochs", "3", "--trust")
    assert len(read_rows("after")) == 3 and not Path("before").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "folder"),
        (["nowhere"], r"nowhere.*config\.json"),
        (["ours", "--frames", "100"], "ours.*'imitation'.*'frames'"),
        (["ours", "theirs"], "imitation, ppo"),
        (["ours", "--epochs", "0"], "epochs.*0"),
    ],
    ids=["no folder", "no run", "option of another algorithm", "two algorithms", "mistake"],
)
def test_mistakes_in_resuming_are_reported(words: list[str], message: str, run: Any) -> None:
    write_config("ours", "imitation", {"demos": 1})
    write_config("theirs", "ppo", {})
    with pytest.raises(SystemExit, match=f"^babyai: .*{message}"):
        run("resume", *words, "--trust")


def write_config(folder: str, algorithm: str, config: dict[str, Any]) -> None:
    """A folder that looks like a run."""
    Path(folder).mkdir()
    written = {"kind": algorithm, "config": config, "origin": {}, "resumed": []}
    Path(folder, "config.json").write_text(json.dumps(written))


@pytest.mark.parametrize(("name", "value"), [("levels", 3), ("settings", 3), ("settings", None), ("epochs", "many")])
def test_a_damaged_configuration_is_reported(name: str, value: Any, run: Any) -> None:
    write_config("ours", "imitation", {"demos": 1, name: value})
    with pytest.raises(SystemExit, match=r"^babyai: .*config\.json in ours"):
        run("resume", "ours", "--trust")


def test_options_that_have_been_removed_since_are_ignored(tmp_path: Path) -> None:
    write_config(str(tmp_path / "ours"), "imitation", {"demos": 1, "seed": 3, "variant": "states"})
    algorithm, options = commands.read_options(str(tmp_path / "ours"), {"epochs": 7})
    assert algorithm == "imitation" and isinstance(options, ImitationOptions)
    assert (options.seed, options.epochs, options.out) == (3, 7, str(tmp_path / "ours"))


# ------------------------------------------------------------ interruptions


def test_an_interrupted_run_can_be_resumed(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Learner.metrics

    def interrupt(self: Learner) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        return metrics(self)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "metrics", interrupt)
        with pytest.raises(SystemExit, match="babyai: stopped before the end"):
            run("train", "imitation", *SHORT["imitation"], "--out", "ours")
    assert "babyai resume ours" in capsys.readouterr().out
    assert len(read_rows("ours")) == 1
    run("resume", "ours", "--trust")
    assert len(read_rows("ours")) == 2


def test_a_second_interrupt_stops_at_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "gradient_step", interrupt)
    with pytest.raises(SystemExit, match=r"stopped at once.*babyai resume"):
        run("train", "imitation", *SHORT["imitation"], "--out", "ours")


# ------------------------------------------------------------ summary


def test_a_summary_suggests_the_rules_and_whether_to_trust(tmp_path: Path) -> None:
    result = RunResult("there", 0.934, 7, False, finished=False)
    own = commands.summarize(imitation_options(tmp_path, rules="minigrid"), result)
    assert "93.4 % (of 7)" in own and "babyai evaluate there --levels GoToObjS4 --rules minigrid --trust" in own
    assert "babyai resume there --trust" in own
    result = RunResult("there", 0.934, 7, False)
    paper = commands.summarize(imitation_options(tmp_path, architecture="original"), result)
    assert "babyai resume" not in paper
    assert "--trust" not in paper and "--rules" not in paper


# ------------------------------------------------------------ help


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_help_explains_every_option(
    algorithm: str, run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as stopped:
        run("train", algorithm, "--help")
    assert stopped.value.code == 0
    lines = [line.strip(" │|") for line in capsys.readouterr().out.splitlines()]
    summary = (getattr(commands, algorithm.replace("-", "_")).__doc__ or "").splitlines()[0]
    assert summary in lines
    for name in ["seeds", *(field.name for field in fields(commands.OPTIONS[algorithm]))]:
        # The option, perhaps its values, and then a sentence.
        option = re.search(
            rf"^--{name.replace('_', '-')}\b(.*?)(?=^-)", "\n".join([*lines, "-"]), re.DOTALL | re.MULTILINE
        )
        assert option is not None and re.search(r"[a-z]{3}.*\.", option[1], re.DOTALL), name


def test_help_of_resume_explains_every_option(
    run: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as stopped:
        run("resume", "--help")
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    for name in ("FOLDERS", "--device", "--max-minutes", "--epochs", "--frames", "--tensorboard", "--quiet"):
        assert name in output or name.lower() in output


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["train", "ppo", "--help"], ["resume", "--help"]])
def test_help_needs_neither_torch_nor_the_compiler(words: list[str]) -> None:
    script = (
        f"import sys; sys.argv = ['babyai', *{words!r}]\n"
        "from babyai import cli\n"
        "try:\n    cli.main()\n"
        "finally:\n    print({'torch', 'numba', 'gymnasium', 'numpy'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("set()\n")
    assert all(name in done.stdout for name in (ALGORITHMS if words == ["train", "--help"] else ["--help"]))


# ------------------------------------------------------------ mistakes


WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Missing())
sys.argv[0] = "babyai"
from babyai import cli
cli.main()
"""


@pytest.mark.parametrize("seeds", ["1", "2"])
def test_without_torch_it_says_what_to_install(seeds: str) -> None:
    words = ["train", "ppo", "--levels", "GoToObj", "--seeds", seeds]
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("babyai: ")
    assert "pip install 'babyai[agents]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ppo", "--levels", "GoToLocl"], "'GoToLocl'.*'GoToLocal'"),
        (["ppo", "--architecture", "bow"], "'bow'"),
        (["imitation"], "--demos.*--file.*--endless"),
        (["imitation", "--file", "nothing.parquet"], r"nothing\.parquet"),
        (["ppo", *TINY, "--init-from", "nowhere"], "nowhere"),
        (["ppo", *TINY, "--seeds", "0"], "seeds.*0"),
        (["ppo", *TINY, "--settings", "hidden"], "'hidden'"),
        (["ppo", "--steps", "30"], "30.*20"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and PATH not in value else None,
)
def test_mistakes_are_reported_in_a_sentence(words: list[str], message: str, run: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"^babyai: .*{message}"):
        run("train", *words)
    leftovers = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert leftovers == []


@pytest.mark.parametrize("words", [["ppo", "--out"], ["ppo", "--size", "huge"], ["sarsa"], ["ppo", "--seed", "x"], []])
def test_words_that_cannot_be_parsed_are_explained_by_the_parser(words: list[str], run: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("train", *words)
    assert stopped.value.code == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_reported(run: Any) -> None:
    with pytest.raises(SystemExit, match=r"^babyai: .*'cuda'.*'cpu'"):
        run("train", "ppo", "--device", "cuda")
