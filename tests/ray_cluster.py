"""A Ray cluster of several nodes on this machine, each with processes of its own."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import babyai

ROOT = Path(__file__).parents[1]
SOURCE = Path(babyai.__file__).parents[1]
MEMORY = 80 * 2**20


@dataclass
class Node:
    """A node of a cluster."""

    cluster: Any
    handle: Any

    def kill(self) -> None:
        """Kills all its processes."""
        self.cluster.remove_node(self.handle, allow_graceful=False)


@contextlib.contextmanager
def ray_cluster(nodes: int) -> Iterator[tuple[list[Node], str]]:
    """Starts a head without CPUs and `nodes` nodes with one CPU each; yields the nodes and the cluster's address."""
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    # What the processes of the nodes import.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(ROOT)])
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        added = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(nodes)]
        yield [Node(cluster, handle) for handle in added], cluster.address
    finally:
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def is_busy(node: Node) -> bool:
    """Whether a process of a node is executing a task."""
    import psutil

    (raylet,) = node.handle.all_processes["raylet"]
    names = []
    for process in psutil.Process(raylet.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(" ".join(process.cmdline()))
    return any(name.startswith("ray::") and not name.startswith("ray::IDLE") for name in names)


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, five minutes at most."""
    limit = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)
