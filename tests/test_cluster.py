"""Connecting to a Ray cluster: what cannot be reached is an error in seconds; tasks of a lost node run elsewhere."""

import os
import shlex
import socket
import sys
import time
from pathlib import Path

import pytest

from babyai import cli, cluster
from babyai.cluster import ClusterError, connect, map_tasks
from babyai.demos import collect as collecting
from babyai.demos.collect import collect
from tests.ray_cluster import is_busy, ray_cluster, wait_until


def connect_to(address: str) -> None:
    with connect(address):
        pytest.fail("there is no cluster")


def test_unreachable_clusters_are_named_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(cluster, "PROBE_SECONDS", 3.0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for address, message in (
            ("somewhere", "host:port.* not 'somewhere'"),
            ("127.0.0.1:port", "not '127.0.0.1:port'"),
            ("127.0.0.1:99999", "127.0.0.1:99999"),
            ("127.0.0.1:9", "127.0.0.1:9 .*refused"),
            (f"127.0.0.1:{port}", f"127.0.0.1:{port} within 3 s"),
        ):
            started = time.monotonic()
            with pytest.raises(ClusterError, match=message):
                connect_to(address)
            assert time.monotonic() - started < 10


def test_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"babyai\[cluster\]"):
        connect_to("auto")


def test_command_reports_an_unreachable_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    words = "babyai demos collect --levels GoToLocal --episodes 10 --out x.parquet --cluster 127.0.0.1:9"
    monkeypatch.setattr(sys, "argv", shlex.split(words))
    with pytest.raises(SystemExit, match=r"^babyai: no Ray cluster answers at 127\.0\.0\.1:9"):
        cli.main()
    # Finished blocks would be kept there.
    assert os.listdir(tmp_path) == ["x.parquet.parts"]
    with pytest.raises(ValueError, match="threads are for this machine"):
        collect("GoToLocal", 10, 0, tmp_path / "x.parquet", threads=1, cluster="auto")
    assert collect("GoToLocal", 10, 0, tmp_path / "x.parquet", threads=1).demos == 10


def fail_on_two(number: int) -> int:
    if number == 2:
        raise ValueError("two is not allowed")
    return 10 * number


@pytest.mark.long
def test_demonstrations_survive_the_loss_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(collecting, "BLOCK", 512)
    levels = ["GoToLocal", "BossLevel"]
    local = collect(levels, 8192, 0, tmp_path / "local.parquet")
    with ray_cluster(3) as (nodes, address):
        reports: list[int] = []

        def progress(done: int, total: int) -> None:
            reports.append(done)
            if len(reports) == 4:
                wait_until(lambda: is_busy(nodes[1]))
                nodes[1].kill()

        remote = collect(levels, 8192, 0, tmp_path / "remote.parquet", cluster=address, progress=progress)
        assert len(reports) == 33
        # An error in a task is not retried.
        with connect(address) as ray:
            assert sorted(map_tasks(ray, fail_on_two, [1, 3])) == [(1, 10), (3, 30)]
            with pytest.raises(ClusterError, match="two is not allowed"):
                list(map_tasks(ray, fail_on_two, [1, 2, 3]))
    assert (remote.demos, remote.unsolved) == (local.demos, local.unsolved)
    assert remote.path.read_bytes() == local.path.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["local.parquet", "remote.parquet"]
