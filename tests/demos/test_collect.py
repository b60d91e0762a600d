"""Collecting: the same file for any number of threads and after any interruption, and no harm on a full disk."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from babyai.demos import collect as collecting
from babyai.demos.collect import collect
from babyai.demos.header import DemoFileError
from babyai.demos.store import DemoFile
from babyai.demos.verify import play_demo, verify
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import find_level
from tests.scale import scaled

ROOT = Path(__file__).parents[2]


def test_rows_are_the_experts_episodes(small_file: Path) -> None:
    with DemoFile(small_file) as file:
        assert verify(small_file) is None
        count = len(file) // 2
        assert [demo.level for demo in file] == ["GoToLocal"] * count + ["BossLevel"] * count
        assert file.read().seeds.tolist() == [*range(100, 100 + count)] * 2
        *_, engine = play_demo(file[0], "paper")
        assert engine.done[0] and engine.rewards[0] == file[0].reward > 0


@pytest.mark.usefixtures("small_blocks")
def test_threads_and_repetition_make_no_difference(tmp_path: Path) -> None:
    count, told = scaled(300, 5), []
    one = collect(["GoToLocal", "Open"], count, 7, tmp_path / "one.parquet", threads=1)
    two = collect(
        ["GoToLocal", "Open"], count, 7, tmp_path / "two.parquet", threads=2, progress=lambda *now: told.append(now)
    )
    assert one.demos == two.demos == 2 * count and one.unsolved == {}
    assert one.path.read_bytes() == two.path.read_bytes()
    assert told[0] == (0, 2 * count) and told[-1] == (2 * count, 2 * count)
    # Once more: it is there already.
    again = collect(["GoToLocal", "Open"], count, 7, tmp_path / "one.parquet")
    assert again == one and sorted(tmp_path.iterdir()) == [one.path, two.path]


def test_bad_arguments(tmp_path: Path, small_file: Path) -> None:
    out = tmp_path / "x.parquet"
    for levels, episodes, first_seed, complaint in (
        ("GoToLocl", 1, 0, "did you mean 'GoToLocal'"),
        ("GoToLocal", 0, 0, "at least one level and one episode"),
        ("GoToLocal", 1, -1, "a seed must be in"),
        ("GoToLocal", 2, 2**63 - 1, "a seed must be in"),
        (["GoToLocal", "GoToLocal"], 1, 0, "named more than once"),
    ):
        with pytest.raises(ValueError, match=complaint):
            collect(levels, episodes, first_seed, out)
    with pytest.raises(DemoFileError, match="exists and holds other demonstrations"):
        collect("GoToLocal", 3, 0, small_file)
    assert not list(tmp_path.iterdir())


def test_seeds_without_success_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ExpertBatch.demonstrate

    def fail_sometimes(self: ExpertBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        actions, lengths, rewards = honest(self)
        rewards[self.engine.worlds.seed % 3 == 1] = 0
        return actions, lengths, rewards

    monkeypatch.setattr(ExpertBatch, "demonstrate", fail_sometimes)
    result = collect("GoToLocal", 8, 10, tmp_path / "x.parquet")
    assert result.demos == 5 and result.unsolved == {"GoToLocal": [10, 13, 16]}
    with DemoFile(result.path) as file:
        assert file.read().seeds.tolist() == [11, 12, 14, 15, 17]
        assert file.header.sources[0].unsolved == {"GoToLocal": [10, 13, 16]}
    assert collect("GoToLocal", 8, 10, tmp_path / "x.parquet") == result


# ---------------------------------------------------------------- interruptions


class Stop(Exception):
    """Somebody pulled the plug."""


def stop_after(count: int):
    def progress(done: int, total: int) -> None:
        if done >= count:
            raise Stop

    return progress


def test_unfinished_work_of_another_kind_is_not_touched(tmp_path: Path, small_blocks: int) -> None:
    out, folder, count = tmp_path / "x.parquet", tmp_path / "x.parquet.parts", 3 * small_blocks + 1
    with pytest.raises(Stop):
        collect("GoToLocal", count, 0, out, threads=1, progress=stop_after(2 * small_blocks))
    parts = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(parts) >= 3 and not out.exists()
    for arguments, difference in (
        (("GoToLocal", count + 1, 0), f"episodes was {count}, is {count + 1}"),
        (("GoToLocal", count, 5), "first_seed was 0, is 5"),
        (("Open", count, 0), "its levels or rules differ"),
    ):
        with pytest.raises(DemoFileError, match=f"unfinished work on another order .{difference}"):
            collect(*arguments, out)
    with pytest.raises(DemoFileError, match="style was 'paper', is 'teacher'"):
        collect("GoToLocal", count, 0, out, style="teacher")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == parts
    times = {name: (folder / name).stat().st_mtime_ns for name in parts}
    with pytest.raises(Stop):
        collect("GoToLocal", count, 0, out, threads=1, progress=stop_after(0))
    assert {name: (folder / name).stat().st_mtime_ns for name in parts} == times
    assert collect("GoToLocal", count, 0, out).demos == count
    assert list(tmp_path.iterdir()) == [out]


def test_a_damaged_part_is_named(tmp_path: Path, small_blocks: int) -> None:
    out, count = tmp_path / "x.parquet", 3 * small_blocks + 1
    with pytest.raises(Stop):
        collect("GoToLocal", count, 0, out, threads=1, progress=stop_after(2 * small_blocks))
    part = tmp_path / "x.parquet.parts" / "000-000001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:50])
    with pytest.raises(DemoFileError, match=r"is cut short.*delete this part .*000-000001.parquet"):
        collect("GoToLocal", count, 0, out)
    part.unlink()
    assert collect("GoToLocal", count, 0, out).demos == count and verify(out) is None


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.parquet.parts").mkdir()
    (tmp_path / "x.parquet.parts" / "diary.txt").write_text("dear diary")
    with pytest.raises(DemoFileError, match="holds something else"):
        collect("GoToLocal", 2, 0, tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet.parts" / "diary.txt").read_text() == "dear diary"


@pytest.mark.skipif(os.name != "posix", reason="locks are the operating system's")
def test_two_processes_do_not_disturb_each_other(tmp_path: Path, small_blocks: int) -> None:
    out, refused = tmp_path / "x.parquet", []

    def try_too(done: int, total: int) -> None:
        with pytest.raises(DemoFileError, match="another process is collecting") as caught:
            collect("GoToLocal", 2 * small_blocks, 0, out)
        refused.append(caught)

    assert collect("GoToLocal", 2 * small_blocks, 0, out, progress=try_too).demos == 2 * small_blocks and refused


SCRIPT = """
import sys
from babyai.demos import collect as collecting
collecting.BLOCK = 64
collecting.collect(["GoToLocal", "BossLevel"], int(sys.argv[2]), 0, sys.argv[1], threads=int(sys.argv[3]))
"""


def start(out: Path, count: int, threads: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-c", SCRIPT, str(out), str(count), str(threads)]
    return subprocess.Popen(arguments, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, stderr=subprocess.PIPE)


@pytest.mark.compiled
@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL")
def test_killed_at_any_moment_it_goes_on(tmp_path: Path, small_blocks: int) -> None:
    count, chance = 1500, random.Random(0)
    undisturbed = collect(["GoToLocal", "BossLevel"], count, 0, tmp_path / "undisturbed.parquet", threads=2).path
    out, folder = tmp_path / "x.parquet", tmp_path / "x.parquet.parts"
    kills = 0
    # At a random moment after the first, the tenth ... part; and while the parts become one file.
    for goal in (1, 12, 30, "whole"):
        process = start(out, count, threads=1 + kills % 2)
        while process.poll() is None:
            parts = len(list(folder.glob("*.parquet"))) if folder.exists() else 0
            if (folder / "whole.tmp").exists() if goal == "whole" else parts >= int(goal):
                break
            time.sleep(0.001)
        if goal != "whole":
            time.sleep(chance.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert not out.exists() or goal == "whole"
    assert kills >= 3
    process = start(out, count, threads=2)
    _, told = process.communicate()
    assert process.returncode == 0, told.decode()
    assert out.read_bytes() == undisturbed.read_bytes()
    assert sorted(tmp_path.iterdir()) == [undisturbed, out]


def test_killed_after_the_last_step_it_cleans_up(
    tmp_path: Path, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, folder = tmp_path / "x.parquet", tmp_path / "x.parquet.parts"
    with monkeypatch.context() as patch:
        patch.setattr(collecting.shutil, "rmtree", lambda *_, **__: None)
        result = collect("GoToLocal", small_blocks + 1, 0, out)
    assert out.exists() and folder.exists()
    assert collect("GoToLocal", small_blocks + 1, 0, out) == result and not folder.exists()


# ---------------------------------------------------------------- full disks


@pytest.mark.skipif(os.name != "posix", reason="limits on files are the operating system's")
def test_no_room_for_a_part_or_for_the_whole(tmp_path: Path, small_blocks: int) -> None:
    out, soft_hard = tmp_path / "x.parquet", resource.getrlimit(resource.RLIMIT_FSIZE)
    whole = collect("BossLevel", 4 * small_blocks, 0, tmp_path / "undisturbed.parquet").path
    # A part is about a quarter of the whole, plus header.
    for limit in (1000, whole.stat().st_size - 10):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, soft_hard[1]))
        try:
            with pytest.raises(OSError, match=r"File too large; what is finished is kept in .*: make room, and run"):
                collect("BossLevel", 4 * small_blocks, 0, out, threads=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
        assert not out.exists() and not list(out.with_name("x.parquet.parts").glob("*.tmp"))
    assert len(list(out.with_name("x.parquet.parts").glob("*.parquet"))) == 4
    assert collect("BossLevel", 4 * small_blocks, 0, out).path.read_bytes() == whole.read_bytes()


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space left on device; what is finished is kept in") as caught:
            collect("GoToLocal", 5, 0, tmp_path / "x.parquet")
        assert caught.value.errno == errno.ENOSPC
    assert collect("GoToLocal", 5, 0, tmp_path / "x.parquet").demos == 5


def test_levels_of_ones_own_can_be_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from babyai.levels.catalog import LEVELS

    mine = replace(find_level("GoToLocal"), name="MyLocal", objects=3)
    out = tmp_path / "x.parquet"
    monkeypatch.setitem(LEVELS, "MyLocal", mine)
    assert collect(mine, 5, 0, out).demos == 5 and verify(out) is None
    monkeypatch.delitem(LEVELS, "MyLocal")
    with pytest.raises(DemoFileError, match=r"unknown level 'MyLocal'.*must be registered first"):
        DemoFile(out)
