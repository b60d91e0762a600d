"""Forged snapshots and level settings: refused, or used without a crash. Each attack is a process that must survive."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def attack(module: str, count: int, seed: int = 0, **environment: str) -> dict[str, int]:
    """Runs an attack; returns what it counted."""
    command = [sys.executable, "-m", f"tests.attacks.{module}", str(count), str(seed)]
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"
    return {name: int(number) for name, number in re.findall(r"([a-z]+) (\d+)", done.stdout)}


@pytest.mark.compiled
@pytest.mark.parametrize("module", ["snapshots", pytest.param("levels", marks=pytest.mark.long)])
def test_a_short_attack_is_survived(module: str) -> None:
    counted = attack(module, 1000)
    assert counted["refused"] > 300 and sum(counted.values()) > counted["refused"]


@pytest.mark.long
@pytest.mark.parametrize(("module", "checked"), [("snapshots", "0"), ("snapshots", "1"), ("levels", "1")])
def test_a_hundred_thousand_forgeries_are_survived(module: str, checked: str) -> None:
    """With bounds checks on, a read or write outside a record that does not crash is an error, too."""
    counted = attack(module, 100_000, seed=1, NUMBA_BOUNDSCHECK=checked)
    assert counted["refused"] > 30_000
