"""Tasks on an existing Ray cluster. Ray is imported only when a cluster is used.

Every node needs babyai in the same version. Ray repeats the tasks of a lost node or a killed process elsewhere.
"""

import contextlib
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any, TypeVar

# How often a task is repeated because its node or its process was lost.
RETRIES = 10
# How long a cluster may take to answer, in seconds: its port, and Ray itself, which would wait for over a minute.
PORT_SECONDS = 5.0
PROBE_SECONDS = 30.0
PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"
# Tasks handed to Ray at a time, for each CPU of the cluster.
TASKS_PER_CPU = 4

Task = TypeVar("Task")


class ClusterError(RuntimeError):
    """A cluster that cannot be used, or a task that failed there."""


@contextlib.contextmanager
def connect(address: str) -> Iterator[Any]:
    """Connects this process to a Ray cluster, unless it is connected already; yields the module `ray`.

    Args:
        address: `host:port` of the cluster, or "auto" for the one that this machine belongs to.

    Raises:
        ClusterError: Ray is not installed, or no cluster answers there.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ClusterError("a cluster needs Ray: pip install 'babyai[cluster]'") from None
    if ray.is_initialized():
        yield ray
        return
    _check_port(address)
    _check_cluster(address)
    ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_port(address: str) -> None:
    """Raises if nothing listens at an address."""
    if address == "auto":
        return
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        raise ClusterError(
            f"the address of a Ray cluster is host:port, such as 10.0.0.1:6379, or auto, not {address!r}"
        )
    try:
        socket.create_connection((host, int(port)), PORT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error}); check the address, and that `ray start --head` runs there"
        ) from None


def _check_cluster(address: str) -> None:
    """Raises if Ray cannot connect, which is tried in another process: Ray ends the process in which it fails."""
    try:
        command = [sys.executable, "-c", PROBE, address]
        probe = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"no Ray cluster answers at {address} within {PROBE_SECONDS:.0f} s") from None
    if probe.returncode:
        reason = (probe.stderr.strip().splitlines() or ["no reason given"])[-1]
        hint = "; start one with `ray start --head`, or pass its address" if address == "auto" else ""
        raise ClusterError(f"cannot connect to the Ray cluster {address}: {reason}{hint}")


def count_resource(ray: Any, name: str) -> float:
    """How much of a resource the cluster has, such as "CPU" or "GPU"."""
    return ray.cluster_resources().get(name, 0.0)


def largest_node(ray: Any, name: str) -> float:
    """How much of a resource the node that has most of it has."""
    return max((node["Resources"].get(name, 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)


def own_version() -> str:
    """The version of babyai in this process, for `check_version`."""
    return version("babyai")


def check_version(expected: str) -> None:
    """Raises if this node has another version of babyai than the process that sent the task."""
    if own_version() != expected:
        node = socket.gethostname()
        raise ClusterError(f"the node {node} has babyai {own_version()}, not {expected}; install it on every node")


def explain(error: BaseException) -> str:
    """Why a task failed: the last line of Ray's report, which is the task's own error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def map_tasks(
    ray: Any, function: Callable[[Task], Any], tasks: Iterable[Task], cpus: float = 1
) -> Iterator[tuple[Task, Any]]:
    """Calls a function with each task somewhere in the cluster; yields tasks and results as they arrive.

    Args:
        ray: From `connect`.
        function: A function of a module.
        tasks: Its arguments, which can be pickled.
        cpus: How many CPUs a call occupies.

    Raises:
        ClusterError: A task failed, rather than its node.
    """
    remote = ray.remote(max_retries=RETRIES, num_cpus=cpus)(function)
    waiting = iter(tasks)
    limit = max(1, int(TASKS_PER_CPU * count_resource(ray, "CPU")))
    pending = {remote.remote(task): task for task in itertools.islice(waiting, limit)}
    while pending:
        (done, *_), _ = ray.wait(list(pending))
        task = pending.pop(done)
        try:
            result = ray.get(done)
        except ray.exceptions.RayError as error:
            raise ClusterError(f"a task failed on the cluster: {explain(error)}") from None
        pending |= {remote.remote(each): each for each in itertools.islice(waiting, 1)}
        yield task, result
