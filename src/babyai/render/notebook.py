"""HTML for notebooks: pictures, tables and curves, for the `_repr_html_` of environments, agents, demos and runs."""

import base64
import html
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from babyai.render.scene import Scene
from babyai.text.view import describe_view

CURVE_WIDTH = 360
CURVE_HEIGHT = 80


def html_figure(frame: np.ndarray, caption: str, alternative: str) -> str:
    """A frame, (H, W, 3) uint8, with a caption, and with words for those who cannot see it."""
    from babyai.render.picture import png_bytes

    png = base64.b64encode(png_bytes(frame)).decode()
    image = f'<img src="data:image/png;base64,{png}" alt="{html.escape(alternative)}" style="max-width:100%">'
    words = html.escape(caption)
    return f'<figure style="margin:0;display:inline-block">{image}<figcaption>{words}</figcaption></figure>'


def html_scene(scene: Scene, title: str = "", tile_size: int | None = None) -> str:
    """A scene as a picture."""
    from babyai.render.film import draw_scene

    words = [scene.mission, f"step {scene.step} of {scene.max_steps}", scene.verdict, *describe_view(scene.view)]
    return html_figure(draw_scene(scene, title, tile_size), scene.mission, ". ".join(filter(None, words)))


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """A table with two columns, names and values."""
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(_format(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption><b>{html.escape(title)}</b></caption>{cells}</table>"


def html_curve(name: str, values: Sequence[float]) -> str:
    """A curve as an inline picture, with its first and last value in words."""
    low = min(values)
    span = max(values) - low or 1.0
    last = max(1, len(values) - 1)
    points = " ".join(
        f"{4 + (CURVE_WIDTH - 8) * k / last:.1f},{CURVE_HEIGHT - 4 - (CURVE_HEIGHT - 8) * (value - low) / span:.1f}"
        for k, value in enumerate(values)
    )
    caption = html.escape(f"{name}: from {_format(values[0])} to {_format(values[-1])} in {len(values)} rows")
    return (
        f'<figure style="margin:0.5em 0"><svg width="{CURVE_WIDTH}" height="{CURVE_HEIGHT}" role="img" '
        f'aria-label="{caption}"><polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f"</svg><figcaption>{caption}</figcaption></figure>"
    )


def _format(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


# ------------------------------------------------------------ Gymnasium's wrappers


def register_with_ipython() -> None:
    """Makes notebooks show a wrapped environment like the environment in it; does nothing elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        for module, name in (("gymnasium.core", "Wrapper"), ("gymnasium.vector.vector_env", "VectorWrapper")):
            formatter.for_type_by_name(module, name, html_of_wrapper)


def html_of_wrapper(env: Any) -> str | None:
    """The HTML of the environment inside a wrapper; None if it has none."""
    show = getattr(env.unwrapped, "_repr_html_", None)
    return None if show is None else show()
