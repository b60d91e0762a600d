"""Collecting gives the same file for any number of threads and after any interruption, and survives a full disk."""

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


def test_rows_are_episodes_of_the_expert(small_file: Path) -> None:
    with DemoFile(small_file) as file:
        assert verify(small_file) is None
        count = len(file) // 2
        assert [demo.level for demo in file] == ["GoToLocal"] * count + ["BossLevel"] * count
        assert file.read().seeds.tolist() == [*range(100, 100 + count)] * 2
        *_, engine = play_demo(file[0], "paper")
        assert engine.done[0] and engine.rewards[0] == file[0].reward > 0


@pytest.mark.usefixtures("small_blocks")
def test_result_does_not_depend_on_threads_or_repetition(tmp_path: Path) -> None:
    count = scaled(300, 5)
    reports = []
    one = collect(["GoToLocal", "Open"], count, 7, tmp_path / "one.parquet", threads=1)
    two = collect(
        ["GoToLocal", "Open"], count, 7, tmp_path / "two.parquet", threads=2, progress=lambda *now: reports.append(now)
    )
    assert one.demos == two.demos == 2 * count and one.unsolved == {}
    assert one.path.read_bytes() == two.path.read_bytes()
    assert reports[0] == (0, 2 * count) and reports[-1] == (2 * count, 2 * count)
    # If the file exists, collecting it again changes nothing.
    again = collect(["GoToLocal", "Open"], count, 7, tmp_path / "one.parquet")
    assert again == one and sorted(tmp_path.iterdir()) == [one.path, two.path]


def test_invalid_arguments_are_rejected(tmp_path: Path, small_file: Path) -> None:
    out = tmp_path / "x.parquet"
    for levels, episodes, first_seed, message in (
        ("GoToLocl", 1, 0, "did you mean 'GoToLocal'"),
        ("GoToLocal", 0, 0, "at least one .* 1 and 0$"),
        ("GoToLocal", 1, -1, "seed .* -1$"),
        ("GoToLocal", 2, 2**63 - 1, f"seed .* {2**63}$"),
        (["GoToLocal", "GoToLocal"], 1, 0, "only once.* GoToLocal, GoToLocal"),
    ):
        with pytest.raises(ValueError, match=message):
            collect(levels, episodes, first_seed, out)
    with pytest.raises(DemoFileError, match=r"small\.parquet already exists with other demonstrations"):
        collect("GoToLocal", 3, 0, small_file)
    assert not list(tmp_path.iterdir())


def test_seeds_on_which_the_expert_fails_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demonstrate = ExpertBatch.demonstrate

    def fail_sometimes(self: ExpertBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        actions, lengths, rewards = demonstrate(self)
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
    """Stands for an interruption."""


def stop_after(count: int):
    def progress(done: int, total: int) -> None:
        if done >= count:
            raise Stop

    return progress


def test_unfinished_work_with_other_arguments_is_not_touched(tmp_path: Path, small_blocks: int) -> None:
    out = tmp_path / "x.parquet"
    folder = tmp_path / "x.parquet.parts"
    count = 3 * small_blocks + 1
    with pytest.raises(Stop):
        collect("GoToLocal", count, 0, out, threads=1, progress=stop_after(2 * small_blocks))
    parts = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert len(parts) >= 3 and not out.exists()
    for arguments, difference in (
        (("GoToLocal", count + 1, 0), f"episodes was {count}, is {count + 1}"),
        (("GoToLocal", count, 5), "first_seed was 0, is 5"),
        (("Open", count, 0), "its levels or rules differ"),
    ):
        with pytest.raises(DemoFileError, match=rf"unfinished work .*\({difference}\)"):
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


def test_error_names_a_damaged_part(tmp_path: Path, small_blocks: int) -> None:
    out = tmp_path / "x.parquet"
    count = 3 * small_blocks + 1
    with pytest.raises(Stop):
        collect("GoToLocal", count, 0, out, threads=1, progress=stop_after(2 * small_blocks))
    part = tmp_path / "x.parquet.parts" / "000-000001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:50])
    with pytest.raises(DemoFileError, match=r"truncated.* delete .*000-000001\.parquet"):
        collect("GoToLocal", count, 0, out)
    part.unlink()
    assert collect("GoToLocal", count, 0, out).demos == count and verify(out) is None


def test_existing_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.parquet.parts").mkdir()
    (tmp_path / "x.parquet.parts" / "diary.txt").write_text("dear diary")
    with pytest.raises(DemoFileError, match=r"x\.parquet\.parts .*other files"):
        collect("GoToLocal", 2, 0, tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet.parts" / "diary.txt").read_text() == "dear diary"


SCRIPT = """
import sys
from babyai.demos import collect as collecting
out, count, threads, block = sys.argv[1], *map(int, sys.argv[2:])
collecting.BLOCK = block
collecting.collect(["GoToLocal", "BossLevel"], count, 0, out, threads=threads)
"""


def start(out: Path, count: int, threads: int, block: int) -> subprocess.Popen[bytes]:
    """Starts collecting in another process."""
    path = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-c", SCRIPT, str(out), str(count), str(threads), str(block)]
    return subprocess.Popen(arguments, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, stderr=subprocess.PIPE)


@pytest.mark.skipif(os.name != "posix", reason="file locks need POSIX")
def test_second_process_is_rejected_while_the_first_is_collecting(tmp_path: Path, small_blocks: int) -> None:
    out = tmp_path / "x.parquet"
    count = 2 * small_blocks
    outcomes = []

    def start_second(done: int, total: int) -> None:
        if not outcomes:
            process = start(out, count, threads=1, block=small_blocks)
            _, stderr = process.communicate()
            outcomes.append((process.returncode, stderr.decode()))

    assert collect(["GoToLocal", "BossLevel"], count, 0, out, progress=start_second).demos == 2 * count
    [(returncode, stderr)] = outcomes
    assert returncode == 1 and "DemoFileError: another process is collecting" in stderr


@pytest.mark.skipif(os.name != "posix", reason="file locks need POSIX")
def test_second_call_is_rejected_while_the_first_is_collecting(tmp_path: Path, small_blocks: int) -> None:
    out = tmp_path / "x.parquet"
    rejections = []

    def call_again(done: int, total: int) -> None:
        with pytest.raises(DemoFileError, match="another process is collecting") as caught:
            collect("GoToLocal", 2 * small_blocks, 0, out)
        rejections.append(caught)

    assert collect("GoToLocal", 2 * small_blocks, 0, out, progress=call_again).demos == 2 * small_blocks and rejections


@pytest.mark.compiled
@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGKILL")
@pytest.mark.long
def test_collecting_resumes_after_being_killed_at_any_moment(tmp_path: Path, small_blocks: int) -> None:
    count = 1500
    rng = random.Random(0)
    uninterrupted = collect(["GoToLocal", "BossLevel"], count, 0, tmp_path / "uninterrupted.parquet", threads=2).path
    out = tmp_path / "x.parquet"
    folder = tmp_path / "x.parquet.parts"
    kills = 0
    # At a random moment after this many parts, and while the parts are joined into one file.
    for goal in (1, 12, 30, "whole"):
        process = start(out, count, threads=1 + kills % 2, block=small_blocks)
        while process.poll() is None:
            parts = len(list(folder.glob("*.parquet"))) if folder.exists() else 0
            if (folder / "whole.tmp").exists() if goal == "whole" else parts >= int(goal):
                break
            time.sleep(0.001)
        if goal != "whole":
            time.sleep(rng.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert not out.exists() or goal == "whole"
    assert kills >= 3
    process = start(out, count, threads=2, block=small_blocks)
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr.decode()
    assert out.read_bytes() == uninterrupted.read_bytes()
    assert sorted(tmp_path.iterdir()) == [uninterrupted, out]


def test_leftover_parts_of_a_finished_file_are_removed(
    tmp_path: Path, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.parquet"
    folder = tmp_path / "x.parquet.parts"
    with monkeypatch.context() as patch:
        patch.setattr(collecting.shutil, "rmtree", lambda *_, **__: None)
        result = collect("GoToLocal", small_blocks + 1, 0, out)
    assert out.exists() and folder.exists()
    assert collect("GoToLocal", small_blocks + 1, 0, out) == result and not folder.exists()


# ---------------------------------------------------------------- full disks


@pytest.mark.skipif(os.name != "posix", reason="file size limits need POSIX")
def test_no_space_for_a_part_or_for_the_joined_file(tmp_path: Path, small_blocks: int) -> None:
    out = tmp_path / "x.parquet"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    whole = collect("BossLevel", 4 * small_blocks, 0, tmp_path / "uninterrupted.parquet").path
    # A part is about a quarter of the whole file, plus the header.
    for limit in (1000, whole.stat().st_size - 10):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            with pytest.raises(OSError, match=r"File too large.* kept in .*x\.parquet\.parts: free some space"):
                collect("BossLevel", 4 * small_blocks, 0, out, threads=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not out.exists() and not list(out.with_name("x.parquet.parts").glob("*.tmp"))
    assert len(list(out.with_name("x.parquet.parts").glob("*.parquet"))) == 4
    assert collect("BossLevel", 4 * small_blocks, 0, out).path.read_bytes() == whole.read_bytes()


def test_full_disk_is_reported_and_collecting_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=r"No space left on device.* kept in .*x\.parquet\.parts") as caught:
            collect("GoToLocal", 5, 0, tmp_path / "x.parquet")
        assert caught.value.errno == errno.ENOSPC
    assert collect("GoToLocal", 5, 0, tmp_path / "x.parquet").demos == 5


def test_custom_levels_can_be_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from babyai.levels.catalog import LEVELS

    custom = replace(find_level("GoToLocal"), name="MyLocal", objects=3)
    out = tmp_path / "x.parquet"
    monkeypatch.setitem(LEVELS, "MyLocal", custom)
    assert collect(custom, 5, 0, out).demos == 5 and verify(out) is None
    monkeypatch.delitem(LEVELS, "MyLocal")
    with pytest.raises(DemoFileError, match=r"unknown level 'MyLocal'.*registered"):
        DemoFile(out)
