"""Run folders: nothing is lost by kills, damage or full disks, and rows are those of an undisturbed run."""

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai import atomic_io
from babyai.agents.checkpoint import CheckpointError, read_tensors, write_tensors
from babyai.training.provenance import describe_provenance
from babyai.training.run import Run, RunError, holds_run, read_checkpoint, read_config, read_rows

ROOT = Path(__file__).parents[2]
posix_only = pytest.mark.skipif(os.name != "posix", reason="locks, limits and kills work differently elsewhere")


def write_number(path: Path, number: int) -> None:
    write_tensors(path, {"number": torch.tensor(number)})


def read_number(folder: Path) -> int:
    return int(read_tensors(folder / "model.safetensors")[0]["number"])


def save(run: Run, number: int, is_best: bool = False) -> Path:
    """Writes a row and a checkpoint that hold their number."""
    run.log({"epoch": number, "loss": 1 / number})
    if is_best:
        run.save_best(number, lambda path: write_number(path, number))
    tensors = {"weight": torch.full((5,), float(number))}
    return run.save(number, lambda path: write_number(path, number), tensors, {"epoch": number})


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with the checkpoints 1, which is the best, and 2, and a row after them."""
    with Run.create(tmp_path / "run", {"lr": 0.1, "epochs": 3}, "imitation") as run:
        save(run, 1, is_best=True)
        save(run, 2)
        run.log({"epoch": 3})
    return run.folder


# ------------------------------------------------------------ configuration


def test_a_run_holds_its_options(tmp_path: Path) -> None:
    config = {"lr": 1e-4, "levels": ("GoToLocal", "Open"), "agent": {"memory_dim": np.int64(128)}}
    place = tmp_path / "deep" / "run"
    assert not holds_run(place)
    with Run.create(place, config, "ppo") as run:
        assert run.config == {"lr": 1e-4, "levels": ["GoToLocal", "Open"], "agent": {"memory_dim": 128}}
        assert run.latest() is None and run.rows() == []
    written = read_config(place)
    assert written["kind"] == "ppo" and written["config"] == run.config and written["resumed"] == []
    assert written["origin"].keys() == describe_provenance().keys()
    assert holds_run(place)


def test_a_second_run_does_not_replace_the_first(folder: Path) -> None:
    with pytest.raises(RunError, match=r"run already holds a run.*`babyai resume .*run`.*--out"):
        Run.create(folder, {}, "ppo")
    assert read_config(folder)["kind"] == "imitation" and len(read_rows(folder)) == 3


def test_only_some_options_may_change(folder: Path) -> None:
    with pytest.raises(RunError, match=r"epochs was 3, is 9, lr was 0\.1, is 0\.2"):
        Run.resume(folder, {"lr": 0.2, "epochs": 9})
    with pytest.raises(RunError, match=r"\(lr was 0\.1, is 0\.2\)"):
        Run.resume(folder, {"lr": 0.2, "epochs": 9}, may_change=["epochs"])
    with pytest.raises(RunError, match=r"\(agent was None, is \{'size': 'big'\}\)"):
        Run.resume(folder, {"lr": 0.1, "epochs": 3, "agent": {"size": "big"}}, may_change=["age"])
    with pytest.raises(RunError, match="'imitation', not of 'ppo'"):
        Run.resume(folder, algorithm="ppo")
    assert read_config(folder)["resumed"] == [] and len(read_rows(folder)) == 3
    config = {"lr": 0.1, "epochs": 9, "log": {"every": 2}}
    Run.resume(folder, config, "imitation", may_change=["epochs", "log"]).close()
    written = read_config(folder)
    assert written["config"]["epochs"] == 9
    assert written["resumed"][0]["changed"] == {"epochs": [3, 9], "log": [None, {"every": 2}]}
    assert written["resumed"][0]["checkpoint"] == "000000002"


def test_a_folder_without_a_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere.*config\.json"):
        Run.resume(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    for text, message in (("{", "damaged"), ("[]", r"config\.json")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(RunError, match=message):
            Run.resume(tmp_path)
        assert names_in(tmp_path) == ["config.json"]


# ------------------------------------------------------------ rows


def test_rows_are_valid_json(tmp_path: Path) -> None:
    with Run.create(tmp_path, {}, "ppo") as run:
        run.log(
            {"loss": float("nan"), "success": {"Open": np.float32(0.5)}, "frames": torch.tensor(7), "worst": [-np.inf]}
        )
        run.log({"name": "é"})
        with pytest.raises(TypeError, match="JSON"):
            run.log({"what": object()})
        rows = [{"loss": None, "success": {"Open": 0.5}, "frames": 7, "worst": [None]}, {"name": "é"}]
        assert run.rows() == rows
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write('{"half a li')
        assert read_rows(tmp_path) == rows


def test_resuming_drops_rows_after_the_checkpoint(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Run.resume(folder) as run:
        assert [row["epoch"] for row in run.rows()] == [1, 2]
        run.log({"epoch": 3})
    assert [row["epoch"] for row in read_rows(folder)] == [1, 2, 3] and not caplog.records


def test_a_truncated_log_keeps_its_complete_rows(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = folder / "metrics.jsonl"
    os.truncate(log, log.read_bytes().index(b"\n") + 5)
    with Run.resume(folder) as run:
        assert [row["epoch"] for row in run.rows()] == [1]
        run.log({"epoch": 3})
    assert [row["epoch"] for row in read_rows(folder)] == [1, 3]
    assert "metrics.jsonl" in caplog.text


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    with Run.create(tmp_path, {}, "ppo") as run:
        run.log({"epoch": 1})
    with Run.resume(tmp_path) as run:
        assert run.latest() is None and run.rows() == []


# ------------------------------------------------------------ checkpoints


def test_checkpoints_are_restored_and_old_ones_removed(tmp_path: Path) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    tensors = {
        "transposed": shared.T,
        "same": shared,
        "expanded": shared[0].expand(4, 3),
        "bytes": torch.tensor([1], dtype=torch.uint8),
        "double": torch.tensor([1 / 3], dtype=torch.float64),
    }
    state = {"seen": np.int64(3), "best": -np.inf}
    with Run.create(tmp_path, {}, "ppo") as run:
        for number in (5, 10, 999_999_999, 2_000_000_000):
            run.save(number, lambda path: write_number(path, 1), tensors, state)
        latest = run.latest()
    assert names_in(tmp_path / "checkpoints") == ["2000000000", "999999999"]
    assert latest is not None and latest.folder.name == "2000000000"
    assert latest.state == {"seen": 3, "best": -np.inf} and latest.model["number"] == 1
    for name, tensor in tensors.items():
        assert torch.equal(latest.tensors[name], tensor) and latest.tensors[name].dtype == tensor.dtype
    assert names_in(latest.folder) == ["model.safetensors", "training.safetensors"]


def test_large_checkpoints_are_split_and_can_be_halved(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {f"weight{i}": torch.randn(2**20, generator=generator) for i in range(10)}  # 4 MiB each
    tensors["step"] = torch.tensor(4097.0)
    with Run.create(tmp_path, {}, "ppo") as run:
        folder = run.save(1, lambda path: write_number(path, 1), tensors, {})
        halved = run.save(2, lambda path: write_number(path, 1), tensors, {}, "bf16")
    assert len(names_in(folder)) == 1 + 4 and len(names_in(halved)) == 1 + 2
    assert all(path.stat().st_size < 16 * 2**20 for part in (folder, halved) for path in part.iterdir())
    whole = read_checkpoint(folder).tensors
    assert whole.keys() == tensors.keys() and all(torch.equal(whole[name], tensors[name]) for name in tensors)
    rounded = read_checkpoint(halved).tensors
    assert torch.equal(rounded["weight9"], tensors["weight9"].bfloat16()) and rounded["step"] == 4097
    (folder / "training-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        read_checkpoint(folder)


def test_the_best_holds_the_model_only_and_outlives_the_others(folder: Path) -> None:
    checkpoints = folder / "checkpoints"
    assert names_in(checkpoints / "best-000000001") == ["model.safetensors"]
    assert read_number(checkpoints / "best-000000001") == 1
    with Run.resume(folder) as run:
        save(run, 3, is_best=True)
        save(run, 4)
        save(run, 5)
    assert names_in(checkpoints) == ["000000004", "000000005", "best-000000003"]
    assert read_number(checkpoints / "best-000000003") == 3


def test_a_checkpoint_of_the_same_number_is_replaced(folder: Path) -> None:
    with Run.resume(folder) as run:
        save(run, 2, is_best=True)
        save(run, 2, is_best=True)
        latest = run.latest()
    assert latest is not None and read_number(latest.folder) == 2 and len(run.rows()) == 4
    assert names_in(folder / "checkpoints") == ["000000001", "000000002", "best-000000002"]


# ------------------------------------------------------------ damage


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    """Not even in the name of the checksum, which files of other programs may lack."""
    path = tmp_path / "training.safetensors"
    write_tensors(path, {"weight": torch.arange(5.0)}, {"metrics_bytes": "3", "state": "{}"})
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            read_tensors(path, checksum=True)


def flip_last_bit(file: Path) -> None:
    """In a safetensors file these are the numbers, in JSON the last digit."""
    content = bytearray(file.read_bytes())
    place = max(index for index, byte in enumerate(content) if chr(byte).isdigit()) if file.suffix == ".json" else -1
    content[place] ^= 1
    file.write_bytes(content)


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip_bit, flip_last_bit, halve, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors"])
def test_a_damaged_checkpoint_is_set_aside(
    folder: Path, damage: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(folder / "checkpoints" / "000000002" / name)
    with caplog.at_level(logging.WARNING), Run.resume(folder) as run:
        latest = run.latest()
        assert latest is not None and latest.folder.name == "000000001" and latest.state == {"epoch": 1}
        assert torch.equal(latest.tensors["weight"], torch.ones(5)) and [row["epoch"] for row in run.rows()] == [1]
        assert "000000002" in caplog.text
        save(run, 2)
    assert names_in(folder / "checkpoints") == ["000000001", "000000002", "000000002.damaged", "best-000000001"]
    with Run.resume(folder) as run:
        assert [row["epoch"] for row in run.rows()] == [1, 2]


def test_without_an_intact_checkpoint_nothing_is_changed(folder: Path) -> None:
    for number in (1, 2):
        flip_bit(folder / "checkpoints" / f"00000000{number}" / "training.safetensors")
    before = contents(folder)
    # Twice: refusing once must not make the folder look like one without checkpoints.
    for _ in range(2):
        with pytest.raises(RunError, match="000000002, 000000001"):
            Run.resume(folder)
    assert contents(folder) == before


def test_an_incomplete_checkpoint_is_an_error(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "000000002"
    (checkpoint / "training.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"000000002.*training\.safetensors"):
        read_checkpoint(checkpoint)


# ------------------------------------------------------------ other processes


@posix_only
def test_two_processes_do_not_write_to_one_run(folder: Path, tmp_path: Path) -> None:
    with Run.resume(folder), pytest.raises(RunError, match=f"another process.*{folder.name}"):
        Run.resume(folder)
    with Run.create(tmp_path / "new", {}, "ppo"), pytest.raises(RunError, match="another process"):
        Run.create(tmp_path / "new", {}, "ppo")
    Run.resume(folder).close()


# ------------------------------------------------------------ full disks


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@posix_only
@pytest.mark.parametrize("limit", [2, 100, 1000])
def test_a_checkpoint_without_space_harms_no_other(folder: Path, limit: int) -> None:
    import resource

    with Run.resume(folder) as run:
        before = contents(folder)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            with pytest.raises(OSError, match=r"File too large.*checkpoints.*`babyai resume .*run`") as caught:
                run.save(3, lambda path: write_number(path, 3), {"weight": torch.zeros(1000)}, {})
            with pytest.raises(OSError, match="File too large"):
                run.save_best(3, lambda path: write_tensors(path, {"weight": torch.zeros(1000)}))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.errno == errno.EFBIG and contents(folder) == before
        save(run, 3)


@posix_only
def test_a_row_without_space_leaves_complete_rows(folder: Path) -> None:
    import resource

    with Run.resume(folder) as run:
        before = (folder / "metrics.jsonl").read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 7, limits[1]))
        try:
            with pytest.raises(OSError, match=r"File too large.*`babyai resume"):
                run.log({"epoch": 3, "loss": 0.1})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (folder / "metrics.jsonl").read_bytes() == before
        run.log({"epoch": 3})
        assert [row["epoch"] for row in run.rows()] == [1, 2, 3]


def test_a_full_disk_is_reported_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Run.resume(folder) as run:
        before = contents(folder)
        with monkeypatch.context() as patch:
            patch.setattr(atomic_io, "sync", refuse)
            with pytest.raises(OSError, match=r"No space left on device.*`babyai resume") as caught:
                run.save(3, lambda path: write_number(path, 3), {}, {})
        assert caught.value.errno == errno.ENOSPC and contents(folder) == before


# ------------------------------------------------------------ kills

TRAINING = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from babyai.agents.checkpoint import find_checkpoint, read_tensors, write_tensors
from babyai.training import run as run_module
from babyai.training.run import Run, read_checkpoint, read_rows

run_module.describe_provenance = dict  # It would take longer than everything else.

def train(folder, last):
    run = Run.resume(folder) if (folder / "config.json").exists() else Run.create(folder, {}, "ppo")
    latest = run.latest()
    number = latest.state["number"] if latest else 0
    weight = latest.tensors["weight"] if latest else torch.zeros(100)
    if latest:
        assert torch.equal(latest.model["weight"], weight)
    while number < last:
        number += 1
        weight = weight * 0.9 + number
        run.log({"number": number, "weight": float(weight.sum())})
        write = lambda path: write_tensors(path, {"weight": weight})
        if number % 2 == 0:
            run.save_best(number, write)
            run.save(number, write, {"weight": weight}, {"number": number})
    run.close()

def in_child(work):
    # A child that is killed never gets to clean up.
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child

def newest(folder):
    return max([int(f.name) for f in (folder / "checkpoints").glob("0*")], default=0)

"""

AT_RANDOM = """
folder = Path(sys.argv[1])
last = int(sys.argv[2])
chance = random.Random(0)
train(folder / "undisturbed", last)
kills = 0
before = 0
while kills < 8 and before < last - 4:
    child = in_child(lambda: train(folder / "killed", last))
    # Every third is killed early; the others make progress, however slow the machine is.
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

AT_EVERY_CALL = """
import shutil
folder = Path(sys.argv[1])
step = 0
# The next checkpoint replaces the best and removes the oldest.
train(folder / "begun", 4)
train(folder / "saved", 6)
train(folder / "undisturbed", 8)
best = lambda folder: read_tensors(find_checkpoint(folder))[0]["weight"].tolist()
bests = best(folder / "begun"), best(folder / "saved")
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
    child = in_child(lambda: killed_at(step, lambda: train(place, 6)))
    if os.waitpid(child, 0)[1] == 0:
        break
    assert newest(place) >= 4, f"checkpoint 4 was lost when killed at call {step}"
    for checkpoint in (place / "checkpoints").glob("0*"):
        read_checkpoint(checkpoint)
    assert best(place) in bests, f"the best model was lost when killed at call {step}"
    Run.resume(place).close()
    assert best(place) in bests, f"the best model was lost when resumed after call {step}"
    train(place, 8)
    assert not list((place / "checkpoints").glob(".*")), f"temporary files were left when killed at call {step}"
print(step)
"""


def run_script(script: str, *arguments: object) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", TRAINING + script, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same_files(one: Path, other: Path) -> None:
    ours = contents(one)
    theirs = contents(other)
    assert ours.keys() == theirs.keys()
    for name, content in ours.items():
        # The order in a safetensors header is random.
        if name.endswith(".safetensors"):
            tensors = read_tensors(one / name)[0]
            expected = read_tensors(other / name)[0]
            assert tensors.keys() == expected.keys()
            assert all(torch.equal(tensors[key], expected[key]) for key in tensors)
        elif name != "config.json":
            assert content == theirs[name]


@posix_only
@pytest.mark.long
def test_a_run_killed_at_random_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    kills, reached = map(int, run_script(AT_RANDOM, tmp_path, 80).split())
    assert kills >= 4 and reached > 0
    assert_same_files(tmp_path / "killed", tmp_path / "undisturbed")


@posix_only
@pytest.mark.long
def test_a_run_killed_at_every_system_call_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    steps = int(run_script(AT_EVERY_CALL, tmp_path))
    assert steps > 20
    for step in range(1, steps):
        assert_same_files(tmp_path / f"killed{step}", tmp_path / "undisturbed")


def test_files_left_by_a_kill_are_removed(folder: Path) -> None:
    checkpoints = folder / "checkpoints"
    (checkpoints / ".000000003.tmp").mkdir()
    (checkpoints / ".000000000.deleted.tmp").mkdir()
    (checkpoints / ".best-000000003.tmp").mkdir()
    with Run.resume(folder) as run:
        assert run.latest() is not None and len(run.rows()) == 2
    assert names_in(checkpoints) == ["000000001", "000000002", "best-000000001"]


# ------------------------------------------------------------ TensorBoard


def test_tensorboard_shows_each_row_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Run.create(tmp_path, {}, "ppo", tensorboard=True) as run:
        for number in (1, 2, 3):
            run.log({"frames": 100 * number, "success": {"Open": number / 4}, "note": "not a number", "loss": None})
            if number == 2:
                run.save(2, lambda path: write_number(path, 2), {}, {})
    with Run.resume(tmp_path, tensorboard=True) as run:
        run.log({"frames": 300, "success": {"Open": 1.0}})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["frames", "success/Open"]
    values = [(event.step, event.value) for event in events.Scalars("success/Open")]
    assert values == [(100, 0.25), (200, 0.5), (300, 1.0)]


def test_a_missing_tensorboard_is_reported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RunError, match=r"pip install tensorboard.*--tensorboard"):
        Run.create(tmp_path / "run", {}, "ppo", tensorboard=True)
    assert not (tmp_path / "run").exists()
