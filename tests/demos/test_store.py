"""Files of demonstrations: reading returns what was written, and invalid files are rejected with the reason."""

import errno
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babyai.demos import header as headers
from babyai.demos import store
from babyai.demos.header import DemoFileError, Source, make_header
from babyai.demos.packed import SCHEMA, Demos, spell_missions
from babyai.demos.store import DemoFile, DemoWriter
from babyai.demos.verify import verify
from babyai.engine import Engine
from babyai.levels.catalog import LEVELS, find_level
from babyai.world.codes import MAX_WORDS
from babyai.world.language import detokenize
from tests.scale import scaled

ON_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def some_demos(count: int, seed: int = 0) -> Demos:
    """Random demonstrations of various lengths, which cannot be replayed."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 50, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Demos(
        names=("GoToLocal", "BossLevel"),
        levels=rng.integers(0, 2, count).astype(np.int32),
        seeds=rng.integers(0, 2**63 - 1, count),
        offsets=offsets,
        actions=rng.integers(0, 7, offsets[-1]).astype(np.uint8),
        rewards=rng.random(count),
        missions=pa.array([f"go to the door {k}" for k in range(count)], pa.string()),
    )


def write(path: Path, demos: Demos, sources: tuple[Source, ...] | None = None) -> None:
    header = make_header([find_level(name) for name in demos.names], "paper")
    with DemoWriter(path, header) as writer:
        writer.write(demos)
        writer.close(*(sources or (Source("expert", len(demos), "paper", 1),)))


def is_same(one: Demos, other: Demos) -> bool:
    arrays = all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("seeds", "offsets", "actions", "rewards")
    )
    levels = [one.names[k] for k in one.levels] == [other.names[k] for k in other.levels]
    return arrays and levels and one.missions == other.missions


# ---------------------------------------------------------------- reading and writing


@ON_FIXTURES
@given(count=st.integers(0, 40), seed=st.integers(0, 10**6), group=st.integers(1, 15))
def test_reading_returns_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, seed: int, group: int
) -> None:
    monkeypatch.setattr(store, "ROWS_PER_GROUP", group)
    demos = some_demos(count, seed)
    write(tmp_path / "some.parquet", demos)
    with DemoFile(tmp_path / "some.parquet") as file:
        assert len(file) == count and file.levels == demos.names and file.rules == "paper"
        if count:
            assert is_same(file.read(), demos)
            rows = np.random.default_rng(seed).integers(0, count, 7)
            assert is_same(file.read(rows), demos.take(rows))
            assert is_same(file.read(slice(count // 2, None)), demos.take(np.arange(count // 2, count)))
        for row, demo in enumerate(file):
            assert demo.actions.tobytes() == file[row].actions.tobytes() == demos[row].actions.tobytes()
            assert (demo.level, demo.seed, demo.mission) == (demos[row].level, demos[row].seed, demos[row].mission)


def test_rows_outside_the_file_are_an_error(small_file: Path) -> None:
    with DemoFile(small_file) as file:
        assert file[-1].seed == file[len(file) - 1].seed
        with pytest.raises(IndexError):
            file[len(file)]
        with pytest.raises(IndexError, match=rf"rows 0 to {len(file) - 1}, not 0 to {len(file)}"):
            file.read([0, len(file)])


def test_file_is_plain_parquet_with_a_json_header(small_file: Path) -> None:
    table = pq.read_table(small_file)
    assert table.column_names == ["level", "seed", "mission", "actions", "length", "reward"]
    row = table.slice(3, 1).to_pylist()[0]
    assert row["level"] == "GoToLocal" and row["seed"] == 103 and len(row["actions"]) == row["length"]
    assert set(row["actions"]) <= set(range(7)) and 0 < row["reward"] <= 1
    header = json.loads(pq.read_metadata(small_file).metadata[b"babyai"])
    assert header["format"] == "babyai demonstrations" and header["format_version"] == 1 and header["rules"] == "paper"
    assert header["levels"]["BossLevel"]["version"] == LEVELS["BossLevel"].version
    assert header["levels"]["BossLevel"]["room_size"] == 8 and list(header["levels"]) == ["GoToLocal", "BossLevel"]
    assert header["sources"][0]["origin"] == "expert" and header["sources"][0]["style"] == "paper"


def test_spell_missions_equals_words_of() -> None:
    engine = Engine(list(LEVELS)[:40] + ["BossLevel"] * 20, scaled(2000, 60))
    engine.reset(0)
    rows = np.arange(engine.num_worlds)[::-1].copy()
    assert spell_missions(engine.missions, rows).to_pylist() == [detokenize(engine.missions[row]) for row in rows]
    longest = np.full((1, MAX_WORDS), 29, dtype=np.uint8)
    assert spell_missions(longest, np.arange(1)).to_pylist() == [detokenize(longest[0])]


# ---------------------------------------------------------------- failed writes


def test_unfinished_file_never_appears(tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    demos = some_demos(30)
    with pytest.raises(KeyboardInterrupt), DemoWriter(path, make_header([find_level("GoToLocal")], "paper")):
        raise KeyboardInterrupt
    header = make_header(map(find_level, demos.names), "paper")
    with pytest.raises(RuntimeError, match=r"close\(\) was not called"), DemoWriter(path, header) as writer:
        writer.write(demos)
    with pytest.raises(ValueError, match=r"\b1 rows.* 30$"):
        write(path, demos, (Source("expert", 1),))
    assert list(tmp_path.iterdir()) == []


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.parquet"
    write(path, some_demos(30))
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write(path, some_demos(40))
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


# ---------------------------------------------------------------- invalid files


def rewrite_header(path: Path, out: Path, change) -> None:
    """Copies a file with a changed header."""
    table = pq.read_table(path)
    header = json.loads(pq.read_metadata(path).metadata[b"babyai"])
    change(header)
    text = json.dumps(header)
    metadata = {"babyai": text, "babyai_sha256": headers.digest_of(text)}
    pq.write_table(table.replace_schema_metadata(metadata), out)


def error_of(path: Path) -> str:
    """The message of the error that reading the file raises."""
    with pytest.raises(DemoFileError) as caught:
        DemoFile(path).read()
    return str(caught.value)


def test_other_and_truncated_files_are_rejected(tmp_path: Path, small_file: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(FileNotFoundError):
        DemoFile(path)
    for content, reason in (
        (b"", "empty"),
        (b"seed,actions\n1,2\n", "not Parquet"),
        (b"PAR1", "truncated"),
        (b"PAR1PAR1", "truncated"),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", "footer is larger than the file"),
    ):
        path.write_bytes(content)
        assert reason in error_of(path) and str(path) in error_of(path)
    pq.write_table(pa.table({"x": [1, 2]}), path)
    assert "no header of babyai demonstrations" in error_of(path)
    whole = small_file.read_bytes()
    for length in range(4, len(whole) - 1, len(whole) // 50):
        path.write_bytes(whole[:length])
        assert "truncated" in error_of(path)


def test_newer_and_tampered_headers_are_rejected(tmp_path: Path, small_file: Path) -> None:
    path = tmp_path / "x.parquet"
    rewrite_header(small_file, path, lambda header: header.update(format_version=2, unknown_key=3))
    assert "format version 2" in error_of(path) and "install a newer babyai" in error_of(path)
    rewrite_header(small_file, path, lambda header: header.update(format="something else"))
    assert "its header does not match its digest" in error_of(path)
    rewrite_header(small_file, path, lambda header: header.update(unknown_key=3))
    assert "its header is invalid" in error_of(path) and "unknown_key" in error_of(path)
    rewrite_header(small_file, path, lambda header: header["sources"][0].update(rows=7))
    assert "its header says 7" in error_of(path)
    metadata = {key: pq.read_metadata(small_file).metadata[key] for key in (b"babyai", b"babyai_sha256")}
    table = pq.read_table(small_file).replace_schema_metadata(metadata)
    pq.write_table(table.drop_columns(["actions"]), path)
    assert "no column 'actions'" in error_of(path)
    metadata[b"babyai"] = metadata[b"babyai"].replace(b"BossLevel", b"BossLevul")
    pq.write_table(table.replace_schema_metadata(metadata), path)
    assert "its header does not match its digest" in error_of(path)


def test_error_names_the_differences_of_other_rules(
    tmp_path: Path, small_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"

    def error_with(change) -> str:
        rewrite_header(small_file, path, change)
        return error_of(path)

    error = error_with(lambda header: header["levels"]["BossLevel"].update(version=9))
    assert "other rules" in error
    assert f"level 'BossLevel' had version 9, now {LEVELS['BossLevel'].version}" in error
    error = error_with(lambda header: header["levels"]["GoToLocal"].update(objects=12, colours=[1, 2]))
    assert "objects of level 'GoToLocal' was 12, now 8" in error
    assert "colours of level 'GoToLocal' was [1, 2], now [-1, -1]" in error
    error = error_with(lambda header: header["levels"].update(BosLevel=header["levels"].pop("BossLevel")))
    assert "unknown level 'BosLevel'; did you mean 'BossLevel'" in error and "registered" in error
    error = error_with(lambda header: header["levels"]["GoToLocal"].pop("strict"))
    assert "strict of level 'GoToLocal' was None, now False" in error
    # The same if the installed level has changed.
    monkeypatch.setitem(LEVELS, "BossLevel", replace(LEVELS["BossLevel"], version=7))
    assert "now 7" in error_of(small_file)
    with DemoFile(small_file, replayable=False) as file:
        assert len(file.read()) == len(file)


def test_error_names_an_invalid_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    demos = some_demos(20)
    metadata = make_header(map(find_level, demos.names), "paper", Source("expert", 20)).to_metadata()

    def error_with(column: str, change) -> str:
        rows = demos.to_table().to_pylist()
        rows[11][column] = change(rows[11][column])
        # Several row groups, to check that rows are numbered across them.
        table = pa.Table.from_pylist(rows, schema=SCHEMA).replace_schema_metadata(metadata)
        pq.write_table(table, path, row_group_size=6)
        return error_of(path)

    for column, change, problem in (
        ("level", lambda level: "GoTo", "its level is not among those in the header"),
        ("seed", lambda seed: -1, "its seed is negative"),
        ("reward", lambda reward: float("nan"), "its reward is not between 0 and 1"),
        ("actions", lambda actions: b"", "it has no actions"),
        ("actions", lambda actions: actions[:-1] + b"\x07", "it has an action that is not in 0..6"),
        ("length", lambda length: length + 1, "its length is not the number of its actions"),
        ("mission", lambda mission: None, "it has no mission"),
    ):
        error = error_with(column, change)
        assert f"row 11 of {path} is wrong" in error and problem in error


@settings(ON_FIXTURES, max_examples=scaled(150, 10))
@given(data=st.data())
def test_every_changed_byte_is_detected(tmp_path: Path, small_file: Path, data: st.DataObject) -> None:
    whole = bytearray(small_file.read_bytes())
    footer = int.from_bytes(whole[-8:-4], "little")
    # Half of the changes hit the small footer.
    first = data.draw(st.sampled_from([0, len(whole) - 8 - footer]))
    for place in data.draw(st.lists(st.integers(first, len(whole) - 1), min_size=1, max_size=3)):
        whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "x.parquet"
    path.write_bytes(whole)
    try:
        with DemoFile(path) as file, DemoFile(small_file) as original:
            unchanged = is_same(file.read(), original.read()) and asdict(file.header) == asdict(original.header)
    except DemoFileError:
        return
    assert unchanged or verify(path) is not None
