"""Runs the blocks of a page of the docs in order, in this interpreter: python -m tests.run_page PAGE [--libraries].

| block | what is done with it |
|---|---|
| ```python | executed; all of a page share one namespace |
| ```python file my_levels.py | written to that file |
| ```python needs minigrid | executed only with --libraries |
| ```console | commands `babyai ...` are executed, other programs are checked by tests/test_docs.py |
"""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURES = (".png", ".gif")


@dataclass(frozen=True)
class Block:
    """A fenced block: ```language note."""

    language: str
    note: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    blocks = []
    opened = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            lines.append(line)
        elif opened is None:
            opened = (number, *line[3:].partition(" ")[::2])
            lines = []
        else:
            start, language, note = opened
            blocks.append(Block(language, note.strip(), "\n".join(lines), start))
            opened = None
    assert opened is None, f"{page.name}: the block opened in line {opened} is not closed"
    return blocks


def commands_of(page: Path) -> list[list[str]]:
    """The command lines of a page, split into words, comments left out."""
    return [words for block in blocks_of(page) if block.language == "console" for words in command_lines(block)]


def command_lines(block: Block) -> list[list[str]]:
    return [words for line in block.text.splitlines() if (words := shlex.split(line, comments=True))]


def run_babyai(words: list[str]) -> None:
    """Runs a command, all but the long one; a picture that lies among the docs must be the one it makes."""
    from babyai import cli

    if words == ["quickstart"]:
        return
    pictures = [Path(word) for word in words if word.endswith(PICTURES)]
    for picture in pictures:
        picture.parent.mkdir(parents=True, exist_ok=True)
    sys.argv = ["babyai", *words]
    cli.main()
    for picture in pictures:
        if (ROOT / picture).exists():
            assert frames_of(picture) == frames_of(ROOT / picture), f"{picture} is out of date"


def frames_of(path: Path) -> list[bytes]:
    """The pixels of each frame of a picture."""
    from PIL import Image, ImageSequence

    with Image.open(path) as picture:
        return [frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(picture)]


def run_page(page: Path, libraries: bool) -> None:
    """Runs the blocks of a page; a traceback names the line of the page.

    Args:
        page: The page.
        libraries: Run the Python blocks that need other libraries, too, and no commands.
    """
    namespace: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    for block in blocks_of(page):
        if block.language == "console" and not libraries:
            for program, *words in command_lines(block):
                if program == "babyai":
                    run_babyai(words)
        elif block.language == "python" and block.note.startswith("file "):
            Path(block.note.removeprefix("file ")).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and (libraries or not block.note.startswith("needs ")):
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    run_page(Path(sys.argv[1]), "--libraries" in sys.argv[2:])
