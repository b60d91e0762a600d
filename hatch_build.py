"""The README as the package index shows it, where relative links lead nowhere.

If `[project.urls]` of pyproject.toml has a `Repository` (with GitHub's layout of addresses), relative links become
absolute. Without one, a link becomes its text, and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def for_package_index(readme: str, repository: str | None) -> str:
    """The README without relative links.

    Args:
        readme: The README, in Markdown.
        repository: Address of the repository; None if there is none.
    """

    def replace(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        if repository is None:
            return "" if picture else text
        return f"{picture}[{text}]({repository.rstrip('/')}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return LINK.sub(replace, readme)


class CustomMetadataHook(MetadataHookInterface):
    """Fills in the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when it builds the package."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = for_package_index(readme, metadata.get("urls", {}).get("Repository"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
