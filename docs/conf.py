"""Sphinx configuration: `make docs` builds these pages as a site, in build/site.

`docs/index.md` is the source of the navigation: each section becomes a group, each link an entry. Pages that follow
from the code (one per level, the commands, the API) are written by `site_pages.py` when the site is built.
"""

import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import site_pages  # noqa: E402

from babyai import __version__  # noqa: E402
from babyai.levels.catalog import LEVELS  # noqa: E402
from babyai.training import options as training_options  # noqa: E402

project = "babyai"
author = "The babyai developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**.ipynb_checkpoints"]
# Levels that links may name: `levels.md#how-to`.
myst_heading_anchors = 4
# Single backticks in docstrings are code.
default_role = "literal"
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# The commands are highlighted as what they are typed into; plain blocks not at all.
highlight_language = "text"

html_theme = "furo"
html_title = "babyai"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/favicon.svg"
# Nothing is fetched from elsewhere when a page is viewed.
html_theme_options = {"footer_icons": [], "navigation_with_keys": True}


def write_pages(app: Sphinx) -> None:
    """Writes the pages that follow from the code, before pages are collected."""
    site_pages.write_all(Path(app.srcdir))


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Adds to index.md the navigation that its sections describe, and to levels.md links to the pages of levels."""
    source[0] = plain_links(source[0])
    if name == "index":
        source[0] += "\n".join(navigation(source[0]))
    elif name == "levels":
        source[0] = link_levels(source[0]) + toctree("", [f"levels/{level}" for level in LEVELS])


def navigation(index: str) -> list[str]:
    """A hidden table of contents for each section of the index."""
    groups = []
    for section in index.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        pages = [
            page.removesuffix(".md") for page in re.findall(r"^\* \[[^]]*\]\(([^)]+\.md)\)", section, re.MULTILINE)
        ]
        pages += site_pages.REFERENCE if title == "Reference" else []
        groups += [toctree(title, pages)] if pages else []
    return groups


def toctree(title: str, pages: list[str]) -> str:
    """A table of contents that only shows in the navigation."""
    lines = ["```{toctree}", ":hidden:", *([f":caption: {title}"] if title else []), "", *pages, "```"]
    return "\n\n" + "\n".join(lines) + "\n"


def link_levels(page: str) -> str:
    """Links the names in the table of levels to their pages."""
    return re.sub(r"^\| (\**)(\w+)(\**) (?=\| \d)", r"| \1[\2](levels/\2.md)\3 ", page, flags=re.MULTILINE)


def plain_links(page: str) -> str:
    """Names files of the repository that are not pages of the site, instead of linking to them."""
    return re.sub(r"\[([^]]+)\]\(\.\./([^)#]+)[^)]*\)", r"\1 (`\2` in the repository)", page)


def keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Starts the docstring of a field with nothing, or Napoleon would take "Device" in "Device: auto" for a type."""
    if what in ("attribute", "data", "property"):
        lines.insert(0, "\\ ")


def show_code(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Marks an indented paragraph of a docstring as code; in reStructuredText it would be a quotation."""
    before = "x"  # the last line that is not empty
    marked: list[str] = []
    for line in lines:
        if line.startswith("    ") and not before.startswith((" ", "*")) and marked and not marked[-1]:
            marked += ["::", ""]
        marked.append(line)
        before = line or before
    lines[:] = marked


def strip_annotations(module: ModuleType) -> None:
    """Removes from the fields of dataclasses what only the command line needs: Annotated[int, ...] becomes int."""
    for value in vars(module).values():
        if isinstance(value, type) and is_dataclass(value):
            hints = get_type_hints(value)
            for annotated in (value, value.__init__):
                own = {name: hints[name] for name in annotated.__annotations__ if name in hints}
                annotated.__annotations__ = annotated.__annotations__ | own


def setup(app: Sphinx) -> None:
    """Registers the steps above."""
    # Before Napoleon, which has the default priority.
    app.connect("autodoc-process-docstring", keep_colons, priority=100)
    app.connect("autodoc-process-docstring", show_code, priority=101)
    strip_annotations(training_options)
    app.connect("builder-inited", write_pages)
    app.connect("source-read", add_navigation)
