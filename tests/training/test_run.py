"""Run folders: nothing is lost by kills, damage or full disks, and rows are those of an undisturbed run."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from babyai.agents import folders
from babyai.agents.tensors import read_tensors, save_tensors
from babyai.training.checkpoints import RunError
from babyai.training.interrupts import asking_to_stop
from babyai.training.origin import command_line, describe_origin, source_commit
from babyai.training.run import Run, read_config, read_rows

ROOT = Path(__file__).parents[2]
posix_only = pytest.mark.skipif(os.name != "posix", reason="locks, limits and kills are the operating system's")


def write_number(folder: Path, number: int) -> None:
    save_tensors(folder, {"number": torch.tensor(number)})


def read_number(folder: Path) -> int:
    return int(read_tensors(folder)["number"])


def save(run: Run, number: int, best: bool = False) -> Path:
    """A row and a checkpoint that tell their number."""
    run.log({"epoch": number, "loss": 1 / number})
    tensors = {"weight": torch.full((5,), float(number))}
    return run.save(number, lambda folder: write_number(folder, number), tensors, {"epoch": number}, best)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with checkpoints 1 and 2, a row after them, and the first as the best."""
    with Run.create(tmp_path / "run", {"lr": 0.1, "epochs": 3}, "imitation") as run:
        save(run, 1, best=True)
        save(run, 2)
        run.log({"epoch": 3})
    return run.folder


def test_a_run_tells_what_was_asked_for(tmp_path: Path) -> None:
    config = {"lr": 1e-4, "levels": ("GoToLocal", "Open"), "agent": {"memory_dim": np.int64(128)}}
    with Run.create(tmp_path / "deep" / "run", config, "ppo") as run:
        assert run.config == {"lr": 1e-4, "levels": ["GoToLocal", "Open"], "agent": {"memory_dim": 128}}
        assert run.latest() is None and run.rows() == []
    about = read_config(tmp_path / "deep" / "run")
    assert about["kind"] == "ppo" and about["config"] == run.config and about["resumed"] == []
    assert about["origin"].keys() == describe_origin().keys()


def test_a_second_run_does_not_replace_the_first(folder: Path) -> None:
    with pytest.raises(RunError, match=r"already holds a run; go on with it \(--resume\), or choose another folder"):
        Run.create(folder, {}, "ppo")
    assert read_config(folder)["kind"] == "imitation"


def test_only_the_allowed_settings_may_change(folder: Path) -> None:
    with pytest.raises(RunError, match=r"other settings \(epochs was 3, is 9, lr was 0.1, is 0.2\)"):
        Run.resume(folder, {"lr": 0.2, "epochs": 9})
    with pytest.raises(RunError, match=r"\(lr was 0.1, is 0.2\)"):
        Run.resume(folder, {"lr": 0.2, "epochs": 9}, may_differ=["epochs"])
    with pytest.raises(RunError, match=r"\(agent.size was None, is 'big'\)"):
        Run.resume(folder, {"lr": 0.1, "epochs": 3, "agent": {"size": "big"}}, may_differ=["age"])
    with pytest.raises(RunError, match="a run of kind 'imitation', not 'ppo'"):
        Run.resume(folder, kind="ppo")
    assert read_config(folder)["resumed"] == [] and len(read_rows(folder)) == 3
    Run.resume(
        folder, {"lr": 0.1, "epochs": 9, "log": {"every": 2}}, kind="imitation", may_differ=["epochs", "log"]
    ).close()
    about = read_config(folder)
    assert about["config"]["epochs"] == 9
    assert about["resumed"][0]["changed"] == {"epochs": [3, 9], "log.every": [None, 2]}
    assert about["resumed"][0]["checkpoint"] == "000000002"


def test_folders_without_a_run_are_told_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run: there is no config.json"):
        Run.resume(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    for text, complaint in (("{", "is damaged"), ("[]", "does not describe a run")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(RunError, match=complaint):
            Run.resume(tmp_path)
    with pytest.raises(RunError, match="at least one checkpoint must be kept"):
        Run.create(tmp_path / "new", {}, "ppo", keep=0)


def test_rows_are_json_that_everybody_reads(tmp_path: Path) -> None:
    with Run.create(tmp_path, {}, "ppo") as run:
        run.log(
            {"loss": float("nan"), "success": {"Open": np.float32(0.5)}, "frames": torch.tensor(7), "worst": [-np.inf]}
        )
        run.log({"name": "é"})
        with pytest.raises(TypeError, match="JSON cannot hold"):
            run.log({"what": object()})
        rows = [{"loss": None, "success": {"Open": 0.5}, "frames": 7, "worst": [None]}, {"name": "é"}]
        assert run.rows() == rows
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write('{"half a li')
        assert read_rows(tmp_path) == rows


def test_checkpoints_come_back_and_old_ones_go(tmp_path: Path) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    tensors = {
        "turned": shared.T,
        "same": shared,
        "wide": shared[0].expand(4, 3),
        "bytes": torch.tensor([1], dtype=torch.uint8),
    }
    with Run.create(tmp_path, {}, "ppo", keep=2) as run:
        for number in (5, 10, 999_999_999, 2_000_000_000):
            run.save(number, lambda folder: write_number(folder, 1), tensors, {"seen": np.int64(3), "best": -np.inf})
        found = run.latest()
    assert found is not None
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["2000000000", "999999999"]
    place, loaded, state = found
    assert place.name == "2000000000" and state == {"seen": 3, "best": -np.inf}
    assert all(
        torch.equal(loaded[name], tensors[name]) and loaded[name].dtype == tensors[name].dtype for name in tensors
    )
    assert sorted(path.name for path in place.iterdir()) == [
        "digests.json",
        "model.safetensors",
        "training.json",
        "training.safetensors",
    ]


def test_best_holds_the_model_only_and_outlives_the_others(folder: Path) -> None:
    best = folder / "checkpoints" / "best"
    with Run.resume(folder, keep=1) as run:
        assert [path.name for path in best.iterdir()] == ["model.safetensors"] and read_number(best) == 1
        save(run, 3, best=True)
        save(run, 4)
    assert read_number(best) == 3
    assert sorted(path.name for path in best.parent.iterdir()) == ["000000004", "best"]


def test_an_equal_number_replaces(folder: Path) -> None:
    with Run.resume(folder) as run:
        save(run, 2)
        found = run.latest()
    assert found is not None and read_number(found[0]) == 2 and len(run.rows()) == 3
    assert sorted(path.name for path in found[0].parent.iterdir()) == ["000000001", "000000002", "best"]


def test_resuming_drops_rows_after_the_checkpoint(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Run.resume(folder) as run:
        assert [row["epoch"] for row in run.rows()] == [1, 2]
        run.log({"epoch": 3})
    assert [row["epoch"] for row in read_rows(folder)] == [1, 2, 3] and not caplog.records
    os.truncate(folder / "metrics.jsonl", (folder / "metrics.jsonl").read_bytes().index(b"\n") + 5)
    with Run.resume(folder) as run:
        assert [row["epoch"] for row in run.rows()] == [1]
    assert "has lost" in caplog.text


def test_killed_before_its_first_checkpoint_it_begins_anew(tmp_path: Path) -> None:
    with Run.create(tmp_path, {}, "ppo") as run:
        run.log({"epoch": 1})
    with Run.resume(tmp_path) as run:
        assert run.latest() is None and run.rows() == []


# ---------------------------------------------------------------- damage


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, halve, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "training.json", "digests.json"])
def test_a_damaged_checkpoint_is_passed_over(
    folder: Path, damage: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(folder / "checkpoints" / "000000002" / name)
    with caplog.at_level(logging.WARNING), Run.resume(folder, keep=2) as run:
        found = run.latest()
        assert found is not None and found[0].name == "000000001" and found[2] == {"epoch": 1}
        assert torch.equal(found[1]["weight"], torch.ones(5)) and [row["epoch"] for row in run.rows()] == [1]
        assert "000000002 is damaged" in caplog.text
        save(run, 2)
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert names == ["000000001", "000000002", "000000002.damaged", "best"]
    with Run.resume(folder) as run:
        assert [row["epoch"] for row in run.rows()] == [1, 2]


def test_without_a_whole_checkpoint_nothing_is_touched(folder: Path) -> None:
    for number in (1, 2):
        flip(folder / "checkpoints" / f"00000000{number}" / "training.json")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # Twice: refusing once must not make the folder look like one without checkpoints.
    for _ in range(2):
        with pytest.raises(RunError, match=r"no checkpoint in .* is whole \(000000002, 000000001\)"):
            Run.resume(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# ---------------------------------------------------------------- other processes and signals


@posix_only
def test_two_do_not_write_to_one_run(folder: Path, tmp_path: Path) -> None:
    with Run.resume(folder), pytest.raises(RunError, match="another process is training in"):
        Run.resume(folder)
    with Run.create(tmp_path / "new", {}, "ppo"), pytest.raises(RunError, match="another process is training in"):
        Run.create(tmp_path / "new", {}, "ppo")
    Run.resume(folder).close()


def test_the_first_interrupt_asks_and_the_second_stops() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
        with asking_to_stop() as asked:
            assert not asked.is_set()
            signal.raise_signal(first)
            assert asked.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(second)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_other_threads_leave_signals_alone() -> None:
    handlers = []

    def train() -> None:
        with asking_to_stop():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


# ---------------------------------------------------------------- full disks


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@posix_only
@pytest.mark.parametrize("limit", [2, 100, 1000])
def test_no_room_for_a_checkpoint_harms_no_other(folder: Path, limit: int) -> None:
    import resource

    with Run.resume(folder) as run:
        before, soft_hard = contents(folder), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, soft_hard[1]))
        try:
            with pytest.raises(OSError, match=r"File too large; the earlier checkpoints in .* are kept: make room"):
                run.save(3, lambda folder: write_number(folder, 3), {"weight": torch.zeros(1000)}, {}, best=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
        assert contents(folder) == before
        save(run, 3)


@posix_only
def test_no_room_for_a_row_leaves_whole_rows(folder: Path) -> None:
    import resource

    with Run.resume(folder) as run:
        before, soft_hard = (folder / "metrics.jsonl").read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 7, soft_hard[1]))
        try:
            with pytest.raises(OSError, match="make room, and resume the run"):
                run.log({"epoch": 3, "loss": 0.1})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
        assert (folder / "metrics.jsonl").read_bytes() == before
        run.log({"epoch": 3})
        assert [row["epoch"] for row in run.rows()] == [1, 2, 3]


def test_a_full_disk_is_told_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Run.resume(folder) as run:
        before = contents(folder)
        with monkeypatch.context() as patch:
            patch.setattr(folders, "_synchronize", refuse)
            with pytest.raises(OSError, match="No space left on device; the earlier checkpoints in") as caught:
                run.save(3, lambda folder: write_number(folder, 3), {}, {})
        assert caught.value.errno == errno.ENOSPC and contents(folder) == before


# ---------------------------------------------------------------- kills

TRAINING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from babyai.agents.tensors import read_tensors, save_tensors
from babyai.training import run as running
from babyai.training.run import Run, read_rows

running.describe_origin = dict  # Asking for it takes longer than all the rest.

def train(folder, last):
    run = Run.resume(folder) if (folder / "config.json").exists() else Run.create(folder, {}, "ppo")
    found = run.latest()
    number, weight = (found[2]["number"], found[1]["weight"]) if found else (0, torch.zeros(100))
    if found:
        assert torch.equal(read_tensors(found[0])["weight"], weight)
    while number < last:
        number += 1
        weight = weight * 0.9 + number
        run.log({"number": number, "weight": float(weight.sum())})
        if number % 2 == 0:
            write = lambda folder: save_tensors(folder, {"weight": weight})
            run.save(number, write, {"weight": weight}, {"number": number}, best=number % 4 == 0)
    run.close()

def in_child(work):
    # A child that is killed never comes to its cleaning up.
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child

def newest(folder):
    return max([int(f.name) for f in (folder / "checkpoints").glob("0*")], default=0)

"""

AT_RANDOM = """
folder, last, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
train(folder / "undisturbed", last)
kills, before = 0, 0
while kills < 12 and before < last - 4:
    child = in_child(lambda: train(folder / "killed", last))
    # Every third is killed early; the others get ahead, however slow the machine is.
    while kills % 3 and newest(folder / "killed") == before:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    kills += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert newest(folder / "killed") >= before, "a checkpoint was lost"
    before = newest(folder / "killed")
    read_rows(folder / "killed")
child = in_child(lambda: train(folder / "killed", last))
assert os.waitpid(child, 0)[1] == 0
print(kills, before)
"""

AT_EVERY_STEP = """
import shutil
from babyai.training.checkpoints import find_damage
folder, step = Path(sys.argv[1]), 0
train(folder / "begun", 4)
train(folder / "undisturbed", 8)
best = lambda folder: read_tensors(folder / "checkpoints" / "best")["weight"].tolist()
bests = best(folder / "begun"), best(folder / "undisturbed")
calls = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "truncate", "open")

def killed_at(step, work):
    left = [step]
    def counted(call):
        def then(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            return call(*args, **kwargs)
        return then
    for name in calls:
        setattr(os, name, counted(getattr(os, name)))
    work()

while True:
    step += 1
    place = folder / f"killed{step}"
    shutil.copytree(folder / "begun", place)
    child = in_child(lambda: killed_at(step, lambda: train(place, 8)))
    if os.waitpid(child, 0)[1] == 0:
        break
    assert newest(place) >= 4, f"checkpoint 4 was lost when killed at call {step}"
    assert not any(map(find_damage, (place / "checkpoints").glob("0*"))), f"half of one was left at call {step}"
    Run.resume(place).close()
    assert best(place) in bests, f"the best model was lost when killed at call {step}"
    train(place, 8)
    assert not list((place / "checkpoints").glob(".*")), f"rubbish was left when killed at call {step}"
print(step)
"""


def go(script: str, *arguments: object) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", TRAINING + script, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def same_files(one: Path, other: Path) -> None:
    left, right = contents(one), contents(other)
    assert left.keys() == right.keys()
    for name in left:
        # The order inside of safetensors' header is random, and with it the digests.
        if name.endswith(".safetensors"):
            ours, theirs = load(left[name]), load(right[name])
            assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
        elif Path(name).name not in ("digests.json", "config.json"):
            assert left[name] == right[name]


@posix_only
def test_killed_at_random_it_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    kills, reached = map(int, go(AT_RANDOM, tmp_path, 150).split())
    assert kills >= 4 and reached > 0
    same_files(tmp_path / "killed", tmp_path / "undisturbed")


@posix_only
def test_killed_at_every_step_of_saving_it_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    steps = int(go(AT_EVERY_STEP, tmp_path))
    assert steps > 20
    for step in range(1, steps):
        same_files(tmp_path / f"killed{step}", tmp_path / "undisturbed")


def test_a_best_model_that_was_being_replaced_comes_back(folder: Path) -> None:
    place = folder / "checkpoints"
    (place / "best").rename(place / ".best.old")
    (place / "000000002").rename(place / ".000000002.old")
    (place / ".best.new").mkdir()
    with Run.resume(folder) as run:
        assert run.latest() is not None and len(run.rows()) == 2
    assert sorted(path.name for path in place.iterdir()) == ["000000001", "000000002", "best"]


# ---------------------------------------------------------------- TensorBoard and origins


def test_tensorboard_shows_each_row_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Run.create(tmp_path, {}, "ppo", tensorboard=True) as run:
        for number in (1, 2, 3):
            run.log({"frames": 100 * number, "success": {"Open": number / 4}, "note": "not a number", "loss": None})
            if number == 2:
                run.save(2, lambda folder: write_number(folder, 2), {}, {})
    with Run.resume(tmp_path, tensorboard=True) as run:
        run.log({"frames": 300, "success": {"Open": 1.0}})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["frames", "success/Open"]
    assert [(event.step, event.value) for event in events.Scalars("success/Open")] == [
        (100, 0.25),
        (200, 0.5),
        (300, 1.0),
    ]


def test_without_tensorboard_it_says_so_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RunError, match="TensorBoard is not installed"):
        Run.create(tmp_path / "run", {}, "ppo", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_the_origin_is_json_and_names_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/where/babyai", "train", "ppo", "--level", "Go To"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert command_line() == "babyai train ppo --level 'Go To'"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", type("Spec", (), {"name": "babyai.__main__"}))
    assert command_line() == "python -m babyai train ppo --level 'Go To'"
    origin = json.loads(json.dumps(describe_origin()))
    assert origin["versions"]["torch"] and origin["cpus"] >= 1 and origin["date"].endswith("+00:00")


def test_the_commit_is_that_of_the_package_only(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert source_commit(package) == (None, None)
    git("init")
    (tmp_path / "notes.txt").write_text("")
    git("add", "notes.txt")
    git("commit", "-m", "Somebody else's repository")
    assert source_commit(package) == (None, None)
    git("add", "package")
    git("commit", "-m", "Ours")
    commit, dirty = source_commit(package)
    assert commit is not None and len(commit) == 40 and dirty is False
    (tmp_path / "notes.txt").write_text("changed")
    assert source_commit(package)[1] is False
    (package / "new.py").write_text("")
    assert source_commit(package) == (commit, True)
