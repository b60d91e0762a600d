"""The command `babyai` as a whole."""

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(os.name != "posix", reason="pipes break otherwise elsewhere")
@pytest.mark.parametrize("words", [["levels"], ["train", "ppo", "--help"]])
def test_whoever_has_read_enough_is_told_nothing(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "babyai.cli", *words], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
