"""A scene on a terminal of at least 80 x 24 characters: the world, and next to it what a player must know."""

import shutil
import textwrap

from babyai.render.scene import Scene
from babyai.render.text import draw_text

CLEAR = "\x1b[H\x1b[2J"
BOLD = "1"
# ANSI styles of the verdict, by outcome; the words say the same.
STYLES = {"success": "1;30;42", "failure": "1;37;41", "timeout": "1;37;41"}
GAP = 2
# The symbols that `babyai.levels.layout` defines.
SYMBOLS = (
    "o ball  k key  x box  ## wall",
    "d door  l locked  / open  >> you",
    "r g b p y: colors, a: grey",
)


def draw_screen(
    scene: Scene,
    *,
    title: str = "",
    keys: tuple[str, ...] = (),
    note: str = "",
    color: bool = True,
    size: tuple[int, int] | None = None,
) -> str:
    """The world on the left, and on the right: level, seed, mission, step, action, carried object, verdict, symbols.

    Nothing is wider or higher than the terminal, as long as that has 80 x 24 characters. What does not fit is left out
    from the end: first empty lines, then the keys, then the symbols; never the mission.

    Args:
        scene: What to show.
        title: Who plays, say.
        keys: Lines that explain keys.
        note: A message to the player.
        color: Whether to use ANSI styles.
        size: Columns and lines of the terminal; default: what the terminal says, or else 80 x 24.

    Returns:
        Lines separated by newlines, at most one less than the terminal has.
    """
    columns, lines = size or tuple(shutil.get_terminal_size((80, 24)))
    grid = draw_text(scene.world, color=color).split("\n")
    grid_width = 2 * int(scene.world.width)
    width = max(20, columns - grid_width - GAP)
    panel = _fit(_sections(scene, title, keys, note, width), lines - 1)
    panel = [_style(line, style, color) for line, style in panel]
    height = max(len(grid), len(panel))
    grid += [" " * grid_width] * (height - len(grid))
    panel += [""] * (height - len(panel))
    return "\n".join(f"{left}{' ' * GAP}{right}".rstrip() for left, right in zip(grid, panel, strict=True))


# A line and its ANSI style, if any.
_Line = tuple[str, str]


def _sections(scene: Scene, title: str, keys: tuple[str, ...], note: str, width: int) -> list[list[_Line]]:
    """Groups of lines, the most important first."""

    def wrap(text: str, style: str = "") -> list[_Line]:
        return [(line, style) for line in textwrap.wrap(text, width)]

    heading = ", ".join(filter(None, [title, scene.level, f"seed {scene.seed}"]))
    action = f", {scene.action.name}" if scene.action is not None else ""
    status = [
        *wrap(f"step {scene.step} of {scene.max_steps}{action}"),
        *wrap(f"carrying {scene.carried}"),
    ]
    verdict = wrap(scene.verdict, STYLES.get(scene.outcome, "")) + wrap(note)
    return [
        wrap(heading) + wrap(f"mission: {scene.mission}", BOLD),
        status + verdict,
        [line for text in SYMBOLS for line in wrap(text)],
        [line for text in keys for line in wrap(text)],
    ]


def _fit(sections: list[list[_Line]], height: int) -> list[_Line]:
    """The lines of all sections, with empty lines between them if there is space, at most `height`."""
    sections = [section for section in sections if section]
    spare = height - sum(map(len, sections))
    lines: list[_Line] = []
    for number, section in enumerate(sections):
        if number and spare > 0:
            lines.append(("", ""))
            spare -= 1
        lines += section
    return lines[:height]


def _style(text: str, style: str, color: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if color and style and text else text
