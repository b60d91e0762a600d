"""Foreign files: whatever they contain, every command ends in a sentence, runs no code, and nothing is lost."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from babyai import cli
from babyai.agents import Agent
from babyai.agents.checkpoint import CheckpointError, load_policy, read_tensors, write_tensors
from babyai.demos.collect import collect
from babyai.demos.merge import merge
from babyai.demos.store import DemoFile
from babyai.training.run import RunError, read_config, read_rows

ROOT = Path(__file__).parents[2]
LEVEL = "GoToObjS4"
CLEAR_SCREEN = "\x1b[2J\x07"
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs pipes, signals and locks")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty demonstrations; do not modify it."""
    return collect(LEVEL, 20, 0, tmp_path_factory.mktemp("demos") / "genuine.parquet", threads=1).path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs `babyai ...`; returns the sentence in which it ends, "" if it succeeds."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["babyai", *map(str, words)])
        try:
            cli.main()
        except SystemExit as stopped:
            return str(stopped.code)
        return ""

    return run


def forge(
    source: Path,
    out: Path,
    header: Callable[[dict], Any] | None = None,
    table: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> Path:
    """Copies a file with a changed table and a changed header, whose digest is right."""
    genuine = pq.read_table(source)
    content = json.loads(pq.ParquetFile(source).metadata.metadata[b"babyai"])
    changed = content if header is None else header(content)
    text = changed if isinstance(changed, str) else json.dumps(changed)
    digest = hashlib.sha256(text.encode()).hexdigest()
    pq.write_table(table(genuine).replace_schema_metadata({"babyai": text, "babyai_sha256": digest}), out)
    return out


def with_column(name: str, change: Callable[[list], None]) -> Callable[[pa.Table], pa.Table]:
    """A function that changes one column of a table."""

    def apply(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        change(values)
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    return apply


def set_item(index: int, value: Any) -> Callable[[list], None]:
    return lambda values: values.__setitem__(index, value)


# ---------------------------------------------------------------- demonstrations


HEADERS: dict[str, Callable[[dict], Any]] = {
    "deeply nested": lambda content: "[" * 200_000 + "]" * 200_000,
    "a list": lambda content: [1],
    "rules of a wrong type": lambda content: content | {"rules": 3},
    "levels as a list": lambda content: content | {"levels": [LEVEL]},
    "a level without settings": lambda content: content | {"levels": {LEVEL: 3}},
    "no sources": lambda content: content | {"sources": 5},
    "a source without rows": lambda content: content | {"sources": [{"origin": "expert", "rows": "20"}]},
    "negative rows": lambda content: content | {"sources": [{"origin": "expert", "rows": -20}]},
    "unsolved of a wrong type": lambda content: (
        content | {"sources": [{"origin": "expert", "rows": 20, "unsolved": {LEVEL: 7}}]}
    ),
    "too many fields": lambda content: content | {"extra": 1},
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS.keys())
@pytest.mark.parametrize("action", ["show", "verify"])
def test_a_forged_header_is_refused(
    file: Path, tmp_path: Path, command: Callable[..., str], change: Callable, action: str
) -> None:
    forged = forge(file, tmp_path / "forged.parquet", change)
    assert command("demos", action, forged).startswith(f"babyai: {forged} ")


def test_escape_sequences_are_spelled_out(
    file: Path, tmp_path: Path, command: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    def in_header(content: dict) -> dict:
        content["sources"][0] |= {"style": CLEAR_SCREEN, "babyai": CLEAR_SCREEN}
        return content

    forged = forge(file, tmp_path / "x.parquet", in_header, with_column("mission", set_item(0, CLEAR_SCREEN)))
    assert command("demos", "show", forged) == ""
    shown = capsys.readouterr()
    assert "\x1b[2J" not in shown.out and "\x07" not in shown.out and shown.out.count(r"\x1b[2J") == 3
    assert "\x1b" not in command("demos", "verify", forged)

    def renamed(content: dict) -> dict:
        content["levels"][CLEAR_SCREEN] = content["levels"].pop(LEVEL)
        return content

    levels = with_column("level", lambda values: values.__setitem__(slice(None), [CLEAR_SCREEN] * len(values)))
    forged = forge(file, tmp_path / "y.parquet", renamed, levels)
    command("demos", "show", forged)
    assert "\x1b[2J" not in capsys.readouterr().out
    assert "\x1b" not in command("demos", "verify", forged)


def test_two_columns_of_one_name_are_refused(file: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    forged = forge(file, tmp_path / "x.parquet", None, lambda table: table.append_column("seed", table["seed"]))
    for action in ("show", "verify"):
        assert "same name" in command("demos", action, forged)


def test_a_demonstration_longer_than_its_episode_is_reported(
    file: Path, tmp_path: Path, command: Callable[..., str]
) -> None:
    def lengthen(table: pa.Table) -> pa.Table:
        actions = table["actions"].to_pylist()
        actions[0] += b"\2\2\2"
        table = with_column("actions", set_item(0, actions[0]))(table)
        return with_column("length", set_item(0, len(actions[0])))(table)

    forged = forge(file, tmp_path / "x.parquet", None, lengthen)
    assert "after its episode has ended" in command("demos", "show", forged)
    assert "row 0 " in command("demos", "verify", forged)
    train = ("train", "imitation", "--levels", LEVEL, "--file", forged, "--epochs", "1", "--out", tmp_path / "run")
    assert "demos verify" in command(*train, "--quiet", "--device", "cpu")


def test_verify_names_the_first_wrong_row(file: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    """Among rows that are malformed in several ways, and rows whose replay differs."""

    def damage(table: pa.Table) -> pa.Table:
        for name, row, value in (("seed", 9, -1), ("reward", 5, 7.0), ("mission", 12, None), ("reward", 3, 0.5)):
            table = with_column(name, set_item(row, value))(table)
        return table

    assert "row 3 " in command("demos", "verify", forge(file, tmp_path / "x.parquet", None, damage))
    malformed = forge(file, tmp_path / "y.parquet", None, with_column("mission", set_item(12, None)))
    assert "row 12 " in command("demos", "verify", malformed)


@pytest.mark.parametrize("rows", ["-1", "20", "5001"])
def test_rows_that_do_not_exist_are_refused(file: Path, command: Callable[..., str], rows: str) -> None:
    assert "rows 0 to 19, not " + rows in command("demos", "show", file, "--rows", rows)


@pytest.mark.parametrize("identifier", ["foo", "../../etc/x-v0", "/tmp/x-v0", "a/../b-v0", "x-v0\n", ""])
def test_dataset_ids_stay_in_their_folder(
    file: Path, tmp_path: Path, command: Callable[..., str], identifier: str
) -> None:
    pytest.importorskip("minari")
    assert "dataset id" in command("demos", "export", file, "--id", identifier, "--root", tmp_path / "root")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("demos", "collect", "--levels", LEVEL, "--out", "x.parquet", "--episodes", str(10**14)), "1,000,000,000"),
        (("evaluate", "random", "--levels", LEVEL, "--missions", str(10**14)), "100,000,000"),
        (("show", LEVEL, "--png", "x.jpg"), ".png"),
        (("show", "GoToNowhereAtAll"), "`babyai levels`"),
        (("show", LEVEL, "--png", "no/such/folder/x.png"), "no/such/folder/x.png"),
    ],
)
def test_impossible_requests_end_in_a_sentence(
    command: Callable[..., str], words: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = command(*words)
    assert answer.startswith("babyai: ") and sentence in answer and ".tmp" not in answer


@pytest.mark.parametrize("action", ["verify", "merge"])
def test_ctrl_c_ends_in_a_sentence(
    file: Path, tmp_path: Path, command: Callable[..., str], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DemoFile, "_read_group", interrupt)
    words = ("--out", tmp_path / "out.parquet") if action == "merge" else ()
    assert command("demos", action, file, *words) == "babyai: stopped"
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- several writers

APPEND = """
import sys
from pathlib import Path
from babyai.demos.record import Recorder
path, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for seed in range(first, first + count):
    recorder = Recorder("GoToObjS4", seed)
    while not recorder.done:
        recorder.act(0)
    recorder.save(path, "somebody")
"""


@posix_only
def test_recorders_of_one_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shared.parquet"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    count = 8
    processes = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(path), str(100 * k), str(count)], env=environment)
        for k in range(3)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0, 0]
    with DemoFile(path) as file:
        assert sorted(file.read().seeds.tolist()) == sorted(100 * k + n for k in range(3) for n in range(count))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@posix_only
def test_what_a_killed_merge_left_is_removed(file: Path, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    out = tmp_path / "out.parquet"
    (tmp_path / f".out.parquet.{ended.pid}.tmp").write_text("half a file")
    (tmp_path / f".out.parquet.{os.getppid()}.tmp").write_text("of a process that is still running")
    merge([file], out)
    assert {each.name for each in tmp_path.iterdir()} == {out.name, f".out.parquet.{os.getppid()}.tmp"}


@posix_only
@pytest.mark.long
def test_killed_merges_leave_whole_files_and_no_litter(file: Path, tmp_path: Path) -> None:
    code = "import sys; from babyai.demos.merge import merge; merge(sys.argv[2:], sys.argv[1], keep_duplicates=True)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    out = tmp_path / "out.parquet"
    rng = random.Random(0)
    for _ in range(40):
        words = [sys.executable, "-c", code, str(out), *[str(file)] * 200]
        process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.5, 3.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if out.exists():
            with DemoFile(out) as merged:
                assert len(merged.read()) == 4000
            out.unlink()
    merge([file], out)
    assert [each.name for each in tmp_path.iterdir()] == [out.name]


# ---------------------------------------------------------------- checkpoints and runs


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A small agent's file."""
    folder = tmp_path / "agent"
    Agent.create("original", seed=0, device="cpu", memory_dim=8, word_dim=8).save(folder)
    return folder / "model.safetensors"


def reconfigure(path: Path, **settings: Any) -> None:
    """Changes the configuration that a checkpoint declares."""
    tensors, metadata = read_tensors(path)
    metadata["agent"] = json.dumps(json.loads(metadata["agent"]) | settings)
    write_tensors(path, tensors, metadata)


def test_a_checkpoint_that_declares_another_size_allocates_nothing(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[torch.device] = []
    original = torch.nn.LSTMCell.__init__

    def record(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        built.append(self.weight_hh.device)

    monkeypatch.setattr(torch.nn.LSTMCell, "__init__", record)
    reconfigure(agent, memory_dim=8000)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_policy(agent)
    assert all(device.type == "meta" for device in built)
    reconfigure(agent, memory_dim=60_000)
    with pytest.raises(CheckpointError, match="60000"):
        load_policy(agent)


def test_weights_that_are_not_numbers_are_reported(agent: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_policy(agent)
    assert caplog.text == ""
    tensors, metadata = read_tensors(agent)
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    tensors[name].view(-1)[0] = float("nan")
    write_tensors(agent, tensors, metadata)
    load_policy(agent)
    assert "NaN" in caplog.text and name in caplog.text


@posix_only
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "metrics.jsonl", "demos.parquet"])
def test_pipes_are_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    read = {
        "model.safetensors": lambda: read_tensors(tmp_path / name),
        "config.json": lambda: read_config(tmp_path),
        "metrics.jsonl": lambda: read_rows(tmp_path),
        "demos.parquet": lambda: DemoFile(tmp_path / name),
    }
    with pytest.raises(OSError, match=f"pipe.*{name}"):
        read[name]()


@pytest.mark.parametrize("content", ["[" * 200_000, "[]", '{"kind": 3}', "{", '{"kind": "ppo", "config": 1}', ""])
def test_a_forged_run_folder_is_refused(tmp_path: Path, command: Callable[..., str], content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError):
        read_config(tmp_path)
    assert command("resume", tmp_path).startswith("babyai: ")


@pytest.mark.long
def test_fuzzed_files_end_in_a_sentence(file: Path, agent: Path, tmp_path: Path) -> None:
    """Bytes are changed, removed or repeated anywhere; reading either works or raises an error of ours."""
    rng = np.random.default_rng(0)
    readers: dict[Path, Callable[[Path], object]] = {
        file: lambda path: DemoFile(path, replayable=False).read(),
        agent: load_policy,
    }
    for source, read in readers.items():
        data = source.read_bytes()
        outcomes = {"read": 0, "refused": 0}
        for _ in range(20_000):
            fuzzed = bytearray(data)
            for _ in range(rng.integers(1, 4)):
                place = int(rng.integers(len(fuzzed)))
                length = int(rng.integers(1, 40))
                kind = rng.integers(3)
                if kind == 0:
                    fuzzed[place : place + length] = rng.bytes(len(fuzzed[place : place + length]))
                elif kind == 1:
                    del fuzzed[place : place + length]
                else:
                    fuzzed[place:place] = fuzzed[place : place + length]
                fuzzed = fuzzed or bytearray(b"x")
            path = tmp_path / f"fuzzed{source.suffix}"
            path.write_bytes(fuzzed)
            try:
                read(path)
                outcomes["read"] += 1
            except (ValueError, OSError):
                outcomes["refused"] += 1
        assert outcomes["refused"] > 15_000
